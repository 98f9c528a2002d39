#include "csrc/ops/kernel/CapturedDraw.h"

#include <algorithm>
#include <array>
#include <memory>
#include <string_view>
#include <utility>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/empty.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>

#include "csrc/core/Capture.h"
#include "csrc/core/Event.h"
#include "csrc/core/Stream.h"

namespace torch_backend {
namespace {

using torch::jit::Stack;

/// One call, before each replay.
class Draw final : public graph::Recorded {
 public:
  /// The memory that `arguments` fill was `allocated` for.
  Draw(c10::OperatorHandle op, Stack arguments, Stream allocated)
      : op_(std::move(op)), arguments_(std::move(arguments)), last_(allocated) {}

  void begin_launch(const Stream& stream) override {
    if (stream != last_) { // which may still read what the last replay has drawn
      Event read(/*enable_timing=*/false);
      read.record(last_);
      read.block(stream);
      last_ = stream;
    }
    const c10::DeviceGuard device(stream.device());
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    Stack stack = arguments_;
    op_.callBoxed(stack);
  }

  void cancel_launch() noexcept override {}

 private:
  const c10::OperatorHandle op_;
  const Stack arguments_;
  Stream last_;
};

/// Whether all that the operator does is to fill its first argument.
bool fills(const OperatorForm& form, c10::ArrayRef<c10::IValue> arguments) {
  constexpr std::array<std::string_view, 8> kFills{"aten::bernoulli_", "aten::cauchy_",     "aten::exponential_",
                                                   "aten::geometric_", "aten::log_normal_", "aten::normal_",
                                                   "aten::random_",    "aten::uniform_"};
  return std::find(kFills.begin(), kFills.end(), form.traits.name) != kFills.end() && arguments[0].isTensor() &&
         std::none_of(arguments.begin() + 1, arguments.end(), [](const auto& each) { return each.isTensor(); });
}

} // namespace

bool capture_draw(const OperatorForm& form, Stack& stack) {
  if (!graph::any_capture()) {
    return false;
  }
  const auto count = form.traits.written.size();
  const c10::ArrayRef<c10::IValue> arguments(stack.data() + stack.size() - count, count);
  if (!fills(form, arguments)) {
    return false;
  }
  const at::Tensor filled = arguments[0].toTensor();
  if (!filled.defined() || !filled.is_privateuseone()) {
    return false;
  }
  const auto capture = graph::capture_of(current_stream(filled.device().index()));
  if (!capture) {
    return false;
  }
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const auto stream = default_stream(filled.device().index());
  Stack again = arguments.vec();
  {
    const c10::StreamGuard not_captured(stream); // nor of the graph's memory, which is used again in the graph
    again[0] = at::empty(filled.sizes(), filled.options());
  }
  const at::Tensor drawn = again[0].toTensor();
  capture->keep(std::make_shared<Draw>(form.op, std::move(again), stream));
  filled.copy_(drawn);
  torch::jit::drop(stack, count);
  stack.emplace_back(filled);
  return true;
}

} // namespace torch_backend
