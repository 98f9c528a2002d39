// LSTM and GRU cells, which PyTorch has no CPU or composite kernel for: made of other operators.
// Gate order and formulas as documented for torch.nn.LSTM and torch.nn.GRU.

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_thnn_fused_gru_cell_backward_ops.h>
#include <ATen/ops/_thnn_fused_gru_cell_ops.h>
#include <ATen/ops/_thnn_fused_lstm_cell_backward_impl_ops.h>
#include <ATen/ops/_thnn_fused_lstm_cell_ops.h>
#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/sigmoid_backward.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/tanh_backward.h>

#include "csrc/ops/dispatch/Registrar.h"
#include "csrc/ops/host/ComposedKernel.h"
#include "csrc/ops/native/Register.h"

namespace torch_backend {
namespace {

using OptionalTensor = std::optional<at::Tensor>;

bool is_defined(const OptionalTensor& tensor) {
  return tensor.has_value() && tensor->defined();
}

at::Tensor with_bias(const at::Tensor& gates, const OptionalTensor& bias) {
  return is_defined(bias) ? gates + *bias : gates;
}

/// A new tensor of `count` times as many columns, and its parts of equal width: what is computed into these need not be
/// concatenated.
std::pair<at::Tensor, std::vector<at::Tensor>> empty_parts(const at::Tensor& like, int64_t count) {
  at::Tensor whole = at::empty({like.size(0), count * like.size(1)}, like.options());
  auto parts = whole.unsafe_chunk(count, 1);
  return {std::move(whole), std::move(parts)};
}

/// Returns (hy, cy, workspace = [i, f, g, o]).
std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm_cell(const at::Tensor& input_gates, const at::Tensor& hidden_gates,
                                                         const at::Tensor& cx, const OptionalTensor& input_bias,
                                                         const OptionalTensor& hidden_bias) {
  at::Tensor gates = at::add(with_bias(input_gates, input_bias), with_bias(hidden_gates, hidden_bias));
  auto parts = gates.unsafe_chunk(4, 1);
  const auto i = parts[0].sigmoid_(), f = parts[1].sigmoid_(), g = parts[2].tanh_(), o = parts[3].sigmoid_();
  at::Tensor cy = (f * cx).add_(i * g);
  at::Tensor hy = at::tanh(cy).mul_(o);
  return {std::move(hy), std::move(cy), std::move(gates)};
}

/// Returns (grad_gates, grad_cx, grad_bias).
std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm_cell_backward(const OptionalTensor& grad_hy,
                                                                  const OptionalTensor& grad_cy, const at::Tensor& cx,
                                                                  const at::Tensor& cy, const at::Tensor& workspace,
                                                                  bool has_bias) {
  if (!is_defined(grad_hy) && !is_defined(grad_cy)) {
    return {};
  }
  const auto gates = workspace.unsafe_chunk(4, 1);
  const auto &i = gates[0], &f = gates[1], &g = gates[2], &o = gates[3];
  auto [grad_gates, parts] = empty_parts(cy, 4);
  at::Tensor dc;
  if (is_defined(grad_hy)) {
    const auto tanh_cy = at::tanh(cy);
    dc = at::tanh_backward(*grad_hy * o, tanh_cy);
    at::sigmoid_backward_out(parts[3], *grad_hy * tanh_cy, o);
  } else {
    parts[3].zero_();
  }
  if (is_defined(grad_cy)) {
    dc = dc.defined() ? dc.add_(*grad_cy) : *grad_cy;
  }
  at::sigmoid_backward_out(parts[0], dc * g, i);
  at::sigmoid_backward_out(parts[1], dc * cx, f);
  at::tanh_backward_out(parts[2], dc * i, g);
  at::Tensor grad_bias = has_bias ? grad_gates.sum(at::IntArrayRef{0}) : at::Tensor();
  return {std::move(grad_gates), dc * f, std::move(grad_bias)};
}

/// Returns (hy, workspace = [r, z, n, hx, the hidden part of n]).
std::tuple<at::Tensor, at::Tensor> gru_cell(const at::Tensor& input_gates, const at::Tensor& hidden_gates,
                                            const at::Tensor& hx, const OptionalTensor& input_bias,
                                            const OptionalTensor& hidden_bias) {
  const auto from_input = with_bias(input_gates, input_bias).unsafe_chunk(3, 1);
  const auto from_hidden = with_bias(hidden_gates, hidden_bias).unsafe_chunk(3, 1);
  auto [workspace, parts] = empty_parts(hx, 5);
  const auto &r = parts[0], &z = parts[1];
  at::add_out(parts[0], from_hidden[0], from_input[0]).sigmoid_();
  at::add_out(parts[1], from_hidden[1], from_input[1]).sigmoid_();
  const auto n = at::mul(from_hidden[2], r).add_(from_input[2]).tanh_();
  parts[2].copy_(n);
  parts[3].copy_(hx);
  parts[4].copy_(from_hidden[2]);
  at::Tensor hy = at::sub(hx, n).mul_(z).add_(n);
  return {std::move(hy), std::move(workspace)};
}

/// Returns (grad_input_gates, grad_hidden_gates, grad_hx, grad_input_bias, grad_hidden_bias).
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor> gru_cell_backward(const at::Tensor& grad_hy,
                                                                                         const at::Tensor& workspace,
                                                                                         bool has_bias) {
  const auto saved = workspace.unsafe_chunk(5, 1);
  const auto &r = saved[0], &z = saved[1], &n = saved[2], &hx = saved[3], &hidden_n = saved[4];
  auto [grad_input, to_input] = empty_parts(hx, 3);
  auto [grad_hidden, to_hidden] = empty_parts(hx, 3);
  at::Tensor grad_hx = grad_hy * z;
  at::tanh_backward_out(to_input[2], grad_hy - grad_hx, n);
  at::sigmoid_backward_out(to_input[1], at::sub(hx, n).mul_(grad_hy), z);
  at::sigmoid_backward_out(to_input[0], to_input[2] * hidden_n, r);
  to_hidden[0].copy_(to_input[0]);
  to_hidden[1].copy_(to_input[1]);
  at::mul_out(to_hidden[2], to_input[2], r);
  at::Tensor input_bias, hidden_bias;
  if (has_bias) {
    input_bias = grad_input.sum(at::IntArrayRef{0});
    hidden_bias = grad_hidden.sum(at::IntArrayRef{0});
  }
  return {std::move(grad_input), std::move(grad_hidden), std::move(grad_hx), std::move(input_bias),
          std::move(hidden_bias)};
}

} // namespace

void register_recurrent(Registrar& m) {
  using at::_ops::_thnn_fused_gru_cell;
  using at::_ops::_thnn_fused_gru_cell_backward;
  using at::_ops::_thnn_fused_lstm_cell;
  using at::_ops::_thnn_fused_lstm_cell_backward_impl;
  m.impl("_thnn_fused_lstm_cell", TORCH_FN((ComposedKernel<_thnn_fused_lstm_cell, lstm_cell>::call)));
  m.impl("_thnn_fused_lstm_cell_backward_impl",
         TORCH_FN((ComposedKernel<_thnn_fused_lstm_cell_backward_impl, lstm_cell_backward>::call)));
  m.impl("_thnn_fused_gru_cell", TORCH_FN((ComposedKernel<_thnn_fused_gru_cell, gru_cell>::call)));
  m.impl("_thnn_fused_gru_cell_backward",
         TORCH_FN((ComposedKernel<_thnn_fused_gru_cell_backward, gru_cell_backward>::call)));
}

} // namespace torch_backend
