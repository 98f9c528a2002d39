// Elements at places that tensors of indices name: gather, scatter, index, embedding and what is like them.
#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <string_view>

#include <ATen/Context.h>
#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include "csrc/core/ErrorCell.h"
#include "csrc/core/KernelHost.h"
#include "csrc/ops/compiled/engine/Geometry.h"
#include "csrc/ops/compiled/engine/Kernels.h"
#include "csrc/ops/compiled/engine/Launch.h"
#include "csrc/ops/compiled/engine/Modules.h"
#include "csrc/ops/compiled/engine/Overloads.h"
#include "csrc/ops/compiled/engine/Part.h"
#include "csrc/ops/compiled/engine/Support.h"
#include "csrc/ops/compiled/families/Pointwise.h"
#include "csrc/ops/compiled/loops/Compaction.h"

namespace torch_backend::compiled::indexed {
namespace {

constexpr int kMaxIndices = Geometry::kMaxOperands - 2;

enum class Mode : uint8_t { kRead, kSet, kAdd, kMultiply, kMin, kMax };

/// One launch. Views have the shape of the loop; `there` does not move along dimensions that indices choose.
struct Access {
  Access(const char* name, Mode what) : op(name), mode(what) {}

  const char* op; // of static storage, for errors
  Mode mode;
  View here;
  View there;
  bool has_value = false;     // in place of what lies here
  uint64_t word = 0;          // its bits
  int64_t scalar = 0;         // the value, or the factor of what is added
  std::complex<double> value; // the same, of complex numbers
  bool has_factor = false;
  bool wraps = false; // negative indices count from the end
  int num_indices = 0;
  std::array<View, kMaxIndices> indices;
  std::array<int64_t, kMaxIndices> extents{};
  std::array<int64_t, kMaxIndices> steps{};
  int64_t skipped = INT64_MIN;  // an index that names nothing
  const char* counts = nullptr; // int32: what is added is divided by the count at the index

  void set_value(const tb_arg& number, ValueType type) {
    has_value = true;
    if (is_complex(type)) {
      value = complex_of(number);
    } else {
      word = bits_of_number(number, type);
      scalar = scalar_of(number, compute_type(type));
    }
  }
  void add_index(const View& index, int64_t extent, int64_t step) {
    const auto n = static_cast<std::size_t>(num_indices++);
    indices[n] = index;
    extents[n] = extent;
    steps[n] = step;
  }
};

const char* combine_text(Mode mode, bool floating) {
  switch (mode) {
    case Mode::kAdd:
      return "((a) + (b))";
    case Mode::kMultiply:
      return "((a) * (b))";
    case Mode::kMin:
      return floating ? "((a) != (a) ? (a) : (b) != (b) ? (b) : (a) < (b) ? (a) : (b))" : "((a) < (b) ? (a) : (b))";
    case Mode::kMax:
      return floating ? "((a) != (a) ? (a) : (b) != (b) ? (b) : (a) > (b) ? (a) : (b))" : "((a) > (b) ? (a) : (b))";
    default:
      return nullptr;
  }
}

void define_atomic(SourceText& text, ValueType type) {
  const auto bytes = size_of(type);
  text.define("ATOMIC_UNION", "tb_atomic_union");
  text.define("ATOMIC_BYTES", static_cast<int64_t>(bytes));
  if (bytes == 8) {
    text.line("typedef union { u64 word; T value; } tb_atomic_union;");
    return;
  }
  // Of the element's own bits, without its neighbours'.
  const auto each = [&](const char* value, const char* bits) {
    text.define("VALUE_OF_BITS(x)", value);
    text.define("BITS_OF_VALUE(x)", bits);
  };
  switch (type) {
    case ValueType::f32:
      return each("tb_f32_of_bits(x)", "tb_bits_f32(x)");
    case ValueType::f16:
      return each("tb_f32_of_half((u16)(x))", "tb_half_of_f32(x)");
    case ValueType::bf16:
      return each("tb_f32_of_bits((x) << 16)", "tb_round_bf16(x)");
    case ValueType::b8:
      return each("((x) != 0)", "((x) != 0)");
    default:
      return each(bytes == 4              ? "(i32)(x)"
                  : bytes == 2            ? "(i16)(x)"
                  : type == ValueType::u8 ? "(u8)(x)"
                                          : "(i8)(x)",
                  "(i32)(x)");
  }
}

void derive_indexed(const Specialization& facts, SourceText& text) {
  const auto operands = facts.number_of("OPERANDS");
  std::string find;
  for (int64_t n = 2; n < operands; ++n) {
    find += c10::str("TB_FIND(", n, ") ");
  }
  text.define("FIND", find);
  text.define("COUNTS", c10::str("p", operands));
  text.define("CELL", c10::str("p", operands + (facts.is("SCALED") ? 1 : 0)));
  const auto type = facts.type_of("THERE_TYPE"), compute = facts.computes_in();
  if (type == ValueType::none) {
    return;
  }
  const auto mode = static_cast<Mode>(facts.number_of("MODE"));
  text.define("COMBINE(a, b)", combine_text(mode, is_floating(compute)));
  if (facts.is("SIDE_BY_SIDE")) {
    if (mode == Mode::kAdd && compute == type) {
      text.define("ADD", c10::str("TB_ATOMIC_ADD_", name_of(type)));
    }
    if (mode == Mode::kAdd && is_floating(type) && size_of(type) == 2 && facts.type_of("HERE_TYPE") == type &&
        !facts.is("FACTOR") && !facts.is("SCALED")) {
      text.define("HALVES", 1); // what is added needs no rounding of its own
    }
    define_atomic(text, type);
  }
}
constexpr Skeleton kIndexed{"indexed", "indexed", derive_indexed};

bool run(const tb_kernel_context& context, const Access& access);

/// Elements of complex numbers, or of more bytes than a word has, by their halves.
bool run_halves(const tb_kernel_context& context, const Access& access) {
  Access halves = access;
  for (int n = 0; n < access.num_indices; ++n) {
    halves.steps[static_cast<std::size_t>(n)] *= 2;
  }
  if (access.has_value) {
    bool taken = true;
    for (const int which : {0, 1}) {
      tb_arg number{TB_ARG_FLOAT, 0, {}};
      number.v.f = which == 0 ? access.value.real() : access.value.imag();
      halves.there = access.there.half(which);
      halves.set_value(number, halves.there.type());
      taken = taken && run(context, halves);
    }
    return taken;
  }
  halves.here = access.here.in_halves();
  halves.there = access.there.in_halves();
  for (int n = 0; n < access.num_indices; ++n) {
    halves.indices[static_cast<std::size_t>(n)].add_dim(2, 0);
  }
  return run(context, halves);
}

/// False, with nothing done: more dimensions or other dtypes than the kernel takes, or sums whose order is not known in
/// PyTorch's deterministic mode.
bool run(const tb_kernel_context& context, const Access& access) {
  const auto type = access.there.type();
  const auto here_type = access.has_value ? type : access.here.type();
  const bool combines = access.mode >= Mode::kAdd;
  const auto compute = combines ? compute_type(type) : ValueType::i32;
  const int operands = 2 + access.num_indices;
  if (type == ValueType::none || here_type == ValueType::none || (!combines && here_type != type)) {
    return false;
  }
  if (is_complex(type) && (combines || access.has_value || access.there.element_bytes() > 8)) {
    return access.mode <= Mode::kAdd && run_halves(context, access); // products are not by halves
  }
  if (combines && !is_common(type)) {
    return false;
  }
  const bool stretches = runs_in_stretches(context.device);
  if ((access.mode == Mode::kAdd || access.mode == Mode::kMultiply) && is_floating(compute) && !stretches &&
      at::globalContext().deterministicAlgorithms()) {
    return false; // items that run side by side round in another order each time
  }
  std::array<tb_tensor, Geometry::kMaxOperands> tensors;
  std::array<const tb_tensor*, Geometry::kMaxOperands> pointers;
  for (int n = 0; n < operands; ++n) {
    const auto at = static_cast<std::size_t>(n);
    tensors[at] = (n == 0   ? (access.has_value ? access.there : access.here)
                   : n == 1 ? access.there
                            : access.indices[at - 2])
                      .tensor();
    pointers[at] = &tensors[at];
  }
  Geometry geometry;
  if (!geometry.of(pointers.data(), operands)) {
    return false;
  }
  if (geometry.count == 0) {
    return true;
  }
  int64_t last = geometry.reach(1);
  for (int j = 0; j < access.num_indices; ++j) {
    const auto at = static_cast<std::size_t>(j);
    last += access.extents[at] * std::abs(access.steps[at]);
  }
  const bool fits = geometry.fits_32 && last < Geometry::kLimit32;
  const int element_bytes = access.there.element_bytes();
  int word_bytes = element_bytes;
  if (!combines && !access.has_value && !stretches) {
    uint64_t steps = 0;
    for (int j = 0; j < access.num_indices; ++j) {
      steps |= static_cast<uint64_t>(access.steps[static_cast<std::size_t>(j)]);
    }
    word_bytes = geometry.widen(pointers.data(), 2, element_bytes, steps * static_cast<uint64_t>(element_bytes));
  }
  Specialization wanted(kIndexed);
  wanted.compute_in(compute)
      .index_of(fits)
      .number("RANK", geometry.rank_class())
      .number("OPERANDS", operands)
      .type("WORD", word_type(word_bytes))
      .type("THERE_TYPE", combines ? type : ValueType::none)
      .type("HERE_TYPE", combines ? here_type : ValueType::none)
      .number("MODE", static_cast<int64_t>(access.mode))
      .flag("READS", access.mode == Mode::kRead)
      .flag("WRAPS", access.wraps)
      .flag("VALUE", access.has_value)
      .flag("FACTOR", access.has_factor)
      .flag("SCALED", access.counts != nullptr)
      .flag("SIDE_BY_SIDE", !stretches);
  bool hoisted = true;
  for (int n = 0; n < operands; ++n) {
    wanted.step("STEP", n, geometry.inner_stride(n));
    if (n >= 2) {
      const auto index_type = access.indices[static_cast<std::size_t>(n - 2)].type();
      if (index_type != ValueType::i64 && index_type != ValueType::i32) {
        return false;
      }
      wanted.type("INDEX", n, index_type);
      hoisted = hoisted && geometry.inner_stride(n) == 0;
    }
  }
  wanted.flag("HOISTED", hoisted).parameters(operands + 1 + (access.counts ? 1 : 0));
  const auto& function = find_function(context.device, wanted);
  ArgsStruct args;
  args.add(geometry.count);
  args.add_dims(geometry);
  const int together = word_bytes / element_bytes;
  for (int n = 0; n < operands; ++n) {
    args.add(n < 2 ? 0 : access.extents[static_cast<std::size_t>(n - 2)]);
  }
  for (int n = 0; n < operands; ++n) {
    args.add(n < 2 ? 0 : access.steps[static_cast<std::size_t>(n - 2)] / together);
  }
  args.add({fallible_operator(access.op), access.skipped, static_cast<int64_t>(access.word), access.scalar});
  Launch launch(context);
  for (int n = 0; n < operands; ++n) {
    launch.pointer(*pointers[static_cast<std::size_t>(n)]);
  }
  if (access.counts) {
    launch.pointer(access.counts);
  }
  launch.pointer(error_cell(context.device));
  args.pass(launch);
  if (combines && stretches) {
    launch.run_blocks(function, 1, 1); // in order, as the CPU adds
  } else {
    launch.run(function, geometry.count);
  }
  fallible_launch(context.device, context.stream);
  return true;
}

/// `tensor` in the shape of `shape`, repeated along dimension d but for what `index` chooses there.
View without_dim(const tb_tensor& tensor, int d, const View& shape) {
  View view(tensor);
  if (view.dim() == 0) {
    view.strides.assign(shape.sizes.size(), 0);
  }
  view.sizes = shape.sizes;
  if (view.dim() > 0) {
    view.stride(d) = 0;
  }
  return view;
}

int64_t size_along(const tb_tensor& tensor, int d) {
  return tensor.ndim == 0 ? 1 : tensor.shape[d];
}
int64_t stride_along(const tb_tensor& tensor, int d) {
  return tensor.ndim == 0 ? 0 : tensor.strides[d];
}

/// A one-dimensional index, the same for everything else in `shape`.
View along_dim(const tb_tensor& index, int d, const View& shape) {
  View view(index);
  const int64_t stride = index.ndim == 0 ? 0 : index.strides[0];
  view.sizes = shape.sizes;
  view.strides.assign(shape.sizes.size(), 0);
  if (view.dim() > 0) {
    view.stride(d) = stride;
  }
  return view;
}

/// A tensor of no or one dimension as one of one dimension, so that all operands have the same number.
View at_least_1d(const tb_tensor& tensor) {
  View view(tensor);
  if (view.dim() == 0) {
    view.add_dim(1, 1);
  }
  return view;
}

bool same_place(const tb_tensor& a, const tb_tensor& b) {
  return a.data == b.data && a.byte_offset == b.byte_offset;
}

/// The output begins as a copy of the first argument.
bool begin_as(const tb_kernel_context& context, const tb_tensor& out, const tb_tensor& self) {
  return same_place(out, self) || pointwise::copy_views(context, View(out), View(self));
}

// ---- one dimension ----

/// PyTorch's kernels refuse others, of no elements too.
bool is_index(const tb_tensor& tensor, bool may_be_int32) {
  const auto type = value_type(tensor.dtype);
  return type == ValueType::i64 || (may_be_int32 && type == ValueType::i32);
}

tb_status index_select(const void* entry, const tb_kernel_context& context, const tb_arg* args, int32_t) {
  using Op = op::index_select_out;
  const auto* self = tensor_of(args[Op::self]);
  const auto* index = tensor_of(args[Op::index]);
  const auto* out = tensor_of(args[Op::out]);
  const int d = wrap_dim(args[Op::dim].v.i, self->ndim);
  if (index->ndim > 1 || (self->ndim == 0 && elements_of(*index) != 1)) {
    return TB_STATUS_UNSUPPORTED;
  }
  Access access(static_cast<const char*>(entry), Mode::kRead);
  access.here = at_least_1d(*out);
  access.there = without_dim(*self, d, access.here);
  access.add_index(along_dim(*index, d, access.here), size_along(*self, d), stride_along(*self, d));
  return run(context, access) ? TB_STATUS_OK : TB_STATUS_UNSUPPORTED;
}

tb_status gather(const void* entry, const tb_kernel_context& context, const tb_arg* args, int32_t) {
  using Op = op::gather_out;
  const auto* self = tensor_of(args[Op::self]);
  const auto* index = tensor_of(args[Op::index]);
  const auto* out = tensor_of(args[Op::out]);
  const int d = wrap_dim(args[Op::dim].v.i, self->ndim);
  Access access(static_cast<const char*>(entry), Mode::kRead);
  access.here = at_least_1d(*out);
  access.there = without_dim(*self, d, access.here);
  access.add_index(at_least_1d(*index), size_along(*self, d), stride_along(*self, d));
  return run(context, access) ? TB_STATUS_OK : TB_STATUS_UNSUPPORTED;
}

bool takes(const tb_tensor& out, const tb_arg& source) {
  const auto* tensor = tensor_of(source);
  const auto type = value_type(out.dtype);
  return type != ValueType::none && (tensor ? value_type(tensor->dtype) == type
                                            : is_real(source) || (is_complex(type) && source.tag == TB_ARG_COMPLEX));
}

/// Writes `source`, a tensor or a number, to `out` at `index` along `dim`.
tb_status write_along(const tb_kernel_context& context, const char* op, Mode mode, const tb_tensor& out, int64_t dim,
                      const tb_tensor& index, const tb_arg& source) {
  if (index.ndim > 0 && View(index).numel() == 0) {
    return TB_STATUS_OK;
  }
  const int d = wrap_dim(dim, out.ndim);
  Access access(op, mode);
  View indices = at_least_1d(index);
  if (const auto* tensor = tensor_of(source)) {
    access.here = at_least_1d(*tensor);
    access.here.sizes = indices.sizes;
  } else if (takes(out, source)) {
    access.set_value(source, value_type(out.dtype));
  } else {
    return TB_STATUS_UNSUPPORTED;
  }
  access.there = without_dim(out, d, indices);
  access.add_index(indices, size_along(out, d), stride_along(out, d));
  return run(context, access) ? TB_STATUS_OK : TB_STATUS_UNSUPPORTED;
}

bool mode_of(const tb_arg& reduce, Mode* mode) {
  const std::string_view name(static_cast<const char*>(reduce.v.p), reduce.length);
  if (name == "add" || name == "sum" || name == "mean") { // a mean is divided afterwards
    *mode = Mode::kAdd;
  } else if (name == "multiply" || name == "prod") {
    *mode = Mode::kMultiply;
  } else if (name == "amin") {
    *mode = Mode::kMin;
  } else if (name == "amax") {
    *mode = Mode::kMax;
  } else {
    return false;
  }
  return true;
}

/// An overload's `reduce` is in place of kMode.
template <class Op, int32_t kSource, Mode kMode = Mode::kSet>
tb_status scatter(const void*, const tb_kernel_context& context, const tb_arg* args, int32_t) {
  const auto* out = tensor_of(args[Op::out]);
  Mode mode = kMode;
  if constexpr (requires { Op::reduce; }) {
    if (!mode_of(args[Op::reduce], &mode)) {
      return TB_STATUS_UNSUPPORTED;
    }
  }
  if (!takes(*out, args[kSource]) || !begin_as(context, *out, *tensor_of(args[Op::self]))) {
    return TB_STATUS_UNSUPPORTED;
  }
  return write_along(context, Op::kName, mode, *out, args[Op::dim].v.i, *tensor_of(args[Op::index]), args[kSource]);
}

/// What changes nothing that it is combined with.
tb_arg identity_of(Mode mode, ValueType type) {
  tb_arg number{};
  number.tag = is_floating(type) ? TB_ARG_FLOAT : TB_ARG_INT;
  if (mode == Mode::kMultiply) {
    number.v.i = 1;
    if (number.tag == TB_ARG_FLOAT) {
      number.v.f = 1;
    }
  } else if (mode == Mode::kMin || mode == Mode::kMax) {
    const bool highest = mode == Mode::kMin;
    if (number.tag == TB_ARG_FLOAT) {
      number.v.f = highest ? HUGE_VAL : -HUGE_VAL;
    } else {
      const int bits = type == ValueType::i64 ? 64 : type == ValueType::i32 ? 32 : type == ValueType::i16 ? 16 : 8;
      const int64_t most = static_cast<int64_t>((uint64_t{1} << (bits - 1)) - 1);
      number.v.i = type == ValueType::b8   ? highest
                   : type == ValueType::u8 ? (highest ? 255 : 0)
                   : highest               ? most
                                           : -most - 1;
    }
  }
  return number;
}

// ---- means ----

constexpr PointwiseEntry kMean{"scattered_mean",
                               nullptr,
                               "T sum, T added, T own, TB_PRIVATE T* out",
                               "const T n = added + own; *out = n > 1 ? sum / n : sum;",
                               "const T n = added + own; *out = n > 1 ? tb_floor_quotient(sum, n) : sum;",
                               nullptr,
                               "",
                               "integral",
                               1,
                               "ttn"};

bool is_mean(const tb_arg& reduce) {
  return std::string_view(static_cast<const char*>(reduce.v.p), reduce.length) == "mean";
}

/// Divides each element of `out`, a sum, by the number of its terms: `count` adds a number to places of a tensor of its shape.
template <class Count>
tb_status divide_by_counts(const tb_kernel_context& context, const tb_tensor& out, bool include_self, Count count) {
  const int64_t bytes = elements_of(out) * 4;
  if (bytes == 0) {
    return TB_STATUS_OK;
  }
  const View counts(workspace(context, bytes), kInt32, {out.shape, static_cast<std::size_t>(out.ndim)});
  fill_bytes(context, counts.data, 0, bytes);
  tb_arg one{};
  one.tag = TB_ARG_INT;
  one.v.i = 1;
  const tb_tensor described = counts.tensor();
  const auto status = count(described, one);
  if (status != TB_STATUS_OK) {
    return status;
  }
  const View sums(out);
  const View operands[] = {sums, counts};
  const double own = include_self ? 1 : 0;
  return pointwise::compute_elements(context, kMean, sums, operands, own, compute_type(sums.type()))
             ? TB_STATUS_OK
             : TB_STATUS_UNSUPPORTED;
}

tb_status scatter_reduce(const void* entry, const tb_kernel_context& context, const tb_arg* args, int32_t) {
  using Op = op::scatter_reduce_two_out;
  const auto* op = static_cast<const char*>(entry);
  const auto* index = tensor_of(args[Op::index]);
  const auto* out = tensor_of(args[Op::out]);
  Mode mode;
  if (!mode_of(args[Op::reduce], &mode) || !takes(*out, args[Op::src]) ||
      !begin_as(context, *out, *tensor_of(args[Op::self]))) {
    return TB_STATUS_UNSUPPORTED;
  }
  if (!args[Op::include_self].v.i) {
    const auto identity = identity_of(mode, value_type(out->dtype));
    write_along(context, op, Mode::kSet, *out, args[Op::dim].v.i, *index, identity);
  }
  const auto status = write_along(context, op, mode, *out, args[Op::dim].v.i, *index, args[Op::src]);
  return status != TB_STATUS_OK || !is_mean(args[Op::reduce])
             ? status
             : divide_by_counts(context, *out, args[Op::include_self].v.i != 0,
                                [&](const tb_tensor& counts, const tb_arg& one) {
                                  return write_along(context, op, Mode::kAdd, counts, args[Op::dim].v.i, *index, one);
                                });
}

/// Writes along `dim` where a one-dimensional index says; `source` a tensor or a number, times `factor`.
tb_status write_slices(const tb_kernel_context& context, const char* op, Mode mode, const tb_tensor& out, int64_t dim,
                       const tb_tensor& index, const tb_arg& source, const tb_arg* factor, bool wraps) {
  const int64_t num_indices = index.ndim == 0 ? 1 : index.shape[0];
  const auto* tensor = tensor_of(source);
  if (num_indices == 0 || (tensor && View(*tensor).numel() == 0)) {
    return TB_STATUS_OK;
  }
  const int d = wrap_dim(dim, out.ndim);
  const auto type = value_type(out.dtype);
  Access access(op, mode);
  access.wraps = wraps;
  View shape = at_least_1d(out);
  shape.size(d) = num_indices;
  if (tensor) {
    access.here = without_dim(*tensor, d, shape);
    if (tensor->ndim > 0) {
      access.here.stride(d) = tensor->strides[d];
    }
  } else {
    access.set_value(source, type);
  }
  access.there = without_dim(out, d, shape);
  if (factor) {
    access.scalar = scalar_of(*factor, compute_type(part_type(type)));
    access.has_factor = double_of(*factor) != 1 && (type != ValueType::b8 || double_of(*factor) == 0);
  }
  access.add_index(along_dim(index, d, shape), size_along(out, d), stride_along(out, d));
  return run(context, access) ? TB_STATUS_OK : TB_STATUS_UNSUPPORTED;
}

tb_status index_add(const void* entry, const tb_kernel_context& context, const tb_arg* args, int32_t) {
  using Op = op::index_add_out;
  const auto* out = tensor_of(args[Op::out]);
  if (!takes(*out, args[Op::source]) || !is_real(args[Op::alpha]) ||
      !begin_as(context, *out, *tensor_of(args[Op::self]))) {
    return TB_STATUS_UNSUPPORTED;
  }
  return write_slices(context, static_cast<const char*>(entry), Mode::kAdd, *out, args[Op::dim].v.i,
                      *tensor_of(args[Op::index]), args[Op::source], &args[Op::alpha], false);
}

tb_status index_copy(const void* entry, const tb_kernel_context& context, const tb_arg* args, int32_t) {
  using Op = op::index_copy_out;
  const auto* out = tensor_of(args[Op::out]);
  if (!takes(*out, args[Op::source]) || !begin_as(context, *out, *tensor_of(args[Op::self]))) {
    return TB_STATUS_UNSUPPORTED;
  }
  return write_slices(context, static_cast<const char*>(entry), Mode::kSet, *out, args[Op::dim].v.i,
                      *tensor_of(args[Op::index]), args[Op::source], nullptr, false);
}

tb_status index_reduce(const void* entry, const tb_kernel_context& context, const tb_arg* args, int32_t) {
  using Op = op::index_reduce_out;
  const auto* op = static_cast<const char*>(entry);
  const auto* index = tensor_of(args[Op::index]);
  const auto* out = tensor_of(args[Op::out]);
  Mode mode;
  if (!mode_of(args[Op::reduce], &mode) || !takes(*out, args[Op::source]) ||
      !begin_as(context, *out, *tensor_of(args[Op::self]))) {
    return TB_STATUS_UNSUPPORTED;
  }
  if (!args[Op::include_self].v.i) {
    const auto identity = identity_of(mode, value_type(out->dtype));
    write_slices(context, op, Mode::kSet, *out, args[Op::dim].v.i, *index, identity, nullptr, false);
  }
  const auto status =
      write_slices(context, op, mode, *out, args[Op::dim].v.i, *index, args[Op::source], nullptr, false);
  return status != TB_STATUS_OK || !is_mean(args[Op::reduce])
             ? status
             : divide_by_counts(context, *out, args[Op::include_self].v.i != 0,
                                [&](const tb_tensor& counts, const tb_arg& one) {
                                  return write_slices(context, op, Mode::kAdd, counts, args[Op::dim].v.i, *index, one,
                                                      nullptr, false);
                                });
}

tb_status index_fill(const void* entry, const tb_kernel_context& context, const tb_arg* args, int32_t) {
  using Op = op::index_fill__int_Scalar;
  static_assert(agree<Op, op::index_fill__int_Tensor>());
  const auto* self = tensor_of(args[Op::self]);
  const auto* index = tensor_of(args[Op::index]);
  const auto* value = tensor_of(args[Op::value]);
  if (!self->data) {
    return TB_STATUS_OK;
  }
  if ((value && value->ndim != 0) || index->ndim > 1 || !takes(*self, args[Op::value]) ||
      !is_index(*index, /*may_be_int32=*/false)) {
    return TB_STATUS_UNSUPPORTED;
  }
  return write_slices(context, static_cast<const char*>(entry), Mode::kSet, *self, args[Op::dim].v.i, *index,
                      args[Op::value], nullptr, true);
}

tb_status embedding_backward(const void* entry, const tb_kernel_context& context, const tb_arg* args, int32_t) {
  using Op = op::embedding_dense_backward;
  const auto* op = static_cast<const char*>(entry);
  const auto* grad = tensor_of(args[Op::grad_output]);
  const auto* indices = tensor_of(args[Op::indices]);
  const auto* out = tensor_of(args[Op::result]);
  const auto type = value_type(out->dtype);
  if (!grad || type == ValueType::none || value_type(grad->dtype) != type || !is_index(*indices, true)) {
    return TB_STATUS_UNSUPPORTED;
  }
  const View result(*out);
  fill_bytes(context, result.data, 0, result.numel() * result.element_bytes());
  if (View(*indices).numel() == 0 || !grad->data) {
    return TB_STATUS_OK;
  }
  const int64_t rows = out->shape[0];
  Access access(op, Mode::kAdd);
  access.here = View(*grad);
  View index(*indices);
  const int last = access.here.dim() - 1;
  index.add_dim(access.here.size(last), 0);
  access.there = access.here;
  access.there.data = result.data;
  access.there.dtype = result.dtype;
  std::fill_n(access.there.strides.begin(), last, 0);
  access.there.stride(last) = out->strides[1];
  access.add_index(index, rows, out->strides[0]);
  access.skipped = args[Op::padding_idx].v.i >= 0 ? args[Op::padding_idx].v.i : INT64_MIN;
  if (args[Op::scale_grad_by_freq].v.i) {
    char* counts = workspace(context, rows * 4);
    fill_bytes(context, counts, 0, rows * 4);
    Access count(op, Mode::kAdd);
    count.has_value = true;
    count.scalar = 1;
    count.there = View(*indices);
    count.there.data = counts;
    count.there.dtype = kInt32;
    count.there.strides.assign(count.there.sizes.size(), 0);
    count.add_index(View(*indices), rows, 1);
    if (!run(context, count)) {
      return TB_STATUS_UNSUPPORTED;
    }
    access.counts = counts;
  }
  return run(context, access) ? TB_STATUS_OK : TB_STATUS_UNSUPPORTED;
}

// ---- all elements as one dimension ----

View flat(const tb_tensor& contiguous) {
  const int64_t count = View(contiguous).numel();
  return View(static_cast<char*>(contiguous.data) + contiguous.byte_offset, contiguous.dtype, count);
}

tb_status take(const void* entry, const tb_kernel_context& context, const tb_arg* args, int32_t) {
  using Op = op::take_out;
  Access access(static_cast<const char*>(entry), Mode::kRead);
  access.here = flat(*tensor_of(args[Op::out]));
  access.wraps = true;
  const View self = flat(*tensor_of(args[Op::self]));
  access.there = access.here;
  access.there.data = self.data;
  access.there.stride(0) = 0;
  access.add_index(flat(*tensor_of(args[Op::index])), self.size(0), 1);
  return run(context, access) ? TB_STATUS_OK : TB_STATUS_UNSUPPORTED;
}

tb_status put(const void* entry, const tb_kernel_context& context, const tb_arg* args, int32_t) {
  using Op = op::put_;
  const View self = flat(*tensor_of(args[Op::self]));
  const View index = flat(*tensor_of(args[Op::index]));
  if (!takes(*tensor_of(args[Op::self]), args[Op::source]) ||
      elements_of(*tensor_of(args[Op::source])) != index.size(0) ||
      !is_index(*tensor_of(args[Op::index]), /*may_be_int32=*/false)) {
    return TB_STATUS_UNSUPPORTED;
  }
  if (index.size(0) == 0) {
    return TB_STATUS_OK;
  }
  Access access(static_cast<const char*>(entry), args[Op::accumulate].v.i ? Mode::kAdd : Mode::kSet);
  access.here = flat(*tensor_of(args[Op::source]));
  access.wraps = true;
  access.there = access.here;
  access.there.data = self.data;
  access.there.stride(0) = 0;
  access.add_index(index, self.size(0), 1);
  return run(context, access) ? TB_STATUS_OK : TB_STATUS_UNSUPPORTED;
}

// ---- lists of indices ----

/// The indices of x[i, :, mask] as int64 or int32 tensors, broadcast to one shape.
struct IndexList {
  int num = 0; // dimensions that are chosen
  std::array<int, kMaxIndices> dims{};
  std::array<View, kMaxIndices> views;
  Dims sizes; // of what they are broadcast to
};

bool is_mask(const tb_tensor& index) {
  const auto type = value_type(index.dtype);
  return type == ValueType::b8 || type == ValueType::u8;
}

/// False: what no kernel takes. Throws IndexError for a mask of another shape.
bool read_indices(const tb_kernel_context& context, const char* op, const tb_tensor& self, const tb_arg& list,
                  IndexList* found) {
  auto* const* tensors = static_cast<tb_tensor* const*>(list.v.p);
  int d = 0;
  const auto add = [&](const View& view) {
    if (found->num == kMaxIndices || d >= self.ndim) {
      return false;
    }
    found->dims[static_cast<std::size_t>(found->num)] = d++;
    found->views[static_cast<std::size_t>(found->num++)] = view;
    return true;
  };
  for (uint32_t i = 0; i < list.length; ++i) {
    const auto* index = tensors[i];
    if (!index) {
      ++d;
      continue;
    }
    if (!is_mask(*index)) {
      if (!is_index(*index, /*may_be_int32=*/true) || !add(View(*index))) {
        return false;
      }
      continue;
    }
    const View mask(*index);
    if (d + mask.dim() > self.ndim || mask.dim() == 0) {
      return false;
    }
    for (int k = 0; k < mask.dim(); ++k) {
      TORCH_CHECK_INDEX(mask.size(k) == self.shape[d + k], "The shape of the mask at index ", k,
                        " does not match the shape of the indexed tensor at index ", d + k);
    }
    int64_t count = 0;
    char* places = nullptr;
    if (mask.numel() > 0) {
      const View packed = dense_like(context, mask);
      if (packed.data != mask.data && !pointwise::copy_views(context, packed, mask)) {
        return false;
      }
      Compaction compaction(context, op, packed);
      count = compaction.count();
      places = workspace(context, count * mask.dim() * 8);
      if (count > 0) {
        compaction.write_places(places, 1, count, mask.dim(), index->shape);
      }
    }
    for (int k = 0; k < mask.dim(); ++k) {
      if (!add(View(places + k * count * 8, kInt64, count))) {
        return false;
      }
    }
  }
  std::size_t dims = 0;
  for (int n = 0; n < found->num; ++n) {
    dims = std::max(dims, found->views[static_cast<std::size_t>(n)].sizes.size());
  }
  found->sizes.assign(dims, 1);
  for (int n = 0; n < found->num; ++n) {
    const auto& view = found->views[static_cast<std::size_t>(n)];
    for (int k = 0; k < view.dim(); ++k) {
      auto& size = found->sizes[dims - view.sizes.size() + static_cast<std::size_t>(k)];
      TORCH_CHECK_INDEX(size == 1 || view.size(k) == 1 || size == view.size(k),
                        "shape mismatch: indexing tensors could not be broadcast together");
      size = size == 1 ? view.size(k) : size;
    }
  }
  return true;
}

/// `there` and the indices over the shape of the result; returns that shape, with strides of 0.
View spread(const tb_tensor& self, const IndexList& list, Access* access) {
  bool adjacent = list.num > 0;
  for (int n = 1; n < list.num; ++n) {
    adjacent = adjacent && list.dims[static_cast<std::size_t>(n)] == list.dims[static_cast<std::size_t>(n - 1)] + 1;
  }
  const int at = adjacent ? list.dims[0] : 0;
  View shape;
  access->there = View(self);
  std::array<View, kMaxIndices> indices = list.views;
  const auto clear = [](View& view) {
    view.sizes.clear();
    view.strides.clear();
  };
  clear(access->there);
  std::for_each(indices.begin(), indices.begin() + list.num, clear);
  const int num_dims = static_cast<int>(list.sizes.size());
  const auto add_chosen = [&] {
    for (int k = 0; k < num_dims; ++k) {
      const int64_t size = list.sizes[static_cast<std::size_t>(k)];
      shape.add_dim(size, 0);
      access->there.add_dim(size, 0);
      for (int n = 0; n < list.num; ++n) {
        const auto& view = list.views[static_cast<std::size_t>(n)];
        const int place = k - (num_dims - view.dim());
        const bool moves = place >= 0 && view.size(place) != 1;
        indices[static_cast<std::size_t>(n)].add_dim(size, moves ? view.stride(place) : 0);
      }
    }
  };
  const auto add_whole = [&](int d) {
    shape.add_dim(self.shape[d], 0);
    access->there.add_dim(self.shape[d], self.strides[d]);
    for (int n = 0; n < list.num; ++n) {
      indices[static_cast<std::size_t>(n)].add_dim(self.shape[d], 0);
    }
  };
  const auto is_chosen = [&](int d) {
    return std::find(list.dims.begin(), list.dims.begin() + list.num, d) != list.dims.begin() + list.num;
  };
  for (int d = 0; d <= self.ndim; ++d) {
    if (d == at) {
      add_chosen();
    }
    if (d < self.ndim && !is_chosen(d)) {
      add_whole(d);
    }
  }
  for (int n = 0; n < list.num; ++n) {
    const int d = list.dims[static_cast<std::size_t>(n)];
    access->add_index(indices[static_cast<std::size_t>(n)], self.shape[d], self.strides[d]);
  }
  access->wraps = true;
  return shape;
}

tb_status index(const void* entry, const tb_kernel_context& context, const tb_arg* args, int32_t) {
  using Op = op::index_Tensor_out;
  const auto* self = tensor_of(args[Op::self]);
  const auto* out = tensor_of(args[Op::out]);
  Access access(static_cast<const char*>(entry), Mode::kRead);
  IndexList list;
  if (value_type(self->dtype) == ValueType::none ||
      !read_indices(context, access.op, *self, args[Op::indices], &list)) {
    return TB_STATUS_UNSUPPORTED;
  }
  const View shape = spread(*self, list, &access);
  access.here = View(*out);
  if (shape.dim() != out->ndim || View(*out).numel() != shape.numel()) {
    return TB_STATUS_UNSUPPORTED;
  }
  return run(context, access) ? TB_STATUS_OK : TB_STATUS_UNSUPPORTED;
}

tb_status index_put(const void* entry, const tb_kernel_context& context, const tb_arg* args, int32_t) {
  using Op = op::_index_put_impl_;
  const auto* self = tensor_of(args[Op::self]);
  const auto* values = tensor_of(args[Op::values]);
  Access access(static_cast<const char*>(entry), args[Op::accumulate].v.i ? Mode::kAdd : Mode::kSet);
  IndexList list;
  if (!values || !takes(*self, args[Op::values]) ||
      !read_indices(context, access.op, *self, args[Op::indices], &list)) {
    return TB_STATUS_UNSUPPORTED;
  }
  const View shape = spread(*self, list, &access);
  const View here(*values);
  if (here.dim() > shape.dim()) {
    return TB_STATUS_UNSUPPORTED; // PyTorch's own kernel takes them to fill what a mask says, and refuses them else
  }
  TORCH_CHECK(here.expands_to(shape.sizes), "shape mismatch: value tensor of shape ", at::IntArrayRef(here.sizes),
              " cannot be broadcast to indexing result of shape ", at::IntArrayRef(shape.sizes));
  access.here = here.expanded(shape.sizes);
  if (shape.numel() == 0) {
    return TB_STATUS_OK;
  }
  return run(context, access) ? TB_STATUS_OK : TB_STATUS_UNSUPPORTED;
}

// ---- masks ----

tb_status nonzero(const void* entry, const tb_kernel_context& context, const tb_arg* args, int32_t) {
  using Op = op::nonzero_out;
  const auto* self = tensor_of(args[Op::self]);
  const View mask(*self);
  int64_t count = 0;
  tb_tensor out{};
  out.dtype = kInt64;
  if (mask.numel() == 0) {
    const int64_t shape[] = {0, self->ndim};
    return context.host->alloc_output(0, 2, shape, &out);
  }
  const View packed = is_complex(mask.type()) ? View(workspace(context, mask.numel()), ValueType::b8, mask.sizes)
                                              : dense_like(context, mask);
  if (packed.data != mask.data && !pointwise::copy_views(context, packed, mask)) {
    return TB_STATUS_UNSUPPORTED;
  }
  Compaction compaction(context, static_cast<const char*>(entry), packed);
  count = compaction.count();
  const int64_t shape[] = {count, self->ndim};
  const auto status = context.host->alloc_output(0, 2, shape, &out);
  if (status == TB_STATUS_OK && count > 0 && self->ndim > 0) {
    compaction.write_places(View(out).data, out.strides[0], out.strides[1], self->ndim, self->shape);
  }
  return status;
}

struct Operator {
  const char* overload;
  KernelFunction function;
  uint32_t flags;
  bool takes_complex = true;
};

constexpr Operator kOperators[] = {
    {op::index_select_out::kName, guarded<index_select>, kTakesEmpty},
    {op::gather_out::kName, guarded<gather>, kTakesEmpty},
    {op::scatter_src_out::kName, guarded<scatter<op::scatter_src_out, op::scatter_src_out::src>>,
     kTakesEmpty | kUpdatesFirst},
    {op::scatter_value_out::kName, guarded<scatter<op::scatter_value_out, op::scatter_value_out::value>>,
     kTakesEmpty | kUpdatesFirst},
    {op::scatter_reduce_out::kName, guarded<scatter<op::scatter_reduce_out, op::scatter_reduce_out::src>>,
     kTakesEmpty | kUpdatesFirst},
    {op::scatter_value_reduce_out::kName,
     guarded<scatter<op::scatter_value_reduce_out, op::scatter_value_reduce_out::value>>, kTakesEmpty | kUpdatesFirst},
    {op::scatter_add_out::kName, guarded<scatter<op::scatter_add_out, op::scatter_add_out::src, Mode::kAdd>>,
     kTakesEmpty | kUpdatesFirst},
    {op::scatter_reduce_two_out::kName, guarded<scatter_reduce>, kTakesEmpty | kUpdatesFirst, false},
    {op::index_add_out::kName, guarded<index_add>, kTakesEmpty | kUpdatesFirst},
    {op::index_copy_out::kName, guarded<index_copy>, kTakesEmpty | kUpdatesFirst},
    {op::index_reduce_out::kName, guarded<index_reduce>, kTakesEmpty | kUpdatesFirst, false},
    {op::index_fill__int_Scalar::kName, guarded<index_fill>, kTakesEmpty},
    {op::index_fill__int_Tensor::kName, guarded<index_fill>, kTakesEmpty},
    {op::embedding_dense_backward::kName, guarded<embedding_backward>, kTakesEmpty | TB_KERNEL_NEEDS_CONTIGUOUS, false},
    {op::take_out::kName, guarded<take>, kTakesEmpty | TB_KERNEL_NEEDS_CONTIGUOUS},
    {op::put_::kName, guarded<put>, kTakesEmpty | TB_KERNEL_NEEDS_CONTIGUOUS},
    {op::index_Tensor_out::kName, guarded<index>, kTakesEmpty},
    {op::_index_put_impl_::kName, guarded<index_put>, kTakesEmpty},
    {op::nonzero_out::kName, guarded<nonzero>, kTakesEmpty | TB_KERNEL_ALLOCATES_OUTPUT},
};

} // namespace

void add(Kernels& kernels) {
  for (const auto& op : kOperators) {
    kernels.add(op.overload, op.function, op.flags, op.overload, op.takes_complex ? kAllTypes : kCommonTypes);
  }
}

} // namespace torch_backend::compiled::indexed
