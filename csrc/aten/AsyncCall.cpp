#include "csrc/aten/AsyncCall.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/ivalue.h>
#include <c10/core/DeviceGuard.h>

#include "csrc/aten/Alias.h"
#include "csrc/aten/Foresee.h"
#include "csrc/aten/HostCall.h"
#include "csrc/aten/HostGenerator.h"
#include "csrc/aten/HostLaunch.h"
#include "csrc/aten/Resize.h"
#include "csrc/core/Runtime.h"
#include "csrc/core/Stream.h"
#include "csrc/core/generator/PhiloxGenerator.h"
#include "csrc/core/graph/Capture.h"

namespace torch_backend {
namespace {

using torch::jit::Stack;

/// Operators whose CPU kernel returns other sizes, strides, dtypes or conj bits than PyTorch's meta kernel says.
constexpr std::string_view kUnforeseeable[] = {
    "aten::_batch_norm_with_update",
    "aten::_embedding_bag",
    "aten::_embedding_bag_forward_only",
    "aten::_fft_c2r",
    "aten::_fft_r2c",
    "aten::_linalg_solve_ex",
    "aten::_linalg_svd",
    "aten::_make_per_channel_quantized_tensor",
    "aten::_make_per_tensor_quantized_tensor",
    "aten::_native_batch_norm_legit",
    "aten::_native_batch_norm_legit_no_training",
    "aten::convolution",
    "aten::linalg_eig",
    "aten::linalg_lu_solve",
    "aten::max_unpool2d",
    "aten::native_batch_norm",
    "aten::native_group_norm",
    "aten::native_layer_norm",
    "aten::nonzero_static",
    "aten::quantize_per_channel",
    "aten::quantize_per_tensor",
    "aten::quantize_per_tensor_dynamic",
};

bool is_foreseeable(const OperatorTraits& traits) {
  return !traits.random && !traits.data_dependent && traits.returns_tensors &&
         std::find(std::begin(kUnforeseeable), std::end(kUnforeseeable), traits.name) == std::end(kUnforeseeable);
}

bool memory_is_coherent() {
  static const bool yes = device_api().host_access() && device_api().host_coherent();
  return yes;
}

bool device_runs_async_kernels() {
  static const bool yes = memory_is_coherent() && device_api().async() && device_api().has_stream_host_function();
  return yes;
}

bool on_device(const at::Tensor& tensor) {
  return tensor.defined() && tensor.device().type() == c10::DeviceType::PrivateUse1;
}

/// The arguments of one call, as PyTorch passed them.
struct Call {
  std::vector<c10::IValue> arguments;
  c10::Device device{c10::DeviceType::PrivateUse1, -1};
};

/// Whether a written argument shares its storage with another one: the kernels' own check for overlap needs both as they
/// are.
bool writes_shared_memory(const OperatorTraits& traits, const Call& call) {
  std::vector<std::pair<const void*, bool>> storages; // its address, whether it is written
  for (std::size_t i = 0; i < call.arguments.size(); ++i) {
    for_each_tensor(call.arguments[i], [&](const at::Tensor& tensor) {
      if (on_device(tensor)) {
        storages.emplace_back(tensor.storage().unsafeGetStorageImpl(), traits.written[i]);
      }
    });
  }
  for (std::size_t i = 0; i < storages.size(); ++i) {
    for (std::size_t j = i + 1; j < storages.size(); ++j) {
      if (storages[i].first == storages[j].first && (storages[i].second || storages[j].second)) {
        return true;
      }
    }
  }
  return false;
}

/// Nothing if the arguments are not all plain tensors of one device (and CPU scalars). A generator is one of the device,
/// and only welcome if `random`.
std::optional<Call> examine(const OperatorTraits& traits, const Stack& stack, bool random) {
  Call call;
  call.arguments.assign(stack.end() - static_cast<std::ptrdiff_t>(traits.written.size()), stack.end());
  bool plain = true;
  for (std::size_t i = 0; i < call.arguments.size(); ++i) {
    plain = plain && !call.arguments[i].isDevice() && (random || !call.arguments[i].isGenerator());
    for_each_tensor(call.arguments[i], [&](const at::Tensor& tensor) {
      if (!tensor.defined()) {
        return;
      }
      plain = plain && tensor.layout() == c10::kStrided && !tensor._is_zerotensor();
      if (on_device(tensor)) {
        plain = plain && (!call.device.has_index() || call.device == tensor.device());
        call.device = tensor.device();
      } else {
        plain = plain && tensor.device().is_cpu() && tensor.dim() == 0 && !traits.written[i];
      }
    });
  }
  return plain && call.device.has_index() ? std::optional<Call>(std::move(call)) : std::nullopt;
}

/// A CPU scalar as it is now. A number stays one: it does not take part in the choice of the result's dtype.
at::Tensor copy_scalar(const at::Tensor& scalar) {
  at::Tensor copy = scalar.clone();
  copy.unsafeGetTensorImpl()->set_wrapped_number(scalar.unsafeGetTensorImpl()->is_wrapped_number());
  return copy;
}

/// CPU tensors on the memory of a call's tensors, which share it where those do: so that the kernels see an operation in
/// place, and overlap.
class Aliases {
 public:
  at::Tensor of(const at::Tensor& tensor) {
    for (const auto& [original, alias] : known_) {
      if (original.is_same(tensor)) {
        return alias;
      }
    }
    for (const auto& [original, alias] : known_) {
      if (original.storage().is_alias_of(tensor.storage())) {
        return known_.emplace_back(tensor, make_cpu_alias(tensor, alias.storage())).second;
      }
    }
    return known_.emplace_back(tensor, make_cpu_alias(tensor)).second;
  }

 private:
  std::vector<std::pair<at::Tensor, at::Tensor>> known_;
};

/// What runs on the stream: the kernel on aliases, then its results into the outputs' memory.
struct Kernel {
  c10::OperatorHandle op;
  std::vector<int> returned_arg;
  std::vector<c10::IValue> arguments; // aliases; CPU scalars are copies, as they were when the call was made
  std::vector<at::Tensor> outputs;    // aliases, in order of the new tensors among the results

  void operator()() const {
    Stack stack(arguments.begin(), arguments.end());
    op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack);
    std::size_t next = 0;
    for (std::size_t i = 0; i < returned_arg.size(); ++i) {
      if (returned_arg[i] < 0) {
        for_each_tensor(stack[i], [&](const at::Tensor& result) { store(result, outputs.at(next++)); });
      }
    }
  }

  static void store(const at::Tensor& result, const at::Tensor& output) {
    if (!output.defined()) {
      return;
    }
    TORCH_CHECK(result.sizes() == output.sizes() && result.scalar_type() == output.scalar_type(),
                "The CPU kernel returned ", result.scalar_type(), " ", result.sizes(),
                " where the meta kernel had foreseen ", output.scalar_type(), " ", output.sizes(), ".");
    output.copy_(result);
  }
};

/// In a capture: a trial run shows what the operator returns.
bool can_be_tried(const OperatorTraits& traits) {
  return !traits.data_dependent && traits.returns_tensors && traits.has_cpu_kernel;
}

/// The device's generators that the call draws from, by the argument's index.
std::vector<std::pair<std::size_t, at::Generator>> generators_of(const c10::OperatorHandle& op, const Call& call) {
  std::vector<std::pair<std::size_t, at::Generator>> found;
  const auto& arguments = op.schema().arguments();
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (is_generator(*arguments[i].type())) {
      const auto& value = call.arguments[i];
      auto* generator = resolve_generator(
          value.isNone() ? std::nullopt : std::optional<at::Generator>(value.toGenerator()), call.device.index());
      found.emplace_back(i, at::Generator(c10::intrusive_ptr<c10::GeneratorImpl>::reclaim_copy(generator)));
    }
  }
  return found;
}

/// Each replay draws new numbers, and the device's generator moves on.
void capture_random(const Stream& stream, const std::string& name, Kernel kernel,
                    std::vector<std::pair<std::size_t, at::Generator>> generators) {
  const auto capture = graph::capture_of(stream);
  if (capture->native()) {
    graph::refuse_in_capture(stream, name.c_str()); // the plugin would replay the same numbers
  }
  capture->add(name, [name, kernel = std::move(kernel), generators = std::move(generators)](const Stream& on) {
    Kernel drawn = kernel;
    for (const auto& [index, generator] : generators) {
      drawn.arguments[index] = draw_cpu_generator(*generator.get<PhiloxGenerator>());
    }
    enqueue_host_work(on, name, std::move(drawn));
  });
}

} // namespace

bool try_async_call(const c10::OperatorHandle& op, const OperatorTraits& traits, Stack* stack) {
  const bool may_be_captured = graph::any_capture() && memory_is_coherent() && can_be_tried(traits);
  if (!may_be_captured && (!device_runs_async_kernels() || !is_foreseeable(traits))) {
    return false;
  }
  const auto call = examine(traits, *stack, /*random=*/may_be_captured);
  if (!call) {
    return false;
  }
  const auto stream = current_stream(call->device.index());
  const bool captured = may_be_captured && graph::is_capturing(stream);
  if (!captured && (!device_runs_async_kernels() || !is_foreseeable(traits) || writes_shared_memory(traits, *call))) {
    return false;
  }
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  auto foreseen = is_foreseeable(traits) ? foresee(op, traits, call->arguments) : std::nullopt;
  if (!foreseen && captured) {
    foreseen = foresee_by_trial(op, traits, call->arguments);
  }
  if (!foreseen) {
    return false;
  }
  const c10::DeviceGuard guard(call->device);
  Kernel kernel{op, traits.returned_arg, {}, {}};
  Aliases aliases;
  for (const auto& argument : call->arguments) {
    kernel.arguments.push_back(map_tensors(argument, [&](const at::Tensor& tensor) {
      return on_device(tensor) ? aliases.of(tensor) : tensor.defined() ? copy_scalar(tensor) : tensor;
    }));
  }
  Stack results;
  for (std::size_t i = 0; i < traits.returned_arg.size(); ++i) {
    if (traits.returned_arg[i] >= 0) {
      results.push_back(call->arguments[static_cast<std::size_t>(traits.returned_arg[i])]);
      continue;
    }
    results.push_back(map_tensors((*foreseen)[i], [&](const at::Tensor& meta) {
      at::Tensor output = meta.defined() ? empty_like_layout(meta, call->device) : meta;
      kernel.outputs.push_back(output.defined() ? make_cpu_alias(output) : output);
      return output;
    }));
  }
  if (captured && traits.random) {
    capture_random(stream, traits.overload, std::move(kernel), generators_of(op, *call));
  } else {
    enqueue_host_work(stream, traits.overload, std::move(kernel));
  }
  stack->resize(stack->size() - traits.written.size());
  for (auto& result : results) {
    stack->push_back(std::move(result));
  }
  return true;
}

} // namespace torch_backend
