#include <deque>
#include <utility>

#include <c10/util/Exception.h>

#include "csrc/core/Runtime.h"
#include "csrc/ops/host/GraphCall.h"
#include "csrc/ops/host/HostCall.h"
#include "csrc/ops/packages/Runner.h"
#include "csrc/ops/tensor/Alias.h"

namespace torch_backend::packages {
namespace {

class HostRunner final : public Runner {
 public:
  using Runner::Runner;

 protected:
  std::vector<at::Tensor> run_on_device(std::vector<at::Tensor>&& inputs) override {
    GraphCall call(device_.index());
    for (auto& input : inputs) {
      if (!input.is_cpu()) {
        input = call.stand_in(input);
      }
    }
    if (contents_.seeds > 0) {
      inputs.push_back(draw_seeds(contents_.seeds, device_.index()));
    }
    call.enter();
    auto results = run_code(std::move(inputs));
    call.leave();
    TORCH_INTERNAL_ASSERT(results.size() == contents_.outputs_on_device.size());
    for (const auto& result : results) {
      if (result.defined()) {
        call.expect_result(result);
      }
    }
    for (std::size_t i = 0; i < results.size(); ++i) {
      if (results[i].defined()) {
        results[i] = call.result(results[i], contents_.outputs_on_device[i], /*own=*/true);
      }
    }
    return results;
  }

  AOTIRuntimeError copy(const TensorConstantMap& given, bool use_inactive, bool validate) override {
    NamedTensors copies(given, [](const at::Tensor& tensor) { return tensor.detach().cpu(); });
    return code_.copy(container_handle_, copies.handle(), use_inactive, validate);
  }

  AOTIRuntimeError share(const TensorConstantMap& given, bool use_inactive, bool validate) override {
    TORCH_CHECK_NOT_IMPLEMENTED(device_api().host_coherent(), "A package shares no constants with ",
                                device_api().name(),
                                ", whose memory the host has to map: load them without user_managed, as copies.");
    auto& shared = shared_.emplace_back(
        given, [](const at::Tensor& tensor) { return tensor.is_cpu() ? tensor.detach() : make_cpu_alias(tensor); });
    return code_.share(container_handle_, shared.handle(), use_inactive, validate);
  }

  AOTIRuntimeError extract(TensorConstantMap& found, bool use_inactive) override {
    return code_.extract(container_handle_, reinterpret_cast<AOTInductorConstantMapHandle>(&found), use_inactive);
  }

  AOTIRuntimeError swap() override {
    return code_.swap(container_handle_);
  }

 private:
  std::deque<NamedTensors> shared_; // to which the code refers until it goes
};

} // namespace

std::unique_ptr<Runner> make_host_runner(const std::string& library, std::size_t models, c10::Device device,
                                         const std::string& folder, bool single_threaded, Contents contents) {
  TORCH_CHECK_NOT_IMPLEMENTED(runs_on_aliased_memory(),
                              "The package has code for the CPU, which needs memory that the host can access, and ",
                              device_api().name(), " has none. Package the program again where the device is as here.");
  return std::make_unique<HostRunner>(library, models, device, folder, single_threaded, std::move(contents));
}

} // namespace torch_backend::packages
