#include "csrc/ops/host/AsyncCall.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/MemoryOverlap.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/copy_native.h>
#include <c10/core/DeviceGuard.h>
#include <c10/util/SmallVector.h>

#include "csrc/core/Capture.h"
#include "csrc/core/Runtime.h"
#include "csrc/core/Stream.h"
#include "csrc/core/generator/PhiloxGenerator.h"
#include "csrc/ops/dispatch/Foresee.h"
#include "csrc/ops/host/HostCall.h"
#include "csrc/ops/host/HostGenerator.h"
#include "csrc/ops/host/HostLaunch.h"
#include "csrc/ops/tensor/Alias.h"
#include "csrc/ops/tensor/Empty.h"
#include "csrc/ops/tensor/StorageOf.h"

namespace torch_backend {
namespace {

using torch::jit::Stack;

bool device_runs_async_kernels() {
  static const bool yes = device_api().host_access() && device_api().host_coherent() && device_api().async() &&
                          device_api().has_stream_host_function();
  return yes;
}

bool on_device(const at::Tensor& tensor) {
  return tensor.defined() && tensor.device().type() == c10::DeviceType::PrivateUse1;
}

using IValues = c10::ArrayRef<c10::IValue>;

/// Whether a written argument repeats its elements, which the kernels refuse when they are called, or shares its storage with
/// another one: their own check for overlap needs both as they are. Pointwise operators may write one of their inputs, and
/// often do: a foreach operator may become mul.out(x, 2, out=x).
bool writes_shared_memory(const OperatorTraits& traits, IValues arguments) {
  if (!traits.writes_arguments) {
    return false;
  }
  struct Use {
    const at::Tensor* tensor;
    bool written, in_list;
  };
  c10::SmallVector<Use, 8> uses;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    for_each_tensor(arguments[i], [&](const at::Tensor& tensor) {
      if (on_device(tensor)) {
        uses.push_back({&tensor, traits.written[i], !arguments[i].isTensor()});
      }
    });
  }
  for (std::size_t i = 0; i < uses.size(); ++i) {
    if (uses[i].written && at::has_internal_overlap(*uses[i].tensor) == at::MemOverlap::Yes) {
      return true;
    }
    for (std::size_t j = i + 1; j < uses.size(); ++j) {
      const auto &a = uses[i], &b = uses[j];
      if ((a.written || b.written) && a.tensor->storage().is_alias_of(b.tensor->storage()) &&
          !(traits.pointwise && !a.in_list && !b.in_list && a.tensor->is_same(*b.tensor))) {
        return true;
      }
    }
  }
  return false;
}

/// The device of the call; nothing if the arguments are not all plain tensors of one device (and CPU scalars). A generator
/// is one of the device, and only welcome if `random`.
std::optional<c10::Device> device_of(const OperatorTraits& traits, IValues arguments, bool random) {
  c10::Device device{c10::DeviceType::PrivateUse1, -1};
  bool plain = true;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    plain = plain && !arguments[i].isDevice() && (random || !arguments[i].isGenerator());
    for_each_tensor(arguments[i], [&](const at::Tensor& tensor) {
      if (!tensor.defined()) {
        return;
      }
      plain = plain && tensor.layout() == c10::kStrided && !tensor._is_zerotensor() && has_memory(tensor);
      if (on_device(tensor)) {
        plain = plain && (!device.has_index() || device == tensor.device());
        device = tensor.device();
      } else {
        plain = plain && tensor.device().is_cpu() && tensor.dim() == 0 && !traits.written[i];
      }
    });
  }
  return plain && device.has_index() ? std::optional<c10::Device>(device) : std::nullopt;
}

/// A CPU scalar as it is now. A number stays one: it does not take part in the choice of the result's dtype.
at::Tensor copy_scalar(const at::Tensor& scalar) {
  at::Tensor copy = empty_like_layout(scalar, c10::kCPU);
  at::native::copy_(copy, scalar);
  copy.unsafeGetTensorImpl()->set_wrapped_number(scalar.unsafeGetTensorImpl()->is_wrapped_number());
  return copy;
}

/// CPU tensors on the memory of a call's tensors, which share it where those do: so that the kernels see an operation in
/// place, and overlap. For one call, whose arguments outlive it.
class Aliases {
 public:
  at::Tensor of(const at::Tensor& tensor) {
    const auto* impl = tensor.unsafeGetTensorImpl();
    for (const auto& [original, alias] : known_) {
      if (original == impl) {
        return alias;
      }
    }
    for (const auto& [original, alias] : known_) {
      if (original->storage().is_alias_of(impl->storage())) {
        return known_.emplace_back(impl, make_cpu_alias(tensor, alias.storage())).second;
      }
    }
    return known_.emplace_back(impl, make_cpu_alias(tensor)).second;
  }

 private:
  c10::SmallVector<std::pair<const c10::TensorImpl*, at::Tensor>, 8> known_;
};

/// Some kernels lay out what they write as their input is. The caller's tensor has been returned as it is.
class WrittenLayouts {
 public:
  WrittenLayouts(const OperatorTraits& traits, const Stack& arguments) {
    for (std::size_t i = 0; i < traits.written.size(); ++i) {
      if (traits.written[i] && arguments[i].isTensor() && arguments[i].toTensor().defined()) {
        const auto& tensor = arguments[i].toTensor();
        written_.emplace_back(tensor, tensor.strides().vec());
      }
    }
  }
  void restore() const {
    for (const auto& [tensor, strides] : written_) {
      if (C10_UNLIKELY(tensor.strides() != at::IntArrayRef(strides))) {
        const at::Tensor values = tensor.clone();
        tensor.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), strides);
        tensor.copy_(values);
      }
    }
  }

 private:
  c10::SmallVector<std::pair<at::Tensor, std::vector<int64_t>>, 2> written_;
};

/// What runs on the stream: the kernel on aliases, with its results in the outputs' memory.
struct Kernel {
  c10::OperatorHandle op;
  const OperatorTraits* traits;
  Stack arguments;                         // aliases; CPU scalars are copies, as they were when the call was made
  c10::SmallVector<at::Tensor, 2> outputs; // aliases, in order of the new tensors among the results

  /// As often as it is called.
  void operator()() const {
    run(arguments);
  }

  void run(Stack stack) const {
    TORCH_CHECK(*traits->still_defined, traits->overload, " was removed after the capture.");
    if (traits->out_form) {
      write_outputs(std::move(stack));
      return;
    }
    const WrittenLayouts layouts(*traits, stack);
    op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack);
    layouts.restore();
    std::size_t next = 0;
    for (std::size_t i = 0; i < traits->returned_arg.size(); ++i) {
      if (traits->returned_arg[i] < 0) {
        for_each_tensor(stack[i], [&](const at::Tensor& result) {
          store(result, outputs[next]);
          ++next;
        });
      }
    }
  }

  void write_outputs(Stack stack) const {
    c10::SmallVector<const void*, 2> memory;
    for (const auto& output : outputs) {
      stack.emplace_back(output);
      memory.push_back(output.const_data_ptr());
    }
    traits->out_form->redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack);
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      TORCH_INTERNAL_ASSERT(outputs[i].const_data_ptr() == memory[i], traits->overload, " has moved its output.");
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

/// The device's generators that the call draws from, by the argument's index.
std::vector<std::pair<std::size_t, at::Generator>> generators_of(const c10::OperatorHandle& op, IValues given,
                                                                 c10::DeviceIndex device) {
  std::vector<std::pair<std::size_t, at::Generator>> found;
  const auto& arguments = op.schema().arguments();
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (is_generator(*arguments[i].type())) {
      const auto& value = given[i];
      auto* generator =
          resolve_generator(value.isNone() ? std::nullopt : std::optional<at::Generator>(value.toGenerator()), device);
      found.emplace_back(i, at::Generator(c10::intrusive_ptr<c10::GeneratorImpl>::reclaim_copy(generator)));
    }
  }
  return found;
}

/// Each launch draws new numbers, and the device's generators move on, as they would without the graph.
void capture_random(graph::Capture& capture, const Stream& stream, Kernel&& kernel,
                    std::vector<std::pair<std::size_t, at::Generator>> generators) {
  const auto shared = std::make_shared<const Kernel>(std::move(kernel));
  capture_host_work(capture, stream, shared->traits->overload, [shared, generators = std::move(generators)] {
    Stack arguments = shared->arguments;
    for (const auto& [index, generator] : generators) {
      arguments[index] = draw_cpu_generator(*generator.get<PhiloxGenerator>());
    }
    return [shared, arguments = std::move(arguments)] { shared->run(arguments); };
  });
}

} // namespace

bool try_async_call(const c10::OperatorHandle& op, const OperatorTraits& traits, Stack* stack) {
  const bool may_be_captured = graph::any_capture();
  if (traits.foresight == Foresight::kNone || !device_runs_async_kernels() || (traits.random && !may_be_captured)) {
    return false;
  }
  const IValues arguments = torch::jit::last(*stack, traits.written.size());
  const auto device = device_of(traits, arguments, /*random=*/may_be_captured);
  if (!device) {
    return false;
  }
  const auto stream = current_stream(device->index());
  const auto capture = graph::capture_of(stream);
  if (!capture && (traits.random || writes_shared_memory(traits, arguments))) {
    return false;
  }
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const auto foreseen =
      traits.foresight == Foresight::kMeta ? foresee(op, traits, arguments) : foresee_by_trial(op, traits, arguments);
  if (!foreseen) {
    return false;
  }
  const c10::DeviceGuard guard(*device);
  Kernel kernel{op, &traits, {}, {}};
  Aliases aliases;
  kernel.arguments.reserve(arguments.size() + traits.returned_arg.size());
  for (const auto& argument : arguments) {
    kernel.arguments.push_back(map_tensors(argument, [&](const at::Tensor& tensor) {
      return on_device(tensor) ? aliases.of(tensor) : tensor.defined() ? copy_scalar(tensor) : tensor;
    }));
  }
  c10::SmallVector<c10::IValue, 4> results;
  for (std::size_t i = 0; i < traits.returned_arg.size(); ++i) {
    if (traits.returned_arg[i] >= 0) {
      results.push_back(arguments[static_cast<std::size_t>(traits.returned_arg[i])]);
      continue;
    }
    results.push_back(map_tensors((*foreseen)[i], [&](const at::Tensor& meta) {
      at::Tensor output = meta.defined() ? empty_like_layout(meta, *device) : meta;
      kernel.outputs.push_back(output.defined() ? make_cpu_alias(output) : output);
      return output;
    }));
  }
  if (traits.random) {
    capture_random(*capture, stream, std::move(kernel), generators_of(op, arguments, device->index()));
  } else if (capture) {
    enqueue_host_work(stream, traits.overload, std::move(kernel));
  } else {
    enqueue_host_work(stream, traits.overload,
                      [kernel = std::move(kernel)]() mutable { kernel.run(std::move(kernel.arguments)); });
  }
  torch::jit::drop(*stack, traits.written.size());
  std::move(results.begin(), results.end(), std::back_inserter(*stack));
  return true;
}

} // namespace torch_backend
