#include "csrc/aten/Registrar.h"

#include <memory>
#include <vector>

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/Exception.h>

namespace torch_backend {
namespace {

class SilentWarnings final : public c10::WarningHandler {
 public:
  void process(const c10::Warning& /*warning*/) override {}
};

void nothing() {}

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

void expect_overrides() {
  SilentWarnings silent;
  const c10::WarningUtils::WarningHandlerGuard guard(&silent);
  torch::Library library(torch::Library::FRAGMENT, "torch_backend", std::nullopt, __FILE__, __LINE__);
  library.def("_overridden() -> ()");
  for (int i = 0; i < 2; ++i) {
    library.impl("_overridden", c10::DispatchKey::CPU, TORCH_FN(nothing));
  }
}

} // namespace torch_backend
