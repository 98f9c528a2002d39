#include "csrc/aten/HostGenerator.h"

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

} // namespace

at::Generator draw_cpu_generator(PhiloxGenerator& generator) {
  std::pair<uint64_t, uint64_t> inputs;
  {
    const std::lock_guard<std::mutex> lock(generator.mutex_);
    inputs = generator.philox_engine_inputs(4);
  }
  return at::make_generator<at::CPUGeneratorImpl>(mix(inputs.first ^ mix(inputs.second)));
}

} // namespace torch_backend
