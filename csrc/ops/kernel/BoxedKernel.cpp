#include "csrc/ops/kernel/BoxedKernel.h"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

#include <ATen/EmptyTensor.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/TensorIterator.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>
#include <ATen/native/Resize.h>
#include <ATen/native/TypeProperties.h>
#include <c10/core/DeviceGuard.h>

#include "csrc/ops/dispatch/DeviceCheck.h"
#include "csrc/ops/dispatch/Foresee.h"
#include "csrc/ops/dispatch/OperatorFacts.h"
#include "csrc/ops/kernel/CapturedDraw.h"
#include "csrc/ops/kernel/HostIndices.h"
#include "csrc/ops/kernel/KernelCall.h"
#include "csrc/ops/tensor/Empty.h"

namespace torch_backend {
namespace {

using torch::jit::Stack;
using Values = c10::ArrayRef<c10::IValue>;

bool is_host_number(const at::Tensor& tensor) {
  return tensor.device().is_cpu() && tensor.dim() == 0;
}

/// The device that all tensors are on; nothing if the call is not that simple. Numbers on the host are beside the point
/// where `allow_host_numbers`.
std::optional<c10::Device> device_of_call(Values arguments, bool allow_host_numbers) {
  std::optional<c10::Device> device;
  bool simple = true;
  for (const auto& argument : arguments) {
    for_each_tensor(argument, [&](const at::Tensor& tensor) {
      if (!tensor.defined() || (allow_host_numbers && is_host_number(tensor))) {
        return;
      }
      simple = simple && tensor.device().is_privateuseone() && (!device || *device == tensor.device());
      device = tensor.device();
    });
  }
  return simple ? device : std::nullopt;
}

/// Whether a kernel may write `output`: each of its elements once, and no input's before they are read.
bool is_writable(const at::Tensor& output, Values inputs, bool may_coincide) {
  if (at::has_internal_overlap(output) == at::MemOverlap::Yes) {
    return false;
  }
  bool writable = true;
  for (const auto& input : inputs) {
    for_each_tensor(input, [&](const at::Tensor& tensor) {
      if (tensor.defined() && tensor.is_alias_of(output)) {
        const auto overlap = at::get_overlap_status(output, tensor);
        writable = writable &&
                   (overlap == at::MemOverlapStatus::No || (may_coincide && overlap == at::MemOverlapStatus::Full));
      }
    });
  }
  return writable;
}

bool share_storage(const at::Tensor& output, Values inputs) {
  bool shared = false;
  for (const auto& input : inputs) {
    for_each_tensor(
        input, [&](const at::Tensor& tensor) { shared = shared || (tensor.defined() && tensor.is_alias_of(output)); });
  }
  return shared;
}

/// Give an out= tensor the size that was foreseen. False: it does not have the dtype.
bool fit_output(const at::Tensor& output, const at::Tensor& meta) {
  if (!output.defined() || !meta.defined() || output.scalar_type() != meta.scalar_type()) {
    return false;
  }
  if (at::native::resize_output(output, meta.sizes()) && meta.is_non_overlapping_and_dense()) {
    output.unsafeGetTensorImpl()->set_sizes_and_strides(meta.sizes(), meta.strides());
  }
  return true;
}

bool are_contiguous(Values inputs) {
  bool contiguous = true;
  for (const auto& input : inputs) {
    for_each_tensor(input, [&](const at::Tensor& tensor) {
      contiguous = contiguous && (!tensor.defined() || tensor.is_contiguous());
    });
  }
  return contiguous;
}

/// A result of a pointwise operator as TensorIterator lays it out, which PyTorch's meta kernels in Python do not all ask.
at::Tensor laid_out(const at::Tensor& result, Values inputs) {
  at::TensorIteratorConfig config;
  config.check_all_same_dtype(false).declare_static_dtype_and_device(result.scalar_type(), c10::kMeta);
  config.add_owned_output(at::Tensor());
  for (const auto& input : inputs) {
    for_each_tensor(input, [&](const at::Tensor& tensor) {
      if (tensor.defined()) {
        config.add_owned_const_input(
            at::Tensor(at::detail::empty_strided_meta(tensor.sizes(), tensor.strides(), result.scalar_type())));
      }
    });
  }
  return config.build().output(0);
}

/// Whether PyTorch would resize an output of a pointwise operator that is an input, too, which it refuses.
bool resizes_input(const at::Tensor& output, const at::Tensor& meta, Values inputs) {
  if (!meta.defined() || output.sizes() == meta.sizes()) {
    return false;
  }
  bool is_input = false;
  for (const auto& input : inputs) {
    for_each_tensor(input, [&](const at::Tensor& tensor) { is_input = is_input || tensor.is_same(output); });
  }
  return is_input;
}

bool is_empty(const c10::IValue& value) {
  bool empty = true;
  for_each_tensor(value, [&](const at::Tensor& tensor) { empty = empty && tensor.defined() && tensor.numel() == 0; });
  return empty;
}

/// The dtype of a pointwise operator's inputs; nothing if they differ, or if a number on the host would change it. What
/// PyTorch promotes them to if they may differ.
std::optional<c10::ScalarType> computation_dtype(Values inputs, const std::vector<bool>& is_mask, bool may_differ) {
  std::optional<c10::ScalarType> common;
  at::native::ResultTypeState state;
  bool same = true;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    for_each_tensor(inputs[i], [&](const at::Tensor& tensor) {
      if (!tensor.defined() || (is_mask[i] && tensor.scalar_type() == c10::ScalarType::Bool)) {
        return;
      }
      state = at::native::update_result_type_state(tensor, state);
      if (!is_host_number(tensor)) {
        same = same && (!common || *common == tensor.scalar_type());
        common = tensor.scalar_type();
      }
    });
  }
  if (common && may_differ) {
    return at::native::result_type(state);
  }
  return same && common && at::native::result_type(state) == *common ? common : std::nullopt;
}

/// A number on the host as a tensor of the device.
at::Tensor on_device(const at::Tensor& number, c10::ScalarType type, c10::Device device) {
  const auto filled = empty_like_layout(at::detail::empty_meta({}, type), device);
  return filled.fill_(number.item());
}

/// Not hasComputedKernelForDispatchKey: the key Meta has a fallback, which only refuses.
bool has_meta_kernel(const c10::OperatorHandle& op) {
  constexpr c10::DispatchKey kKeys[] = {c10::DispatchKey::Meta, c10::DispatchKey::CompositeExplicitAutograd,
                                        c10::DispatchKey::CompositeExplicitAutogradNonFunctional,
                                        c10::DispatchKey::CompositeImplicitAutograd};
  return std::any_of(std::begin(kKeys), std::end(kKeys), [&](auto key) { return op.hasKernelForDispatchKey(key); });
}

/// Whether there is an index that PyTorch's kernels may refuse, even where there is nothing to write.
bool has_odd_index(const std::vector<c10::Argument>& arguments, Values inputs) {
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (arguments[i].name() == "index" && inputs[i].isTensor()) {
      const at::Tensor& index = inputs[i].toTensor();
      return index.dim() > 1 || (index.scalar_type() != c10::kLong && index.scalar_type() != c10::kInt);
    }
  }
  return false;
}

bool is_one_of(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool names_dtype(const c10::Argument& argument) {
  const auto& type = *argument.real_type();
  const auto optional = type.cast<c10::OptionalType>();
  return (optional ? optional->getElementType()->kind() : type.kind()) == c10::TypeKind::ScalarTypeType;
}

} // namespace

/// Hands an input to the kernel as its tag says; keeps alive what the kernel is given pointers to.
class BoxedKernel::InputAdder {
 public:
  explicit InputAdder(KernelCall& call) : call_(call) {}

  void add(const c10::IValue& value, bool is_dtype, bool written) {
    if (value.isNone()) {
      call_.add_none();
    } else if (value.isTensor()) {
      written ? call_.add_written(value.toTensor()) : call_.add(value.toTensor());
    } else if (value.isInt()) {
      is_dtype ? call_.add(static_cast<c10::ScalarType>(value.toInt())) : call_.add(value.toInt());
    } else if (value.isDouble()) {
      call_.add(value.toDouble());
    } else if (value.isBool()) {
      call_.add(value.toBool());
    } else if (value.isSymInt()) {
      call_.add(value.toSymInt());
    } else if (value.isComplexDouble()) {
      call_.add(at::Scalar(value.toComplexDouble()));
    } else if (value.isString()) {
      call_.add(std::string_view(value.toStringRef()));
    } else if (value.isDevice()) {
      call_.add(value.toDevice());
    } else {
      add_list(value, written);
    }
  }

  void add_expanded(const at::Tensor& tensor, at::IntArrayRef sizes) {
    kept_.push_back(tensor);
    call_.add_expanded(tensor, sizes);
  }

  void add_number(const at::Tensor& number) {
    call_.add_number(number);
  }
  void add_generator(const std::optional<at::Generator>& generator) {
    call_.add(generator);
  }

  void add_outputs(const c10::IValue& list) {
    tensors_.push_back(list.toTensorVector());
    call_.add_output(at::TensorList(tensors_.back()));
  }

 private:
  /// Numbers as a list of Scalar has them, one of them with a fraction.
  static bool is_list_of_reals(Values values) {
    bool fraction = false, real = true;
    for (const auto& value : values) {
      fraction = fraction || value.isDouble();
      real = real && (value.isDouble() || value.isInt() || value.isBool());
    }
    return fraction && real;
  }

  void add_list(const c10::IValue& value, bool written) {
    if (value.isTensorList()) {
      tensors_.push_back(value.toTensorVector());
      written ? call_.add_written(at::TensorList(tensors_.back())) : call_.add(at::TensorList(tensors_.back()));
    } else if (value.isOptionalTensorList()) {
      call_.add(value.toOptionalTensorList());
    } else if (value.isDoubleList()) {
      doubles_.push_back(value.toDoubleVector());
      call_.add(at::ArrayRef<double>(doubles_.back()));
    } else if (is_list_of_reals(value.toListRef())) {
      doubles_.emplace_back();
      for (const c10::IValue& element : value.toListRef()) {
        doubles_.back().push_back(element.toScalar().toDouble());
      }
      call_.add(at::ArrayRef<double>(doubles_.back()));
    } else if (std::any_of(value.toListRef().begin(), value.toListRef().end(),
                           [](const c10::IValue& element) { return element.isComplexDouble(); })) {
      call_.add_none(); // which no kernel of ours takes for a list
    } else {
      ints_.emplace_back();
      for (const c10::IValue& element : value.toListRef()) {
        ints_.back().push_back(element.isBool()     ? static_cast<int64_t>(element.toBool())
                               : element.isSymInt() ? element.toSymInt().guard_int(__FILE__, __LINE__)
                                                    : element.toInt());
      }
      call_.add(at::IntArrayRef(ints_.back()));
    }
  }

  KernelCall& call_;
  c10::SmallVector<at::Tensor, 4> kept_;
  // A vector that moves keeps its elements where they are.
  std::vector<std::vector<at::Tensor>> tensors_;
  std::vector<std::vector<double>> doubles_;
  std::vector<std::vector<int64_t>> ints_;
};

BoxedKernel::BoxedKernel(const Kernel& kernel, OperatorForm form, std::optional<OperatorForm> functional,
                         NextSource& next)
    : kernel_(kernel),
      form_(std::move(form)),
      functional_(std::move(functional)),
      next_(next),
      result_rule_(find_input_rule(form_.traits.overload)) {
  const auto& arguments = form_.op.schema().arguments();
  for (std::size_t i = 0; i < form_.num_inputs; ++i) {
    is_dtype_.push_back(names_dtype(arguments[i]));
    is_stored_.push_back(arguments[i].name() == "value");
    is_apart_.push_back(is_one_of(arguments[i].name(), {"index", "indices", "source", "values"}));
    is_mask_.push_back(arguments[i].name() == "condition" || arguments[i].name() == "mask");
    is_generator_.push_back(is_generator(*arguments[i].real_type()));
  }
  pointwise_ = !kernel_.allocates_output() &&
               (form_.op.hasTag(at::Tag::pointwise) || (functional_ && functional_->op.hasTag(at::Tag::pointwise)) ||
                (kernel_.has(kIsPointwiseOfNumbers) && kernel_.has(TB_KERNEL_NUMBERS)));
  one_dtype_ = has_fact(Fact::kOneDtype, form_.traits.name);
  const auto& name = form_.traits.name;
  writes_first_ = name.starts_with("aten::") && form_.traits.returned_arg == std::vector<int>{0} &&
                  form_.traits.written[0] && name != "aten::masked_scatter_"; // which takes its own elements
  indexes_ = std::any_of(arguments.begin(), arguments.end(), are_indices);
}

void BoxedKernel::operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
  // An operator that was defined again is another one: Note [Operators that go].
  if (!*form_.traits.still_defined || !try_call(*stack)) {
    next_.call(op, keys, stack);
  }
}

bool BoxedKernel::needs_meta_kernel() const {
  const auto& returned = form_.traits.returned_arg;
  return !kernel_.allocates_output() && !result_rule_ &&
         (form_.kind == FormKind::kFunctional
              ? pointwise_ || std::find(returned.begin(), returned.end(), -1) != returned.end()
              : functional_.has_value());
}

std::optional<Stack> BoxedKernel::foresee_outputs(Values inputs, std::optional<c10::ScalarType> dtype) const {
  if (result_rule_) {
    return result_rule_(inputs);
  }
  if (!needs_meta_kernel()) {
    return Stack();
  }
  const auto& teller = form_.kind == FormKind::kFunctional ? form_ : *functional_;
  if (!has_meta_kernel(teller.op)) {
    if (!warned_.exchange(true)) {
      TORCH_WARN("The device library's kernel for ", form_.traits.overload, " is not used: ", teller.traits.overload,
                 " has no meta kernel, so that the size of its results is not known before it runs. Register one, with "
                 "torch.library.register_fake or for the key Meta, or let the kernel allocate its outputs "
                 "(TB_KERNEL_ALLOCATES_OUTPUT).");
    }
    return std::nullopt;
  }
  if (!dtype) {
    const auto foreseen = foresee(teller.op, teller.traits, inputs);
    return foreseen ? std::optional<Stack>(*foreseen) : std::nullopt;
  }
  // Meta kernels that are written in Python would take a number for a tensor of its own dtype.
  Stack resolved;
  for (const auto& input : inputs) {
    resolved.push_back(map_tensors(input, [&](const at::Tensor& tensor) {
      return tensor.defined() && is_host_number(tensor) ? at::Tensor(at::detail::empty_meta({}, *dtype)) : tensor;
    }));
  }
  const auto foreseen = foresee(teller.op, teller.traits, resolved);
  const bool computed_in_dtype =
      foreseen && (kernel_.has(TB_KERNEL_MIXED_DTYPES) || (*foreseen)[0].toTensor().scalar_type() == *dtype ||
                   (*foreseen)[0].toTensor().scalar_type() == c10::ScalarType::Bool);
  if (!computed_in_dtype || C10_LIKELY(are_contiguous(inputs))) {
    return computed_in_dtype ? std::optional<Stack>(*foreseen) : std::nullopt;
  }
  Stack results;
  for (const auto& result : *foreseen) {
    results.push_back(map_tensors(
        result, [&](const at::Tensor& tensor) { return tensor.defined() ? laid_out(tensor, inputs) : tensor; }));
  }
  return results;
}

bool BoxedKernel::prepare_outputs(Values arguments, const Stack& foreseen, c10::Device device, Stack* outputs) const {
  const auto inputs = arguments.slice(0, form_.num_inputs);
  switch (form_.kind) {
    case FormKind::kFunctional: {
      const auto& returned = form_.traits.returned_arg;
      for (std::size_t i = 0; i < returned.size(); ++i) {
        if (returned[i] < 0) {
          outputs->push_back(kernel_.allocates_output() ? c10::IValue(at::Tensor())
                                                        : map_tensors(foreseen[i], [&](const at::Tensor& meta) {
                                                            return meta.defined() ? empty_like_layout(meta, device)
                                                                                  : meta;
                                                          }));
        }
      }
      return true;
    }
    case FormKind::kInplace: {
      const at::Tensor& self = inputs[0].toTensor();
      if (kernel_.allocates_output()) {
        outputs->emplace_back(at::Tensor());
        return at::has_internal_overlap(self) != at::MemOverlap::Yes;
      }
      const at::Tensor& meta = foreseen[0].toTensor();
      if (meta.sizes() != self.sizes() || meta.scalar_type() != self.scalar_type() ||
          at::has_internal_overlap(self) == at::MemOverlap::Yes) {
        return false;
      }
      const bool in_place =
          pointwise_ ? is_writable(self, inputs, /*may_coincide=*/true)
                     : kernel_.has(kUpdatesFirst) && is_writable(self, inputs.slice(1), /*may_coincide=*/false);
      outputs->emplace_back(in_place ? self : empty_like_layout(meta, device));
      return true;
    }
    case FormKind::kOut:
      break;
  }
  bool fits = true;
  for (std::size_t i = 0; i < arguments.size() - form_.num_inputs; ++i) {
    const auto& out = arguments[form_.num_inputs + i];
    std::vector<at::Tensor> metas;
    if (i < foreseen.size()) {
      for_each_tensor(foreseen[i], [&](const at::Tensor& meta) { metas.push_back(meta); });
    }
    std::size_t next = 0;
    for_each_tensor(out, [&](const at::Tensor& tensor) {
      const auto& meta = next < metas.size() ? metas[next] : tensor;
      ++next;
      fits = fits && tensor.defined() && (!kernel_.allocates_output() || !share_storage(tensor, inputs)) &&
             is_writable(tensor, inputs, pointwise_) && !(pointwise_ && resizes_input(tensor, meta, inputs)) &&
             (!form_.traits.random || tensor.sizes() == meta.sizes()) && // which not all of these resize
             fit_output(tensor, meta);
    });
    fits = fits && (metas.empty() || next == metas.size());
    outputs->push_back(out);
  }
  return fits;
}

void BoxedKernel::add_inputs(InputAdder& adder, Values inputs, const Stack& foreseen,
                             std::optional<c10::ScalarType> dtype, c10::Device device) const {
  const bool is_resolved = dtype && !foreseen.empty();
  const at::Tensor result = is_resolved ? foreseen[0].toTensor() : at::Tensor();
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const bool written = form_.kind != FormKind::kInplace && form_.traits.written[i];
    const bool is_tensor = inputs[i].isTensor() && inputs[i].toTensor().defined();
    if (is_generator_[i]) {
      adder.add_generator(inputs[i].toOptional<at::Generator>());
    } else if (is_resolved && is_tensor && !written) {
      const at::Tensor& input = inputs[i].toTensor();
      if (input.device().is_cpu() && kernel_.has(TB_KERNEL_NUMBERS)) {
        adder.add_number(input);
      } else {
        adder.add_expanded(input.device().is_cpu() ? on_device(input, *dtype, device) : input, result.sizes());
      }
    } else {
      adder.add(inputs[i], is_dtype_[i], written);
    }
  }
}

void BoxedKernel::bring_from_host(Stack& stack) const {
  const auto first = stack.size() - form_.traits.written.size();
  if (!stack[first].isTensor() || !stack[first].toTensor().is_privateuseone()) {
    return;
  }
  for (std::size_t i = 1; i < form_.num_inputs; ++i) {
    if (auto brought = brought_from_host(stack[first + i], stack[first].toTensor().device())) {
      stack[first + i] = *std::move(brought);
    }
  }
}

void BoxedKernel::check_overlap(Stack& stack) const {
  const auto first = stack.size() - form_.traits.written.size();
  const at::Tensor self = stack[first].toTensor();
  for (std::size_t i = 1; i < form_.num_inputs; ++i) {
    auto& input = stack[first + i];
    if (is_stored_[i] && input.isTensor() && input.toTensor().is_alias_of(self)) {
      const at::AutoDispatchBelowADInplaceOrView below_autograd;
      input = input.toTensor().clone();
    }
    for_each_tensor(input, [&](const at::Tensor& tensor) {
      if (tensor.defined() && tensor.is_alias_of(self)) {
        is_apart_[i] ? at::assert_no_overlap(self, tensor) : at::assert_no_partial_overlap(self, tensor);
      }
    });
  }
}

bool BoxedKernel::try_call(Stack& stack) const {
  if (form_.traits.random && capture_draw(form_, stack)) {
    return true;
  }
  const auto num_arguments = form_.traits.written.size();
  if (indexes_) {
    bring_from_host(stack);
  }
  if (writes_first_) {
    check_overlap(stack);
  }
  const Values arguments(stack.data() + stack.size() - num_arguments, num_arguments);
  const auto inputs = arguments.slice(0, form_.num_inputs);
  const auto device = device_of_call(arguments, pointwise_);
  if (!device) {
    return false;
  }
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const c10::DeviceGuard guard(*device);
  if (one_dtype_ && !computation_dtype(inputs, is_mask_, /*may_differ=*/false)) {
    return false;
  }
  const auto dtype =
      pointwise_ ? computation_dtype(inputs, is_mask_, kernel_.has(TB_KERNEL_MIXED_DTYPES)) : std::nullopt;
  if (pointwise_ && !dtype) {
    return false;
  }
  const auto foreseen = foresee_outputs(inputs, dtype);
  Stack outputs;
  if (!foreseen || !prepare_outputs(arguments, *foreseen, *device, &outputs)) {
    return false;
  }
  const bool has_work =
      kernel_.allocates_output() || outputs.empty() || !std::all_of(outputs.begin(), outputs.end(), is_empty);
  if (!has_work &&
      ((dtype && !kernel_.accepts(*dtype, device->index())) || has_odd_index(form_.op.schema().arguments(), inputs))) {
    return false; // PyTorch's own kernel is asked, which may refuse it
  }
  if (has_work) {
    KernelCall call(kernel_, device->index());
    InputAdder adder(call);
    add_inputs(adder, inputs, *foreseen, dtype, *device);
    if (dtype) {
      const bool promotes = !foreseen->empty() && (*foreseen)[0].isTensor() && kernel_.has(TB_KERNEL_MIXED_DTYPES) &&
                            (*foreseen)[0].toTensor().scalar_type() != c10::ScalarType::Bool;
      call.compute_in(promotes ? (*foreseen)[0].toTensor().scalar_type() : *dtype);
    }
    for (const auto& output : outputs) {
      output.isTensor() ? call.add_output(output.toTensor()) : adder.add_outputs(output);
    }
    if (call.launch() != TB_STATUS_OK) {
      return false;
    }
    for (std::size_t i = 0; kernel_.allocates_output() && i < outputs.size(); ++i) {
      outputs[i] = call.output(i);
    }
  }
  return_results(std::move(outputs), stack);
  return true;
}

void BoxedKernel::return_results(Stack outputs, Stack& stack) const {
  const auto first = stack.size() - form_.traits.written.size();
  if (form_.kind == FormKind::kInplace) {
    const at::Tensor& self = stack[first].toTensor();
    const at::Tensor& output = outputs[0].toTensor();
    if (!output.is_same(self)) {
      self.copy_(output);
    }
  }
  Stack results;
  std::size_t next = 0;
  for (const int argument : form_.traits.returned_arg) {
    results.push_back(argument >= 0 ? stack[first + static_cast<std::size_t>(argument)] : std::move(outputs[next++]));
  }
  stack.resize(first);
  std::move(results.begin(), results.end(), std::back_inserter(stack));
}

} // namespace torch_backend
