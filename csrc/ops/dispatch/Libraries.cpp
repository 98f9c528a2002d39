#include "csrc/ops/dispatch/Libraries.h"

#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "csrc/ops/dispatch/Registrar.h"

namespace torch_backend {

torch::Library& library_for(const c10::OperatorHandle& op, c10::DispatchKey key) {
  static std::mutex mutex; // guards libraries
  static auto* libraries = new std::map<std::pair<std::string, c10::DispatchKey>, torch::Library*>;
  const std::lock_guard<std::mutex> lock(mutex);
  const auto ns = op.operator_name().getNamespace();
  auto& library = (*libraries)[{std::string(ns->begin(), ns->end()), key}];
  if (!library) {
    library = &new_library(std::string(ns->begin(), ns->end()).c_str(), key);
  }
  return *library;
}

} // namespace torch_backend
