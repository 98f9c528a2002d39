#include "csrc/aten/Copy.h"

#include <cstring>

#include <ATen/EmptyTensor.h>
#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/core/CachingHostAllocator.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/_local_scalar_dense_native.h>
#include <ATen/ops/_to_copy.h>
#include <ATen/ops/copy_ops.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/DeviceGuard.h>

#include "csrc/aten/Alias.h"
#include "csrc/aten/HostCall.h"
#include "csrc/aten/HostLaunch.h"
#include "csrc/aten/Register.h"
#include "csrc/aten/Registrar.h"
#include "csrc/aten/Resize.h"
#include "csrc/aten/StorageOf.h"
#include "csrc/core/Event.h"
#include "csrc/core/FailedWait.h"
#include "csrc/core/Runtime.h"
#include "csrc/core/Stream.h"
#include "csrc/core/SyncDebug.h"
#include "csrc/core/allocator/HostAllocator.h"
#include "csrc/core/graph/Capture.h"
#include "csrc/profiler/Recording.h"

namespace torch_backend {
namespace {

// Note [Ways to copy]
// From cheapest to dearest; each falls to the next where it does not apply.
//   1. Synchronous device with host-coherent memory: every copy is ATen's CPU copy on aliases.
//   2. Plain copies (same dtype, same dense layout, no conj/neg difference): one memory_copy on the stream.
//   3. Rows: same dtype, both sides collapse to equally long runs of bytes: one memory_copy_2d.
//   4. Host-accessible asynchronous device: ATen's CPU copy on aliases, as a host function on the stream.
//   5. Through the host: the source's values are brought to the host, converted there, and brought back.

/// Call `use`, which enqueues copies on `stream` that use memory which the stream does not own: the host's or another
/// device's, so that the memory outlives what it had enqueued if it fails. See Note [Failed waits].
template <class Use>
void use_on_stream(const Stream& stream, const at::Tensor& memory, Use use) {
  try {
    use();
  } catch (...) {
    if (!graph::is_capturing(stream)) { // then nothing runs, and to wait would fail the capture
      release_when_over(device_api(), stream.device_index(), stream.handle(),
                        std::make_shared<c10::Storage>(memory.storage()));
    }
    throw;
  }
}

bool on_device(const at::Tensor& tensor) {
  return tensor.device().type() == c10::DeviceType::PrivateUse1;
}

char* data_of(const at::Tensor& tensor) {
  return static_cast<char*>(const_cast<void*>(tensor.const_data_ptr()));
}

int index_of(const at::Tensor& tensor) {
  return tensor.device().index();
}

bool same_value_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.is_conj() == b.is_conj() && a.is_neg() == b.is_neg();
}

bool is_plain_copy(const at::Tensor& dst, const at::Tensor& src) {
  return dst.scalar_type() == src.scalar_type() && same_value_bits(dst, src) && dst.strides() == src.strides() &&
         dst.is_non_overlapping_and_dense();
}

/// A tensor's memory as `height` rows of `width_bytes`, `pitch_bytes` apart, in the order of its elements.
struct Rows {
  uint64_t width_bytes;
  uint64_t height;
  uint64_t pitch_bytes;
};

std::optional<Rows> as_rows(const at::Tensor& tensor) {
  const auto sizes = tensor.sizes();
  const auto strides = tensor.strides();
  int64_t width = 1;
  int64_t dim = tensor.dim() - 1;
  for (; dim >= 0 && (sizes[dim] == 1 || strides[dim] == width); --dim) {
    width *= sizes[dim];
  }
  int64_t height = 1;
  int64_t pitch = 0;
  for (; dim >= 0; --dim) {
    if (sizes[dim] == 1) {
      continue;
    }
    if (height == 1) {
      pitch = strides[dim];
    } else if (strides[dim] != pitch * height) {
      return std::nullopt;
    }
    height *= sizes[dim];
  }
  if (height > 1 && pitch < width) {
    return std::nullopt; // expanded or overlapping
  }
  const auto item = static_cast<uint64_t>(tensor.element_size());
  return Rows{static_cast<uint64_t>(width) * item, static_cast<uint64_t>(height),
              static_cast<uint64_t>(height > 1 ? pitch : width) * item};
}

struct RowPair {
  Rows dst;
  Rows src;
};

/// Both sides as equally many rows of equal width; a contiguous side is cut to fit the other.
std::optional<RowPair> as_row_pair(const at::Tensor& dst, const at::Tensor& src) {
  if (dst.scalar_type() != src.scalar_type() || !same_value_bits(dst, src)) {
    return std::nullopt;
  }
  auto to = as_rows(dst);
  auto from = as_rows(src);
  if (!to || !from) {
    return std::nullopt;
  }
  const auto cut = [](Rows& whole, const Rows& model) {
    if (whole.height == 1 && model.height > 1) {
      whole = {model.width_bytes, model.height, model.width_bytes};
    }
  };
  cut(*to, *from);
  cut(*from, *to);
  if (to->width_bytes != from->width_bytes || to->height != from->height) {
    return std::nullopt;
  }
  return RowPair{*to, *from};
}

/// Enqueue the copy as one or two-dimensional plugin copies. False if it is not of that form. `device` owns the stream.
bool enqueue_raw_copy(const at::Tensor& dst, const at::Tensor& src, uint32_t kind, int device, const Stream& stream) {
  auto& api = device_api();
  if (is_plain_copy(dst, src)) {
    const int dst_device = on_device(dst) ? index_of(dst) : -1;
    const int src_device = on_device(src) ? index_of(src) : -1;
    api.memory_copy(dst_device, data_of(dst), src_device, data_of(src), dst.nbytes(), kind, stream.handle());
    return true;
  }
  const auto rows = as_row_pair(dst, src);
  if (!rows || kind == TB_COPY_PEER) {
    return false;
  }
  api.memory_copy_2d(device, data_of(dst), rows->dst.pitch_bytes, data_of(src), rows->src.pitch_bytes,
                     rows->dst.width_bytes, rows->dst.height, kind, stream.handle());
  return true;
}

/// The part of `tensor`'s storage that its elements lie in, as offset and size in bytes from its first element.
uint64_t covering_bytes(const at::Tensor& tensor) {
  int64_t last = 0;
  for (int64_t dim = 0; dim < tensor.dim(); ++dim) {
    last += (tensor.size(dim) - 1) * tensor.stride(dim);
  }
  return static_cast<uint64_t>(last + 1) * static_cast<uint64_t>(tensor.element_size());
}

at::TensorOptions host_options(const at::Tensor& tensor) {
  return at::TensorOptions(c10::kCPU).dtype(tensor.scalar_type());
}

/// Host memory for what covering_bytes covers, one-dimensional.
at::Tensor empty_covered(const at::Tensor& tensor) {
  const auto elements = covering_bytes(tensor) / static_cast<uint64_t>(tensor.element_size());
  return at::empty({static_cast<int64_t>(elements)}, host_options(tensor));
}

/// The same with its contents, complete on return.
at::Tensor copy_covered(const at::Tensor& tensor, const Stream& stream) {
  at::Tensor covered = empty_covered(tensor);
  use_on_stream(stream, covered, [&] {
    device_api().memory_copy(-1, data_of(covered), index_of(tensor), data_of(tensor), covered.nbytes(),
                             TB_COPY_DEVICE_TO_HOST, stream.handle());
    stream.synchronize();
  });
  return covered;
}

at::Tensor with_bits_of(at::Tensor host, const at::Tensor& tensor) {
  host._set_conj(tensor.is_conj());
  host._set_neg(tensor.is_neg());
  return host;
}

/// Copies on the host, where conj and neg bits are resolved by PyTorch itself.
void copy_on_host(const at::Tensor& dst, const at::Tensor& src) {
  dst.copy_(src);
}

// ---- between tensors of one device ----

/// Way 5: read what `dst` covers, change it on the host, write it back.
void copy_through_host(const at::Tensor& dst, const at::Tensor& src) {
  const at::Tensor values = on_device(src) ? copy_to_host(src) : src;
  if (dst.is_non_overlapping_and_dense()) {
    at::Tensor staged = with_bits_of(at::empty_strided(dst.sizes(), dst.strides(), host_options(dst)), dst);
    copy_on_host(staged, values);
    copy_from_host(staged, dst);
    return;
  }
  at::Tensor staged = copy_to_host(dst);
  copy_on_host(staged, values);
  copy_from_host(staged, dst);
}

void copy_within_device(const at::Tensor& dst, const at::Tensor& src) {
  const Stream stream = current_stream(dst.device().index());
  if (enqueue_raw_copy(dst, src, TB_COPY_DEVICE_TO_DEVICE, index_of(dst), stream)) {
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
  copy_through_host(dst, src);
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
    const bool dense = dst.is_non_overlapping_and_dense();
    packed = at::empty_strided(dst.sizes(), dense ? dst.strides() : at::infer_dense_strides(dst.sizes(), dst.strides()),
                               src.options().dtype(dst.scalar_type()));
    packed = with_bits_of(packed, dst);
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

/// Page-locked memory that an enqueued copy uses must not be handed out again before the stream has passed it.
/// Returns false for memory that is not page-locked.
bool record_host_use(const at::Tensor& host, const Stream& stream) {
  return record_pinned_use(host.storage().data_ptr(), stream);
}

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

/// Enqueue the copy if it is a raw one, and do for `host`, which is one of its sides, what has to be done after it.
bool try_host_copy(const at::Tensor& dst, const at::Tensor& src, uint32_t kind, const Stream& stream,
                   const at::Tensor& host, bool wait) {
  bool enqueued = false;
  use_on_stream(stream, host, [&] {
    enqueued = enqueue_raw_copy(dst, src, kind, stream.device_index(), stream);
    // Memory that was pinned by someone else's allocator cannot be recorded, so it is waited for.
    if (enqueued && !graph::is_capturing(stream) && (wait || !record_host_use(host, stream))) {
      stream.synchronize();
    }
  });
  return enqueued;
}

void copy_host_to_device(const at::Tensor& dst, const at::Tensor& src, bool non_blocking) {
  const Stream stream = current_stream(dst.device().index());
  const bool wait = must_wait(src, non_blocking, "copy from pageable host memory");
  if (try_host_copy(dst, src, TB_COPY_HOST_TO_DEVICE, stream, src, wait)) {
    return;
  }
  // Convert on the host, then let the device place it.
  graph::refuse_in_capture(stream, "copy from host memory that is converted");
  at::Tensor packed = with_bits_of(
      at::empty_strided(dst.sizes(), at::infer_dense_strides(dst.sizes(), dst.strides()), host_options(dst)), dst);
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

void check_overlap(const at::Tensor& dst, const at::Tensor& src) {
  at::assert_no_internal_overlap(dst);
  if (dst.device() == src.device()) {
    at::assert_no_partial_overlap(dst, src);
  }
}

// ---- on a synchronous device with host-coherent memory ----

/// A tensor's memory for the host, for one call.
class HostSide {
 public:
  explicit HostSide(const at::Tensor& tensor)
      : borrowed_(on_device(tensor)), tensor_(borrowed_ ? borrow_cpu_alias(tensor) : tensor) {}
  ~HostSide() {
    if (borrowed_) {
      give_back_cpu_alias(std::move(tensor_));
    }
  }
  HostSide(const HostSide&) = delete;
  HostSide& operator=(const HostSide&) = delete;
  at::Tensor& get() {
    return tensor_;
  }

 private:
  bool borrowed_;
  at::Tensor tensor_;
};

void copy_inline(const at::Tensor& dst, const at::Tensor& src) {
  if (is_plain_copy(dst, src)) {
    const uint32_t kind = !on_device(src)                  ? TB_COPY_HOST_TO_DEVICE
                          : !on_device(dst)                ? TB_COPY_DEVICE_TO_HOST
                          : index_of(dst) == index_of(src) ? TB_COPY_DEVICE_TO_DEVICE
                                                           : TB_COPY_PEER;
    enqueue_raw_copy(dst, src, kind, 0, current_stream());
    return;
  }
  const profiler::HostKernelSpan span("aten::copy_", index_of(on_device(dst) ? dst : src));
  HostSide to(dst), from(src);
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  at::_ops::copy_::redispatch(c10::DispatchKeySet(c10::DispatchKey::CPU), to.get(), from.get(), /*non_blocking=*/false);
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
  return copy_to_host(self).item();
}

} // namespace

at::Tensor copy_to_host(const at::Tensor& device_tensor) {
  const Stream stream = current_stream(device_tensor.device().index());
  graph::refuse_in_capture(stream, "copy to pageable host memory");
  const bool dense = device_tensor.is_non_overlapping_and_dense();
  at::Tensor host = at::empty_strided(
      device_tensor.sizes(),
      dense ? device_tensor.strides() : at::infer_dense_strides(device_tensor.sizes(), device_tensor.strides()),
      host_options(device_tensor));
  host = with_bits_of(host, device_tensor);
  if (host.numel() == 0) {
    return host;
  }
  if (try_host_copy(host, device_tensor, TB_COPY_DEVICE_TO_HOST, stream, host, /*wait=*/true)) {
    return host;
  }
  const at::Tensor covered = copy_covered(device_tensor, stream);
  return with_bits_of(covered.as_strided(device_tensor.sizes(), device_tensor.strides()), device_tensor);
}

uint64_t copy_from_host(const at::Tensor& host_tensor, const at::Tensor& device_tensor) {
  if (host_tensor.numel() == 0) {
    return 0;
  }
  const Stream stream = current_stream(device_tensor.device().index());
  graph::refuse_in_capture(stream, "copy from pageable host memory");
  if (try_host_copy(device_tensor, host_tensor, TB_COPY_HOST_TO_DEVICE, stream, host_tensor, /*wait=*/true)) {
    return host_tensor.nbytes();
  }
  const at::Tensor covered =
      device_tensor.is_non_overlapping_and_dense() ? empty_covered(device_tensor) : copy_covered(device_tensor, stream);
  copy_on_host(with_bits_of(covered.as_strided(device_tensor.sizes(), device_tensor.strides()), device_tensor),
               host_tensor);
  use_on_stream(stream, covered, [&] {
    device_api().memory_copy(index_of(device_tensor), data_of(device_tensor), -1, data_of(covered), covered.nbytes(),
                             TB_COPY_HOST_TO_DEVICE, stream.handle());
    stream.synchronize();
  });
  return covered.nbytes();
}

void copy_tensor(const at::Tensor& dst, const at::Tensor& original_src, bool non_blocking) {
  if (dst.is_same(original_src)) {
    return;
  }
  const at::Tensor src = dst.sizes() == original_src.sizes() ? original_src : original_src.expand(dst.sizes());
  if (dst.numel() == 0) {
    return;
  }
  check_overlap(dst, src);
  if (is_plain_copy(dst, src) && data_of(dst) == data_of(src) && dst.device() == src.device()) {
    return;
  }
  const c10::DeviceGuard guard(on_device(dst) ? dst.device() : src.device());
  auto& api = device_api();
  for (const auto* tensor : {&dst, &src}) {
    if (on_device(*tensor)) {
      api.check_usable(index_of(*tensor), "copy");
      check_has_memory(*tensor->unsafeGetTensorImpl(), "aten::copy_");
    }
  }
  if (runs_inline()) {
    copy_inline(dst, src);
    return;
  }
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
