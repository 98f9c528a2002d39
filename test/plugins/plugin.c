/* A device library with faults on demand, one -D switch each; without any it is a working device like "fake".
 *
 * DEVICE_NAME, VENDOR, DEVICES      what it says about itself
 * ABI_MAJOR, ABI_MINOR              the version it says it speaks
 * PLUGIN_SIZE, CORE_SIZE            the struct_size it declares
 * NEWER_MINOR                       as compiled with a later header: longer structs, more slots
 * OLDER_MINOR                       as compiled with an earlier header: slots past struct_size must not be called
 * NO_ENTRY                          a shared library that is no plugin
 * ENTRY_FAILS=text, ENTRY_SILENT    the entry refuses, with and without a reason
 * NO_CORE, UNSET_COPY, HALF_ASYNC   incomplete tables
 * KERNELS                           it has kernels, see kernels.h
 * COUNT_FAILS, PROPERTIES_FAIL, BAD_ALIGNMENT, INITIALIZE_FAILS    slots that fail
 *
 * and the mistakes of beginners:
 * ENTRY_CRASHES, INITIALIZE_CRASHES, INITIALIZE_EXITS, EXIT_CRASHES, COUNT_BLOCKS, INITIALIZE_BLOCKS
 * GARBAGE_PROPERTIES                properties that were never filled
 * FREES_TWICE, SKIPS_COPIES         memory_free and memory_copy that do more and less than they should
 * WRONG_SIGNATURE                   a function that does not have its slot's parameters, behind a cast
 * INITIALIZE_REFUSES                the user may not open the device
 * OPTION_KEYS="a","b"               the options that it says it has */
#define _POSIX_C_SOURCE 200112L /* posix_memalign */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "torch_backend/device.h"

#ifndef DEVICE_NAME
#define DEVICE_NAME "acme"
#endif
#ifndef VENDOR
#define VENDOR "Acme"
#endif
#ifndef DEVICES
#define DEVICES 1
#endif
#ifndef ABI_MAJOR
#define ABI_MAJOR TB_ABI_MAJOR
#endif
#ifdef NEWER_MINOR
#define ABI_MINOR (TB_ABI_MINOR + 7)
#elif !defined(ABI_MINOR)
#define ABI_MINOR TB_ABI_MINOR
#endif

#ifdef NO_ENTRY
int not_a_plugin(void) {
  return 0;
}
#else

static const tb_host* host;

static void block(void) {
  for (;;) pause();
}

static tb_status device_count(int32_t* out_count) {
#ifdef COUNT_BLOCKS
  block();
#endif
#ifdef COUNT_FAILS
  (void)out_count;
  return host->fail(TB_STATUS_INTERNAL, "the driver does not answer");
#else
  const char* devices = host->option(DEVICE_NAME ".devices");
  *out_count = devices ? atoi(devices) : DEVICES;
  return TB_STATUS_OK;
#endif
}

static tb_status device_properties(int32_t device, tb_device_properties* out_properties) {
#ifdef PROPERTIES_FAIL
  (void)out_properties;
  return host->fail(TB_STATUS_INTERNAL, "device %d has no identity", (int)device);
#else
  tb_device_properties properties;
  memset(&properties, 0, sizeof properties);
  (void)device;
  properties.struct_size = sizeof properties;
  strcpy(properties.name, VENDOR " " DEVICE_NAME);
  strcpy(properties.arch, DEVICE_NAME "_v1");
  properties.total_memory_bytes = (uint64_t)1 << 30;
#ifdef BAD_ALIGNMENT
  properties.allocation_alignment_bytes = 3;
#else
  properties.allocation_alignment_bytes = 64;
#endif
  properties.capability_major = 1;
  properties.capability_minor = 2;
  properties.multiprocessor_count = 4;
  properties.warp_size = 1;
  properties.numa_node = -1;
#ifdef NO_FLOAT16
  properties.dtype_mask[TB_DTYPE_MASK_WORD(TB_DTYPE_FLOAT, 32)] |= TB_DTYPE_MASK_FLAG(TB_DTYPE_FLOAT, 32);
  properties.dtype_mask[TB_DTYPE_MASK_WORD(TB_DTYPE_BFLOAT, 16)] |= TB_DTYPE_MASK_FLAG(TB_DTYPE_BFLOAT, 16);
#endif
#ifdef GARBAGE_PROPERTIES
  memset(&properties, 0xab, sizeof properties);
#endif
  const uint64_t room = out_properties->struct_size;
  memcpy(out_properties, &properties, room < sizeof properties ? room : sizeof properties);
  if (room < sizeof properties) out_properties->struct_size = room;
  return TB_STATUS_OK;
#endif
}

static tb_status memory_allocate(int32_t device, uint32_t kind, uint64_t size_bytes, tb_stream* stream,
                                 void** out_ptr) {
  void* ptr;
  (void)device, (void)stream;
  if (kind != TB_MEMORY_DEVICE) return TB_STATUS_UNSUPPORTED;
  if (posix_memalign(&ptr, 64, (size_t)size_bytes) != 0)
    return host->fail(TB_STATUS_OUT_OF_MEMORY, "no room for %llu bytes", (unsigned long long)size_bytes);
  *out_ptr = ptr;
  return TB_STATUS_OK;
}

static tb_status memory_free(int32_t device, uint32_t kind, void* ptr, uint64_t size_bytes, tb_stream* stream) {
  (void)device, (void)kind, (void)size_bytes, (void)stream;
#ifdef FREES_TWICE
  free(ptr);
#endif
  free(ptr);
  return TB_STATUS_OK;
}

static tb_status memory_copy(int32_t dst_device, void* dst, int32_t src_device, const void* src, uint64_t size_bytes,
                             uint32_t kind, tb_stream* stream) {
  (void)dst_device, (void)src_device, (void)stream;
  if (kind < TB_COPY_HOST_TO_DEVICE || kind > TB_COPY_DEVICE_TO_DEVICE) return TB_STATUS_UNSUPPORTED;
#ifndef SKIPS_COPIES
  memcpy(dst, src, (size_t)size_bytes);
#endif
  return TB_STATUS_OK;
}

#ifdef WRONG_SIGNATURE
static tb_status copy_without_devices(void* dst, const void* src, uint64_t size_bytes) {
  memcpy(dst, src, (size_t)size_bytes);
  return TB_STATUS_OK;
}
typedef tb_status (*copy_function)(int32_t, void*, int32_t, const void*, uint64_t, uint32_t, tb_stream*);
#endif

static tb_status initialize(void) {
#if defined(INITIALIZE_CRASHES)
  raise(SIGSEGV);
#elif defined(INITIALIZE_EXITS)
  fputs("no license\n", stderr);
  exit(3);
#elif defined(INITIALIZE_BLOCKS)
  block();
#elif defined(INITIALIZE_FAILS)
  return host->fail(TB_STATUS_INTERNAL, "the firmware is missing");
#elif defined(INITIALIZE_REFUSES)
  return host->fail(TB_STATUS_INTERNAL, "/dev/acme0: Permission denied");
#endif
  return TB_STATUS_OK;
}

#ifdef EXIT_CRASHES
__attribute__((destructor)) static void at_exit(void) {
  raise(SIGSEGV);
}
#endif

#ifdef HALF_ASYNC
static tb_status stream_create(int32_t device, int32_t priority, tb_stream** out_stream) {
  (void)device, (void)priority, (void)out_stream;
  return TB_STATUS_INTERNAL;
}
static tb_status stream_destroy(int32_t device, tb_stream* stream) {
  (void)device, (void)stream;
  return TB_STATUS_OK;
}
#endif

#ifdef OLDER_MINOR
#undef CORE_SIZE
#define CORE_SIZE offsetof(tb_core_table, initialize)
#undef PLUGIN_SIZE
#define PLUGIN_SIZE offsetof(tb_plugin, table)
/* What lies behind an older table is no slot. */
static tb_status never(int32_t device) {
  (void)device;
  abort();
}
static tb_status never_initialize(void) {
  abort();
}
static const void* never_table(const char* name) {
  (void)name;
  abort();
}
#endif

#ifdef KERNELS
#include "kernels.h"
#endif

/* As a later header might declare them: the same slots first. */
static const struct {
  tb_core_table core;
  void (*future[4])(void);
} core_table = {
    .core =
        {
#ifdef CORE_SIZE
            .struct_size = CORE_SIZE,
#elif defined(NEWER_MINOR)
            .struct_size = sizeof core_table,
#else
            .struct_size = sizeof(tb_core_table),
#endif
            .device_count = device_count,
            .device_properties = device_properties,
            .memory_allocate = memory_allocate,
            .memory_free = memory_free,
#ifdef WRONG_SIGNATURE
            .memory_copy = (copy_function)copy_without_devices,
#elif !defined(UNSET_COPY)
            .memory_copy = memory_copy,
#endif
#ifndef OLDER_MINOR
            .initialize = initialize,
#endif
#ifdef HALF_ASYNC
            .stream_create = stream_create,
            .stream_destroy = stream_destroy,
#endif
#ifdef OLDER_MINOR
            .initialize = never_initialize,
            .thread_bind = never,
            .device_synchronize = never,
#endif
        },
#ifdef NEWER_MINOR
    .future = {abort, abort, abort, abort},
#endif
};

static const struct {
  tb_plugin plugin;
  const void* future[4];
} plugin = {
    .plugin =
        {
#ifdef PLUGIN_SIZE
            .struct_size = PLUGIN_SIZE,
#elif defined(NEWER_MINOR)
            .struct_size = sizeof plugin,
#else
            .struct_size = sizeof(tb_plugin),
#endif
            .abi_major = ABI_MAJOR,
            .abi_minor = ABI_MINOR,
            .name = DEVICE_NAME,
            .vendor = VENDOR,
            .version = "1.2.3",
#ifndef NO_CORE
            .core = &core_table.core,
#endif
#ifdef OLDER_MINOR
            .table = never_table,
#elif defined(KERNELS)
            .table = table,
#endif
#ifdef OPTION_KEYS
            .option_keys = (const char* const[]){OPTION_KEYS, NULL},
#endif
        },
};

const tb_plugin* tb_plugin_entry(const tb_host* the_host) {
  host = the_host;
#ifdef ENTRY_CRASHES
  raise(SIGSEGV);
#endif
#ifdef ENTRY_FAILS
  host->fail(TB_STATUS_INTERNAL, ENTRY_FAILS);
  return NULL;
#elif defined(ENTRY_SILENT)
  return NULL;
#else
  return &plugin.plugin;
#endif
}
#endif
