#include "csrc/ops/compiled/families/Pointwise.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <c10/util/StringUtil.h>

#include "csrc/core/DType.h"
#include "csrc/core/KernelHost.h"
#include "csrc/core/Runtime.h"
#include "csrc/ops/compiled/engine/AheadImages.h"
#include "csrc/ops/compiled/engine/Geometry.h"
#include "csrc/ops/compiled/engine/KernelText.h"
#include "csrc/ops/compiled/engine/Kernels.h"
#include "csrc/ops/compiled/engine/Launch.h"
#include "csrc/ops/compiled/engine/Modules.h"
#include "csrc/ops/compiled/engine/Part.h"
#include "csrc/ops/compiled/engine/Support.h"
#include "csrc/ops/compiled/loops/Transpose.h"
#include "csrc/ops/tensor/Transfer.h"
#include "csrc/profiler/Recording.h"

namespace torch_backend::compiled::pointwise {
namespace {

constexpr int kMaxOperands = Geometry::kMaxOperands;
constexpr int kMaxScalars = 8;

/// What apply() is given.
enum class Argument : uint64_t { kEnd, kOperand, kNumber, kWholeNumber, kNone };
constexpr int kArgumentBits = 4;

/// One call: operands (outputs first) and numbers.
struct Call {
  std::array<const tb_tensor*, kMaxOperands> operands;
  std::array<ValueType, kMaxOperands> types;
  int num_operands = 0;
  std::array<int64_t, 2 * kMaxScalars> scalars; // where complex numbers are computed, two for each
  int num_scalars = 0;
  ValueType value = ValueType::none; // what PyTorch computes in: results are rounded to it
  /// What stands for each argument of apply(), in order, four bits each.
  uint64_t arguments = 0;
  int num_arguments = 0;
  bool moves = false; // elements of one size, as they are

  bool add_operand(const tb_tensor* tensor) {
    if (num_operands == kMaxOperands) {
      return false;
    }
    types[static_cast<std::size_t>(num_operands)] = value_type(tensor->dtype);
    operands[static_cast<std::size_t>(num_operands)] = tensor;
    return types[static_cast<std::size_t>(num_operands++)] != ValueType::none;
  }
  void add_argument(Argument what) {
    arguments |= static_cast<uint64_t>(what) << (kArgumentBits * num_arguments++);
  }
};

/// In the struct Args: at least one number, two words for each where complex numbers are computed.
int64_t scalar_words(int64_t num_scalars, ValueType value) {
  return std::max<int64_t>(num_scalars, 1) * (is_complex(value) ? 2 : 1);
}

/// As a tensor of `type` would have it.
int64_t wrap(int64_t number, ValueType type) {
  switch (type) {
    case ValueType::b8:
      return number != 0;
    case ValueType::u8:
      return static_cast<uint8_t>(number);
    case ValueType::i8:
      return static_cast<int8_t>(number);
    case ValueType::i16:
      return static_cast<int16_t>(number);
    case ValueType::i32:
      return static_cast<int32_t>(number);
    case ValueType::u16:
      return static_cast<uint16_t>(number);
    case ValueType::u32:
      return static_cast<uint32_t>(number);
    default:
      return number;
  }
}

/// Whether PyTorch computes with a number among the tensors, a tensor of no dimension too, as it is. Other operators get
/// what a tensor of the dtype would have.
bool keeps_numbers(const PointwiseEntry& entry) {
  constexpr std::string_view kArithmetic[] = {"aten::add.out", "aten::mul.out", "aten::div.out", "aten::div.out_mode",
                                              "aten::floor_divide.out"};
  return std::find(std::begin(kArithmetic), std::end(kArithmetic), entry.overload) != std::end(kArithmetic);
}

double round_to(double number, ValueType type) {
  return type == ValueType::f16    ? static_cast<double>(c10::Half(static_cast<float>(number)))
         : type == ValueType::bf16 ? static_cast<double>(c10::BFloat16(static_cast<float>(number)))
                                   : number;
}

/// `kind` is a letter of PointwiseEntry::kinds.
bool add_number(const PointwiseEntry& entry, Call& call, const tb_arg& argument, char kind) {
  const auto compute = compute_type(call.value);
  const bool takes = is_real(argument) || (is_complex(compute) && argument.tag == TB_ARG_COMPLEX);
  if (call.num_scalars == kMaxScalars || !takes) {
    return false;
  }
  auto* const numbers = &call.scalars[static_cast<std::size_t>(call.num_scalars++ * (is_complex(compute) ? 2 : 1))];
  auto& number = numbers[0];
  const bool is_whole = kind == 'i' || kind == 'I';
  if (is_whole) {
    number = int_of(argument);
  } else if (is_complex(compute)) {
    const auto value = complex_of(argument);
    number = scalar_of(value.real(), part_type(compute));
    numbers[1] = scalar_of(value.imag(), part_type(compute));
  } else if (!is_floating(compute)) {
    number = wrap(int_of(argument), call.value);
  } else if (compute != call.value && (kind == 't' || kind == 'T') && !keeps_numbers(entry)) {
    number = scalar_of(round_to(double_of(argument), call.value), compute);
  } else {
    number = scalar_of(argument, compute);
  }
  call.add_argument(is_whole ? Argument::kWholeNumber : Argument::kNumber);
  return true;
}

/// Whether what calls these functions can be repeated for each element of a vector.
bool is_short(std::string_view texts) {
  return texts.empty() || texts == "floating" || texts == "integral";
}

/// Elements that an item reads before it writes any; 0: rows of operands are not aligned or not side by side, or too few or
/// too much work for it to matter.
int vector_of(int device, const PointwiseEntry& entry, const Call& call, const Geometry& geometry) {
  constexpr int64_t kWorthVectors = 16384;
  constexpr std::size_t kMostBytes = 64; // that an item has of an operand at once, in registers
  if (runs_in_stretches(device) || geometry.count < kWorthVectors ||
      !is_short(is_floating(compute_type(call.value)) ? entry.floating_texts : entry.integral_texts)) {
    return 0;
  }
  std::size_t least = kWideBytes, most = 1; // bytes of an element
  for (std::size_t n = 0; n < static_cast<std::size_t>(call.num_operands); ++n) {
    least = std::min(least, size_of(call.types[n]));
    most = std::max(most, size_of(call.types[n]));
  }
  const auto vector = static_cast<int>(std::min(kWideBytes / least, kMostBytes / most));
  const auto inner = static_cast<std::size_t>(geometry.rank - 1);
  if (vector == 1 || (inner > 0 && geometry.sizes[inner] % vector != 0)) {
    return 0;
  }
  for (std::size_t n = 0; n < static_cast<std::size_t>(call.num_operands); ++n) {
    const tb_tensor& operand = *call.operands[n];
    const auto& strides = geometry.strides[n];
    const auto step = kind_of(strides[inner]);
    const bool is_aligned = is_of_vectors(static_cast<const char*>(operand.data) + operand.byte_offset,
                                          size_of(call.types[n]), vector, {strides.data(), inner});
    if (step == StrideKind::kOther || (step == StrideKind::kOne && !is_aligned)) {
      return 0;
    }
  }
  return vector;
}

bool refuses_bools(const PointwiseEntry& entry) {
  return entry.boolean && !*entry.boolean;
}

const char* body_of(const PointwiseEntry& entry, ValueType value) {
  if (is_floating(value)) {
    return entry.floating;
  }
  if (is_complex(value)) {
    return entry.complex;
  }
  return value == ValueType::b8 && entry.boolean ? entry.boolean : entry.integral;
}

std::vector<Argument> arguments_of(const Specialization& facts) {
  std::vector<Argument> arguments;
  for (auto rest = static_cast<uint64_t>(facts.number_of("ARGUMENTS")); rest != 0; rest >>= kArgumentBits) {
    arguments.push_back(static_cast<Argument>(rest & ((1U << kArgumentBits) - 1)));
  }
  return arguments;
}

/// `const T s0 = ...; const Index step1 = ...;`: what is the same for all elements.
std::string write_locals(const Specialization& facts) {
  std::string locals;
  const bool complex = is_complex(facts.type_of("VALUE_TYPE"));
  int scalar = 0;
  for (const auto what : arguments_of(facts)) {
    if (what == Argument::kWholeNumber) {
      locals += c10::str("const i64 s", scalar, " = args.scalars[", scalar * (complex ? 2 : 1), "].i64_; ");
    } else if (what == Argument::kNumber) {
      locals += c10::str("const T s", scalar, " = ", complex ? "" : "(T)", "TB_SCALAR(", scalar, "); ");
    }
    scalar += what == Argument::kWholeNumber || what == Argument::kNumber;
  }
  for (int n = 0; n < facts.number_of("OPERANDS"); ++n) {
    if (facts.operand_step(n) == StrideKind::kOther) {
      locals += c10::str("const Index step", n, " = (Index)args.strides[", n, "][RANK - 1]; ");
    }
  }
  return locals;
}

/// Whether values of `type`, converted to what PyTorch computes `value` in, need not be rounded to be of `value`: a tensor
/// of no dimension does not widen the dtype that the others have.
bool holds(ValueType value, ValueType type) {
  return type == value || compute_type(value) == value || value == ValueType::b8 || type == ValueType::b8 ||
         (type == ValueType::u8 && value >= ValueType::i16) ||
         (type == ValueType::i8 && value >= ValueType::i16 && is_common(value));
}

/// What apply() is called with.
std::string write_inputs(const Specialization& facts) {
  const auto& entry = facts.entry<PointwiseEntry>();
  const auto value = facts.type_of("VALUE_TYPE");
  std::string inputs;
  int operand = entry.num_outputs;
  int scalar = 0;
  const char* kinds = entry.kinds;
  for (const auto what : arguments_of(facts)) {
    while (*kinds == 's' || *kinds == 'S') {
      ++kinds;
    }
    if (*kinds >= 'A' && *kinds <= 'Z') {
      inputs += what == Argument::kNone ? "0, " : "1, ";
    }
    if (what == Argument::kOperand) {
      const auto type = facts.operand_type(operand);
      const bool rounds =
          *kinds != 'm' && !is_complex(value) && !holds(value, type) && !(is_floating(value) && keeps_numbers(entry));
      inputs += c10::str(rounds ? "TB_V_ROUND(" : "", load_text(type, value, operand), rounds ? "), " : ", ");
      ++operand;
    } else if (what == Argument::kNone) {
      inputs += is_complex(value) ? "tb_real(0), " : "0, ";
    } else {
      inputs += c10::str("s", scalar++, ", ");
    }
    ++kinds;
  }
  return *kinds == '#' ? inputs + "(i64)args.count, " : inputs;
}

/// Of output `n`, computed as `r<n>`. PyTorch converts what it has computed in its dtype to that of an out= tensor.
std::string write_store(ValueType type, ValueType value, int n) {
  const bool rounds = type != value && type != ValueType::b8 && compute_type(value) != value;
  std::string result = c10::str("r", n);
  if (is_complex(value)) {
    result += is_complex(type) ? "" : type == ValueType::b8 ? ".re || r" + std::to_string(n) + ".im" : ".re";
  } else if (rounds) {
    result = c10::str("TB_ROUND_", name_of(value), "(r", n, ")");
  }
  return c10::str("TB_STORE_", name_of(type), "(p", n, ", K(", n, "), ", result, "); ");
}

/// The operands of which an item moves several elements at once.
void write_vectors(const Specialization& facts, SourceText& text) {
  const auto& entry = facts.entry<PointwiseEntry>();
  std::vector<WideOperand> operands;
  for (int n = 0; n < facts.number_of("OPERANDS"); ++n) {
    if (facts.operand_step(n) == StrideKind::kOne) {
      const bool is_output = n < entry.num_outputs;
      operands.push_back({n, facts.operand_type(n), !is_output || entry.kinds[0] == 'w', is_output});
    }
  }
  define_wide(text, "p", operands, facts.number_of("VECTOR"));
}

void derive_pointwise(const Specialization& facts, SourceText& text) {
  const auto& entry = facts.entry<PointwiseEntry>();
  const auto value = facts.type_of("VALUE_TYPE");
  const auto arguments = arguments_of(facts);
  const auto num_scalars = std::count(arguments.begin(), arguments.end(), Argument::kNumber) +
                           std::count(arguments.begin(), arguments.end(), Argument::kWholeNumber);
  text.compute_in(compute_type(value));
  text.parameters(static_cast<int>(facts.number_of("OPERANDS")));
  text.define("SCALARS", scalar_words(num_scalars, value));
  if (!is_complex(value)) {
    text.define("TB_V", name_of(value));
  }
  for (int n = 0; n < facts.number_of("OPERANDS"); ++n) {
    if (is_float8(facts.operand_type(n))) {
      define_float8(text);
      break;
    }
  }
  write_apply(text, entry, value);
  std::string results, stores;
  std::string inputs = write_inputs(facts);
  for (int n = 0; n < entry.num_outputs; ++n) {
    results += c10::str("T r", n, "; ");
    inputs += c10::str("&r", n, n + 1 < entry.num_outputs ? ", " : "");
    stores += write_store(facts.operand_type(n), value, n);
  }
  if (facts.number_of("VECTOR") != 0) {
    write_vectors(facts, text);
  }
  text.define("LOCALS", write_locals(facts));
  text.define("APPLY(K)", c10::str("{ ", results, "apply(", inputs, "); ", stores, "}"));
}
constexpr Skeleton kPointwise{"pointwise", "pointwise", derive_pointwise};

Specialization specialize(const PointwiseEntry& entry, const Call& call, const Geometry& geometry, int vector) {
  Specialization wanted(kPointwise);
  wanted.entry(&entry)
      .called(entry.overload)
      .type("VALUE_TYPE", call.value)
      .index_of(geometry.fits_32)
      .number("OPERANDS", call.num_operands)
      .number("RANK", geometry.rank_class())
      .number("VECTOR", vector)
      .number("ARGUMENTS", static_cast<int64_t>(call.arguments));
  for (int n = 0; n < call.num_operands; ++n) {
    wanted.operand(n, call.types[static_cast<std::size_t>(n)], geometry.inner_stride(n));
  }
  return wanted;
}

bool launch(const PointwiseEntry& entry, Call& call, const tb_kernel_context& context) {
  Geometry geometry;
  const auto& output = *call.operands[0];
  if (std::find(output.shape, output.shape + output.ndim, 0) != output.shape + output.ndim) {
    return true; // no elements
  }
  const bool has_complex = std::any_of(call.types.begin(), call.types.begin() + call.num_operands, is_complex);
  if (call.value == ValueType::none || (has_complex && !is_complex(call.value)) || !body_of(entry, call.value) ||
      !computes(context.device, call.value) || !geometry.of(call.operands.data(), call.num_operands)) {
    return false;
  }
  if (call.moves && geometry.rank > 1 && !runs_in_stretches(context.device)) {
    const int bytes = geometry.widen(call.operands.data(), call.num_operands, output.dtype.bits / 8);
    call.value = word_type(bytes);
    call.types.fill(call.value);
  }
  if (call.moves && call.num_operands == 2 && geometry.rank > 1 &&
      transpose(context, geometry, *call.operands[0], *call.operands[1], call.types[0])) {
    return true;
  }
  const int vector = vector_of(context.device, entry, call, geometry);
  const auto& function = find_function(context.device, specialize(entry, call, geometry, vector));
  ArgsStruct args;
  args.add(geometry.count);
  args.add_dims(geometry);
  args.add({call.scalars.data(), static_cast<std::size_t>(scalar_words(call.num_scalars, call.value))});
  Launch launch(context);
  for (int n = 0; n < call.num_operands; ++n) {
    launch.pointer(*call.operands[static_cast<std::size_t>(n)]);
  }
  args.pass(launch);
  launch.run(function, vector ? geometry.count / vector : geometry.count);
  return true;
}

/// Whether an entry's variant ("approximate=tanh") is that of the string or the number among the arguments.
bool has_variant(const PointwiseEntry& entry, const tb_arg* args, int32_t num_inputs) {
  const std::string_view value = entry.variant ? std::strchr(entry.variant, '=') + 1 : "";
  for (int32_t i = 0; i < num_inputs && !value.empty(); ++i) {
    if (args[i].tag == TB_ARG_STRING) {
      return value == std::string_view(static_cast<const char*>(args[i].v.p), args[i].length);
    }
    if (args[i].tag == TB_ARG_NONE && entry.kinds[i] == 'S') {
      return value == "none";
    }
    if (entry.kinds[i] == 'n') {
      const double wanted = std::strtod(value.data(), nullptr);
      return args[i].tag == TB_ARG_FLOAT ? args[i].v.f == wanted
                                         : args[i].tag == TB_ARG_INT && static_cast<double>(args[i].v.i) == wanted;
    }
  }
  return value.empty();
}

/// Whether each element of args[0] is written once, and is in no other place of an input.
bool can_write_in_place(const tb_arg* args, int32_t num_args) {
  const auto& self = *static_cast<const tb_tensor*>(args[0].v.p);
  return !has_repeats(self) && std::none_of(args + 1, args + num_args, [&](const tb_arg& argument) {
    return argument.tag == TB_ARG_TENSOR && self.data && static_cast<const tb_tensor*>(argument.v.p)->data == self.data;
  });
}

/// What PyTorch computes a call in. Where it does not say: the dtype of the output, or if that is an answer, of the input.
ValueType value_of(const tb_kernel_context& context, const Call& call, const tb_arg* args, int32_t num_inputs) {
  for (int32_t i = 0; i < num_inputs; ++i) {
    const auto* tensor = tensor_of(args[i]);
    if (tensor && tensor->dtype.code == TB_DTYPE_COMPLEX && !is_complex(call.types[0]) &&
        context.compute_dtype.code != TB_DTYPE_COMPLEX) {
      return value_type(tensor->dtype); // whose size or sign the output has
    }
  }
  if (context.compute_dtype.bits != 0) {
    return value_type(context.compute_dtype);
  }
  for (int32_t i = 0; call.types[0] == ValueType::b8 && i < num_inputs; ++i) {
    if (args[i].tag == TB_ARG_TENSOR) {
      return value_type(static_cast<const tb_tensor*>(args[i].v.p)->dtype);
    }
  }
  return call.types[0];
}

tb_status pointwise(const void* data, const tb_kernel_context& context, const tb_arg* args, int32_t num_args) {
  const auto* entry = static_cast<const PointwiseEntry*>(data);
  const bool in_place = entry->kinds[0] == 'w';
  const int32_t num_inputs = in_place ? num_args : num_args - entry->num_outputs;
  const auto table = pointwise_table();
  const char* overload = entry->overload;
  while (!has_variant(*entry, args, num_inputs)) {
    ++entry;
    if (entry == table.entries + table.size || std::strcmp(entry->overload, overload) != 0) {
      return TB_STATUS_UNSUPPORTED;
    }
  }
  Call call;
  if (in_place &&
      (!can_write_in_place(args, num_args) || !call.add_operand(static_cast<const tb_tensor*>(args[0].v.p)))) {
    return TB_STATUS_UNSUPPORTED;
  }
  for (int32_t i = num_inputs; i < num_args; ++i) {
    if (args[i].tag != TB_ARG_TENSOR || !call.add_operand(static_cast<const tb_tensor*>(args[i].v.p))) {
      return TB_STATUS_UNSUPPORTED;
    }
  }
  call.value = value_of(context, call, args, num_inputs);
  for (int32_t i = 0; i < num_inputs; ++i) {
    const char kind = entry->kinds[i];
    bool taken = true;
    if (kind == 's' || kind == 'S') {
      continue;
    }
    if (args[i].tag == TB_ARG_TENSOR) {
      const bool added = call.add_operand(static_cast<const tb_tensor*>(args[i].v.p));
      const bool is_bool = added && call.types[static_cast<std::size_t>(call.num_operands - 1)] == ValueType::b8;
      taken = added && (kind == 'm' ? is_bool : !is_bool || !refuses_bools(*entry));
      call.add_argument(Argument::kOperand);
    } else if (args[i].tag == TB_ARG_NONE) {
      taken = kind >= 'A' && kind <= 'Z';
      call.add_argument(Argument::kNone);
    } else {
      taken = add_number(*entry, call, args[i], kind);
    }
    if (!taken) {
      return TB_STATUS_UNSUPPORTED;
    }
  }
  return launch(*entry, call, context) ? TB_STATUS_OK : TB_STATUS_UNSUPPORTED;
}

// ---- copies ----

constexpr PointwiseEntry copy_of(const char* real, const char* complex) {
  return {"aten::copy_", nullptr, "T x, TB_PRIVATE T* out", real, real, nullptr, "", "", 1, "t", complex};
}
/// By what is to be turned: the sign, the imaginary part's sign.
constexpr PointwiseEntry kCopies[2][2] = {
    {copy_of("*out = x;", "*out = x;"), copy_of("*out = x;", "*out = tb_c_conj(x);")},
    {copy_of("*out = -x;", "*out = tb_c_neg(x);"), copy_of("*out = -x;", "*out = tb_c_neg(tb_c_conj(x));")}};

/// A tensor as kernels get it, without elements that it does not own.
tb_tensor describe(const at::Tensor& tensor, tb_dtype dtype) {
  return {const_cast<void*>(tensor.storage().data()),
          {kExtDevice, tensor.device().index()},
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

/// In the input's dtype, or if only the output's is complex in that. `moves`: both are of bits_of().
bool compute(const PointwiseEntry& entry, const tb_tensor& dst, const tb_tensor& src, const tb_kernel_context& context,
             bool moves) {
  Call call;
  if (!call.add_operand(&dst) || !call.add_operand(&src)) {
    return false;
  }
  call.add_argument(Argument::kOperand);
  call.value = compute_type(call.types[is_complex(call.types[0]) && !is_complex(call.types[1]) ? 0 : 1]);
  call.moves = moves;
  return launch(entry, call, context);
}

} // namespace

bool copy_elements(const at::Tensor& dst, const at::Tensor& src, const Stream& stream) {
  if (!has_modules()) {
    return false;
  }
  const bool turned = dst.is_neg() != src.is_neg(), conjugated = dst.is_conj() != src.is_conj();
  const bool whole = dst.scalar_type() == src.scalar_type() && !turned && !conjugated;
  tb_kernel_context context{};
  context.device = stream.device_index();
  context.stream = stream.handle();
  CallSpan span("kernel_launch", context.device);
  span.kernel(context.stream, "aten::copy_");
  bool copied = false;
  try {
    if (whole && dst.element_size() > 8) {
      const tb_tensor to = describe(dst, bits_of(dst.element_size())), from = describe(src, to.dtype);
      copied = copy_views(context, View(to), View(from));
    } else {
      const auto dtype_of = [&](const at::Tensor& tensor) {
        return whole ? bits_of(tensor.element_size()) : tb_dtype_or_none(tensor.scalar_type());
      };
      copied = compute(kCopies[turned][conjugated], describe(dst, dtype_of(dst)), describe(src, dtype_of(src)), context,
                       whole);
    }
  } catch (const MissingImage&) { // the host copies
  }
  if (copied) {
    span.enqueued();
  }
  return copied;
}

bool copy_views(const tb_kernel_context& context, const View& dst, const View& src) {
  View to = dst, from = src;
  const bool moves = to.dtype.code == from.dtype.code && to.dtype.bits == from.dtype.bits;
  if (moves) {
    if (to.element_bytes() > 8) {
      to = to.in_halves();
      from = from.in_halves();
    }
    to.dtype = from.dtype = bits_of(static_cast<std::size_t>(to.element_bytes()));
  }
  return compute(kCopies[0][0], to.tensor(), from.tensor(), context, moves);
}

void write_apply(SourceText& text, const PointwiseEntry& entry, ValueType value) {
  for (const auto& name : c10::split(is_floating(value) ? entry.floating_texts : entry.integral_texts, ' ')) {
    if (!name.empty() && !is_complex(value)) {
      text.line(kernel_text(std::string(name).c_str()));
    }
  }
  text.line(c10::str("TB_DEVICE void apply(", entry.parameters, ") {\n", body_of(entry, value), "\n}"));
}

bool compute_elements(const tb_kernel_context& context, const PointwiseEntry& entry, c10::ArrayRef<View> outputs,
                      c10::ArrayRef<View> inputs, c10::ArrayRef<double> numbers, ValueType type) {
  Call call;
  call.value = type;
  c10::SmallVector<tb_tensor, 8> tensors;
  tensors.reserve(outputs.size() + inputs.size());
  bool taken = true;
  for (const auto& output : outputs) {
    tensors.push_back(output.tensor());
    taken = taken && call.add_operand(&tensors.back());
  }
  for (const auto& input : inputs) {
    if (!input.data) {
      call.add_argument(Argument::kNone);
      continue;
    }
    tensors.push_back(input.tensor());
    taken = taken && call.add_operand(&tensors.back());
    call.add_argument(Argument::kOperand);
  }
  for (const double number : numbers) {
    tb_arg argument{TB_ARG_FLOAT, 0, {}};
    argument.v.f = number;
    taken = taken && add_number(entry, call, argument, entry.kinds[call.num_arguments]);
  }
  return taken && launch(entry, call, context);
}

/// Calls of no elements are refused by dtypes alone.
bool takes_complex(const PointwiseEntry& first) {
  const auto table = pointwise_table();
  const auto* const end = table.entries + table.size;
  return std::any_of(&first, end, [&](const PointwiseEntry& entry) {
    return entry.complex && std::strcmp(entry.overload, first.overload) == 0;
  });
}

void add(Kernels& kernels) {
  const auto table = pointwise_table();
  for (std::size_t i = 0; i < table.size; ++i) {
    const auto& entry = table.entries[i];
    if (i == 0 || std::strcmp(entry.overload, table.entries[i - 1].overload) != 0) {
      kernels.add(entry.overload, pointwise, TB_KERNEL_MIXED_DTYPES | TB_KERNEL_NUMBERS | kTakesEmpty, &entry,
                  !takes_complex(entry)              ? kRealTypes
                  : entry.floating || entry.integral ? kAllTypes
                                                     : kComplexTypes);
    }
  }
}

} // namespace torch_backend::compiled::pointwise
