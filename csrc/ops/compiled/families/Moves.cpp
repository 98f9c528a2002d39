// Operators that put elements elsewhere, or compute them from where they are.
#include <algorithm>
#include <array>

#include <c10/util/Exception.h>

#include "csrc/core/KernelHost.h"
#include "csrc/ops/compiled/engine/Geometry.h"
#include "csrc/ops/compiled/engine/Kernels.h"
#include "csrc/ops/compiled/engine/Launch.h"
#include "csrc/ops/compiled/engine/Modules.h"
#include "csrc/ops/compiled/engine/Overloads.h"
#include "csrc/ops/compiled/engine/Support.h"
#include "csrc/ops/compiled/families/Pointwise.h"
#include "csrc/ops/compiled/loops/Compaction.h"

namespace torch_backend::compiled::moves {
namespace {

tb_status result(bool taken) {
  return taken ? TB_STATUS_OK : TB_STATUS_UNSUPPORTED;
}

// ---- copies ----

tb_status cat(const void*, const tb_kernel_context& context, const tb_arg* args, int32_t) {
  using Op = op::cat_out;
  const View out(*tensor_of(args[Op::out]));
  auto* const* tensors = static_cast<tb_tensor* const*>(args[Op::tensors].v.p);
  const int d = wrap_dim(args[Op::dim].v.i, out.dim());
  int64_t start = 0;
  for (uint32_t i = 0; i < args[Op::tensors].length; ++i) {
    const View part(*tensors[i]);
    if (part.numel() == 0) {
      continue;
    }
    View place = out;
    place.narrow(d, start, part.size(d));
    if (!pointwise::copy_views(context, place, part)) {
      return TB_STATUS_UNSUPPORTED;
    }
    start += part.size(d);
  }
  return TB_STATUS_OK;
}

tb_status flip(const void*, const tb_kernel_context& context, const tb_arg* args, int32_t) {
  using Op = op::flip;
  View self(*tensor_of(args[Op::self]));
  const auto* dims = static_cast<const int64_t*>(args[Op::dims].v.p);
  for (uint32_t i = 0; i < args[Op::dims].length && self.dim() > 0; ++i) {
    const int d = wrap_dim(dims[i], self.dim());
    self.data += (self.size(d) - 1) * self.stride(d) * self.element_bytes();
    self.stride(d) = -self.stride(d);
  }
  return result(pointwise::copy_views(context, View(*tensor_of(args[Op::result])), self));
}

/// Copies parts of `src` to where dimensions from d on are rotated by `shifts`.
bool roll_from(const tb_kernel_context& context, const View& dst, const View& src, const int64_t* shifts, int d) {
  while (d < src.dim() && shifts[d] == 0) {
    ++d;
  }
  if (d == src.dim()) {
    return pointwise::copy_views(context, dst, src);
  }
  const int64_t shift = shifts[d];
  const int64_t rest = src.size(d) - shift;
  View to = dst, from = src;
  to.narrow(d, shift, rest);
  from.narrow(d, 0, rest);
  if (!roll_from(context, to, from, shifts, d + 1)) {
    return false;
  }
  to = dst;
  from = src;
  to.narrow(d, 0, shift);
  from.narrow(d, rest, shift);
  return roll_from(context, to, from, shifts, d + 1);
}

tb_status roll(const void*, const tb_kernel_context& context, const tb_arg* args, int32_t) {
  using Op = op::roll;
  View self(*tensor_of(args[Op::self]));
  View out(*tensor_of(args[Op::result]));
  const auto* given = static_cast<const int64_t*>(args[Op::shifts].v.p);
  const auto* dims = static_cast<const int64_t*>(args[Op::dims].v.p);
  if (args[Op::dims].length == 0) {
    const int64_t count = self.numel();
    self = View(self.data, self.dtype, count);
    out = View(out.data, out.dtype, count);
  }
  Dims shifts(self.sizes.size(), 0);
  for (uint32_t i = 0; i < args[Op::shifts].length && self.dim() > 0; ++i) {
    const int d = args[Op::dims].length == 0 ? 0 : wrap_dim(dims[i], self.dim());
    auto& shift = shifts[static_cast<std::size_t>(d)];
    shift = (shift + given[i] % self.size(d) + self.size(d)) % self.size(d);
  }
  return result(roll_from(context, out, self, shifts.data(), 0));
}

// ---- elements by their places ----

/// `element` is an expression of static storage, see coordinates.c.
bool by_coordinates(const tb_kernel_context& context, const char* element, View to, View from, int64_t number) {
  constexpr int kMaxRank = 8;
  if (to.dim() > kMaxRank) {
    return false;
  }
  if (to.element_bytes() > 8) {
    return by_coordinates(context, element, to.half(0), from.half(0), number) &&
           by_coordinates(context, element, to.half(1), from.half(1), number);
  }
  for (View* view : {&to, &from}) {
    while (view->dim() < 2) {
      view->repeat(0, 1);
    }
  }
  int64_t last = to.numel();
  for (int d = 0; d < to.dim(); ++d) {
    last = std::max({last, to.size(d) * to.stride(d) * to.dim(), to.size(d) * from.stride(d) * to.dim()});
  }
  const bool fits = last < Geometry::kLimit32;
  static constexpr Skeleton kCoordinates{"coordinates", "coordinates"};
  Specialization wanted(kCoordinates);
  wanted.index_of(fits)
      .number("RANK", to.dim())
      .type("WORD", word_type(to.element_bytes()))
      .text("ELEMENT", element)
      .parameters(2);
  const auto& function = find_function(context.device, wanted);
  std::array<int64_t, 2 + 3 * kMaxRank> args;
  std::size_t size = 0;
  args[size++] = to.numel();
  const auto dims = static_cast<std::size_t>(to.dim());
  for (const auto* values : {to.sizes.data(), to.strides.data(), from.strides.data()}) {
    std::copy_n(values, dims, args.begin() + static_cast<std::ptrdiff_t>(size));
    size += dims;
  }
  args[size++] = number;
  Launch launch(context);
  launch.pointer(to.data);
  launch.pointer(from.data);
  launch.value(args.data(), size * sizeof(int64_t));
  const int64_t inner = to.size(to.dim() - 1);
  const bool by_rows = runs_in_stretches(context.device);
  launch.run(function, by_rows ? to.numel() / inner : to.numel(), by_rows ? inner : 1);
  return true;
}

constexpr char kLower[] = "(col - row <= (Index)args.number ? TB_LOAD_PLAIN(WORD, p1, from) : (WORD)0)";
constexpr char kUpper[] = "(col - row >= (Index)args.number ? TB_LOAD_PLAIN(WORD, p1, from) : (WORD)0)";

/// tril.out and triu.out; `entry` is the expression.
tb_status triangle(const void* entry, const tb_kernel_context& context, const tb_arg* args, int32_t) {
  using Op = op::tril_out;
  static_assert(agree<Op, op::triu_out>());
  const auto* self = tensor_of(args[Op::self]);
  // A diagonal further out leaves the same elements.
  const int64_t diagonal =
      std::clamp(args[Op::diagonal].v.i, -self->shape[self->ndim - 2] - 1, self->shape[self->ndim - 1] + 1);
  return result(
      by_coordinates(context, static_cast<const char*>(entry), View(*tensor_of(args[Op::out])), View(*self), diagonal));
}

// ---- masks ----

/// `tensor` broadcast to `shape` and contiguous.
bool packed(const tb_kernel_context& context, const tb_tensor& tensor, const View& shape, View* out) {
  const View expanded = View(tensor).expanded(shape.sizes);
  *out = dense_like(context, expanded);
  return out->data == expanded.data || pointwise::copy_views(context, *out, expanded);
}

tb_status masked_select(const void* entry, const tb_kernel_context& context, const tb_arg* args, int32_t) {
  using Op = op::masked_select_out;
  const auto* self = tensor_of(args[Op::self]);
  const auto* mask = tensor_of(args[Op::mask]);
  View shape;
  const int num_dims = std::max(self->ndim, mask->ndim);
  for (int d = 0; d < num_dims; ++d) {
    const int a = d - num_dims + self->ndim, b = d - num_dims + mask->ndim;
    const int64_t size_a = a < 0 ? 1 : self->shape[a], size_b = b < 0 ? 1 : mask->shape[b];
    TORCH_CHECK(size_a == size_b || size_a == 1 || size_b == 1, "The size of tensor a (", size_a,
                ") must match the size of tensor b (", size_b, ") at non-singleton dimension ", d);
    shape.add_dim(size_a == 1 ? size_b : size_a, 0);
  }
  TORCH_CHECK(value_type(mask->dtype) == ValueType::b8, "masked_select: expected BoolTensor for mask");
  tb_tensor out{};
  out.dtype = self->dtype;
  int64_t count = 0;
  if (shape.numel() == 0) {
    return context.host->alloc_output(0, 1, &count, &out);
  }
  View elements, chosen;
  if (!packed(context, *self, shape, &elements) || !packed(context, *mask, shape, &chosen)) {
    return TB_STATUS_UNSUPPORTED;
  }
  Compaction compaction(context, static_cast<const char*>(entry), chosen);
  count = compaction.count();
  const auto status = context.host->alloc_output(0, 1, &count, &out);
  if (status != TB_STATUS_OK || count == 0) {
    return status;
  }
  View to(out);
  const View dense = dense_like(context, to);
  compaction.select(dense.data, elements.data, to.element_bytes());
  return result(dense.data == to.data || pointwise::copy_views(context, to, dense));
}

tb_status masked_scatter(const void* entry, const tb_kernel_context& context, const tb_arg* args, int32_t) {
  using Op = op::masked_scatter_;
  const auto* self = tensor_of(args[Op::self]);
  const auto* mask = tensor_of(args[Op::mask]);
  const auto* source = tensor_of(args[Op::source]);
  if (value_type(mask->dtype) != ValueType::b8 || self->dtype.code != source->dtype.code ||
      self->dtype.bits != source->dtype.bits) {
    return TB_STATUS_UNSUPPORTED; // PyTorch says what is wrong
  }
  if (!self->data || mask->ndim > self->ndim) {
    return result(!self->data);
  }
  const View to(*self);
  View chosen;
  if (!packed(context, *mask, to, &chosen)) {
    return TB_STATUS_UNSUPPORTED;
  }
  Compaction compaction(context, static_cast<const char*>(entry), chosen);
  compaction.scatter(to.data, View(*source).data, to.element_bytes(), View(*source).numel());
  return TB_STATUS_OK;
}

struct Operator {
  const char* overload;
  KernelFunction function;
  uint32_t flags;
  const char* entry;
};

constexpr Operator kOperators[] = {
    {op::cat_out::kName, guarded<cat>, kTakesEmpty, nullptr},
    {op::flip::kName, guarded<flip>, 0, nullptr},
    {op::masked_scatter_::kName, guarded<masked_scatter>, kTakesEmpty | TB_KERNEL_NEEDS_CONTIGUOUS, nullptr},
    {op::masked_select_out::kName, guarded<masked_select>, kTakesEmpty | TB_KERNEL_ALLOCATES_OUTPUT, nullptr},
    {op::roll::kName, guarded<roll>, TB_KERNEL_NEEDS_CONTIGUOUS, nullptr},
    {op::tril_out::kName, guarded<triangle>, kUpdatesFirst, kLower},
    {op::triu_out::kName, guarded<triangle>, kUpdatesFirst, kUpper},
};

} // namespace

void add(Kernels& kernels) {
  for (const auto& op : kOperators) {
    kernels.add(op.overload, op.function, op.flags, op.entry ? op.entry : op.overload, kAllTypes);
  }
}

} // namespace torch_backend::compiled::moves
