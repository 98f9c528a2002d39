// Results of operators that PyTorch has no meta kernel for, because only out-of-tree devices have them.
#pragma once

#include <optional>
#include <string>

#include <ATen/core/stack.h>
#include <c10/util/ArrayRef.h>

namespace torch_backend {

/// Works out the results of a call as meta tensors; undefined where the call asks for no such result.
using ResultRule = torch::jit::Stack (*)(c10::ArrayRef<c10::IValue> arguments);

/// The rule for an overload; NULL if its meta kernel is to be asked.
ResultRule find_result_rule(const std::string& overload);

} // namespace torch_backend
