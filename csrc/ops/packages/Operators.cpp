#include "csrc/ops/packages/Operators.h"

#include <bit>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/_scaled_dot_product_fused_attention_overrideable.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

#include "csrc/ops/compiled/engine/GraphKernel.h"
#include "csrc/ops/packages/Resident.h"

namespace torch_backend::packages {
namespace {

using compiled::GraphKernel;

/// Kernels live as long as the process, as do those of torch.compile.
class Kernels {
 public:
  template <class MakeText>
  GraphKernel& of(std::string_view name, std::string_view texts, std::string_view body, const MakeText& make_text) {
    const std::lock_guard<std::mutex> lock(mutex_);
    auto& kernels = kernels_[std::string(name)]; // of other packages too
    for (const auto& kernel : kernels) {
      if (kernel->text().body == body && kernel->text().texts == texts) {
        return *kernel;
      }
    }
    return *kernels.emplace_back(std::make_unique<GraphKernel>(make_text()));
  }

 private:
  std::mutex mutex_;                                                                   // guards kernels_
  std::unordered_map<std::string, std::vector<std::unique_ptr<GraphKernel>>> kernels_; // by name
};

void launch(std::string_view name, std::string_view texts, std::string_view body, bool is_double, bool is_32_bit,
            bool may_fail, int64_t per_block, int64_t on_host, at::TensorList tensors, at::IntArrayRef work) {
  static auto* kernels = new Kernels;
  const auto all = static_cast<int64_t>(tensors.size());
  TORCH_CHECK_VALUE(work.size() >= 2 && on_host >= 0 && on_host < all,
                    "torch_backend::launch takes units and cost, and ",
                    "tensors of the device before those on the host.");
  const auto device = tensors[0].device();
  std::vector<const void*> pointers;
  for (const auto& tensor : tensors.slice(0, static_cast<std::size_t>(all - on_host))) {
    TORCH_CHECK_VALUE(tensor.device() == device && device.is_privateuseone(), "torch_backend::launch takes tensors of ",
                      "one device; ", name, " was given some of ", device, " and of ", tensor.device(), ".");
    pointers.push_back(tensor.const_data_ptr());
  }
  std::vector<int64_t> words(work.begin() + 2, work.end());
  for (const auto& tensor : tensors.slice(static_cast<std::size_t>(all - on_host))) {
    const auto number = tensor.item();
    words.push_back(number.isFloatingPoint() ? std::bit_cast<int64_t>(number.toDouble()) : number.toLong());
  }
  auto& kernel = kernels->of(name, texts, body, [&] {
    return GraphKernel::Text{std::string(name),
                             std::string(texts),
                             std::string(body),
                             is_double ? compiled::ValueType::f64 : compiled::ValueType::f32,
                             is_32_bit,
                             static_cast<int>(pointers.size()),
                             static_cast<int>(words.size()),
                             may_fail,
                             per_block};
  });
  kernel.launch(device.index(), work[0], work[1], pointers.data(), words.data());
}

std::vector<at::Tensor> resident(at::TensorList stand_ins) {
  std::vector<at::Tensor> tensors;
  for (const auto& stand_in : stand_ins) {
    const auto* const found = Resident::of(stand_in);
    TORCH_CHECK_VALUE(found != nullptr, "torch_backend::resident takes what a package's code has for its constants.");
    tensors.push_back(found->tensor);
  }
  return tensors;
}

at::Tensor attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                     const std::optional<at::Tensor>& bias, double dropout, bool is_causal,
                     std::optional<double> scale) {
  return std::get<0>(at::_scaled_dot_product_fused_attention_overrideable(query, key, value, bias, dropout, is_causal,
                                                                          /*return_debug_mask=*/false, scale));
}

void store(at::Tensor target, const at::Tensor& source) {
  target.copy_(source);
}

} // namespace

void register_operators() {
  static auto* library = new torch::Library(torch::Library::DEF, "torch_backend", c10::nullopt, __FILE__, __LINE__);
  library->def(
      "launch(str name, str texts, str body, bool is_double, bool is_32_bit, bool may_fail, int per_block, int "
      "on_host, "
      "Tensor(a!)[] tensors, SymInt[] work) -> ()");
  // As if the results were the arguments: then nobody writes over them when they are read for the last time.
  library->def("resident(Tensor(a)[] stand_ins) -> Tensor(a)[]");
  library->def(
      "attention(Tensor query, Tensor key, Tensor value, Tensor? bias, float dropout, bool is_causal, float? scale) -> "
      "Tensor");
  library->def("store(Tensor(a!) target, Tensor source) -> ()");
  constexpr auto kAnyDevice = c10::DispatchKey::CompositeExplicitAutograd;
  library->impl("launch", torch::dispatch(kAnyDevice, &launch));
  library->impl("resident", torch::dispatch(kAnyDevice, &resident));
  library->impl("attention", torch::dispatch(kAnyDevice, &attention));
  library->impl("store", torch::dispatch(kAnyDevice, &store));
}

} // namespace torch_backend::packages
