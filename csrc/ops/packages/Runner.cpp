#include "csrc/ops/packages/Runner.h"

#include <utility>

#include <c10/util/Exception.h>
#include <torch/csrc/inductor/aoti_torch/tensor_converter.h>

#include "csrc/core/InterpreterLock.h"

namespace torch_backend::packages {

Runner::Runner(const std::string& library, std::size_t models, c10::Device device, const std::string& folder,
               bool single_threaded, Contents contents)
    : AOTIModelContainerRunner(library, models, "cpu", folder, single_threaded),
      contents_(std::move(contents)),
      device_(device) {
  const auto ours = Constants::intercept(container_handle_, *this);
  code_ = {std::exchange(update_constant_buffer_func_, ours.copy),
           std::exchange(update_inactive_constant_buffer_func_, ours.copy_inactive),
           std::exchange(update_user_managed_constant_buffer_func_, ours.share),
           std::exchange(extract_constants_map_func_, ours.extract),
           std::exchange(swap_constant_buffer_func_, ours.swap)};
  const auto also_from_cpu = [&](auto& runner) {
    if constexpr (requires { runner.update_constant_buffer_from_cpu_func_; }) { // not in all versions
      runner.update_constant_buffer_from_cpu_func_ = ours.copy;
    }
  };
  also_from_cpu(*this);
}

Runner::~Runner() {
  Constants::forget(container_handle_);
}

std::vector<at::Tensor> Runner::run_impl(std::vector<AtenTensorHandle>& handles, void* stream) {
  auto inputs = torch::aot_inductor::alloc_tensors_by_stealing_from_handles(handles.data(), handles.size());
  TORCH_CHECK_VALUE(stream == nullptr, "A package for ", device_.type(),
                    " runs after what is on the current stream: make the stream current, and pass none.");
  contents_.check(inputs, device_);
  for (auto& input : inputs) {
    input = input.resolve_conj().resolve_neg();
  }
  return run_on_device(std::move(inputs));
}

std::vector<at::Tensor> Runner::run_code(std::vector<at::Tensor>&& inputs) {
  auto handles = torch::aot_inductor::unsafe_alloc_new_handles_from_tensors(inputs);
  inputs.clear();
  const WithoutInterpreterLock unlocked;
  return AOTIModelContainerRunner::run_impl(handles, nullptr);
}

} // namespace torch_backend::packages
