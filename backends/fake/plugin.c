/* The smallest device: the five required functions and nothing else. A device of your own starts like this one: replace
 * what each function does by a call to your driver.
 *
 * "fake" keeps its memory in the host's heap but does not say so (no TB_CAP_HOST_ACCESS): the core must bring every
 * byte in and out through memory_copy, as it must for a device with memory of its own. */
#define _POSIX_C_SOURCE 200112L /* posix_memalign */
#include <stdlib.h>
#include <string.h>

#include "torch_backend/device.h"

#define ALIGNMENT 64

static const tb_host* host; /* kept for host->fail, host->log and host->option */
static int32_t num_devices = 1;

static tb_status device_count(int32_t* out_count) {
  *out_count = num_devices;
  return TB_STATUS_OK;
}

static tb_status device_properties(int32_t device, tb_device_properties* out_properties) {
  /* What is not named here is zero: no capability, no preference, every dtype. */
  const tb_device_properties properties = {
      .struct_size = sizeof properties,
      .name = "Fake device",
      .total_memory_bytes = (uint64_t)4 << 30,
      .allocation_alignment_bytes = ALIGNMENT,
      .capability_major = 1,
      .multiprocessor_count = 1,
      .warp_size = 1,
      .numa_node = -1,
  };
  /* The caller may have been compiled with an older header, whose struct is shorter. */
  const uint64_t room = out_properties->struct_size;
  (void)device; /* all devices are alike */
  memcpy(out_properties, &properties, room < sizeof properties ? room : sizeof properties);
  if (room < sizeof properties) out_properties->struct_size = room; /* what was filled */
  return TB_STATUS_OK;
}

static tb_status memory_allocate(int32_t device, uint32_t kind, uint64_t size_bytes, tb_stream* stream,
                                 void** out_ptr) {
  void* ptr;
  (void)stream; /* always NULL: the device is not asynchronous */
  if (kind != TB_MEMORY_DEVICE) return host->fail(TB_STATUS_UNSUPPORTED, "fake: no memory of kind %u", (unsigned)kind);
  if (size_bytes > SIZE_MAX || posix_memalign(&ptr, ALIGNMENT, (size_t)size_bytes) != 0)
    return host->fail(TB_STATUS_OUT_OF_MEMORY, "fake:%d: no room for %llu bytes", (int)device,
                      (unsigned long long)size_bytes);
  *out_ptr = ptr;
  return TB_STATUS_OK;
}

static tb_status memory_free(int32_t device, uint32_t kind, void* ptr, uint64_t size_bytes, tb_stream* stream) {
  (void)device, (void)kind, (void)size_bytes, (void)stream;
  free(ptr);
  return TB_STATUS_OK;
}

static tb_status memory_copy(int32_t dst_device, void* dst, int32_t src_device, const void* src, uint64_t size_bytes,
                             uint32_t kind, tb_stream* stream) {
  (void)dst_device, (void)src_device, (void)stream;
  switch (kind) {
    case TB_COPY_HOST_TO_DEVICE:
    case TB_COPY_DEVICE_TO_HOST:
    case TB_COPY_DEVICE_TO_DEVICE:
      memcpy(dst, src, (size_t)size_bytes);
      return TB_STATUS_OK;
    default: /* TB_COPY_PEER needs TB_CAP_PEER; other kinds may be added to the ABI later */
      return host->fail(TB_STATUS_UNSUPPORTED, "fake: no copy of kind %u", (unsigned)kind);
  }
}

/* Slots that are not named are NULL: the core then uses its default, which device.h describes for each. */
static const tb_core_table core_table = {
    .struct_size = sizeof(tb_core_table),
    .device_count = device_count,
    .device_properties = device_properties,
    .memory_allocate = memory_allocate,
    .memory_free = memory_free,
    .memory_copy = memory_copy,
};

static const char* const option_keys[] = {"devices", NULL};

static const tb_plugin plugin = {
    .struct_size = sizeof(tb_plugin),
    .abi_major = TB_ABI_MAJOR,
    .abi_minor = TB_ABI_MINOR,
    .name = "fake", /* torch.device("fake") */
    .vendor = "torch_backend",
    .version = "1.0",
    .core = &core_table,
    .option_keys = option_keys,
};

const tb_plugin* tb_plugin_entry(const tb_host* the_host) {
  const char* devices = the_host->option("fake.devices"); /* or the environment's TORCH_BACKEND_FAKE_DEVICES */
  host = the_host;
  if (devices && *devices) {
    char* end;
    const long count = strtol(devices, &end, 10);
    if (*end || count < 1 || count > 64) {
      host->fail(TB_STATUS_INVALID_ARGUMENT, "fake.devices is \"%s\"; expected a whole number from 1 to 64", devices);
      return NULL;
    }
    num_devices = (int32_t)count;
  }
  return &plugin;
}
