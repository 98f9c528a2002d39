#include "csrc/aten/Register.h"

#include <memory>
#include <set>
#include <string>
#include <vector>

#include <ATen/core/dispatch/Dispatcher.h>

#include "csrc/aten/Alias.h"
#include "csrc/aten/Fallback.h"
#include "csrc/aten/OperatorTable.h"

namespace torch_backend {
namespace {

/// Registrations last as long as their library object: until the process ends.
torch::Library& new_library(const char* ns, c10::DispatchKey key) {
  static auto* libraries = new std::vector<std::unique_ptr<torch::Library>>;
  libraries->push_back(std::make_unique<torch::Library>(torch::Library::IMPL, ns, key, __FILE__, __LINE__));
  return *libraries->back();
}

std::set<std::string> registered_overloads() {
  std::set<std::string> names;
  for (const auto& name : c10::Dispatcher::singleton().getAllOpNamesForDispatchKey(c10::DispatchKey::PrivateUse1)) {
    names.insert(c10::toString(name));
  }
  return names;
}

} // namespace

void register_operators() {
  install_cpu_allocator_redirect();

  const auto before = registered_overloads();
  auto& m = new_library("aten", c10::DispatchKey::PrivateUse1);
  register_factories(m);
  register_views(m);
  register_resize(m);
  register_fill(m);
  register_copy(m);
  register_convolution(m);
  register_recurrent(m);
  register_matmul(m);
  register_attention(m);
  register_random(m);
  register_batch_norm(m);
  register_stub_kernels(m);
  register_tensor_methods(m);
  register_typed_kernels(m);
  for (const auto& overload : registered_overloads()) {
    if (before.count(overload) == 0) {
      note_registration(overload, Source::kNative);
    }
  }

  new_library("_", c10::DispatchKey::PrivateUse1).fallback(torch::CppFunction::makeFromBoxedFunction<&cpu_fallback>());

  // PyTorch resolves conj and neg bits by copying, which ends in _copy_from, which would resolve them again, for ever.
  for (const auto key : {c10::DispatchKey::Conjugate, c10::DispatchKey::Negative}) {
    new_library("aten", key).impl("_copy_from", torch::CppFunction::makeFallthrough());
  }

  new_library("_", c10::DispatchKey::AutocastPrivateUse1).fallback(torch::CppFunction::makeFallthrough());
  register_autocast(new_library("aten", c10::DispatchKey::AutocastPrivateUse1));
}

} // namespace torch_backend
