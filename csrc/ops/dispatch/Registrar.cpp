#include "csrc/ops/dispatch/Registrar.h"

#include <memory>
#include <set>
#include <utility>
#include <vector>

#include <ATen/core/dispatch/Dispatcher.h>

namespace torch_backend {
namespace {

/// What PyTorch's refusal of a second fallback says of the first.
constexpr const char* kFallbackLabel =
    "by torch_backend: import an extension with a fallback of its own before the device is activated (as the package "
    "of "
    "the device's entry point, or with TORCH_BACKEND=none and torch_backend.activate), and its fallback is used";

std::set<c10::DispatchKey>& foreign_fallbacks() {
  static auto* keys = new std::set<c10::DispatchKey>;
  return *keys;
}

} // namespace

torch::Library& new_library(const char* ns, c10::DispatchKey key) {
  static auto* libraries = new std::vector<std::unique_ptr<torch::Library>>;
  libraries->push_back(std::make_unique<torch::Library>(torch::Library::IMPL, ns, key, __FILE__, __LINE__));
  return *libraries->back();
}

Registrar::Registrar(c10::DispatchKey key) : key_(key), library_(new_library("aten", key)) {}

bool Registrar::is_taken(const char* overload) const {
  const auto op = c10::Dispatcher::singleton().findSchema(torch::jit::parseName(std::string("aten::") + overload));
  return op && op->hasKernelForDispatchKey(key_);
}

NextSource* Registrar::plugin_kernel_of(const char* overload) const {
  return key_ == c10::DispatchKey::PrivateUse1 ? find_next_source(std::string("aten::") + overload) : nullptr;
}

void register_fallback(c10::DispatchKey key, torch::CppFunction&& kernel) {
  if (c10::Dispatcher::singleton().hasBackendFallbackForDispatchKey(key)) {
    foreign_fallbacks().insert(key);
  } else {
    new_library("_", key).fallback(std::move(kernel).debug(kFallbackLabel));
  }
}

bool has_foreign_fallback(c10::DispatchKey key) {
  return foreign_fallbacks().count(key) != 0;
}

} // namespace torch_backend
