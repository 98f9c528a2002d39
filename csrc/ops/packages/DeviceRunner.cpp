#include <array>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include <ATen/ops/empty_strided.h>
#include <c10/core/DeviceGuard.h>
#include <c10/util/Exception.h>

#include "csrc/core/Runtime.h"
#include "csrc/ops/compiled/engine/Modules.h"
#include "csrc/ops/packages/Resident.h"
#include "csrc/ops/packages/Runner.h"

namespace torch_backend::packages {
namespace {

/// See Note [Resident constants].
class DeviceRunner final : public Runner {
 public:
  DeviceRunner(const std::string& library, std::size_t models, c10::Device device, const std::string& folder,
               bool single_threaded, Contents contents)
      : Runner(library, models, device, folder, single_threaded, std::move(contents)),
        on_host_(contents_.on_host.begin(), contents_.on_host.end()) {
    auto from_file = extract_constants_map(/*use_inactive=*/false); // by the names that the program has for them
    TensorConstantMap by_name;
    for (const auto& [name, full] : getConstantNamesToOriginalFQNs()) {
      if (const auto found = from_file.find(full); found != from_file.end()) {
        by_name[name] = &found->second;
      }
    }
    check(copy(by_name, /*use_inactive=*/false, /*validate=*/false));
  }

 protected:
  std::vector<at::Tensor> run_on_device(std::vector<at::Tensor>&& inputs) override {
    const c10::DeviceGuard guard(device_);
    return run_code(std::move(inputs));
  }

  AOTIRuntimeError copy(const TensorConstantMap& given, bool use_inactive, bool validate) override {
    for (const auto& [name, tensor] : given) {
      const auto* const before = find(name);
      TORCH_CHECK_VALUE(before == nullptr || tensor->sizes() == before->sizes(), "The package's constant ", name,
                        " has to be of ", before->sizes(), ", as when the program was exported; it was given ",
                        tensor->sizes(), ".");
    }
    TensorConstantMap known;
    for (const auto& [name, tensor] : given) {
      auto& mine = constants(use_inactive)[name];
      auto* const resident = mine.defined() ? Resident::of(mine) : nullptr;
      if (on_host_.count(name) != 0) {
        mine = tensor->detach().cpu().clone();
      } else if (resident != nullptr && resident->owned) {
        resident->tensor.copy_(tensor->detach());
      } else {
        mine = Resident::stand_in(copy_of(tensor->detach(), find(name)), /*owned=*/true);
      }
      known[name] = &mine;
    }
    return give(known, use_inactive, validate);
  }

  AOTIRuntimeError share(const TensorConstantMap& given, bool use_inactive, bool validate) override {
    for (const auto& [name, tensor] : given) {
      const auto* const before = find(name);
      const c10::Device place = on_host_.count(name) != 0 ? c10::Device(c10::kCPU) : device_;
      TORCH_CHECK_VALUE(before == nullptr || (tensor->device() == place && tensor->dtype() == before->dtype() &&
                                              tensor->sizes() == before->sizes() &&
                                              tensor->strides() == before->strides() && tensor->storage_offset() == 0),
                        "The package's constant ", name, " has to be of ", before->dtype(), ", ", before->sizes(),
                        " with strides ", before->strides(), " on ", place,
                        ", and no view that begins further on, to "
                        "be shared (user_managed). Load it as a copy.");
    }
    TensorConstantMap known;
    for (const auto& [name, tensor] : given) {
      auto& mine = constants(use_inactive)[name];
      mine = on_host_.count(name) != 0 ? tensor->detach() : Resident::stand_in(tensor->detach(), /*owned=*/false);
      known[name] = &mine;
    }
    return give(known, use_inactive, validate);
  }

  AOTIRuntimeError extract(TensorConstantMap& found, bool use_inactive) override {
    const auto error =
        code_.extract(container_handle_, reinterpret_cast<AOTInductorConstantMapHandle>(&found), use_inactive);
    for (auto& [name, tensor] : found) {
      if (auto* const resident = Resident::of(*tensor)) {
        tensor = &resident->tensor;
      }
    }
    return error;
  }

  AOTIRuntimeError swap() override {
    second_is_active_ = !second_is_active_;
    return code_.swap(container_handle_);
  }

 private:
  std::unordered_map<std::string, at::Tensor>& constants(bool use_inactive) {
    return constants_[second_is_active_ != use_inactive ? 1 : 0];
  }

  /// The code refers to the tensors from now on: to where they are in constants_.
  AOTIRuntimeError give(TensorConstantMap& known, bool use_inactive, bool validate) {
    return code_.share(container_handle_, reinterpret_cast<AOTInductorConstantMapHandle>(&known), use_inactive,
                       validate);
  }

  /// What there is of the constant, active or inactive; NULL if nothing is yet.
  const at::Tensor* find(const std::string& name) {
    for (const bool inactive : {false, true}) {
      auto& all = constants(inactive);
      if (const auto found = all.find(name); found != all.end() && found->second.defined()) {
        return &found->second;
      }
    }
    return nullptr;
  }

  /// With the strides and the dtype of `like`, if there is one.
  at::Tensor copy_of(const at::Tensor& given, const at::Tensor* like) const {
    const auto& form = like != nullptr ? *like : given;
    auto copy = at::empty_strided(form.sizes(), form.strides(), form.options().device(device_));
    copy.copy_(given);
    return copy;
  }

  static void check(AOTIRuntimeError error) {
    TORCH_CHECK(error == 0, "The package's constants could not be given to its code.");
  }

  const std::unordered_set<std::string> on_host_;
  std::array<std::unordered_map<std::string, at::Tensor>, 2> constants_; // active and inactive, by name
  bool second_is_active_ = false;
};

} // namespace

std::unique_ptr<Runner> make_device_runner(const std::string& library, std::size_t models, c10::Device device,
                                           const std::string& folder, bool single_threaded, Contents contents) {
  TORCH_CHECK_NOT_IMPLEMENTED(compiled::has_modules(), "The package has kernels that the device compiles, and ",
                              device_api().name(),
                              " compiles none. Package the program again where the device is as here.");
  const auto here = described(device.index());
  TORCH_CHECK_NOT_IMPLEMENTED(contents.kernels == here, "The package has kernels for a device of another kind (",
                              contents.kernels, ") than ", device, " (", here,
                              "). Package the program again on one of this kind.");
  return std::make_unique<DeviceRunner>(library, models, device, folder, single_threaded, std::move(contents));
}

} // namespace torch_backend::packages
