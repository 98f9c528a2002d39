// What is true of PyTorch's operators and their schemas do not tell: codegen/operators.yaml, looked up.
#pragma once

#include <string_view>

namespace torch_backend {

enum class Fact {
  kWrapperChecksDevices, // of an overload: PyTorch's wrapper around its kernels compares the arguments' devices
  kMetaDiffers,          // the CPU kernel returns other tensors than the meta kernel says
  kTried,                // ... and shows it when it is run
  kSuggestedFormat,      // of "input", for the first result, whatever the meta kernel says
  kWritesOutAtOnce,      // the out= kernel neither resizes its output nor computes anything else in it
  kOneDtype,             // the CPU kernel does not promote its inputs, though the meta kernel does
  kHostArgument,         // of "operator argument": may be a CPU tensor with dimensions
  kResultInColumns,      // of an overload: a result of two dimensions lies column by column
  kNumbersDoNotWrap,     // numbers below 0 raise where PyTorch computes in an unsigned dtype
  kNumberIsNoOperand,    // of "operator argument", as are the next: never converted to a floating dtype
  kWideNumber,           // converted to float32 where operands are halves
  kLowerBound,           // one that is below its dtype is as good as none
  kUpperBound,
  kConvolutionResult, // of overloads: the rule of ResultRules.cpp for their results
  kConvolutionBackwardResult,
  kConvolutionBackwardOverrideableResult,
  kAdaptiveMeanResult,
  kNormalResult,
  kAlongDimResult,
  kBinomialResult,
  kOneAnswerResult,
  kIntegerProductResult,
  kScaledProductResult,
  kRangeResult,  // for inputs alone
  kSharedSparse, // Note [Kernels that know no device], by layout; of operators and of overloads
  kSharedSparseCompressed,
  kSharedNested,
  kSharedQuantized,
};

/// Whether the fact holds for an operator ("aten::add") or, where the fact says so, an overload ("aten::add.Tensor");
/// "aten::" may be left out. False for operators of other namespaces.
bool has_fact(Fact fact, std::string_view name);

} // namespace torch_backend
