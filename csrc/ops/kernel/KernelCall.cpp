#include "csrc/ops/kernel/KernelCall.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>

#include <ATen/EmptyTensor.h>
#include <ATen/native/Resize.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Exception.h>
#include <c10/util/Half.h>
#include <c10/util/StringUtil.h>

#include "csrc/core/Capture.h"
#include "csrc/core/Runtime.h"
#include "csrc/core/Status.h"
#include "csrc/core/Stream.h"
#include "csrc/core/Tape.h"
#include "csrc/core/generator/PhiloxGenerator.h"
#include "csrc/memory/DeviceAllocator.h"
#include "csrc/ops/dispatch/OperatorFacts.h"
#include "csrc/ops/kernel/MathFlags.h"
#include "csrc/ops/tensor/StorageOf.h"
#include "csrc/profiler/Recording.h"

namespace torch_backend {
namespace {

at::Tensor new_contiguous(at::IntArrayRef sizes, c10::ScalarType type) {
  return at::detail::empty_generic(sizes, &device_allocator(), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), type,
                                   std::nullopt);
}

/// As tb_philox promises: 64 steps of the counter, of four each.
constexpr uint64_t kNumbersPerCall = 256;

tb_status fail(tb_status status, std::string text) {
  set_error_text(std::move(text));
  return status;
}

bool is_plain(const c10::TensorImpl& tensor) {
  // What is not strided, is not what its memory says, or has none.
  constexpr c10::DispatchKeySet kSpecial({c10::DispatchKey::Conjugate, c10::DispatchKey::Negative,
                                          c10::DispatchKey::ZeroTensor, c10::DispatchKey::Sparse,
                                          c10::DispatchKey::SparseCsr, c10::DispatchKey::NestedTensor});
  return !tensor.key_set().has_any(kSpecial) && has_memory(tensor);
}

/// Of a tensor, or of the first of a list that is defined; bits is 0 for all else.
tb_dtype dtype_in(const tb_arg& argument) {
  const void* const* tensors = argument.tag == TB_ARG_TENSOR        ? &argument.v.p
                               : argument.tag == TB_ARG_TENSOR_LIST ? static_cast<const void* const*>(argument.v.p)
                                                                    : nullptr;
  const std::size_t count = argument.tag == TB_ARG_TENSOR ? 1 : argument.length;
  for (std::size_t i = 0; tensors && i < count; ++i) {
    if (tensors[i]) {
      return static_cast<const tb_tensor*>(tensors[i])->dtype;
    }
  }
  return {};
}

bool is_integer(tb_dtype type) {
  return (type.code == TB_DTYPE_INT || type.code == TB_DTYPE_UINT) && type.bits > 0 && type.bits <= 64;
}

/// The largest number of a floating dtype that PyTorch computes in, and of the parts of a complex one.
std::optional<double> largest_of(tb_dtype type) {
  const bool is_bfloat = type.code == TB_DTYPE_BFLOAT;
  if (type.code == TB_DTYPE_COMPLEX) {
    type.bits /= 2;
  } else if (!is_bfloat && type.code != TB_DTYPE_FLOAT) {
    return std::nullopt;
  }
  if (type.bits == 16) {
    return is_bfloat ? static_cast<double>(static_cast<float>(std::numeric_limits<c10::BFloat16>::max()))
                     : static_cast<double>(static_cast<float>(std::numeric_limits<c10::Half>::max()));
  }
  return type.bits == 32 ? static_cast<double>(std::numeric_limits<float>::max()) : std::numeric_limits<double>::max();
}

/// Whether c10::Scalar::to takes it, or what saturates does; what is infinite already is taken.
bool fits_floating(const tb_arg& number, double largest, bool saturates_below, bool saturates_above) {
  const auto fits = [&](double value) {
    return !std::isfinite(value) || ((value <= largest || saturates_above) && (value >= -largest || saturates_below));
  };
  const auto* parts = static_cast<const double*>(number.v.p);
  return number.tag == TB_ARG_COMPLEX ? fits(parts[0]) && fits(parts[1])
         : number.tag == TB_ARG_FLOAT ? fits(number.v.f)
                                      : number.tag != TB_ARG_INT || fits(static_cast<double>(number.v.i));
}

/// As c10::Scalar::to does, or with saturation. False if it raises.
bool convert(tb_arg& number, tb_dtype type, bool saturates_below, bool saturates_above, bool wraps) {
  const bool is_signed = type.code == TB_DTYPE_INT;
  const uint64_t most = ~uint64_t{0} >> (64 - type.bits + is_signed);
  const int64_t least = is_signed ? -static_cast<int64_t>(most) - 1 : 0;
  bool is_below = false, is_above = false;
  if (number.tag == TB_ARG_FLOAT) {
    const double value = number.v.f;
    is_below = value < static_cast<double>(least);
    is_above = type.bits == 64 ? value >= static_cast<double>(most) : value > static_cast<double>(most);
    if (std::isnan(value)) {
      return false;
    }
    wraps = false;
    number.tag = TB_ARG_INT;
    number.v.i = is_below || is_above ? 0
                 : is_signed          ? static_cast<int64_t>(value)
                                      : static_cast<int64_t>(static_cast<uint64_t>(value));
  } else if (number.tag == TB_ARG_INT) {
    is_below = number.v.i < least;
    is_above = number.v.i > 0 && static_cast<uint64_t>(number.v.i) > most;
  }
  if (is_above) {
    number.v.i = static_cast<int64_t>(most);
    return saturates_above;
  }
  if (is_below && saturates_below) {
    number.v.i = least;
  } else if (is_below) {
    const bool is_near = type.bits == 64 || number.v.i >= -static_cast<int64_t>(most);
    number.v.i += static_cast<int64_t>(most) + 1;
    return wraps && !is_signed && !saturates_above && is_near;
  }
  return true;
}

} // namespace

KernelCall::~KernelCall() = default;

tb_arg& KernelCall::next() {
  TORCH_CHECK(num_arguments_ < kMaxArguments, kernel_.op(), ": a kernel takes at most ", kMaxArguments, " arguments.");
  auto& argument = arguments_[num_arguments_++];
  argument.length = 0;
  return argument;
}

tb_tensor* KernelCall::describe(const c10::TensorImpl& tensor, const void* data, bool is_output) {
  auto* described = take<tb_tensor>(1);
  const auto type = c10::typeMetaToScalarType(tensor.dtype());
  const auto device = tensor.device();
  refuse_unless(device.is_privateuseone() && device.index() == device_);
  const bool is_empty = tensor.numel() == 0;
  if (is_output) {
    (is_empty ? lacks_output_ : has_output_) = true;
  } else {
    has_empty_ = has_empty_ || is_empty;
  }
  (is_output ? output_types_ : types_) |= uint64_t{1} << static_cast<unsigned>(type);
  described->data = const_cast<void*>(data);
  described->device = {kExtDevice, device.index()};
  described->ndim = static_cast<int32_t>(tensor.dim());
  described->dtype = tb_dtype_or_none(type);
  described->shape = const_cast<int64_t*>(tensor.sizes().data());
  described->strides = const_cast<int64_t*>(tensor.strides().data());
  described->byte_offset = static_cast<uint64_t>(tensor.storage_offset()) * tensor.itemsize();
  return described;
}

tb_tensor* KernelCall::describe_input(const at::Tensor& tensor) {
  const auto& impl = *tensor.unsafeGetTensorImpl();
  if (C10_UNLIKELY(!is_plain(impl) || (kernel_.needs_contiguous() && !impl.is_contiguous()))) {
    return prepare_input(tensor);
  }
  return describe(impl, impl.unsafe_storage().unsafeGetStorageImpl()->data());
}

void KernelCall::add(const at::Tensor& tensor) {
  if (C10_UNLIKELY(!tensor.defined())) {
    add_none();
    return;
  }
  add_tensor(describe_input(tensor));
}

void KernelCall::add_expanded(const at::Tensor& tensor, at::IntArrayRef sizes) {
  if (tensor.sizes() == sizes || !tensor.defined()) {
    add(tensor);
    return;
  }
  if (kernel_.needs_contiguous()) {
    kept_.push_back(tensor.expand(sizes));
    add_tensor(prepare_input(kept_.back()));
    return;
  }
  tb_tensor* expanded = describe_input(tensor);
  if (expanded) {
    const auto added = static_cast<std::ptrdiff_t>(sizes.size()) - expanded->ndim;
    auto* strides = take<int64_t>(sizes.size());
    for (std::ptrdiff_t i = 0; i < static_cast<std::ptrdiff_t>(sizes.size()); ++i) {
      const bool repeats = i < added || (expanded->shape[i - added] == 1 && sizes[static_cast<std::size_t>(i)] != 1);
      strides[i] = repeats ? 0 : expanded->strides[i - added];
    }
    expanded->ndim = static_cast<int32_t>(sizes.size());
    expanded->shape = const_cast<int64_t*>(sizes.data());
    expanded->strides = strides;
  }
  add_tensor(expanded);
}

void KernelCall::add_written(const at::Tensor& tensor) {
  if (tensor.defined()) {
    add_tensor(describe_written(tensor, /*is_output=*/false));
  } else {
    add_none();
  }
}

void KernelCall::add_written(at::TensorList tensors) {
  add_written_list(tensors, /*are_outputs=*/false);
}

void KernelCall::add(const at::Scalar& scalar) {
  if (scalar.isComplex()) {
    const auto value = scalar.toComplexDouble();
    auto* parts = take<double>(2);
    parts[0] = value.real();
    parts[1] = value.imag();
    auto& argument = next();
    argument.tag = TB_ARG_COMPLEX;
    argument.v.p = parts;
  } else if (scalar.isFloatingPoint()) {
    add(scalar.toDouble());
  } else if (scalar.isBoolean()) {
    add(scalar.toBool());
  } else if (scalar.type() == c10::ScalarType::UInt64) { // more than int64 holds
    has_uint64_ = true;
    add(static_cast<int64_t>(scalar.toUInt64()));
  } else {
    add(scalar.toLong());
  }
}

void KernelCall::add_number(const at::Tensor& tensor) {
  // Tensor::item() takes longer than a small kernel.
  const auto& impl = *tensor.unsafeGetTensorImpl();
  if (C10_LIKELY(tensor.device().is_cpu() && is_plain(impl))) {
    switch (tensor.scalar_type()) {
      case c10::ScalarType::Double:
        return add(*static_cast<const double*>(impl.data()));
      case c10::ScalarType::Long:
        return add(*static_cast<const int64_t*>(impl.data()));
      case c10::ScalarType::Bool:
        return add(*static_cast<const bool*>(impl.data()));
      default:
        break;
    }
  }
  add(tensor.item());
}

void KernelCall::add(c10::Device device) {
  refuse_unless(device.is_privateuseone() || device.is_cpu());
  auto& argument = next();
  argument.tag = TB_ARG_DEVICE;
  argument.v.device = device.is_cpu() ? tb_device_id{1, 0} : tb_device_id{kExtDevice, device.index()};
}

void KernelCall::add(const std::optional<at::Generator>& generator) {
  auto* numbers = take<tb_philox>(1);
  if (graph::any_capture() && device_api().async()) {
    const auto what = c10::str(kernel_.op(),
                               ", whose random numbers would be the same in every replay (draw them before "
                               "the replay, into a tensor that the captured work reads),");
    graph::refuse_in_capture(device_, current_stream(device_).handle(), what.c_str());
  }
  auto* philox = resolve_generator(generator, device_);
  {
    const std::lock_guard<std::mutex> lock(philox->mutex_);
    std::tie(numbers->seed, numbers->offset) = philox->philox_engine_inputs(kNumbersPerCall);
  }
  auto& argument = next();
  argument.tag = TB_ARG_GENERATOR;
  argument.v.p = numbers;
}

void KernelCall::add(std::string_view text) {
  auto* copy = take<char>(text.size() + 1);
  std::copy(text.begin(), text.end(), copy);
  copy[text.size()] = '\0';
  add_list(TB_ARG_STRING, copy, text.size());
}

void KernelCall::add(at::ArrayRef<bool> values) {
  auto* copy = take<int64_t>(values.size());
  std::copy(values.begin(), values.end(), copy);
  add_list(TB_ARG_INT_LIST, copy, values.size());
}

void KernelCall::add(at::TensorList tensors) {
  auto** list = take<tb_tensor*>(tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    list[i] = tensors[i].defined() ? describe_input(tensors[i]) : nullptr;
  }
  add_list(TB_ARG_TENSOR_LIST, list, tensors.size());
}

void KernelCall::add(const at::ITensorListRef& tensors) {
  auto** list = take<tb_tensor*>(tensors.size());
  std::size_t i = 0;
  for (const auto& tensor : tensors) {
    list[i++] = tensor.defined() ? describe_input(tensor) : nullptr;
  }
  add_list(TB_ARG_TENSOR_LIST, list, tensors.size());
}

void KernelCall::add(const c10::List<std::optional<at::Tensor>>& tensors) {
  auto** list = take<tb_tensor*>(tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::optional<at::Tensor> tensor = tensors.get(i);
    list[i] = tensor.has_value() && tensor->defined() ? describe_input(*tensor) : nullptr;
  }
  add_list(TB_ARG_TENSOR_LIST, list, tensors.size());
}

void KernelCall::add_output(const at::Tensor& tensor) {
  if (kernel_.allocates_output()) {
    given_.push_back(tensor);
    add_none();
  } else if (tensor.defined() &&
             !(kernel_.has(kLeavesOutEmptyOutputs) && tensor.numel() == 0 && !kernel_.has(kTakesEmpty))) {
    add_tensor(describe_written(tensor, /*is_output=*/true));
  } else {
    add_none();
  }
}

void KernelCall::add_output(at::TensorList tensors) {
  add_written_list(tensors, /*are_outputs=*/true);
}

void KernelCall::add_written_list(at::TensorList tensors, bool are_outputs) {
  auto** list = take<tb_tensor*>(tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    list[i] = tensors[i].defined() ? describe_written(tensors[i], are_outputs) : nullptr;
  }
  add_list(TB_ARG_TENSOR_LIST, list, tensors.size());
}

tb_tensor* KernelCall::describe_written(const at::Tensor& tensor, bool is_output) {
  const auto& impl = *tensor.unsafeGetTensorImpl();
  if (!is_plain(impl)) {
    return refuse();
  }
  if (kernel_.needs_contiguous() && !impl.is_contiguous()) {
    copies_.emplace_back(is_output ? new_contiguous(tensor.sizes(), tensor.scalar_type()) : tensor.contiguous(),
                         tensor);
    const auto& temporary = *copies_.back().first.unsafeGetTensorImpl();
    return describe(temporary, temporary.unsafe_storage().unsafeGetStorageImpl()->mutable_data(), is_output);
  }
  return describe(impl, impl.unsafe_storage().unsafeGetStorageImpl()->mutable_data(), is_output);
}

tb_tensor* KernelCall::prepare_input(const at::Tensor& tensor) {
  if (tensor.layout() != c10::kStrided || tensor._is_zerotensor() || !tensor.device().is_privateuseone() ||
      !has_memory(tensor)) {
    return refuse();
  }
  at::Tensor prepared = tensor.resolve_conj().resolve_neg();
  if (kernel_.needs_contiguous()) {
    prepared = prepared.contiguous();
  }
  kept_.push_back(std::move(prepared));
  const auto& impl = *kept_.back().unsafeGetTensorImpl();
  return describe(impl, impl.unsafe_storage().unsafeGetStorageImpl()->data());
}

tb_tensor* KernelCall::refuse() {
  refused_ = true;
  return nullptr;
}

std::byte* KernelCall::take_more(std::size_t bytes) {
  more_.push_back(std::make_unique<std::byte[]>(bytes));
  return more_.back().get();
}

bool KernelCall::fits(const Kernel& kernel) const {
  const uint64_t types = types_ | (kernel.has(TB_KERNEL_INPUT_DTYPES) ? 0 : output_types_);
  const bool has_empty = has_empty_ || (lacks_output_ && (!has_output_ || kernel.has(kLeavesOutEmptyOutputs)));
  return (types & ~kernel.accepted_dtypes(device_)) == 0 && (!has_empty || kernel.has(kTakesEmpty));
}

bool KernelCall::convert_numbers() {
  const auto& converted = kernel_.converted_numbers();
  if (converted.all == 0 && !has_uint64_) {
    return true;
  }
  tb_dtype type = compute_dtype_;
  for (int i = 0; type.bits == 0 && i < num_arguments_; ++i) {
    type = dtype_in(arguments_[i]);
  }
  const bool takes_uint64 = kernel_.has(kTakesUint64) && type.code == TB_DTYPE_UINT && type.bits == 64;
  if (has_uint64_ && (!takes_uint64 || (converted.saturate_below | converted.saturate_above) != 0)) {
    return false;
  }
  const auto largest = largest_of(type);
  const double largest_wide = type.bits == 16 ? std::numeric_limits<float>::max() : largest.value_or(0);
  for (int i = 0; largest && i < num_arguments_; ++i) {
    const uint64_t bit = uint64_t{1} << i;
    if ((converted.floating & bit) && !fits_floating(arguments_[i], converted.widened & bit ? largest_wide : *largest,
                                                     converted.saturate_below & bit, converted.saturate_above & bit)) {
      return false;
    }
  }
  bool taken = true;
  for (int i = 0; is_integer(type) && i < num_arguments_; ++i) {
    const uint64_t bit = uint64_t{1} << i;
    if (converted.all & bit) {
      taken = convert(arguments_[i], type, converted.saturate_below & bit, converted.saturate_above & bit,
                      converted.wrap) &&
              taken;
    }
  }
  return taken;
}

tb_status KernelCall::run(const Kernel& kernel, const tb_kernel_context& context) {
  outputs_.assign(given_.size(), at::Tensor());
  if (profiler::recording()) {
    profiler::forget_host_kernel(); // what the caller began, in case that it is ATen's kernel that runs
  }
  if (kernel.allocates_output()) {
    graph::refuse_in_capture(device_, context.stream, kernel.op().c_str());
  }
  const RunningKernel running(context);
  CallSpan span("kernel_launch", device_);
  span.kernel(context.stream, kernel.op());
  const auto status = kernel.run(context, arguments_, num_arguments_);
  if (status == TB_STATUS_OK) {
    span.enqueued();
    graph::add_step(device_, context.stream, kernel.op().c_str());
  }
  return status;
}

tb_status KernelCall::run_with_memory(const Kernel& kernel, const tb_kernel_context& context) {
  const auto status = run(kernel, context);
  if (status == TB_STATUS_OUT_OF_MEMORY && !error_ && device_allocator().can_empty_cache(device_)) {
    workspaces_.clear();
    device_allocator().empty_cache(device_);
    return run(kernel, context);
  }
  return status;
}

tb_status KernelCall::launch() {
  if (refused_ || !convert_numbers()) {
    return TB_STATUS_UNSUPPORTED;
  }
  auto& api = device_api();
  api.check_usable(device_, kernel_.op().c_str());
  tb_kernel_context context{sizeof(tb_kernel_context),
                            device_,
                            0,
                            api.async() ? current_stream(device_).handle() : nullptr,
                            this,
                            compute_dtype_};
  tb_status status = TB_STATUS_UNSUPPORTED;
  const bool is_taped = graph::is_taped(device_, context.stream); // See Note [Graphs without graph.1].
  for (const auto* kernel = &kernel_; kernel && status == TB_STATUS_UNSUPPORTED; kernel = kernel->next()) {
    if (!(is_taped && kernel->source() == Source::kPlugin) && fits(*kernel) &&
        kernel->allocates_output() == kernel_.allocates_output() &&
        !(kernel->has(kLeavesHostMemory) && api.host_access())) {
      context.flags = kernel->has(TB_KERNEL_MATH_FLAGS) ? math_flags() : 0;
      status = run_with_memory(*kernel, context);
    }
  }
  if (C10_UNLIKELY(status != TB_STATUS_OK)) {
    if (status == TB_STATUS_UNSUPPORTED) {
      take_error_text();
      return status;
    }
    if (error_) {
      take_error_text();
      std::rethrow_exception(error_);
    }
    throw_status(status, api.name(), kernel_.op().c_str(), device_);
  }
  for (std::size_t i = 0; i < outputs_.size(); ++i) {
    TORCH_CHECK(outputs_[i].defined(), api.name(), ": ", kernel_.op(), " returned OK without alloc_output for output ",
                i, ", though it is declared TB_KERNEL_ALLOCATES_OUTPUT.");
  }
  for (const auto& [from, to] : copies_) {
    to.copy_(from);
  }
  return TB_STATUS_OK;
}

tb_status KernelCall::alloc_output(int32_t index, int32_t ndim, const int64_t* shape, tb_tensor* out_tensor) noexcept {
  try {
    if (!kernel_.allocates_output()) {
      return fail(TB_STATUS_INVALID_ARGUMENT,
                  "alloc_output was called by a kernel that is not declared TB_KERNEL_ALLOCATES_OUTPUT");
    }
    if (index < 0 || static_cast<std::size_t>(index) >= outputs_.size() || ndim < 0 || (ndim > 0 && !shape) ||
        !out_tensor || std::any_of(shape, shape + ndim, [](int64_t size) { return size < 0; })) {
      return fail(TB_STATUS_INVALID_ARGUMENT,
                  c10::str("alloc_output was called for output ", index, " of ", outputs_.size(), " with ", ndim,
                           " dimensions; all sizes must be at least 0"));
    }
    const auto type = to_scalar_type(out_tensor->dtype);
    if (!type) {
      return fail(TB_STATUS_INVALID_ARGUMENT,
                  "alloc_output was called without a dtype; set out_tensor->dtype before the call");
    }
    const at::IntArrayRef sizes(shape, static_cast<std::size_t>(ndim));
    const auto& given = given_[static_cast<std::size_t>(index)];
    if (given.defined() && (given.scalar_type() != *type || !is_plain(*given.unsafeGetTensorImpl()))) {
      return fail(TB_STATUS_UNSUPPORTED, c10::str("the out= tensor has dtype ", given.scalar_type()));
    }
    const at::Tensor result = given.defined() ? given : new_contiguous(sizes, *type);
    const bool is_ours = !given.defined() || at::native::resize_output(given, sizes);
    if (is_ours && ndim == 2 && has_fact(Fact::kResultInColumns, kernel_.op())) {
      result.as_strided_(sizes, {1, sizes[0]});
    }
    const bool is_copied = kernel_.needs_contiguous() && !result.is_contiguous();
    at::Tensor output = is_copied ? new_contiguous(sizes, *type) : result;
    outputs_[static_cast<std::size_t>(index)] = result;
    const auto& impl = *output.unsafeGetTensorImpl();
    auto* data = impl.numel() > 0 ? impl.unsafe_storage().unsafeGetStorageImpl()->mutable_data() : nullptr;
    *out_tensor = {data,
                   {kExtDevice, device_},
                   ndim,
                   out_tensor->dtype,
                   const_cast<int64_t*>(impl.sizes().data()),
                   const_cast<int64_t*>(impl.strides().data()),
                   static_cast<uint64_t>(impl.storage_offset()) * impl.itemsize()};
    if (is_copied) {
      copies_.emplace_back(std::move(output), result);
    }
    return TB_STATUS_OK;
  } catch (...) {
    return keep_exception();
  }
}

tb_status KernelCall::alloc_workspace(uint64_t size_bytes, void** out_ptr) noexcept {
  try {
    workspaces_.push_back(device_allocator().allocate(size_bytes));
    *out_ptr = workspaces_.back().get();
    return TB_STATUS_OK;
  } catch (...) {
    return keep_exception();
  }
}

tb_status KernelCall::keep_exception() noexcept {
  error_ = std::current_exception();
  try {
    throw;
  } catch (const c10::OutOfMemoryError& error) {
    return fail(TB_STATUS_OUT_OF_MEMORY, error.what_without_backtrace());
  } catch (const std::exception& error) {
    return fail(TB_STATUS_INTERNAL, error.what());
  }
}

} // namespace torch_backend
