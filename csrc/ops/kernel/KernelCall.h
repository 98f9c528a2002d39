// One call of a kernel, the device library's or a compiled one: its arguments as the ABI's structs, and what it asks the core for.
#pragma once

#include <array>
#include <cstddef>
#include <exception>
#include <memory>
#include <new>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/core/Generator.h>
#include <ATen/core/IListRef.h>
#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>
#include <c10/core/Layout.h>
#include <c10/core/MemoryFormat.h>
#include <c10/core/Scalar.h>
#include <c10/core/SymInt.h>
#include <c10/core/SymIntArrayRef.h>
#include <c10/util/OptionalArrayRef.h>
#include <c10/util/SmallVector.h>

#include "csrc/core/DType.h"
#include "csrc/core/KernelHost.h"
#include "csrc/ops/kernel/Kernel.h"

namespace torch_backend {

/// Add the arguments in the order of the schema, then the outputs, then launch(). Everything that is added must outlive
/// the call: sizes, strides and lists are pointed at, not copied.
///
/// What a kernel may not be given (a tensor of another device or layout, of a dtype outside its mask, without elements)
/// makes launch() return TB_STATUS_UNSUPPORTED without calling it; the caller then goes on to the next kernel source.
/// Conj and neg bits are resolved, and where the kernel asks for it tensors are made contiguous, here.
///
/// The caller holds a device guard, and runs below autograd (at::AutoDispatchBelowADInplaceOrView) if tensors may need
/// to be prepared. Allocates nothing on the host unless they do, or lists are long. One thread, one launch.
class KernelCall final : tb_kernel_host {
 public:
  static constexpr int kMaxArguments = 48;

  KernelCall(const Kernel& kernel, c10::DeviceIndex device) : kernel_(kernel), device_(device) {}
  ~KernelCall();
  KernelCall(const KernelCall&) = delete;
  KernelCall& operator=(const KernelCall&) = delete;

  // ---- inputs ----

  void add_none() {
    next().tag = TB_ARG_NONE;
  }
  /// An undefined tensor is TB_ARG_NONE.
  void add(const at::Tensor& tensor);
  /// `tensor` broadcast to `sizes`, which must be possible.
  void add_expanded(const at::Tensor& tensor, at::IntArrayRef sizes);
  /// A tensor that the kernel writes in place: an argument of the schema and no output of its own.
  void add_written(const at::Tensor& tensor);
  void add_written(at::TensorList tensors);

  void add(const at::Scalar& scalar);
  /// A tensor of one element on the CPU, as the number that it holds.
  void add_number(const at::Tensor& tensor);
  void add(bool value) {
    auto& argument = next();
    argument.tag = TB_ARG_BOOL;
    argument.v.i = value;
  }
  void add(int64_t value) {
    auto& argument = next();
    argument.tag = TB_ARG_INT;
    argument.v.i = value;
  }
  void add(const c10::SymInt& value) {
    add(value.guard_int(__FILE__, __LINE__));
  }
  void add(double value) {
    auto& argument = next();
    argument.tag = TB_ARG_FLOAT;
    argument.v.f = value;
  }
  void add(c10::ScalarType type) {
    auto& argument = next();
    argument.tag = TB_ARG_DTYPE;
    argument.v.dtype = tb_dtype_or_none(type);
    refuse_unless(argument.v.dtype.bits != 0);
  }
  /// Layouts and memory formats are PyTorch's numbers.
  void add(c10::Layout layout) {
    add(static_cast<int64_t>(layout));
  }
  void add(c10::MemoryFormat format) {
    add(static_cast<int64_t>(format));
  }
  void add(c10::Device device);
  /// Numbers that no other call gets, of the generator or of the device's own.
  void add(const std::optional<at::Generator>& generator);
  void add(std::string_view text);
  void add(const char* text) {
    add(std::string_view(text));
  }
  void add(at::IntArrayRef values) {
    add_list(TB_ARG_INT_LIST, values.data(), values.size());
  }
  void add(c10::SymIntArrayRef values) {
    add(C10_AS_INTARRAYREF_SLOW(values));
  }
  void add(at::ArrayRef<double> values) {
    add_list(TB_ARG_FLOAT_LIST, values.data(), values.size());
  }
  /// As a list of 0 and 1.
  void add(at::ArrayRef<bool> values);
  template <std::size_t N>
  void add(const std::array<bool, N>& values) {
    add(at::ArrayRef<bool>(values));
  }
  void add(at::TensorList tensors);
  void add(const at::ITensorListRef& tensors);
  void add(const c10::List<std::optional<at::Tensor>>& tensors);
  template <class T>
  void add(const std::optional<T>& value) {
    if (value.has_value()) {
      add(*value);
    } else {
      add_none();
    }
  }
  template <class T>
  void add(const c10::OptionalArrayRef<T>& values) {
    if (values.has_value()) {
      add(*values);
    } else {
      add_none();
    }
  }

  // ---- outputs, after the inputs ----

  /// `tensor` has its final size and dtype. For a kernel that allocates its outputs it is the caller's out= tensor, or
  /// undefined; output() has it afterwards.
  void add_output(const at::Tensor& tensor);
  void add_output(at::TensorList tensors);

  // ---- the call ----

  /// What PyTorch computes a pointwise operator in.
  void compute_in(c10::ScalarType type) {
    compute_dtype_ = tb_dtype_or_none(type);
  }

  /// TB_STATUS_OK, or TB_STATUS_UNSUPPORTED, and then nothing was done. Throws everything else, as Status.h says, with
  /// the operator's name and the plugin's own text. The kernel runs on the device's current stream.
  tb_status launch();

  /// What the kernel allocated as output `index` (TB_KERNEL_ALLOCATES_OUTPUT), after launch().
  at::Tensor& output(std::size_t index) {
    return outputs_[index];
  }

 private:
  static constexpr std::size_t kArenaBytes = 1024;

  tb_arg& next();
  void add_tensor(tb_tensor* tensor) {
    auto& argument = next();
    argument.tag = TB_ARG_TENSOR;
    argument.v.p = tensor;
  }
  void add_written_list(at::TensorList tensors, bool are_outputs);
  void add_list(int32_t tag, const void* values, std::size_t length) {
    auto& argument = next();
    argument.tag = tag;
    argument.length = static_cast<uint32_t>(length);
    argument.v.p = const_cast<void*>(values);
  }
  void refuse_unless(bool allowed) {
    refused_ = refused_ || !allowed;
  }

  /// Uninitialized memory that lives as long as the call.
  template <class T>
  T* take(std::size_t count) {
    const std::size_t bytes = (count * sizeof(T) + 15) & ~std::size_t{15};
    if (C10_LIKELY(bytes <= kArenaBytes - arena_used_)) {
      auto* memory = arena_ + arena_used_;
      arena_used_ += bytes;
      return reinterpret_cast<T*>(memory);
    }
    return reinterpret_cast<T*>(take_more(bytes));
  }
  std::byte* take_more(std::size_t bytes);

  tb_tensor* describe(const c10::TensorImpl& tensor, const void* data, bool is_output = false);
  /// Whether `kernel` takes tensors of these dtypes, and that some are without elements.
  bool fits(const Kernel& kernel) const;
  /// Make of numbers what PyTorch makes of them where the call computes in integers. False where it raises.
  bool convert_numbers();
  tb_tensor* describe_input(const at::Tensor& tensor);
  tb_tensor* describe_written(const at::Tensor& tensor, bool is_output);
  tb_tensor* prepare_input(const at::Tensor& tensor);
  /// NULL if it cannot be given to a kernel; the call is refused then.
  tb_tensor* refuse();

  tb_status run(const Kernel& kernel, const tb_kernel_context& context);
  tb_status run_with_memory(const Kernel& kernel, const tb_kernel_context& context);
  tb_status alloc_output(int32_t index, int32_t ndim, const int64_t* shape, tb_tensor* out_tensor) noexcept override;
  tb_status alloc_workspace(uint64_t size_bytes, void** out_ptr) noexcept override;

  /// In a catch block: what the kernel is told of the exception, which launch() raises again.
  tb_status keep_exception() noexcept;

  const Kernel& kernel_;
  uint64_t types_ = 0, output_types_ = 0; // of tensors, a bit per c10::ScalarType
  c10::DeviceIndex device_;
  tb_dtype compute_dtype_{};
  bool has_uint64_ = false; // a number whose bits are those of a uint64
  bool refused_ = false;
  bool has_empty_ = false;                         // a tensor without elements that is no output
  bool has_output_ = false, lacks_output_ = false; // with elements, and without
  int num_arguments_ = 0;
  std::size_t arena_used_ = 0;
  std::vector<std::unique_ptr<std::byte[]>> more_;
  c10::SmallVector<at::Tensor, 2> kept_;                          // prepared inputs
  c10::SmallVector<std::pair<at::Tensor, at::Tensor>, 1> copies_; // after the call: first into second
  c10::SmallVector<at::Tensor, 2> outputs_;                       // of a kernel that allocates them
  c10::SmallVector<at::Tensor, 2> given_;                         // ... what the caller gave for each, or undefined
  c10::SmallVector<c10::DataPtr, 2> workspaces_;
  std::exception_ptr error_; // what an allocation for the kernel threw
  tb_arg arguments_[kMaxArguments];
  alignas(16) std::byte arena_[kArenaBytes];
};

} // namespace torch_backend
