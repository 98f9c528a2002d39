#include "csrc/ops/compiled/engine/Dropout.h"

#include <mutex>
#include <tuple>

#include "csrc/core/Capture.h"
#include "csrc/core/generator/PhiloxGenerator.h"
#include "csrc/ops/compiled/engine/Rehearsal.h"

namespace torch_backend::compiled {

int64_t below_with_probability(double p) {
  constexpr double kTwoTo32 = 4294967296.0;
  return static_cast<int64_t>(p * kTwoTo32);
}

tb_philox draw_for_dropout(const tb_kernel_context& context) {
  graph::refuse_in_capture(context.device, context.stream,
                           "Dropout, whose random numbers would be the same in every replay (leave it out of the "
                           "captured part, or call eval()),");
  auto* generator = resolve_generator(std::nullopt, static_cast<c10::DeviceIndex>(context.device));
  tb_philox numbers{};
  if (!Rehearsal::goes_ahead()) {
    return numbers;
  }
  const std::lock_guard<std::mutex> lock(generator->mutex_);
  std::tie(numbers.seed, numbers.offset) = generator->philox_engine_inputs(256);
  return numbers;
}

} // namespace torch_backend::compiled
