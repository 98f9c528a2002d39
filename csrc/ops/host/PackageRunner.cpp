#include "csrc/ops/host/PackageRunner.h"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <fstream>
#include <memory>
#include <mutex>
#include <optional>
#include <sstream>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>
#include <c10/util/Exception.h>
#include <torch/csrc/inductor/aoti_runner/model_container_runner.h>
#include <torch/csrc/inductor/aoti_torch/tensor_converter.h>

#include "csrc/core/InterpreterLock.h"
#include "csrc/core/Runtime.h"
#include "csrc/ops/host/GraphCall.h"
#include "csrc/ops/host/HostCall.h"
#include "csrc/ops/tensor/Alias.h"

namespace torch_backend {
namespace {

using torch::inductor::AOTIModelContainerRunner;
using torch::inductor::TensorConstantMap;

constexpr int64_t kAny = -1;

/// Separated by `separator`.
std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream all(text);
  for (std::string part; std::getline(all, part, separator);) {
    parts.push_back(part);
  }
  return parts;
}

/// "[3,?]"; a number that is not known is kAny.
std::vector<int64_t> numbers_in(const std::string& text) {
  std::vector<int64_t> numbers;
  for (const auto& number : split(text.substr(1, text.size() - 2), ',')) {
    numbers.push_back(number == "?" ? kAny : std::stoll(number));
  }
  return numbers;
}

/// What a package was compiled to take.
struct Input {
  std::string text; // "xcpu float32 [?,4] contiguous", or with strides in place of the last word
  bool on_device;
  std::string dtype;
  std::vector<int64_t> sizes;
  std::optional<std::vector<int64_t>> strides; // none: contiguous

  explicit Input(const std::string& text) : text(text) {
    const auto parts = split(text, ' ');
    TORCH_CHECK(parts.size() == 4, "What a package says of an input, '", text, "', has other parts than expected.");
    on_device = parts[0] != "cpu";
    dtype = parts[1];
    sizes = numbers_in(parts[2]);
    if (parts[3] != "contiguous") {
      strides = numbers_in(parts[3]);
    }
  }

  bool takes(const at::Tensor& tensor, c10::Device device) const {
    return tensor.device() == (on_device ? device : c10::Device(c10::kCPU)) && tensor.layout() == c10::kStrided &&
           c10::getDtypeNames(tensor.scalar_type()).first == dtype && has_sizes(tensor) && has_strides(tensor);
  }

 private:
  bool has_sizes(const at::Tensor& tensor) const {
    bool same = static_cast<std::size_t>(tensor.dim()) == sizes.size();
    for (std::size_t d = 0; same && d < sizes.size(); ++d) {
      same = sizes[d] == kAny || sizes[d] == tensor.sizes()[d];
    }
    return same;
  }
  bool has_strides(const at::Tensor& tensor) const {
    if (!strides) {
      return tensor.is_contiguous();
    }
    bool same = true;
    for (std::size_t d = 0; same && d < strides->size(); ++d) {
      same = (*strides)[d] == kAny || (*strides)[d] == tensor.strides()[d] || tensor.sizes()[d] < 2;
    }
    return same || tensor.numel() == 0;
  }
};

/// What the package says beside its code.
struct Facts {
  std::vector<Input> inputs;
  std::vector<bool> outputs_on_device;
  int64_t seeds; // as many random numbers are the last input of the code, if there are any

  /// Of the package with this library.
  explicit Facts(const std::string& library) {
    const auto file = library.substr(0, library.find_last_of('.')) + "_metadata.json";
    std::ostringstream text;
    text << std::ifstream(file).rdbuf();
    for (const auto& input : split(value_of(text.str(), "inputs"), ';')) {
      inputs.emplace_back(input);
    }
    for (const auto& output : split(value_of(text.str(), "outputs"), ' ')) {
      outputs_on_device.push_back(output != "cpu");
    }
    seeds = std::stoll(value_of(text.str(), "seeds"));
  }

 private:
  /// Within a text in JSON a quote has a backslash before it: these can only be a key and its value.
  static std::string value_of(const std::string& metadata, const std::string& key) {
    const auto before = "\"torch_backend." + key + "\": \"";
    const auto found = metadata.find(before);
    TORCH_CHECK(found != std::string::npos, "The package's metadata says nothing of its ", key,
                ": it was not made by torch.export of a program on ", device_api().name(),
                " with this version of torch_backend. Export and package the program again.");
    const auto begin = found + before.size();
    return metadata.substr(begin, metadata.find('"', begin) - begin);
  }
};

/// Constants as tensors of the CPU, which a package's code takes.
class HostConstants {
 public:
  enum class Memory { kCopied, kShared };

  HostConstants(AOTInductorConstantMapHandle constants, Memory memory) {
    for (const auto& [name, tensor] : *reinterpret_cast<const TensorConstantMap*>(constants)) {
      const bool shared = memory == Memory::kShared && !tensor->is_cpu();
      tensors_[name] = shared ? make_cpu_alias(*tensor) : tensor->detach().cpu();
      map_[name] = &tensors_[name];
    }
  }
  AOTInductorConstantMapHandle handle() {
    return reinterpret_cast<AOTInductorConstantMapHandle>(&map_);
  }

 private:
  std::unordered_map<std::string, at::Tensor> tensors_;
  TensorConstantMap map_;
};

/// What updates the constants of one package: functions of its code.
struct Updates {
  decltype(&AOTInductorModelContainerUpdateConstantBuffer) copy;
  decltype(&AOTInductorModelContainerUpdateInactiveConstantBuffer) copy_inactive;
  decltype(&AOTInductorModelContainerUpdateUserManagedConstantBuffer) share;
  std::deque<HostConstants> shared; // to which the package refers until it goes
};

/// By the package: AOTInductor's base class calls what it has in place of these functions with the package alone.
class AllUpdates {
 public:
  void add(AOTInductorModelContainerHandle package, Updates updates) {
    const std::lock_guard<std::mutex> lock(mutex_);
    updates_.emplace(package, std::move(updates));
  }
  void remove(AOTInductorModelContainerHandle package) {
    const std::lock_guard<std::mutex> lock(mutex_);
    updates_.erase(package);
  }
  /// The reference is good as long as the package.
  Updates& of(AOTInductorModelContainerHandle package) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return updates_.at(package);
  }

 private:
  std::mutex mutex_; // guards updates_
  std::unordered_map<AOTInductorModelContainerHandle, Updates> updates_;
};

AllUpdates& all_updates() {
  static auto* all = new AllUpdates;
  return *all;
}

using Memory = HostConstants::Memory;

AOTIRuntimeError copy(AOTInductorModelContainerHandle package, AOTInductorConstantMapHandle constants,
                      bool use_inactive, bool validate) {
  HostConstants copies(constants, Memory::kCopied);
  return all_updates().of(package).copy(package, copies.handle(), use_inactive, validate);
}

AOTIRuntimeError copy_inactive(AOTInductorModelContainerHandle package, AOTInductorConstantMapHandle constants) {
  HostConstants copies(constants, Memory::kCopied);
  return all_updates().of(package).copy_inactive(package, copies.handle());
}

AOTIRuntimeError share(AOTInductorModelContainerHandle package, AOTInductorConstantMapHandle constants,
                       bool use_inactive, bool validate) {
  TORCH_CHECK_NOT_IMPLEMENTED(device_api().host_coherent(), "A package shares no constants with ", device_api().name(),
                              ", whose memory the host has to map: load them without user_managed, as copies.");
  auto& updates = all_updates().of(package);
  auto& shared = updates.shared.emplace_back(constants, Memory::kShared);
  return updates.share(package, shared.handle(), use_inactive, validate);
}

/// See Note [Packages].
class PackageRunner final : public AOTIModelContainerRunner {
 public:
  PackageRunner(const std::string& library, std::size_t models, c10::Device device, const std::string& folder,
                bool single_threaded)
      : AOTIModelContainerRunner(library, models, "cpu", folder, single_threaded), facts_(library), device_(device) {
    all_updates().add(container_handle_, {std::exchange(update_constant_buffer_func_, &copy),
                                          std::exchange(update_inactive_constant_buffer_func_, &copy_inactive),
                                          std::exchange(update_user_managed_constant_buffer_func_, &share),
                                          {}});
  }
  ~PackageRunner() override {
    all_updates().remove(container_handle_);
  }

 protected:
  std::vector<at::Tensor> run_impl(std::vector<AtenTensorHandle>& handles, void* stream) override {
    auto inputs = torch::aot_inductor::alloc_tensors_by_stealing_from_handles(handles.data(), handles.size());
    TORCH_CHECK_VALUE(stream == nullptr, "A package for ", device_.type(),
                      " runs after what is on the current stream: make the stream current, and pass none.");
    check(inputs);
    GraphCall call(device_.index());
    for (auto& input : inputs) {
      if (!input.is_cpu()) {
        input = call.stand_in(input.resolve_conj().resolve_neg());
      }
    }
    if (facts_.seeds > 0) {
      inputs.push_back(draw_seeds(facts_.seeds, device_.index()));
    }
    call.enter();
    auto stand_ins = torch::aot_inductor::unsafe_alloc_new_handles_from_tensors(inputs);
    inputs.clear();
    std::vector<at::Tensor> results;
    {
      // A package waits for one of its runners while another thread's run, which may have to call Python, has it.
      const WithoutInterpreterLock unlocked;
      results = AOTIModelContainerRunner::run_impl(stand_ins, nullptr);
    }
    call.leave();
    TORCH_INTERNAL_ASSERT(results.size() == facts_.outputs_on_device.size());
    for (const auto& result : results) {
      if (result.defined()) {
        call.expect_result(result);
      }
    }
    for (std::size_t i = 0; i < results.size(); ++i) {
      if (results[i].defined()) {
        results[i] = call.result(results[i], facts_.outputs_on_device[i], /*own=*/true);
      }
    }
    return results;
  }

 private:
  void check(const std::vector<at::Tensor>& inputs) const {
    TORCH_CHECK_VALUE(inputs.size() == facts_.inputs.size(), "The package takes ", facts_.inputs.size(),
                      " tensors, and was called with ", inputs.size(), ".");
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const auto& tensor = inputs[i];
      const auto& expected = facts_.inputs[i];
      TORCH_CHECK_VALUE(
          expected.takes(tensor, device_), "Input ", i, " has to be as when the program was exported, '", expected.text,
          "' (device, dtype, sizes, strides), on the device that the package was loaded for, ", device_, ". It is on ",
          tensor.device(), ", of ", c10::getDtypeNames(tensor.scalar_type()).first, ", ", tensor.sizes(),
          " with strides ", tensor.strides(),
          ". Convert it (to(), contiguous()), load for another device_index, or export with dynamic_shapes.");
    }
  }

  const Facts facts_;
  const c10::Device device_;
};

std::unique_ptr<AOTIModelContainerRunner> create(const std::string& library, std::size_t models,
                                                 const std::string& device, const std::string& folder,
                                                 bool single_threaded) {
  TORCH_CHECK_NOT_IMPLEMENTED(runs_on_aliased_memory(),
                              "The package has code for the CPU, which needs memory that the host can access, and ",
                              device_api().name(), " has none.");
  c10::Device on(device);
  on.set_index(resolve_device(on.index()));
  return std::make_unique<PackageRunner>(library, models, on, folder, single_threaded);
}

} // namespace

void register_package_runner() {
  torch::inductor::getAOTIModelRunnerRegistry().emplace(device_api().name(), &create);
}

} // namespace torch_backend
