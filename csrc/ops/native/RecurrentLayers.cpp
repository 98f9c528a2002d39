// LSTM, GRU and RNN layers as the CPU runs them, which PyTorch's composite kernels do for tensors of the CPU only.

#include <tuple>
#include <vector>

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/RNN.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/gru_native.h>
#include <ATen/ops/gru_ops.h>
#include <ATen/ops/lstm_native.h>
#include <ATen/ops/lstm_ops.h>
#include <ATen/ops/mkldnn_rnn_layer.h>
#include <ATen/ops/rnn_relu_native.h>
#include <ATen/ops/rnn_relu_ops.h>
#include <ATen/ops/rnn_tanh_native.h>
#include <ATen/ops/rnn_tanh_ops.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros_like.h>

#include "csrc/ops/dispatch/Registrar.h"
#include "csrc/ops/host/AtenKernel.h"
#include "csrc/ops/kernel/CompositeGradient.h"
#include "csrc/ops/native/Register.h"

namespace torch_backend {
namespace {

/// What decides how a call is run.
class Call {
 public:
  template <class... Args>
  explicit Call(const Args&... args) {
    (see(args), ...);
  }

  /// Whether autograd has to see what the operator is made of.
  bool has_gradient() const {
    return has_gradient_;
  }

  /// Whether the CPU's kernel does for the whole: random numbers are the device's, and so is autocast.
  bool is_whole() const {
    return runs_inline() && (!train_ || dropout_ == 0) && !any_autocast() && all_on_device_;
  }

  static bool any_autocast() {
    return at::autocast::is_autocast_enabled(c10::DeviceType::PrivateUse1) ||
           at::autocast::is_autocast_enabled(c10::DeviceType::CPU);
  }

 private:
  void see(const at::Tensor& tensor) {
    // Lengths of packed sequences are on the CPU.
    all_on_device_ = all_on_device_ && (tensor.scalar_type() == at::kLong || tensor.device().is_privateuseone());
    has_gradient_ = has_gradient_ || is_recorded(tensor);
  }
  void see(at::TensorList tensors) {
    for (const auto& tensor : tensors) {
      see(tensor);
    }
  }
  void see(double dropout) {
    dropout_ = dropout;
    train_is_next_ = true;
  }
  void see(bool flag) {
    train_ = train_is_next_ ? flag : train_;
    train_is_next_ = false;
  }
  void see(int64_t /*num_layers*/) {}

  bool all_on_device_ = true;
  bool has_gradient_ = false;
  double dropout_ = 0;
  bool train_is_next_ = false; // of the operator's arguments: it follows dropout
  bool train_ = false;
};

/// Whether the device's kernel is what comes after autograd: no mode or subclass is to see the operators.
bool device_is_next(c10::DispatchKeySet keys) {
  return (keys & c10::after_ADInplaceOrView_keyset).highestPriorityTypeId() == c10::DispatchKey::PrivateUse1;
}

/// `Op`, a struct of at::_ops, which `kComposite` makes of other operators: where it can be, it is one call of what the
/// CPU does.
template <class Op, typename Op::ptr_schema kComposite, class Schema = typename Op::schema>
struct Layers;

template <class Op, typename Op::ptr_schema kComposite, class Return, class... Args>
struct Layers<Op, kComposite, Return(Args...)> {
  static Return autograd(c10::DispatchKeySet keys, Args... args) {
    const Call call(args...);
    if (call.has_gradient() || !call.is_whole() || !device_is_next(keys)) {
      return kComposite(args...);
    }
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    return Op::redispatch(keys & c10::after_ADInplaceOrView_keyset, args...);
  }
  static Return device(Args... args) {
    return Call(args...).is_whole() ? AtenKernel<Op>::call(args...) : kComposite(args...);
  }
};

/// The CPU that runs this has instructions for the dtype.
bool onednn_has_bfloat16() {
  static const bool yes = [] {
    const auto op = c10::Dispatcher::singleton().findSchema({"mkldnn::_is_mkldnn_bf16_supported", ""});
    return op.has_value() && op->typed<bool()>().call();
  }();
  return yes;
}

/// What at::native::lstm asks of tensors of the CPU before it leaves them to oneDNN, whose operator has a gradient.
bool onednn_takes(const at::Tensor& input, at::TensorList hx) {
  const auto dtype = input.scalar_type();
  return at::hasMKLDNN() && at::globalContext().userEnabledMkldnn() && input.numel() != 0 &&
         (dtype == at::kFloat || (dtype == at::kBFloat16 && onednn_has_bfloat16())) && hx.size() == 2 &&
         hx[0].size(-1) == hx[1].size(-1);
}

/// The layers one by one, in each direction by oneDNN's operator; as at::native does for tensors of the CPU.
std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm_by_onednn(const at::Tensor& input, at::TensorList hx,
                                                              at::TensorList params, bool has_biases,
                                                              int64_t num_layers, double dropout, bool train,
                                                              bool bidirectional, bool batch_first) {
  constexpr int64_t kLstm = 2; // oneDNN's number for it
  const std::size_t weights = has_biases ? 4 : 2;
  const std::size_t directions = bidirectional ? 2 : 1;
  const auto first_hidden = hx[0].contiguous(), first_cell = hx[1].contiguous();
  at::Tensor sequence = (batch_first ? input.transpose(0, 1) : input).contiguous();
  std::vector<at::Tensor> hidden, cell;
  for (int64_t layer = 0; layer < num_layers; ++layer) {
    std::vector<at::Tensor> outputs;
    for (std::size_t direction = 0; direction < directions; ++direction) {
      const auto index = static_cast<int64_t>(hidden.size());
      const auto* weight = &params[hidden.size() * weights];
      const auto bias = [&](std::size_t i) {
        return has_biases ? weight[2 + i] : at::zeros_like(weight[i].select(1, 0));
      };
      auto [output, hy, cy, workspace] =
          at::mkldnn_rnn_layer(sequence, weight[0], weight[1], bias(0), bias(1), first_hidden[index], first_cell[index],
                               /*reverse=*/direction > 0, /*batch_sizes=*/{}, kLstm, hx[0].size(2), num_layers,
                               has_biases, bidirectional, batch_first, train);
      outputs.push_back(std::move(output));
      hidden.push_back(std::move(hy));
      cell.push_back(std::move(cy));
    }
    sequence = directions == 1 ? outputs[0] : at::cat(outputs, /*dim=*/-1);
    if (dropout != 0 && train && layer < num_layers - 1) {
      sequence = at::dropout(sequence, dropout, /*train=*/true);
    }
  }
  return {batch_first ? sequence.transpose(0, 1) : sequence, at::stack(hidden, 0), at::stack(cell, 0)};
}

using Lstm = Layers<at::_ops::lstm_input, at::native::lstm>;
using PackedLstm = Layers<at::_ops::lstm_data, at::native::lstm>;
using Gru = Layers<at::_ops::gru_input, at::native::gru>;
using PackedGru = Layers<at::_ops::gru_data, at::native::gru>;
using RnnTanh = Layers<at::_ops::rnn_tanh_input, at::native::rnn_tanh>;
using PackedRnnTanh = Layers<at::_ops::rnn_tanh_data, at::native::rnn_tanh>;
using RnnRelu = Layers<at::_ops::rnn_relu_input, at::native::rnn_relu>;
using PackedRnnRelu = Layers<at::_ops::rnn_relu_data, at::native::rnn_relu>;

std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm_autograd(c10::DispatchKeySet keys, const at::Tensor& input,
                                                             at::TensorList hx, at::TensorList params, bool has_biases,
                                                             int64_t num_layers, double dropout, bool train,
                                                             bool bidirectional, bool batch_first) {
  if (!Call(input, hx, params).has_gradient() || !runs_inline() || Call::any_autocast() || !device_is_next(keys) ||
      !onednn_takes(input, hx)) {
    return Lstm::autograd(keys, input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first);
  }
  at::native::check_attributes(input, params, hx);
  return lstm_by_onednn(input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first);
}

} // namespace

void register_recurrent_layers(Registrar& m) {
  m.impl("lstm.input", TORCH_FN(Lstm::device), Source::kAten);
  m.impl("lstm.data", TORCH_FN(PackedLstm::device), Source::kAten);
  m.impl("gru.input", TORCH_FN(Gru::device), Source::kAten);
  m.impl("gru.data", TORCH_FN(PackedGru::device), Source::kAten);
  m.impl("rnn_tanh.input", TORCH_FN(RnnTanh::device), Source::kAten);
  m.impl("rnn_tanh.data", TORCH_FN(PackedRnnTanh::device), Source::kAten);
  m.impl("rnn_relu.input", TORCH_FN(RnnRelu::device), Source::kAten);
  m.impl("rnn_relu.data", TORCH_FN(PackedRnnRelu::device), Source::kAten);
  Registrar autograd(c10::DispatchKey::AutogradPrivateUse1);
  autograd.impl("lstm.input", TORCH_FN(lstm_autograd), Source::kAten);
  autograd.impl("lstm.data", TORCH_FN(PackedLstm::autograd), Source::kAten);
  autograd.impl("gru.input", TORCH_FN(Gru::autograd), Source::kAten);
  autograd.impl("gru.data", TORCH_FN(PackedGru::autograd), Source::kAten);
  autograd.impl("rnn_tanh.input", TORCH_FN(RnnTanh::autograd), Source::kAten);
  autograd.impl("rnn_tanh.data", TORCH_FN(PackedRnnTanh::autograd), Source::kAten);
  autograd.impl("rnn_relu.input", TORCH_FN(RnnRelu::autograd), Source::kAten);
  autograd.impl("rnn_relu.data", TORCH_FN(PackedRnnRelu::autograd), Source::kAten);
}

} // namespace torch_backend
