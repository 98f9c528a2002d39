#include "csrc/ops/packages/Packages.h"

#include <memory>
#include <string>

#include <c10/core/Device.h>
#include <torch/csrc/inductor/aoti_runner/model_container_runner.h>

#include "csrc/core/Runtime.h"
#include "csrc/ops/packages/Operators.h"
#include "csrc/ops/packages/Runner.h"

namespace torch_backend {
namespace {

std::unique_ptr<torch::inductor::AOTIModelContainerRunner> create(const std::string& library, std::size_t models,
                                                                  const std::string& device, const std::string& folder,
                                                                  bool single_threaded) {
  c10::Device on(device);
  on.set_index(resolve_device(on.index()));
  auto contents = packages::Contents::read(library);
  const auto make = contents.kernels.empty() ? packages::make_host_runner : packages::make_device_runner;
  return make(library, models, on, folder, single_threaded, std::move(contents));
}

} // namespace

void register_packages() {
  torch::inductor::getAOTIModelRunnerRegistry().emplace(device_api().name(), &create);
  packages::register_operators();
}

} // namespace torch_backend
