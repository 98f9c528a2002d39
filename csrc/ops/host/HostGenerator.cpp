#include "csrc/ops/host/HostGenerator.h"

#include <memory>
#include <mutex>
#include <utility>

#include <ATen/CPUGeneratorImpl.h>

namespace torch_backend {
namespace {

/// Finalizer of SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014).
uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

/// What a thread draws with: 5 KiB, see Note [Little thread-local memory].
struct Drawing {
  at::mt19937_data_pod data = at::mt19937().data();
  at::mt19937 engine;
  at::Generator spare;
};

Drawing& drawing() {
  thread_local const auto instance = std::make_unique<Drawing>();
  return *instance;
}

/// Note [A generator per kernel]
/// A kernel of the CPU draws from a Mersenne Twister, whose own seeding takes longer than a small kernel. Here its state
/// is filled from a counter, as if numbers had been drawn before: as far as the kernel reads it, unless it would make the
/// next state of it.
void seed(at::CPUGeneratorImpl& generator, uint64_t key, int64_t words) {
  auto& data = drawing().data;
  data.seed_ = key;
  const std::size_t all = data.state_.size();
  const std::size_t filled = words < static_cast<int64_t>(all) ? static_cast<std::size_t>(words) : all;
  for (std::size_t i = 0; i < filled; i += 2) {
    const uint64_t bits = mix(key + i);
    data.state_[i] = static_cast<uint32_t>(bits);
    data.state_[i + 1] = static_cast<uint32_t>(bits >> 32);
  }
  data.left_ = static_cast<int>(data.state_.size());
  data.next_ = 0;
  auto& engine = drawing().engine;
  engine.set_data(data);
  generator.set_engine(engine);
  generator.set_next_float_normal_sample(std::nullopt);
  generator.set_next_double_normal_sample(std::nullopt);
}

/// The calling thread's, unless a kernel that has not run yet refers to it.
at::Generator spare_generator() {
  auto& spare = drawing().spare;
  if (!spare.defined() || spare.getIntrusivePtr().use_count() > 1) {
    spare = at::make_generator<at::CPUGeneratorImpl>();
  }
  return spare;
}

} // namespace

at::Generator draw_cpu_generator(PhiloxGenerator& generator, int64_t words) {
  std::pair<uint64_t, uint64_t> inputs;
  {
    const std::lock_guard<std::mutex> lock(generator.mutex_);
    inputs = generator.philox_engine_inputs(4);
  }
  at::Generator drawn = spare_generator();
  seed(*drawn.get<at::CPUGeneratorImpl>(), mix(inputs.first ^ mix(inputs.second)), words);
  return drawn;
}

} // namespace torch_backend
