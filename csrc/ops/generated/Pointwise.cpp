#include "csrc/ops/generated/Pointwise.h"

#include <array>
#include <cstring>
#include <string>
#include <string_view>

#include <c10/util/StringUtil.h>

#include "csrc/core/DType.h"
#include "csrc/core/Runtime.h"
#include "csrc/ops/generated/Families.h"
#include "csrc/ops/generated/Geometry.h"
#include "csrc/ops/generated/KernelText.h"
#include "csrc/ops/generated/Launch.h"
#include "csrc/ops/generated/Modules.h"
#include "csrc/ops/generated/Support.h"
#include "csrc/ops/tensor/Transfer.h"
#include "csrc/profiler/Recording.h"

namespace torch_backend::generated {
namespace {

constexpr int kMaxOperands = Geometry::kMaxOperands;
constexpr int kMaxScalars = 8;

/// How far apart neighbours of an operand are in the inner dimension, as far as the text depends on it.
enum class Step : uint8_t { kOne, kZero, kOther };

union Number {
  float f32;
  double f64;
  int64_t i64;
};

/// One call: operands (outputs first) and numbers.
struct Call {
  std::array<const tb_tensor*, kMaxOperands> operands;
  std::array<ValueType, kMaxOperands> types;
  int num_operands = 0;
  std::array<Number, kMaxScalars> scalars;
  int num_scalars = 0;
  ValueType compute = ValueType::none;
  /// What stands for each argument of apply(), in order: 'o' an operand, 's' a number, '-' None.
  std::array<char, 16> arguments;
  int num_arguments = 0;

  bool add_operand(const tb_tensor* tensor) {
    if (num_operands == kMaxOperands) {
      return false;
    }
    types[static_cast<std::size_t>(num_operands)] = value_type(tensor->dtype);
    operands[static_cast<std::size_t>(num_operands)] = tensor;
    return types[static_cast<std::size_t>(num_operands++)] != ValueType::none;
  }
  void add_argument(char what) {
    arguments[static_cast<std::size_t>(num_arguments++)] = what;
  }
};

bool add_number(Call& call, const tb_arg& argument, bool is_whole) {
  if (call.num_scalars == kMaxScalars) {
    return false;
  }
  auto& number = call.scalars[static_cast<std::size_t>(call.num_scalars++)];
  number.i64 = 0;
  const bool floating = argument.tag == TB_ARG_FLOAT;
  if (argument.tag != TB_ARG_FLOAT && argument.tag != TB_ARG_INT && argument.tag != TB_ARG_BOOL) {
    return false;
  }
  if (is_whole || !is_floating(call.compute)) {
    number.i64 = floating ? static_cast<int64_t>(argument.v.f) : argument.v.i;
  } else if (call.compute == ValueType::f64) {
    number.f64 = floating ? argument.v.f : static_cast<double>(argument.v.i);
  } else {
    number.f32 = floating ? static_cast<float>(argument.v.f) : static_cast<float>(argument.v.i);
  }
  call.add_argument(is_whole ? 'i' : 's');
  return true;
}

bool computes(int device, ValueType type) {
  const auto& mask = device_api().properties(device).compute_dtype_mask;
  return type != ValueType::f64 || (mask[0] | mask[1] | mask[2] | mask[3]) == 0 ||
         (mask[TB_DTYPE_MASK_WORD(TB_DTYPE_FLOAT, 64u)] & TB_DTYPE_MASK_FLAG(TB_DTYPE_FLOAT, 64u)) != 0;
}

Step step_of(const Geometry& geometry, int operand) {
  const int64_t stride =
      geometry.strides[static_cast<std::size_t>(operand)][static_cast<std::size_t>(geometry.rank - 1)];
  return stride == 1 ? Step::kOne : stride == 0 ? Step::kZero : Step::kOther;
}

/// Few texts for many ranks.
int rank_class(int rank) {
  return rank <= 4 ? rank : Geometry::kMaxRank;
}

KernelKey key_of(const PointwiseEntry& entry, const Call& call, const Geometry& geometry) {
  KernelKey key{&entry};
  for (int n = 0; n < call.num_operands; ++n) {
    key.words[0] = key.words[0] << 4 | static_cast<uint64_t>(call.types[static_cast<std::size_t>(n)]);
    key.words[1] = key.words[1] << 2 | static_cast<uint64_t>(step_of(geometry, n));
  }
  for (int i = 0; i < call.num_arguments; ++i) {
    const char what = call.arguments[static_cast<std::size_t>(i)];
    key.words[2] = key.words[2] << 2 | (what == 'o' ? 1u : what == '-' ? 2u : 3u);
  }
  key.words[3] = static_cast<uint64_t>(rank_class(geometry.rank)) << 8 | static_cast<uint64_t>(call.compute) << 4 |
                 static_cast<uint64_t>(geometry.fits_32) << 3;
  return key;
}

const char* body_of(const PointwiseEntry& entry, const Call& call) {
  if (is_floating(call.compute)) {
    return entry.floating;
  }
  return call.types[0] == ValueType::b8 && entry.boolean ? entry.boolean : entry.integral;
}

void write(SourceText& text, const PointwiseEntry& entry, const Call& call, const Geometry& geometry) {
  const int rank = rank_class(geometry.rank);
  text.compute_in(call.compute);
  text.index_of(geometry.fits_32);
  text.define("OPERANDS", call.num_operands);
  text.define("RANK", rank);
  text.define("SCALARS", call.num_scalars > 0 ? call.num_scalars : 1);
  for (int n = 0; n < call.num_operands; ++n) {
    const Step step = step_of(geometry, n);
    text.define(c10::str("STEP_", n), step == Step::kOne    ? std::string("1")
                                      : step == Step::kZero ? std::string("0")
                                                            : c10::str("args.strides[", n, "][RANK - 1]"));
  }
  text.line(c10::str("TB_DEVICE void apply(", entry.parameters, ") {\n", body_of(entry, call), "\n}"));
  std::string apply = "{ ";
  for (int n = 0; n < entry.num_outputs; ++n) {
    apply += c10::str("T r", n, "; ");
  }
  std::string inputs;
  int operand = entry.num_outputs;
  int scalar = 0;
  const char* kinds = entry.kinds;
  for (int i = 0; i < call.num_arguments; ++i, ++kinds) {
    while (*kinds == 's' || *kinds == 'S') {
      ++kinds;
    }
    const char what = call.arguments[static_cast<std::size_t>(i)];
    if (*kinds >= 'A' && *kinds <= 'Z') {
      inputs += what == '-' ? "0, " : "1, ";
    }
    if (what == 'o') {
      inputs += c10::str("(T)TB_LOAD_", name_of(call.types[static_cast<std::size_t>(operand)]), "(p", operand, ", K(",
                         operand, ")), ");
      ++operand;
    } else if (what == '-') {
      inputs += "0, ";
    } else {
      inputs += what == 'i' ? c10::str("args.scalars[", scalar, "].i64_, ") : c10::str("(T)TB_SCALAR(", scalar, "), ");
      ++scalar;
    }
  }
  for (int n = 0; n < entry.num_outputs; ++n) {
    inputs += c10::str("&r", n, n + 1 < entry.num_outputs ? ", " : "");
  }
  apply += c10::str("apply(", inputs, "); ");
  for (int n = 0; n < entry.num_outputs; ++n) {
    apply +=
        c10::str("TB_STORE_", name_of(call.types[static_cast<std::size_t>(n)]), "(p", n, ", K(", n, "), r", n, "); ");
  }
  text.define("APPLY(K)", apply + "}");
  text.parameters(call.num_operands);
}

bool launch(const PointwiseEntry& entry, const Call& call, const tb_kernel_context& context) {
  Geometry geometry;
  if (call.compute == ValueType::none || !body_of(entry, call) || !computes(context.device, call.compute) ||
      !geometry.of(call.operands.data(), call.num_operands)) {
    return false;
  }
  const auto& function = find_function(context.device, key_of(entry, call, geometry), "pointwise", "pointwise",
                                       [&](SourceText& text) { write(text, entry, call, geometry); });
  const int rank = rank_class(geometry.rank);
  // The struct Args of the skeleton: eight bytes each.
  std::array<int64_t, 1 + Geometry::kMaxRank * (1 + kMaxOperands) + kMaxScalars> args;
  std::size_t size = 0;
  args[size++] = geometry.count;
  const int padding = rank - geometry.rank;
  for (int d = 0; d < rank; ++d) {
    args[size++] = d < padding ? 1 : geometry.sizes[static_cast<std::size_t>(d - padding)];
  }
  for (int n = 0; n < call.num_operands; ++n) {
    for (int d = 0; d < rank; ++d) {
      args[size++] =
          d < padding ? 0 : geometry.strides[static_cast<std::size_t>(n)][static_cast<std::size_t>(d - padding)];
    }
  }
  std::memcpy(&args[size], call.scalars.data(), static_cast<std::size_t>(call.num_scalars) * sizeof(Number));
  size += static_cast<std::size_t>(call.num_scalars > 0 ? call.num_scalars : 1);
  Launch launch(context);
  for (int n = 0; n < call.num_operands; ++n) {
    launch.pointer(*call.operands[static_cast<std::size_t>(n)]);
  }
  launch.value(args.data(), size * sizeof(int64_t));
  launch.run(function, geometry.count);
  return true;
}

/// Whether an entry's variant ("approximate=tanh") is that of the strings among the arguments.
bool has_variant(const PointwiseEntry& entry, const tb_arg* args, int32_t num_inputs) {
  if (!entry.variant) {
    return true;
  }
  const std::string_view value = std::strchr(entry.variant, '=') + 1;
  for (int32_t i = 0; i < num_inputs; ++i) {
    if (args[i].tag == TB_ARG_STRING) {
      return value == std::string_view(static_cast<const char*>(args[i].v.p), args[i].length);
    }
    if (args[i].tag == TB_ARG_NONE && (entry.kinds[i] == 'S')) {
      return value == "none";
    }
  }
  return false;
}

tb_status pointwise(const void* data, const tb_kernel_context& context, const tb_arg* args, int32_t num_args) {
  const auto* entry = static_cast<const PointwiseEntry*>(data);
  const int32_t num_inputs = num_args - entry->num_outputs;
  const auto table = pointwise_table();
  const char* overload = entry->overload;
  while (!has_variant(*entry, args, num_inputs)) {
    ++entry;
    if (entry == table.entries + table.size || std::strcmp(entry->overload, overload) != 0) {
      return TB_STATUS_UNSUPPORTED;
    }
  }
  Call call;
  for (int32_t i = num_inputs; i < num_args; ++i) {
    if (args[i].tag != TB_ARG_TENSOR || !call.add_operand(static_cast<const tb_tensor*>(args[i].v.p))) {
      return TB_STATUS_UNSUPPORTED;
    }
  }
  const auto computed = context.compute_dtype.bits != 0 ? context.compute_dtype
                                                        : static_cast<const tb_tensor*>(args[num_inputs].v.p)->dtype;
  call.compute = compute_type(value_type(computed));
  for (int32_t i = 0; i < num_inputs; ++i) {
    const char kind = entry->kinds[i];
    bool taken = true;
    if (kind == 's' || kind == 'S') {
      continue;
    }
    if (args[i].tag == TB_ARG_TENSOR) {
      taken = call.add_operand(static_cast<const tb_tensor*>(args[i].v.p));
      call.add_argument('o');
    } else if (args[i].tag == TB_ARG_NONE) {
      taken = kind >= 'A' && kind <= 'Z';
      call.add_argument('-');
    } else {
      taken = add_number(call, args[i], kind == 'i' || kind == 'I');
    }
    if (!taken) {
      return TB_STATUS_UNSUPPORTED;
    }
  }
  return launch(*entry, call, context) ? TB_STATUS_OK : TB_STATUS_UNSUPPORTED;
}

// ---- copies ----

const PointwiseEntry kCopy{"aten::copy_", nullptr, "T x, TB_PRIVATE T* out", "*out = x;", "*out = x;", nullptr, 1, "t"};
const PointwiseEntry kNegatedCopy{
    "aten::copy_", nullptr, "T x, TB_PRIVATE T* out", "*out = -x;", "*out = -x;", nullptr, 1, "t"};

/// A tensor as kernels get it, without elements that it does not own.
tb_tensor describe(const at::Tensor& tensor, tb_dtype dtype) {
  return {const_cast<void*>(tensor.storage().data()),
          {12, tensor.device().index()},
          static_cast<int32_t>(tensor.dim()),
          dtype,
          const_cast<int64_t*>(tensor.sizes().data()),
          const_cast<int64_t*>(tensor.strides().data()),
          static_cast<uint64_t>(tensor.storage_offset()) * tensor.element_size()};
}

/// Whole numbers of the same size, which are copied bit by bit.
tb_dtype bits_of(std::size_t size_bytes) {
  return {TB_DTYPE_INT, static_cast<uint8_t>(8 * size_bytes), 1};
}

} // namespace

bool copy_elements(const at::Tensor& dst, const at::Tensor& src, const Stream& stream) {
  if (!has_modules()) {
    return false;
  }
  const bool same =
      dst.scalar_type() == src.scalar_type() && dst.is_neg() == src.is_neg() && dst.is_conj() == src.is_conj();
  if (same ? dst.element_size() > 8 : dst.is_conj() || src.is_conj()) {
    return false;
  }
  const tb_tensor to = describe(dst, same ? bits_of(dst.element_size()) : tb_dtype_or_none(dst.scalar_type()));
  const tb_tensor from = describe(src, same ? bits_of(src.element_size()) : tb_dtype_or_none(src.scalar_type()));
  Call call;
  if (!call.add_operand(&to) || !call.add_operand(&from)) {
    return false;
  }
  call.add_argument('o');
  call.compute = compute_type(call.types[1]);
  tb_kernel_context context{};
  context.device = stream.device_index();
  context.stream = stream.handle();
  CallSpan span("kernel_launch", context.device);
  span.kernel(context.stream, "aten::copy_");
  if (!launch(dst.is_neg() != src.is_neg() ? kNegatedCopy : kCopy, call, context)) {
    return false;
  }
  span.enqueued();
  return true;
}

bool copy_views(const tb_kernel_context& context, const View& dst, const View& src) {
  View to = dst, from = src;
  if (to.dtype.code == from.dtype.code && to.dtype.bits == from.dtype.bits) {
    to.dtype = from.dtype = bits_of(static_cast<std::size_t>(to.element_bytes()));
  }
  const tb_tensor out = to.tensor(), in = from.tensor();
  Call call;
  if (!call.add_operand(&out) || !call.add_operand(&in)) {
    return false;
  }
  call.add_argument('o');
  call.compute = compute_type(call.types[1]);
  return launch(kCopy, call, context);
}

void add_pointwise(Kernels& kernels) {
  const auto table = pointwise_table();
  for (std::size_t i = 0; i < table.size; ++i) {
    const auto& entry = table.entries[i];
    if (i == 0 || std::strcmp(entry.overload, table.entries[i - 1].overload) != 0) {
      kernels.add(entry.overload, pointwise, TB_KERNEL_MIXED_DTYPES | TB_KERNEL_NUMBERS, &entry);
    }
  }
}

} // namespace torch_backend::generated
