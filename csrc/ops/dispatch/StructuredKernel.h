// ATen's structured operators on device tensors: PyTorch's meta functions decide shapes, dtypes, broadcasting and overlap;
// the outputs come from the device's allocator; one kernel serves the functional, the in-place and the out= form.
#pragma once

#include <array>
#include <optional>

#include <ATen/TensorIterator.h>
#include <ATen/TensorMeta.h>
#include <ATen/core/IListRef.h>
#include <ATen/core/Tensor.h>
#include <c10/core/TensorOptions.h>
#include <c10/util/SmallVector.h>

#if __has_include(<ATen/core/Dimname.h>)
#include <ATen/core/Dimname.h>
// Until named tensors were removed from PyTorch, outputs were set with their names.
#define TB_OUTPUT_NAMES , at::DimnameList names
#define TB_PASS_OUTPUT_NAMES , names
#else
#define TB_OUTPUT_NAMES
#define TB_PASS_OUTPUT_NAMES
#endif

namespace torch_backend {
namespace detail {

/// The device of one call: checked to be usable and made current when the first output is set, which every meta function
/// does before memory is touched.
class StructuredDevice {
 public:
  explicit StructuredDevice(const char* op) : op_(op) {}
  ~StructuredDevice() {
    if (C10_UNLIKELY(before_.has_value())) {
      restore();
    }
  }
  StructuredDevice(const StructuredDevice&) = delete;
  StructuredDevice& operator=(const StructuredDevice&) = delete;

  void use(c10::Device device);

 private:
  void restore();

  const char* op_;
  std::optional<c10::DeviceIndex> before_;
};

at::Tensor create_output(at::IntArrayRef sizes, at::IntArrayRef strides, const c10::TensorOptions& options);

/// One output of a call. What does not depend on the operator's class is compiled here, once and not for each.
struct StructuredOutput {
  const at::Tensor& get() const {
    return given == nullptr || own.defined() ? own : *given;
  }
  void set(at::IntArrayRef sizes, at::IntArrayRef strides, const c10::TensorOptions& options, bool in_place);
  /// A tensor of the strides that the kernel needs, if the caller's has others.
  void set_proxy(at::IntArrayRef sizes, at::IntArrayRef strides, const c10::TensorOptions& options);

  at::Tensor* given = nullptr; // the caller's; none: a new one is made
  at::Tensor own;              // the new one, or the caller's proxy
};

/// After output `index` was set: a pointwise `Class` is an iterator, which keeps its outputs itself.
template <class Class>
void tell_iterator(Class& op, int64_t index, at::IntArrayRef sizes, at::IntArrayRef strides,
                   const at::TensorOptions& options TB_OUTPUT_NAMES) {
  if constexpr (std::is_base_of_v<at::TensorIteratorBase, Class>) {
    op.Class::set_output_raw_strided(index, sizes, strides, options TB_PASS_OUTPUT_NAMES);
  }
}

} // namespace detail

/// What the operator computes in; nothing for operators that leave dtypes alone.
std::optional<c10::ScalarType> common_dtype(const at::TensorIteratorBase& iterator);

/// The device of one call's tensors, if it is the same for all.
class CommonDevice {
 public:
  static constexpr std::size_t kMaxAliases = 8; // of CpuAliases, outputs not counted

  /// Whether all tensors among `args` are on one device of ours. Numbers on the CPU count as tensors: they are for
  /// somebody who knows what the operator makes of them.
  template <class... Args>
  static bool of(const Args&... args) {
    CommonDevice common;
    return (common.takes(args) && ...);
  }
  /// ... and are such that CpuAliases takes them.
  template <class... Args>
  static bool can_alias(const Args&... args) {
    CommonDevice common;
    common.must_be_aliasable_ = true;
    return (common.takes(args) && ...);
  }

 private:
  template <class T>
  bool takes(const T& /*value*/) {
    return true;
  }
  bool takes(const at::Tensor& tensor);
  bool takes(const std::optional<at::Tensor>& tensor) {
    return !tensor.has_value() || takes(*tensor);
  }
  bool takes(const at::ITensorListRef& tensors);

  std::optional<c10::Device> device_;
  bool must_be_aliasable_ = false;
};

/// `Class`, one of ATen's structured classes, with outputs on the device.
template <class Class, std::size_t kOutputs>
struct StructuredKernel final : Class {
  /// With new outputs.
  explicit StructuredKernel(const char* op) : device_(op) {}
  /// Over the caller's, which for an in-place operator is its self. finish() comes after the kernel.
  template <class... Outputs>
  StructuredKernel(const char* op, bool in_place, Outputs&... outputs)
      : outputs_{detail::StructuredOutput{&outputs}...}, device_(op), in_place_(in_place) {}

  void set_output_strided(int64_t index, at::IntArrayRef sizes, at::IntArrayRef strides,
                          at::TensorOptions options TB_OUTPUT_NAMES) override {
    set(index, sizes, strides, options);
    outputs_[static_cast<std::size_t>(index)].set_proxy(sizes, strides, options);
    detail::tell_iterator<Class>(*this, index, sizes, strides, options TB_PASS_OUTPUT_NAMES);
  }
  void set_output_raw_strided(int64_t index, at::IntArrayRef sizes, at::IntArrayRef strides,
                              at::TensorOptions options TB_OUTPUT_NAMES) override {
    set(index, sizes, strides, options);
    detail::tell_iterator<Class>(*this, index, sizes, strides, options TB_PASS_OUTPUT_NAMES);
  }
  const at::Tensor& maybe_get_output(int64_t index) override {
    return outputs_[static_cast<std::size_t>(index)].get();
  }
  at::Tensor& result(std::size_t index) {
    return outputs_[index].own;
  }
  void finish() {
    for (const auto& output : outputs_) {
      if (C10_UNLIKELY(output.own.defined())) {
        output.given->copy_(output.own);
      }
    }
  }

 private:
  void set(int64_t index, at::IntArrayRef sizes, at::IntArrayRef strides, const at::TensorOptions& options) {
    device_.use(options.device());
    outputs_[static_cast<std::size_t>(index)].set(sizes, strides, options, in_place_);
  }

  std::array<detail::StructuredOutput, kOutputs> outputs_;
  detail::StructuredDevice device_;
  bool in_place_ = false;
};

} // namespace torch_backend
