#include "csrc/ops/dispatch/NextSource.h"

#include <memory>
#include <mutex>
#include <unordered_map>

namespace torch_backend {
namespace {

struct Sources {
  c10::KernelFunction fallback; // set before the first call
  std::mutex mutex;             // guards by_overload
  std::unordered_map<std::string, std::unique_ptr<NextSource>> by_overload;
};

Sources& sources() {
  static auto* instance = new Sources;
  return *instance;
}

} // namespace

void NextSource::call(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) const {
  if (kernel_.isValid()) {
    kernel_.callBoxed(op, keys, stack);
    return;
  }
  for (const auto key : {c10::DispatchKey::CompositeExplicitAutogradNonFunctional,
                         c10::DispatchKey::CompositeExplicitAutograd, c10::DispatchKey::CompositeImplicitAutograd}) {
    if (op.hasKernelForDispatchKey(key)) {
      op.callBoxedForDispatchKey(key, *stack);
      return;
    }
  }
  sources().fallback.callBoxed(op, keys, stack);
}

void set_last_source(c10::KernelFunction kernel) {
  sources().fallback = std::move(kernel);
}

NextSource& add_next_source(const std::string& overload) {
  auto& all = sources();
  const std::lock_guard<std::mutex> lock(all.mutex);
  auto& source = all.by_overload[overload];
  if (!source) {
    source = std::make_unique<NextSource>();
  }
  return *source;
}

NextSource* find_next_source(const std::string& overload) {
  auto& all = sources();
  const std::lock_guard<std::mutex> lock(all.mutex);
  const auto found = all.by_overload.find(overload);
  return found == all.by_overload.end() ? nullptr : found->second.get();
}

} // namespace torch_backend
