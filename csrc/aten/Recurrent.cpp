// LSTM and GRU cells, which PyTorch has no CPU or composite kernel for: made of other operators of the device.
// Gate order and formulas as documented for torch.nn.LSTM and torch.nn.GRU.

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/sigmoid_backward.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/tanh_backward.h>
#include <ATen/ops/zeros_like.h>

#include "csrc/aten/Register.h"
#include "csrc/aten/Registrar.h"

namespace torch_backend {
namespace {

using OptionalTensor = std::optional<at::Tensor>;

bool is_defined(const OptionalTensor& tensor) {
  return tensor.has_value() && tensor->defined();
}

at::Tensor with_bias(const at::Tensor& gates, const OptionalTensor& bias) {
  return is_defined(bias) ? gates + *bias : gates;
}

at::Tensor gradient_or_zeros(const OptionalTensor& gradient, const at::Tensor& like) {
  return is_defined(gradient) ? *gradient : at::zeros_like(like);
}

/// Returns (hy, cy, workspace = [i, f, g, o]).
std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm_cell(const at::Tensor& input_gates, const at::Tensor& hidden_gates,
                                                         const at::Tensor& cx, const OptionalTensor& input_bias,
                                                         const OptionalTensor& hidden_bias) {
  const auto gates = (with_bias(input_gates, input_bias) + with_bias(hidden_gates, hidden_bias)).chunk(4, 1);
  const auto i = at::sigmoid(gates[0]);
  const auto f = at::sigmoid(gates[1]);
  const auto g = at::tanh(gates[2]);
  const auto o = at::sigmoid(gates[3]);
  const auto cy = f * cx + i * g;
  return {o * at::tanh(cy), cy, at::cat({i, f, g, o}, 1)};
}

/// Returns (grad_gates, grad_cx, grad_bias).
std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm_cell_backward(const OptionalTensor& grad_hy,
                                                                  const OptionalTensor& grad_cy, const at::Tensor& cx,
                                                                  const at::Tensor& cy, const at::Tensor& workspace,
                                                                  bool has_bias) {
  if (!is_defined(grad_hy) && !is_defined(grad_cy)) {
    return {};
  }
  const auto gates = workspace.chunk(4, 1);
  const auto &i = gates[0], &f = gates[1], &g = gates[2], &o = gates[3];
  const auto tanh_cy = at::tanh(cy);
  const auto dh = gradient_or_zeros(grad_hy, cy);
  const auto dc = gradient_or_zeros(grad_cy, cy) + at::tanh_backward(dh * o, tanh_cy);
  const auto grad_gates = at::cat({at::sigmoid_backward(dc * g, i), at::sigmoid_backward(dc * cx, f),
                                   at::tanh_backward(dc * i, g), at::sigmoid_backward(dh * tanh_cy, o)},
                                  1);
  return {grad_gates, dc * f, has_bias ? grad_gates.sum(at::IntArrayRef{0}) : at::Tensor()};
}

/// Returns (hy, workspace = [r, z, n, hx, the hidden part of n]).
std::tuple<at::Tensor, at::Tensor> gru_cell(const at::Tensor& input_gates, const at::Tensor& hidden_gates,
                                            const at::Tensor& hx, const OptionalTensor& input_bias,
                                            const OptionalTensor& hidden_bias) {
  const auto from_input = with_bias(input_gates, input_bias).chunk(3, 1);
  const auto from_hidden = with_bias(hidden_gates, hidden_bias).chunk(3, 1);
  const auto r = at::sigmoid(from_input[0] + from_hidden[0]);
  const auto z = at::sigmoid(from_input[1] + from_hidden[1]);
  const auto n = at::tanh(from_input[2] + r * from_hidden[2]);
  return {n + z * (hx - n), at::cat({r, z, n, hx, from_hidden[2]}, 1)};
}

/// Returns (grad_input_gates, grad_hidden_gates, grad_hx, grad_input_bias, grad_hidden_bias).
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor> gru_cell_backward(const at::Tensor& grad_hy,
                                                                                         const at::Tensor& workspace,
                                                                                         bool has_bias) {
  const auto saved = workspace.chunk(5, 1);
  const auto &r = saved[0], &z = saved[1], &n = saved[2], &hx = saved[3], &hidden_n = saved[4];
  const auto dn = at::tanh_backward(grad_hy * (1 - z), n);
  const auto dz = at::sigmoid_backward(grad_hy * (hx - n), z);
  const auto dr = at::sigmoid_backward(dn * hidden_n, r);
  const auto grad_input = at::cat({dr, dz, dn}, 1);
  const auto grad_hidden = at::cat({dr, dz, dn * r}, 1);
  const auto bias_gradient = [&](const at::Tensor& gates) {
    return has_bias ? gates.sum(at::IntArrayRef{0}) : at::Tensor();
  };
  return {grad_input, grad_hidden, grad_hy * z, bias_gradient(grad_input), bias_gradient(grad_hidden)};
}

} // namespace

void register_recurrent(Registrar& m) {
  m.impl("_thnn_fused_lstm_cell", TORCH_FN(lstm_cell));
  m.impl("_thnn_fused_lstm_cell_backward_impl", TORCH_FN(lstm_cell_backward));
  m.impl("_thnn_fused_gru_cell", TORCH_FN(gru_cell));
  m.impl("_thnn_fused_gru_cell_backward", TORCH_FN(gru_cell_backward));
}

} // namespace torch_backend
