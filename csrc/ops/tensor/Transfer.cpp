#include "csrc/ops/tensor/Transfer.h"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <optional>

#include <ATen/EmptyTensor.h>
#include <ATen/ops/copy_native.h>
#include <c10/util/SmallVector.h>

#include "csrc/core/Capture.h"
#include "csrc/core/FailedWait.h"
#include "csrc/core/HeldMemory.h"
#include "csrc/core/Runtime.h"
#include "csrc/memory/HostAllocator.h"
#include "csrc/ops/tensor/Alias.h"
#include "csrc/ops/tensor/Empty.h"

namespace torch_backend {
namespace {

bool same_value_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.is_conj() == b.is_conj() && a.is_neg() == b.is_neg();
}

bool same_strides(const at::Tensor& a, const at::Tensor& b) {
  for (int64_t dim = 0; dim < a.dim(); ++dim) {
    if (a.size(dim) > 1 && a.stride(dim) != b.stride(dim)) {
      return false;
    }
  }
  return true;
}

struct Dimension {
  int64_t size, stride;
};

/// Whether two elements of a tensor with these dimensions, smallest stride first, may lie `distance` apart.
bool may_lie_apart(c10::ArrayRef<Dimension> dimensions, int64_t distance) {
  if (dimensions.empty()) {
    return distance == 0;
  }
  const auto [size, stride] = dimensions.back();
  const auto inner = dimensions.slice(0, dimensions.size() - 1);
  int64_t reach = 0; // of the inner dimensions
  for (const auto& dimension : inner) {
    reach += (dimension.size - 1) * dimension.stride;
  }
  if (reach >= stride) {
    return true; // too hard to tell
  }
  const int64_t steps = distance / stride;
  const auto after = [&](int64_t step) {
    return std::abs(step) < size && may_lie_apart(inner, distance - step * stride);
  };
  return after(steps) || after(distance < 0 ? steps - 1 : steps + 1);
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

/// Whether one copy of all that the rows lie in, gaps included, takes less time than a copy for each: a call costs a
/// device some microseconds, in which its memory moves about as many bytes as the limit below.
bool are_better_together(const RowPair& rows) {
  constexpr uint64_t kFewRows = 16;
  constexpr uint64_t kBytesPerCall = 256 << 10;
  return rows.dst.height > kFewRows && std::max(rows.dst.pitch_bytes, rows.src.pitch_bytes) < kBytesPerCall;
}

/// The part of `tensor`'s storage that its elements lie in, as offset and size in bytes from its first element.
uint64_t covering_bytes(const at::Tensor& tensor) {
  int64_t last = 0;
  for (int64_t dim = 0; dim < tensor.dim(); ++dim) {
    last += (tensor.size(dim) - 1) * tensor.stride(dim);
  }
  return static_cast<uint64_t>(last + 1) * static_cast<uint64_t>(tensor.element_size());
}

/// Memory of the host's own for what covering_bytes covers, one-dimensional.
at::Tensor empty_covered(const at::Tensor& tensor) {
  const CpuAllocatorRedirect off(/*enable=*/false);
  const auto elements = covering_bytes(tensor) / static_cast<uint64_t>(tensor.element_size());
  return at::detail::empty_cpu({static_cast<int64_t>(elements)}, tensor.scalar_type());
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

/// What covers `tensor`, seen as `tensor` sees its own memory.
at::Tensor as_covered(const at::Tensor& covered, const at::Tensor& tensor) {
  auto view = make_cpu_alias(tensor, covered.storage());
  view.unsafeGetTensorImpl()->set_storage_offset(0);
  return view;
}

/// Page-locked memory that an enqueued copy uses must not be handed out again before the stream has passed it.
/// Returns false for memory that is not page-locked.
bool record_host_use(const at::Tensor& host, const Stream& stream) {
  return record_pinned_use(host.storage().data_ptr(), stream);
}

} // namespace

at::Tensor with_bits_of(at::Tensor host, const at::Tensor& tensor) {
  host._set_conj(tensor.is_conj());
  host._set_neg(tensor.is_neg());
  return host;
}

bool is_plain_copy(const at::Tensor& dst, const at::Tensor& src) {
  return dst.scalar_type() == src.scalar_type() && same_value_bits(dst, src) && dst.strides() == src.strides() &&
         dst.is_non_overlapping_and_dense();
}

bool are_same_elements(const at::Tensor& a, const at::Tensor& b) {
  return data_of(a) == data_of(b) && a.device() == b.device() && a.scalar_type() == b.scalar_type() &&
         same_value_bits(a, b) && same_strides(a, b);
}

bool may_overlap(const at::Tensor& a, const at::Tensor& b) {
  if (a.device() != b.device()) {
    return false;
  }
  const auto distance = data_of(b) - data_of(a);
  if (distance >= static_cast<int64_t>(covering_bytes(a)) || -distance >= static_cast<int64_t>(covering_bytes(b))) {
    return false;
  }
  const auto item = static_cast<int64_t>(a.element_size());
  if (item != static_cast<int64_t>(b.element_size()) || distance % item != 0 || !same_strides(a, b)) {
    return true;
  }
  if (distance == 0) {
    return false;
  }
  c10::SmallVector<Dimension, 8> dimensions;
  for (int64_t dim = 0; dim < a.dim(); ++dim) {
    if (a.size(dim) > 1) {
      dimensions.push_back({a.size(dim), a.stride(dim)});
    }
  }
  std::sort(dimensions.begin(), dimensions.end(), [](auto& one, auto& other) { return one.stride < other.stride; });
  return may_lie_apart(dimensions, distance / item);
}

bool enqueue_raw_copy(const at::Tensor& dst, const at::Tensor& src, uint32_t kind, int device, const Stream& stream,
                      bool row_by_row) {
  auto& api = device_api();
  const auto* const host = kind == TB_COPY_HOST_TO_DEVICE ? &src : kind == TB_COPY_DEVICE_TO_HOST ? &dst : nullptr;
  if (host && lies_on_device(*host)) {
    return false;
  }
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
  if (!row_by_row && !api.has_memory_copy_2d() && are_better_together(*rows) && !graph::is_capturing(stream)) {
    return false;
  }
  api.memory_copy_2d(device, data_of(dst), rows->dst.pitch_bytes, data_of(src), rows->src.pitch_bytes,
                     rows->dst.width_bytes, rows->dst.height, kind, stream.handle());
  return true;
}

void use_on_stream(const Stream& stream, const at::Tensor& memory, c10::function_ref<void()> use) {
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

bool try_host_copy(const at::Tensor& dst, const at::Tensor& src, uint32_t kind, const Stream& stream,
                   const at::Tensor& host, bool wait, bool row_by_row) {
  bool enqueued = false;
  use_on_stream(stream, host, [&] {
    enqueued = enqueue_raw_copy(dst, src, kind, stream.device_index(), stream, row_by_row);
    if (!enqueued || graph::is_capturing(stream)) {
      return;
    }
    if (wait) {
      stream.synchronize();
    } else if (!record_host_use(host, stream) && device_api().async()) {
      // Pinned by someone else: as pin_memory=True does in a build of PyTorch that has CUDA.
      hold_until_passed(stream, std::make_shared<c10::Storage>(host.storage()));
    }
  });
  return enqueued;
}

at::Tensor copy_to_host(const at::Tensor& device_tensor) {
  const Stream stream = current_stream(device_tensor.device().index());
  graph::refuse_in_capture(stream, "copy to pageable host memory");
  const at::Tensor host = with_bits_of(empty_like_layout(device_tensor, c10::kCPU), device_tensor);
  if (host.numel() == 0) {
    return host;
  }
  if (try_host_copy(host, device_tensor, TB_COPY_DEVICE_TO_HOST, stream, host, /*wait=*/true)) {
    return host;
  }
  return as_covered(copy_covered(device_tensor, stream), device_tensor);
}

uint64_t copy_from_host(const at::Tensor& host_tensor, const at::Tensor& device_tensor) {
  if (host_tensor.numel() == 0) {
    return 0;
  }
  const Stream stream = current_stream(device_tensor.device().index());
  graph::refuse_in_capture(stream, "copy from pageable host memory");
  const bool dense = device_tensor.is_non_overlapping_and_dense();
  // What lies between the rows of others is theirs, so that it is not written if that can be helped.
  if (try_host_copy(device_tensor, host_tensor, TB_COPY_HOST_TO_DEVICE, stream, host_tensor, /*wait=*/true,
                    /*row_by_row=*/!dense)) {
    return host_tensor.nbytes();
  }
  const at::Tensor covered = dense ? empty_covered(device_tensor) : copy_covered(device_tensor, stream);
  at::Tensor values = as_covered(covered, device_tensor);
  at::native::copy_(values, host_tensor);
  use_on_stream(stream, covered, [&] {
    device_api().memory_copy(index_of(device_tensor), data_of(device_tensor), -1, data_of(covered), covered.nbytes(),
                             TB_COPY_HOST_TO_DEVICE, stream.handle());
    stream.synchronize();
  });
  return covered.nbytes();
}

} // namespace torch_backend
