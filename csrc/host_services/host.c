/* The services in one table. */
#include "host.h"

#include "error_text.h"
#include "log.h"
#include "option.h"

static tb_status no_allocation(const char* service, const tb_kernel_context* context) {
  if (!context)
    return tb_host_fail(TB_STATUS_INVALID_ARGUMENT, "%s works only in a kernel, with the context it was given",
                        service);
  return tb_host_fail(TB_STATUS_UNSUPPORTED, "%s: this host has no memory for kernels; torch_backend's core has",
                      service);
}

static tb_status alloc_output(const tb_kernel_context* context, int32_t index, int32_t ndim, const int64_t* shape,
                              tb_tensor* out_tensor) {
  (void)index, (void)ndim, (void)shape, (void)out_tensor;
  return no_allocation("alloc_output", context);
}

static tb_status alloc_workspace(const tb_kernel_context* context, uint64_t size_bytes, void** out_ptr) {
  (void)size_bytes, (void)out_ptr;
  return no_allocation("alloc_workspace", context);
}

static const tb_host services = {
    .struct_size = sizeof(tb_host),
    .abi_major = TB_ABI_MAJOR,
    .abi_minor = TB_ABI_MINOR,
    .fail = tb_host_fail,
    .log = tb_host_log,
    .option = tb_host_option,
    .alloc_output = alloc_output,
    .alloc_workspace = alloc_workspace,
};

const tb_host* tb_host_services(void) {
  return &services;
}
