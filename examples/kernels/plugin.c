/* A device with kernels of its own. The device itself is as small as backends/fake; see there for what its functions
 * do. New here is the table "kernels.1". */
#define _POSIX_C_SOURCE 200112L /* posix_memalign */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels.h"
#include "torch_backend/device.h"

const tb_host* host;

/* ---- the kernels ---- */

#define MASK(dtypes) {(dtypes), 0, 0, 0} /* all codes used here are in the first word */
static const uint64_t float32_only[TB_DTYPE_MASK_WORDS] = MASK(TB_DTYPE_MASK_FLAG(TB_DTYPE_FLOAT, 32));
static const uint64_t float32_and_bool[TB_DTYPE_MASK_WORDS] =
    MASK(TB_DTYPE_MASK_FLAG(TB_DTYPE_FLOAT, 32) | TB_DTYPE_MASK_FLAG(TB_DTYPE_BOOL, 8));

#define ENTRY(name, function, flags, mask) {sizeof(tb_kernel), name, function, flags, 0, mask}
static const tb_kernel entries[] = {
    ENTRY("aten::add.out", add, 0, NULL), /* serves add.out, add.Tensor and add_.Tensor */
    ENTRY("aten::sub.out", sub, TB_KERNEL_MIXED_DTYPES | TB_KERNEL_NUMBERS, NULL),
    ENTRY("aten::mul.out", mul, 0, float32_only),
    ENTRY("aten::relu", relu, 0, float32_only),
    ENTRY("aten::clamp.out", clamp, 0, float32_only),
    ENTRY("aten::where.self_out", where, 0, float32_and_bool),
    ENTRY("aten::threshold_backward.grad_input", threshold_backward, 0, float32_only),
    ENTRY("aten::sum.IntList_out", sum, 0, float32_only),
    ENTRY("aten::_softmax.out", softmax, 0, float32_only),
    ENTRY("aten::mm.out", mm, 0, float32_only),
    ENTRY("aten::addmm.out", addmm, 0, float32_only),
    ENTRY("aten::convolution_overrideable", convolution, TB_KERNEL_NEEDS_CONTIGUOUS, float32_only),
    ENTRY("aten::nonzero.out", nonzero, TB_KERNEL_ALLOCATES_OUTPUT, float32_only),
    ENTRY("aten::bernoulli_.float", bernoulli, 0, float32_only),
    ENTRY("example::scale", scale, 0, float32_only),
};
#define NUM_KERNELS (sizeof entries / sizeof entries[0])

static const tb_kernel* kernels[NUM_KERNELS];

static tb_kernel_table kernel_table = {
    .struct_size = sizeof(tb_kernel_table),
    .kernels = kernels,
    .num_kernels = NUM_KERNELS,
};

static const void* table(const char* name) {
  return strcmp(name, "kernels.1") == 0 ? &kernel_table : NULL;
}

void trace(const char* op) {
  const char* path = host->option("example.trace");
  FILE* file = path ? fopen(path, "a") : NULL;
  if (file) {
    fprintf(file, "%s\n", op);
    fclose(file);
  }
}

/* ---- the device ---- */

static tb_status device_count(int32_t* out_count) {
  *out_count = 1;
  return TB_STATUS_OK;
}

static tb_status device_properties(int32_t device, tb_device_properties* out_properties) {
  const tb_device_properties properties = {
      .struct_size = sizeof properties,
      .name = "Example device",
      .total_memory_bytes = (uint64_t)4 << 30,
      .allocation_alignment_bytes = 64,
      .multiprocessor_count = 1,
      .warp_size = 1,
      .numa_node = -1,
  };
  const uint64_t room = out_properties->struct_size;
  (void)device;
  memcpy(out_properties, &properties, room < sizeof properties ? room : sizeof properties);
  if (room < sizeof properties) out_properties->struct_size = room;
  return TB_STATUS_OK;
}

static tb_status memory_allocate(int32_t device, uint32_t kind, uint64_t size_bytes, tb_stream* stream,
                                 void** out_ptr) {
  void* ptr;
  (void)device, (void)stream;
  if (kind != TB_MEMORY_DEVICE) return TB_STATUS_UNSUPPORTED;
  if (size_bytes > SIZE_MAX || posix_memalign(&ptr, 64, (size_t)size_bytes) != 0)
    return host->fail(TB_STATUS_OUT_OF_MEMORY, "no room for %llu bytes", (unsigned long long)size_bytes);
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
  if (kind < TB_COPY_HOST_TO_DEVICE || kind > TB_COPY_DEVICE_TO_DEVICE) return TB_STATUS_UNSUPPORTED;
  memcpy(dst, src, (size_t)size_bytes);
  return TB_STATUS_OK;
}

static const tb_core_table core_table = {
    .struct_size = sizeof(tb_core_table),
    .device_count = device_count,
    .device_properties = device_properties,
    .memory_allocate = memory_allocate,
    .memory_free = memory_free,
    .memory_copy = memory_copy,
};

static const char* const option_keys[] = {"trace", NULL};

static const tb_plugin plugin = {
    .struct_size = sizeof(tb_plugin),
    .abi_major = TB_ABI_MAJOR,
    .abi_minor = TB_ABI_MINOR,
    .name = "example",
    .vendor = "torch_backend",
    .version = "1.0",
    .core = &core_table,
    .table = table,
    .option_keys = option_keys,
};

const tb_plugin* tb_plugin_entry(const tb_host* the_host) {
  host = the_host;
  for (size_t i = 0; i < NUM_KERNELS; ++i) kernels[i] = &entries[i];
  return &plugin;
}
