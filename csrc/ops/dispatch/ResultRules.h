// Results of operators whose meta kernel there is none of, or does not know the device.
#pragma once

#include <optional>
#include <string>

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>
#include <c10/core/MemoryFormat.h>
#include <c10/util/ArrayRef.h>

namespace torch_backend {

/// Works out the results of a call as meta tensors; undefined where the call asks for no such result. Nothing where the
/// operator refuses the call.
using ResultRule = std::optional<torch::jit::Stack> (*)(c10::ArrayRef<c10::IValue> arguments);

/// The rule for an overload; NULL if its meta kernel is to be asked.
ResultRule find_result_rule(const std::string& overload);

/// The same for a call of which only the inputs are given: of an out= operator without a functional form, too.
ResultRule find_input_rule(const std::string& overload);

/// How a convolution of the device lays out its result, and its backward pass the gradients of input and weight: by
/// channels if the input is, or the weight. PyTorch has the same rule for the convolutions of its own devices; tracing is
/// told of ours in torch_backend.compat.convolution_format. `input` and `weight` have at least 4 dimensions, as the kernels get them.
c10::MemoryFormat convolution_format(const at::Tensor& input, const at::Tensor& weight);

} // namespace torch_backend
