// What runs a package, of either kind: see Note [Packages].
#pragma once

#include <memory>
#include <string>

#include <c10/core/Device.h>
#include <torch/csrc/inductor/aoti_runner/model_container_runner.h>

#include "csrc/ops/packages/Constants.h"
#include "csrc/ops/packages/Contents.h"

namespace torch_backend::packages {

/// A package that was loaded for `device`.
class Runner : public torch::inductor::AOTIModelContainerRunner, protected Constants {
 public:
  Runner(const std::string& library, std::size_t models, c10::Device device, const std::string& folder,
         bool single_threaded, Contents contents);
  ~Runner() override;

 protected:
  std::vector<at::Tensor> run_impl(std::vector<AtenTensorHandle>& handles, void* stream) override;

  /// Calls run_code() with what is to be known of the device. The inputs are checked, and neither conjugated nor negative.
  virtual std::vector<at::Tensor> run_on_device(std::vector<at::Tensor>&& inputs) = 0;
  /// The package's code, without the interpreter's lock: it waits for one of its runners while another thread's run, which
  /// may have to call Python, has it.
  std::vector<at::Tensor> run_code(std::vector<at::Tensor>&& inputs);

  const Contents contents_;
  const c10::Device device_;
  ConstantFunctions code_; // its own
};

/// Code of the CPU's, on memory that the host can access.
std::unique_ptr<Runner> make_host_runner(const std::string& library, std::size_t models, c10::Device device,
                                         const std::string& folder, bool single_threaded, Contents contents);

/// Code that calls the device's operators.
std::unique_ptr<Runner> make_device_runner(const std::string& library, std::size_t models, c10::Device device,
                                           const std::string& folder, bool single_threaded, Contents contents);

} // namespace torch_backend::packages
