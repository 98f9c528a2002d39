#include "csrc/ops/native/Copy.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/_local_scalar_dense_native.h>
#include <ATen/ops/copy_native.h>
#include <ATen/ops/copy_ops.h>
#include <c10/core/DeviceGuard.h>

#include "csrc/core/Capture.h"
#include "csrc/core/Event.h"
#include "csrc/core/Runtime.h"
#include "csrc/core/Stream.h"
#include "csrc/core/SyncDebug.h"
#include "csrc/memory/HostAllocator.h"
#include "csrc/ops/compiled/families/Pointwise.h"
#include "csrc/ops/dispatch/Registrar.h"
#include "csrc/ops/host/Fallback.h"
#include "csrc/ops/host/HostCall.h"
#include "csrc/ops/host/HostLaunch.h"
#include "csrc/ops/kernel/KernelCall.h"
#include "csrc/ops/kernel/KernelTable.h"
#include "csrc/ops/native/Register.h"
#include "csrc/ops/tensor/Alias.h"
#include "csrc/ops/tensor/Empty.h"
#include "csrc/ops/tensor/StorageOf.h"
#include "csrc/ops/tensor/Transfer.h"
#include "csrc/profiler/Recording.h"

namespace torch_backend {
namespace {

// Note [Ways to copy]
// From cheapest to dearest; each falls to the next where it does not apply.
//   1. Synchronous device with host-coherent memory: every copy is ATen's CPU copy on aliases.
//   2. Plain copies (same dtype, same dense layout, no conj/neg difference): one memory_copy on the stream.
//   3. Rows: same dtype, both sides collapse to equally long runs of bytes: one memory_copy_2d. A plugin
//      without that slot copies a row a call: then many rows come last of all that can copy them.
//   4. Host-accessible asynchronous device: ATen's CPU copy on aliases, as a host function on the stream.
//   5. Memory that the host cannot reach: the plugin's kernel "aten::copy_", else, on a device that takes modules, one of
//      ours.
//   6. Through the host: the source's values are brought to the host, converted there, and brought back.

/// Copies on the host, where conj and neg bits are resolved by PyTorch itself.
void copy_on_host(at::Tensor dst, const at::Tensor& src) {
  at::native::copy_(dst, src);
}

// ---- between tensors of one device ----

/// Way 6: read what `dst` covers, change it on the host, write it back. Counts as a fallback of copy_. Returns the bytes
/// that crossed.
uint64_t copy_through_host(const at::Tensor& dst, const at::Tensor& src) {
  const at::Tensor values = copy_to_host(src);
  const bool dense = dst.is_non_overlapping_and_dense();
  const at::Tensor staged = dense ? with_bits_of(empty_like_layout(dst, c10::kCPU), dst) : copy_to_host(dst);
  copy_on_host(staged, values);
  return values.nbytes() + (dense ? 0 : staged.nbytes()) + copy_from_host(staged, dst);
}

/// The plugin's kernel, which knows no conj and neg bits: to resolve them is a copy itself.
bool copy_by_plugin(const at::Tensor& dst, const at::Tensor& src) {
  static const Kernel* const kernel = find_kernel("aten::copy_");
  if (!kernel || dst.is_neg() || src.is_neg() || dst.is_conj() || src.is_conj()) {
    return false;
  }
  KernelCall call(*kernel, dst.device().index());
  call.add_written(dst);
  call.add(src);
  call.add(false);
  return call.launch() == TB_STATUS_OK;
}

void copy_within_device(const at::Tensor& dst, const at::Tensor& src) {
  if (C10_UNLIKELY(may_overlap(dst, src))) {
    const at::Tensor apart = with_bits_of(empty_like_layout(src, src.device()), src);
    copy_within_device(apart, src);
    copy_within_device(dst, apart);
    return;
  }
  const Stream stream = current_stream(dst.device().index());
  if (enqueue_raw_copy(dst, src, TB_COPY_DEVICE_TO_DEVICE, index_of(dst), stream)) {
    return;
  }
  if (!runs_on_aliased_memory() && (copy_by_plugin(dst, src) || compiled::pointwise::copy_elements(dst, src, stream))) {
    return;
  }
  if (runs_on_aliased_memory() && device_api().host_coherent()) {
    enqueue_host_work(stream, "aten::copy_",
                      [to = make_cpu_alias(dst), from = make_cpu_alias(src)] { copy_on_host(to, from); });
    return;
  }
  if (runs_on_aliased_memory()) {
    HostCall call("aten::copy_");
    const at::Tensor to = call.stand_in(dst, /*written=*/true);
    const at::Tensor from = call.stand_in(src);
    call.enter();
    copy_on_host(to, from);
    call.leave();
    return;
  }
  // Through the host what lies between a view's elements would be written too.
  if (!dst.is_non_overlapping_and_dense() &&
      enqueue_raw_copy(dst, src, TB_COPY_DEVICE_TO_DEVICE, index_of(dst), stream, /*row_by_row=*/true)) {
    return;
  }
  static const auto copy = c10::Dispatcher::singleton().findSchemaOrThrow("aten::copy_", "");
  count_fallback(copy, [&] { return copy_through_host(dst, src); });
}

// ---- between two devices ----

/// What is enqueued on `waiting` from now on comes after what is on `stream` now.
void order_after(const Stream& waiting, const Stream& stream) {
  Event event(/*enable_timing=*/false);
  event.record(stream);
  event.block(waiting);
}

void copy_between_devices(const at::Tensor& dst, const at::Tensor& src) {
  const Stream src_stream = current_stream(src.device().index());
  const Stream dst_stream = current_stream(dst.device().index());
  graph::refuse_in_capture(src_stream, "A copy between devices");
  graph::refuse_in_capture(dst_stream, "A copy between devices");
  // The source side converts and packs, so that one plain copy crosses.
  at::Tensor packed = src;
  if (!is_plain_copy(dst, src)) {
    const c10::DeviceGuard guard(src.device());
    packed = with_bits_of(empty_like_layout(dst, src.device()), dst);
    copy_within_device(packed, src);
  }
  at::Tensor landing = dst;
  if (!is_plain_copy(dst, packed)) {
    landing = with_bits_of(empty_like_layout(packed, dst.device()), dst);
  }
  order_after(src_stream, dst_stream);
  if (device_api().has_capability(index_of(src), TB_CAP_PEER)) {
    use_on_stream(src_stream, landing, [&] {
      enqueue_raw_copy(landing, packed, TB_COPY_PEER, index_of(src), src_stream);
      order_after(dst_stream, src_stream);
    });
  } else {
    const at::Tensor host = copy_to_host(packed);
    copy_from_host(host, landing);
  }
  if (!landing.is_same(dst)) {
    const c10::DeviceGuard guard(dst.device());
    copy_within_device(dst, landing);
  }
}

// ---- between host and device ----

/// Before a copy is enqueued: whether the host must wait for it. Reported here, because once the copy is under way an
/// error would free the memory it uses.
bool must_wait(const at::Tensor& host, bool non_blocking, const char* what) {
  if (graph::is_capturing(current_stream())) {
    if (!non_blocking || !is_pinned_ptr(host.storage().data())) {
      graph::refuse_in_capture(current_stream(), what);
    }
    return false; // the memory is the user's to keep, as for every input of a graph
  }
  if (!device_api().async() || (non_blocking && is_pinned_ptr(host.storage().data()))) {
    return false;
  }
  warn_or_error_on_sync(what);
  return true;
}

void copy_host_to_device(const at::Tensor& dst, const at::Tensor& src, bool non_blocking) {
  const Stream stream = current_stream(dst.device().index());
  const bool wait = must_wait(src, non_blocking, "copy from pageable host memory");
  if (try_host_copy(dst, src, TB_COPY_HOST_TO_DEVICE, stream, src, wait)) {
    return;
  }
  // Convert on the host, then let the device place it.
  graph::refuse_in_capture(stream, "copy from host memory that is converted");
  const at::Tensor packed = with_bits_of(empty_like_layout(dst, c10::kCPU), dst);
  copy_on_host(packed, src);
  if (try_host_copy(dst, packed, TB_COPY_HOST_TO_DEVICE, stream, packed, /*wait=*/true)) {
    return;
  }
  const at::Tensor landing = with_bits_of(empty_like_layout(packed, dst.device()), dst);
  try_host_copy(landing, packed, TB_COPY_HOST_TO_DEVICE, stream, packed, /*wait=*/true);
  copy_within_device(dst, landing);
}

void copy_device_to_host(const at::Tensor& dst, const at::Tensor& src, bool non_blocking) {
  const Stream stream = current_stream(src.device().index());
  const bool wait = must_wait(dst, non_blocking, "copy to pageable host memory");
  if (try_host_copy(dst, src, TB_COPY_DEVICE_TO_HOST, stream, dst, wait)) {
    return;
  }
  copy_on_host(dst, copy_to_host(src));
}

void check_partial_overlap(const at::Tensor& dst, const at::Tensor& src) {
  if (dst.device() == src.device() && dst.storage().is_alias_of(src.storage())) {
    at::assert_no_partial_overlap(dst, src);
  }
}

// ---- on a synchronous device with host-coherent memory ----

/// A tensor's memory for the host, for one call.
class HostSide {
 public:
  explicit HostSide(const at::Tensor& tensor)
      : tensor_(tensor), alias_(on_device(tensor) ? AliasStore::of_this_thread().borrow(tensor) : at::Tensor()) {}
  ~HostSide() {
    if (alias_.defined()) {
      AliasStore::of_this_thread().give_back(std::move(alias_));
    }
  }
  HostSide(const HostSide&) = delete;
  HostSide& operator=(const HostSide&) = delete;
  const at::Tensor& get() const {
    return alias_.defined() ? alias_ : tensor_;
  }

 private:
  const at::Tensor& tensor_;
  at::Tensor alias_;
};

void copy_inline(const at::Tensor& dst, const at::Tensor& src) {
  if (is_plain_copy(dst, src) && !may_overlap(dst, src)) {
    const uint32_t kind = !on_device(src)                  ? TB_COPY_HOST_TO_DEVICE
                          : !on_device(dst)                ? TB_COPY_DEVICE_TO_HOST
                          : index_of(dst) == index_of(src) ? TB_COPY_DEVICE_TO_DEVICE
                                                           : TB_COPY_PEER;
    if (enqueue_raw_copy(dst, src, kind, 0, current_stream())) {
      return;
    }
  }
  const profiler::HostKernelSpan span("aten::copy_", index_of(on_device(dst) ? dst : src));
  const HostSide to(dst), from(src);
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  at::_ops::copy_::redispatch(c10::DispatchKeySet(c10::DispatchKey::CPU), const_cast<at::Tensor&>(to.get()), from.get(),
                              /*non_blocking=*/false);
}

// ---- operators ----

at::Tensor copy_from(const at::Tensor& self, const at::Tensor& dst, bool non_blocking) {
  copy_tensor(dst, self, non_blocking);
  return dst;
}

at::Tensor copy_from_and_resize(const at::Tensor& self, const at::Tensor& dst) {
  if (dst.sizes() != self.sizes()) {
    dst.resize_(self.sizes());
  }
  copy_tensor(dst, self, /*non_blocking=*/false);
  return dst;
}

at::Scalar local_scalar_dense(const at::Tensor& self) {
  check_has_memory(*self.unsafeGetTensorImpl(), "aten::item");
  if (runs_inline()) {
    device_api().check_usable(index_of(self), "item");
    return at::native::_local_scalar_dense_cpu(self); // reads wherever the tensor points
  }
  graph::refuse_in_capture(current_stream(self.device().index()), "aten::item");
  warn_or_error_on_sync("aten::item");
  return at::native::_local_scalar_dense_cpu(copy_to_host(self));
}

} // namespace

// No copies of `dst` and `src` on the way: to refer to a tensor of Python's once more takes the interpreter's lock.
void copy_tensor(const at::Tensor& dst, const at::Tensor& src, bool non_blocking) {
  if (dst.is_same(src)) {
    return;
  }
  if (C10_UNLIKELY(dst.sizes() != src.sizes())) {
    copy_tensor(dst, src.expand(dst.sizes()), non_blocking);
    return;
  }
  if (dst.numel() == 0) {
    return;
  }
  for (const auto* tensor : {&dst, &src}) {
    if (on_device(*tensor)) {
      check_has_memory(*tensor->unsafeGetTensorImpl(), "aten::copy_");
    }
  }
  check_partial_overlap(dst, src);
  if (are_same_elements(dst, src)) {
    return;
  }
  auto& api = device_api();
  for (const auto* tensor : {&dst, &src}) {
    if (on_device(*tensor)) {
      api.check_usable(index_of(*tensor), "copy");
    }
  }
  if (runs_inline()) {
    copy_inline(dst, src);
    return;
  }
  at::assert_no_internal_overlap(dst); // which ATen's CPU copy sees too
  const c10::DeviceGuard guard(on_device(dst) ? dst.device() : src.device());
  if (!on_device(src)) {
    copy_host_to_device(dst, src, non_blocking);
  } else if (!on_device(dst)) {
    copy_device_to_host(dst, src, non_blocking);
  } else if (dst.device() == src.device()) {
    copy_within_device(dst, src);
  } else {
    copy_between_devices(dst, src);
  }
}

void register_copy(Registrar& m) {
  m.impl("_copy_from", TORCH_FN(copy_from));
  m.impl("_copy_from_and_resize", TORCH_FN(copy_from_and_resize));
  m.impl("_local_scalar_dense", TORCH_FN(local_scalar_dense));
}

} // namespace torch_backend
