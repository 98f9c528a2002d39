#include "operation.h"

namespace sim {
namespace {

int run(const operation& o, CUcontext context) {
  const auto outside = [&o](const char* what, size_t number) {
    return refuse(kCUDA_ERROR_ILLEGAL_ADDRESS, "%s: %s %zu is not memory that the device can access", o.name, what,
                  number);
  };
  char* const workspace = o.workspace_bytes ? resolve(o.workspace, o.workspace_bytes, context) : nullptr;
  if (o.workspace_bytes && !workspace) return outside("workspace", 0);
  tensors all(o.operands.size());
  for (size_t i = 0; i < all.size(); ++i) {
    const operand& each = o.operands[i];
    if (each.sizes.empty()) continue;
    const size_t bytes = at::detail::computeStorageNbytes(each.sizes, each.strides, at::elementSize(each.dtype));
    char* const data = resolve(each.address, bytes, context);
    if (!data) return outside("operand", i);
    all[i] = at::from_blob(data, each.sizes, each.strides, each.dtype);
  }
  return compute(o.name, kCUDA_ERROR_LAUNCH_FAILED, workspace, o.workspace_bytes, o.run, all);
}

} // namespace

int enqueue(CUstream stream, operation o) {
  const char *const name = o.name, *const kernel = o.kernel;
  const auto on_stream = [stream, o = std::move(o)] { return run(o, stream->context); };
  return enqueue(name, stream, {on_stream, false, {traced_work::kKernel, kernel}});
}

void write(const at::Tensor& out, const at::Tensor& computed, double alpha, double beta) {
  out.copy_(beta == 0 ? computed * alpha : computed * alpha + out.to(at::kDouble) * beta);
}

} // namespace sim
