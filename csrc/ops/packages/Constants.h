// Updates of a package's constants, which AOTInductor's base class does by functions of the package's code.
#pragma once

#include <string>
#include <unordered_map>

#include <ATen/core/Tensor.h>
#include <torch/csrc/inductor/aoti_runner/model_container_runner.h>

namespace torch_backend::packages {

using torch::inductor::TensorConstantMap;

/// Tensors by the names that they have in a package.
class NamedTensors {
 public:
  /// What `convert` makes of each tensor.
  template <class Convert>
  NamedTensors(const TensorConstantMap& given, const Convert& convert) {
    for (const auto& [name, tensor] : given) {
      tensors_[name] = convert(*tensor);
      map_[name] = &tensors_[name];
    }
  }
  NamedTensors(const NamedTensors&) = delete;
  NamedTensors& operator=(const NamedTensors&) = delete;

  AOTInductorConstantMapHandle handle() {
    return reinterpret_cast<AOTInductorConstantMapHandle>(&map_);
  }

 private:
  std::unordered_map<std::string, at::Tensor> tensors_;
  TensorConstantMap map_;
};

/// The functions of a package's code that have to do with its constants.
struct ConstantFunctions {
  decltype(&AOTInductorModelContainerUpdateConstantBuffer) copy;
  decltype(&AOTInductorModelContainerUpdateInactiveConstantBuffer) copy_inactive;
  decltype(&AOTInductorModelContainerUpdateUserManagedConstantBuffer) share;
  decltype(&AOTInductorModelContainerExtractConstantsMap) extract;
  decltype(&AOTInductorModelContainerSwapConstantBuffer) swap;
};

/// What a runner does in their place. Threads: any, one at a time for each package.
class Constants {
 public:
  virtual ~Constants() = default;
  virtual AOTIRuntimeError copy(const TensorConstantMap& given, bool use_inactive, bool validate) = 0;
  virtual AOTIRuntimeError share(const TensorConstantMap& given, bool use_inactive, bool validate) = 0;
  virtual AOTIRuntimeError extract(TensorConstantMap& found, bool use_inactive) = 0;
  virtual AOTIRuntimeError swap() = 0;

  /// What AOTInductor's base class has to call so that it comes here for `package`, until forget().
  static ConstantFunctions intercept(AOTInductorModelContainerHandle package, Constants& constants);
  static void forget(AOTInductorModelContainerHandle package);
};

} // namespace torch_backend::packages
