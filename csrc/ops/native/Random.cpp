// Dropout, for which PyTorch's CPU kernels draw from the CPU's own generator: these are made of operators that take the
// device's. And permutations.

#include <array>

#include <ATen/Dispatch.h>
#include <ATen/OpMathType.h>
#include <ATen/TensorIterator.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_fused_dropout_ops.h>
#include <ATen/ops/_masked_scale_ops.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/native_dropout_backward_ops.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/randperm_ops.h>
#include <ATen/ops/zeros_like.h>

#include "csrc/ops/dispatch/Registrar.h"
#include "csrc/ops/host/AtenKernel.h"
#include "csrc/ops/host/ComposedKernel.h"
#include "csrc/ops/host/HostCall.h"
#include "csrc/ops/native/Register.h"

namespace torch_backend {
namespace {

/// `count` elements, their addresses and the distances between them in bytes in the order out, values, mask.
template <class Value, class Mask>
void scale_row(char* const* data, const int64_t* strides, int64_t count, at::opmath_type<Value> scale) {
  using compute_t = at::opmath_type<Value>;
  const auto scaled = [scale](Value value, Mask kept) {
    return static_cast<Value>(static_cast<compute_t>(value) * static_cast<compute_t>(kept) * scale);
  };
  if (strides[0] == sizeof(Value) && strides[1] == sizeof(Value) && strides[2] == sizeof(Mask)) {
    auto* out = reinterpret_cast<Value*>(data[0]);
    const auto* values = reinterpret_cast<const Value*>(data[1]);
    const auto* mask = reinterpret_cast<const Mask*>(data[2]);
    for (int64_t i = 0; i < count; ++i) { // a loop that compilers vectorize
      out[i] = scaled(values[i], mask[i]);
    }
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    *reinterpret_cast<Value*>(data[0] + i * strides[0]) =
        scaled(*reinterpret_cast<const Value*>(data[1] + i * strides[1]),
               *reinterpret_cast<const Mask*>(data[2] + i * strides[2]));
  }
}

/// `mask` holds 0 and 1.
template <class Mask>
void scale_kept_on_host(const at::Tensor& values, const at::Tensor& mask, double scale, at::Tensor& out) {
  auto iterator = at::TensorIteratorConfig()
                      .check_all_same_dtype(false)
                      .add_output(out)
                      .add_const_input(values)
                      .add_const_input(mask)
                      .build();
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, values.scalar_type(), "dropout", [&] {
    const auto factor = static_cast<at::opmath_type<scalar_t>>(scale);
    iterator.for_each([factor](char** data, const int64_t* strides, int64_t count, int64_t rows) {
      std::array<char*, 3> row{data[0], data[1], data[2]};
      for (int64_t i = 0; i < rows; ++i) {
        scale_row<scalar_t, Mask>(row.data(), strides, count, factor);
        for (std::size_t operand = 0; operand < row.size(); ++operand) {
          row[operand] += strides[row.size() + operand];
        }
      }
    });
  });
}

/// values * mask * scale, in one pass where the host can reach the memory.
at::Tensor scale_kept(const at::Tensor& values, const at::Tensor& mask, double scale) {
  const bool is_bool = mask.scalar_type() == at::kBool;
  if (!values.is_cpu() || !values.is_floating_point() || (!is_bool && mask.scalar_type() != at::kByte)) {
    return values.mul(mask).mul_(scale);
  }
  at::Tensor out = at::empty_like(values);
  (is_bool ? scale_kept_on_host<bool> : scale_kept_on_host<uint8_t>)(values, mask, scale, out);
  return out;
}

at::Tensor dropout_backward(const at::Tensor& grad_output, const at::Tensor& mask, double scale) {
  // Whole numbers become floating ones.
  return grad_output.is_floating_point() ? scale_kept(grad_output, mask, scale) : grad_output.mul(mask).mul(scale);
}

/// As _fused_dropout: `p` is the probability to keep an element. Returns (output scaled by 1 / p, mask of kept elements).
template <c10::ScalarType kMask>
std::tuple<at::Tensor, at::Tensor> fused_dropout(const at::Tensor& self, double p,
                                                 const std::optional<at::Generator>& generator) {
  at::Tensor mask = at::empty_like(self, self.options().dtype(kMask));
  mask.bernoulli_(p, generator);
  return {scale_kept(self, mask, 1 / p), mask};
}

template <c10::ScalarType kMask>
std::tuple<at::Tensor, at::Tensor> dropout(const at::Tensor& input, double kept, bool train,
                                           std::optional<at::Generator> generator) {
  TORCH_CHECK(kept >= 0 && kept <= 1, "dropout probability has to be between 0 and 1, but got ", 1 - kept);
  const auto mask_options = input.options().dtype(kMask);
  if (!train || input.numel() == 0) {
    return {input.clone(), at::ones_like(input, mask_options)};
  }
  if (kept == 0) {
    return {at::zeros_like(input), at::zeros_like(input, mask_options)};
  }
  return ComposedKernel<at::_ops::_fused_dropout, fused_dropout<kMask>>::call(input, kept, std::move(generator));
}

std::tuple<at::Tensor, at::Tensor> native_dropout(const at::Tensor& input, double p, std::optional<bool> train) {
  return dropout<at::kBool>(input, 1 - p, train.value_or(true), std::nullopt);
}

std::tuple<at::Tensor, at::Tensor> byte_dropout(const at::Tensor& self, double p,
                                                std::optional<at::Generator> generator) {
  return dropout<at::kByte>(self, p, /*train=*/true, std::move(generator));
}

/// A word of random numbers for each element, if it has as many as it will have.
at::Tensor& randperm(c10::SymInt n, std::optional<at::Generator> generator, at::Tensor& out) {
  using Op = at::_ops::randperm_generator_out;
  const auto call = out.sym_numel() == n ? AtenKernel<Op, kDrawsFew>::call : AtenKernel<Op>::call;
  return call(std::move(n), std::move(generator), out);
}

} // namespace

void register_random(Registrar& m) {
  using at::_ops::_masked_scale;
  using at::_ops::native_dropout_backward;
  m.impl("native_dropout", TORCH_FN(native_dropout));
  m.impl("native_dropout_backward", TORCH_FN((ComposedKernel<native_dropout_backward, dropout_backward>::call)));
  m.impl("_fused_dropout", TORCH_FN(byte_dropout));
  m.impl("randperm.generator_out", TORCH_FN(randperm), Source::kAten);
  m.impl("_masked_scale", TORCH_FN((ComposedKernel<_masked_scale, scale_kept>::call)));
}

} // namespace torch_backend
