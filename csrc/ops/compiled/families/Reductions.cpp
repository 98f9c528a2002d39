// The operators that reduce their input over some of its dimensions, or all.

#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include <c10/util/StringUtil.h>

#include "csrc/ops/compiled/engine/Kernels.h"
#include "csrc/ops/compiled/engine/Overloads.h"
#include "csrc/ops/compiled/loops/Reduce.h"

namespace torch_backend::compiled::reductions {
namespace {

/// The dimensions that `argument` names, of a tensor of `num_dims`; `if_none` where it names none.
uint64_t dims_of(const tb_arg& argument, int64_t num_dims, uint64_t if_none) {
  const bool is_list = argument.tag == TB_ARG_INT_LIST;
  if (!is_list && argument.tag != TB_ARG_INT) {
    return all_dims(num_dims);
  }
  const auto* list = is_list ? static_cast<const int64_t*>(argument.v.p) : &argument.v.i;
  const uint32_t length = is_list ? argument.length : 1;
  uint64_t dims = 0;
  for (uint32_t i = 0; i < length && num_dims > 0; ++i) {
    dims |= uint64_t{1} << (list[i] < 0 ? list[i] + num_dims : list[i]);
  }
  return length > 0 ? dims : if_none;
}

/// The outputs of a call, in the form that reduce() takes; false if there are others than tensors.
bool outputs_of(const tb_arg* args, int32_t num_args, int32_t num_outputs, int64_t num_dims, uint64_t dims,
                c10::SmallVector<View, 4>* outputs) {
  for (int32_t i = num_args - num_outputs; i < num_args; ++i) {
    View output;
    if (!view_of(args[i], &output)) {
      return false;
    }
    outputs->push_back(with_reduced(std::move(output), num_dims, dims));
  }
  return true;
}

/// Whether PyTorch reduces no elements; it refuses to take the greatest of none.
bool has_value_of_nothing(const ReductionEntry& entry) {
  const std::string_view name(entry.name);
  return entry.of_output || name == "any" || name == "all";
}

/// PyTorch takes no mean into whole numbers, and none of complex numbers into real ones.
bool has_mean(ValueType output, ValueType input) {
  return is_complex(output) || (is_floating(output) && !is_complex(input));
}

tb_status run_entry(const void* data, const tb_kernel_context& context, const tb_arg* args, int32_t num_args) {
  const auto& entry = *static_cast<const ReductionEntry*>(data);
  c10::SmallVector<View, 4> inputs, outputs;
  for (int32_t i = 0; i < entry.num_inputs; ++i) {
    inputs.emplace_back();
    if (!view_of(args[i], &inputs.back())) {
      return TB_STATUS_UNSUPPORTED;
    }
  }
  const std::string_view name(entry.name);
  const int64_t num_dims = inputs[0].dim();
  const uint64_t if_none = name == "any" || name == "all" ? 0 : all_dims(num_dims);
  const uint64_t dims = dims_of(args[entry.num_inputs], num_dims, if_none);
  if (!outputs_of(args, num_args, entry.num_outputs, num_dims, dims, &outputs) ||
      (name == "mean" && !has_mean(outputs[0].type(), inputs[0].type()))) {
    return TB_STATUS_UNSUPPORTED;
  }
  return reduce(context, entry, outputs, inputs, dims, compute_type((entry.of_output ? outputs : inputs)[0].type()));
}

// ---- norms ----

double number_of(const tb_arg& argument, double if_none) {
  return argument.tag == TB_ARG_FLOAT                                ? argument.v.f
         : argument.tag == TB_ARG_INT || argument.tag == TB_ARG_BOOL ? static_cast<double>(argument.v.i)
                                                                     : if_none;
}

tb_status norm(const void*, const tb_kernel_context& context, const tb_arg* args, int32_t num_args) {
  using Op = op::linalg_vector_norm_out;
  static_assert(agree<Op, op::norm_out, op::norm_dtype_out>("self dim"));
  static_assert(+Op::ord == +op::norm_out::p && +Op::ord == +op::norm_dtype_out::p);
  View self;
  c10::SmallVector<View, 4> outputs;
  if (!view_of(args[Op::self], &self) || args[Op::ord].tag == TB_ARG_COMPLEX) {
    return TB_STATUS_UNSUPPORTED;
  }
  double order = number_of(args[Op::ord], 2);
  const uint64_t dims = dims_of(args[Op::dim], self.dim(), all_dims(self.dim()));
  if (!outputs_of(args, num_args, 1, self.dim(), dims, &outputs) || !is_floating(outputs[0].type())) {
    return TB_STATUS_UNSUPPORTED;
  }
  if (self.numel() == 0 && outputs[0].numel() > 0 && (order < 0 || std::isinf(order))) {
    return TB_STATUS_UNSUPPORTED; // PyTorch's kernel is asked, which refuses it
  }
  if (order != 0 && outputs[0].numel() == self.numel()) {
    order = 1; // of one element its size, also where powers of it are no numbers
  }
  const auto compute = compute_type(outputs[0].type());
  const bool by_order = order != 0 && order != 1 && order != 2 && !std::isinf(order);
  const auto& entry = reduction(order == 0            ? "norm_0"
                                : order == 1          ? "norm_1"
                                : order == 2          ? "norm_2"
                                : by_order            ? "norm_p"
                                : std::signbit(order) ? "norm_min"
                                                      : "norm_max");
  return reduce(context, entry, outputs, self, dims, compute,
                by_order ? c10::ArrayRef<double>(order) : c10::ArrayRef<double>());
}

// ---- around the mean ----

struct Spread {
  const char* reduction;
  bool with_mean; // the second output
};
constexpr Spread kVar{"var", false};
constexpr Spread kStd{"std", false};
constexpr Spread kVarMean{"var", true};
constexpr Spread kStdMean{"std", true};

tb_status spread(const void* data, const tb_kernel_context& context, const tb_arg* args, int32_t num_args) {
  using Op = op::var_correction_out;
  static_assert(
      agree<Op, op::std_correction_out, op::var_mean_correction, op::std_mean_correction>("self dim correction"));
  const auto& which = *static_cast<const Spread*>(data);
  View self;
  c10::SmallVector<View, 4> outputs;
  if (!view_of(args[Op::self], &self) || !is_floating(self.type())) {
    return TB_STATUS_UNSUPPORTED;
  }
  const uint64_t dims = dims_of(args[Op::dim], self.dim(), all_dims(self.dim()));
  if (!outputs_of(args, num_args, which.with_mean ? 2 : 1, self.dim(), dims, &outputs)) {
    return TB_STATUS_UNSUPPORTED;
  }
  const auto compute = compute_type(self.type());
  const double correction = number_of(args[Op::correction], 1);
  View mean;
  tb_status status = TB_STATUS_OK;
  if (which.with_mean && outputs[1].type() == compute) {
    mean = outputs[1];
  } else if (!temporary(context, compute, sizes_without(self, dims), &mean, &status)) {
    return status;
  }
  status = reduce(context, reduction("mean"), mean, self, dims, compute);
  if (status == TB_STATUS_OK && which.with_mean && outputs[1].type() != compute) {
    status = reduce(context, reduction("mean"), outputs[1], self, dims, compute);
  }
  if (status != TB_STATUS_OK) {
    return status;
  }
  const View inputs[] = {self, repeated_over(mean, self, dims)};
  return reduce(context, reduction(which.reduction), outputs[0], inputs, dims, compute, correction);
}

/// The sum of the diagonal: (self, out)
tb_status trace(const void*, const tb_kernel_context& context, const tb_arg* args, int32_t) {
  using Op = op::trace;
  View self, output;
  if (!view_of(args[Op::self], &self) || !view_of(args[Op::result], &output)) {
    return TB_STATUS_UNSUPPORTED;
  }
  View diagonal = self;
  diagonal.sizes = {std::min(self.sizes[0], self.sizes[1])};
  diagonal.strides = {self.strides[0] + self.strides[1]};
  return reduce(context, reduction("sum"), with_reduced(output, 1, 1), diagonal, 1, compute_type(output.type()));
}

} // namespace

void add(Kernels& kernels) {
  const auto table = reduction_table();
  for (std::size_t i = 0; i < table.size; ++i) {
    const auto& entry = table.entries[i];
    for (const auto& overload : c10::split(entry.operators, ' ')) {
      if (!overload.empty()) {
        kernels.add(std::string(overload).c_str(), run_entry, has_value_of_nothing(entry) ? kTakesEmpty : 0, &entry,
                    entry.complex ? kAllTypes : kRealTypes);
      }
    }
  }
  for (const char* overload : {op::linalg_vector_norm_out::kName, op::norm_out::kName, op::norm_dtype_out::kName}) {
    kernels.add(overload, norm, kTakesEmpty, nullptr, kAllTypes);
  }
  kernels.add(op::var_correction_out::kName, spread, kTakesEmpty, &kVar);
  kernels.add(op::std_correction_out::kName, spread, kTakesEmpty, &kStd);
  kernels.add(op::var_mean_correction::kName, spread, kTakesEmpty, &kVarMean);
  kernels.add(op::std_mean_correction::kName, spread, kTakesEmpty, &kStdMean);
  kernels.add(op::trace::kName, trace, kTakesEmpty, nullptr, kAllTypes);
}

} // namespace torch_backend::compiled::reductions
