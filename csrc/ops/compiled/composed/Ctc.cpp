// The loss of connectionist temporal classification, and its gradient: where the host cannot reach the memory.

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <tuple>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/TensorUtils.h>

#include "csrc/core/DType.h"
#include "csrc/core/ErrorCell.h"
#include "csrc/core/Runtime.h"
#include "csrc/ops/compiled/composed/Compositions.h"
#include "csrc/ops/compiled/engine/Enqueue.h"
#include "csrc/ops/compiled/engine/Modules.h"

namespace torch_backend::compiled::ctc {
namespace {

enum class Step : uint8_t { kAlpha, kBeta, kGather, kFinish };
constexpr const char* kStepNames[] = {"STEP_alpha", "STEP_beta", "STEP_gather", "STEP_finish"};

bool is_taken(const at::Tensor& log_probs) {
  const auto type = log_probs.scalar_type();
  return (type == at::kFloat || type == at::kDouble) &&
         computes(log_probs.device().index(), value_type(tb_dtype_or_none(type)));
}

/// With PyTorch's words.
void check_arguments(const at::Tensor& log_probs, const at::Tensor& targets, at::IntArrayRef input_lengths,
                     at::IntArrayRef target_lengths, int64_t blank) {
  constexpr at::CheckedFrom kFrom = "ctc_loss_allocate_outputs";
  const at::TensorArg log_probs_arg(log_probs, "log_probs", 1), targets_arg(targets, "targets", 2);
  at::checkScalarType(kFrom, targets_arg, targets.scalar_type() == at::kLong ? at::kLong : at::kInt);
  at::checkDim(kFrom, log_probs_arg, 3);
  at::checkDimRange(kFrom, targets_arg, 1, 3);
  const int64_t rows = log_probs.size(1), times = log_probs.size(0);
  TORCH_CHECK(blank >= 0 && blank < log_probs.size(2), "blank must be in label range");
  TORCH_CHECK(static_cast<int64_t>(input_lengths.size()) == rows, "input_lengths must be of size batch_size");
  TORCH_CHECK(static_cast<int64_t>(target_lengths.size()) == rows, "target_lengths must be of size batch_size");
  int64_t total = 0, longest = 0;
  for (const auto length : target_lengths) {
    TORCH_CHECK(length >= 0, "Expected target_lengths to have value at least ", 0, ", but got value ", length,
                " (while checking arguments for ", kFrom, ")");
    total += length;
    longest = std::max(longest, length);
  }
  at::checkSize(kFrom, targets_arg, 0, targets.dim() == 1 ? total : rows);
  TORCH_CHECK(targets.dim() == 1 || targets.size(1) >= longest, "Expected tensor to have size at least ", longest,
              " at dimension 1, but got size ", targets.size(1), " for ", targets_arg,
              " (while checking arguments for ", kFrom, ")");
  for (const auto length : input_lengths) {
    TORCH_CHECK(length >= 0, "Expected input_lengths to have value at least ", 0, ", but got value ", length,
                " (while checking arguments for ", kFrom, ")");
    TORCH_CHECK(length <= times, "Expected input_lengths to have value at most ", times, ", but got value ", length,
                " (while checking arguments for ", kFrom, ")");
  }
}

/// What all steps are told.
class Ctc {
 public:
  Ctc(const at::Tensor& log_probs, const at::Tensor& targets, at::IntArrayRef input_lengths,
      at::IntArrayRef target_lengths, int64_t states, int64_t blank)
      : log_probs_(log_probs), targets_(targets.to(log_probs.device())), states_(states), blank_(blank) {
    std::vector<int64_t> sizes(input_lengths.begin(), input_lengths.end());
    sizes.insert(sizes.end(), target_lengths.begin(), target_lengths.end());
    int64_t start = 0;
    for (std::size_t row = 0; row < target_lengths.size(); ++row) {
      sizes.push_back(targets.dim() == 1 ? start * targets_.stride(0) : static_cast<int64_t>(row) * targets_.stride(0));
      start += target_lengths[row];
    }
    sizes_ = at::tensor(sizes, at::kLong).to(log_probs.device());
  }

  void run(Step step, at::ArrayRef<at::Tensor> operands, bool zero_infinity = false) const {
    const auto type = value_type(tb_dtype_or_none(log_probs_.scalar_type()));
    const bool wide = targets_.scalar_type() == at::kLong;
    const int device = log_probs_.device().index();
    static constexpr Skeleton kCtc{"ctc", "ctc"};
    Specialization wanted(kCtc);
    wanted.compute_in(type)
        .index_of(/*fits_32=*/false)
        .type("TARGET", wide ? ValueType::i64 : ValueType::i32)
        .flag(kStepNames[static_cast<int>(step)], true)
        .called(kStepNames[static_cast<int>(step)] + std::strlen("STEP_"))
        .parameters(6);
    const auto& function = find_function(device, wanted);
    const int64_t times = log_probs_.size(0), rows = log_probs_.size(1), labels = log_probs_.size(2);
    const bool is_finish = step == Step::kFinish;
    const int64_t args[] = {rows,
                            times,
                            labels,
                            states_,
                            blank_,
                            targets_.stride(-1),
                            is_finish ? operands[2].stride(0) : 0,
                            zero_infinity,
                            fallible_operator("aten::_ctc_loss"),
                            log_probs_.stride(0),
                            log_probs_.stride(1),
                            log_probs_.stride(2)};
    enqueue(log_probs_, "aten::_ctc_loss", [&](Launch& launch) {
      const void* spare = sizes_.const_data_ptr(); // where there is no tensor, or one without elements
      const auto pointer = [&](const at::Tensor& tensor) {
        launch.pointer(tensor.numel() > 0 ? tensor.const_data_ptr() : spare);
      };
      pointer(operands[0]);
      pointer(operands[1]);
      pointer(step == Step::kGather ? operands[2] : log_probs_);
      pointer(is_finish ? operands[2] : targets_);
      launch.pointer(sizes_.const_data_ptr());
      launch.pointer(error_cell(device));
      launch.value(args, sizeof args);
      if (step == Step::kGather) {
        launch.run_each(function, times * rows, states_ * 16);
      } else if (is_finish) {
        launch.run(function, times * rows * labels, 16);
      } else if (runs_in_stretches(device)) {
        launch.run(function, rows, times * states_ * 32);
      } else {
        const auto items = static_cast<uint32_t>(std::min<int64_t>(states_, block_items(device)));
        launch.run_blocks(function, rows, std::bit_ceil(items));
      }
    });
    if (step == Step::kAlpha) {
      fallible_launch(device, context_of(log_probs_).stream);
    }
  }

 private:
  at::Tensor log_probs_, targets_;
  at::Tensor sizes_; // of each row: input, target, and where the target begins
  int64_t states_, blank_;
};

std::vector<int64_t> numbers_of(const at::Tensor& lengths) {
  const auto host = lengths.to(at::kCPU, at::kLong).contiguous();
  return {host.const_data_ptr<int64_t>(), host.const_data_ptr<int64_t>() + host.numel()};
}

void check_lengths(const at::Tensor& input_lengths, const at::Tensor& target_lengths) {
  TORCH_CHECK(at::isIntegralType(input_lengths.scalar_type(), /*includeBool=*/false), "input_lengths must be integral");
  TORCH_CHECK(at::isIntegralType(target_lengths.scalar_type(), /*includeBool=*/false),
              "target_lengths must be integral");
}

std::tuple<at::Tensor, at::Tensor> loss(const at::Tensor& log_probs, const at::Tensor& targets,
                                        at::IntArrayRef input_lengths, at::IntArrayRef target_lengths, int64_t blank,
                                        bool zero_infinity) {
  if (!is_taken(log_probs)) {
    return AtenKernel<at::_ops::_ctc_loss>::call_boxed(log_probs, targets, input_lengths, target_lengths, blank,
                                                       zero_infinity);
  }
  check_arguments(log_probs, targets, input_lengths, target_lengths, blank);
  const int64_t rows = log_probs.size(1);
  const int64_t longest = rows == 0 ? 0 : *std::max_element(target_lengths.begin(), target_lengths.end());
  const int64_t states = 2 * longest + 1;
  const auto losses = at::empty({rows}, log_probs.options());
  const auto alpha = at::empty({rows, log_probs.size(0), states}, log_probs.options());
  if (rows > 0) {
    Ctc(log_probs, targets, input_lengths, target_lengths, states, blank).run(Step::kAlpha, {losses, alpha});
  }
  return {losses, alpha};
}

std::tuple<at::Tensor, at::Tensor> loss_of_tensors(const at::Tensor& log_probs, const at::Tensor& targets,
                                                   const at::Tensor& input_lengths, const at::Tensor& target_lengths,
                                                   int64_t blank, bool zero_infinity) {
  check_lengths(input_lengths, target_lengths);
  return loss(log_probs, targets, numbers_of(input_lengths), numbers_of(target_lengths), blank, zero_infinity);
}

at::Tensor loss_backward(const at::Tensor& grad, const at::Tensor& log_probs, const at::Tensor& targets,
                         at::IntArrayRef input_lengths, at::IntArrayRef target_lengths, const at::Tensor& losses,
                         const at::Tensor& log_alpha, int64_t blank, bool zero_infinity) {
  if (!is_taken(log_probs)) {
    return AtenKernel<at::_ops::_ctc_loss_backward>::call_boxed(grad, log_probs, targets, input_lengths, target_lengths,
                                                                losses, log_alpha, blank, zero_infinity);
  }
  const auto result = at::full(log_probs.sizes(), -std::numeric_limits<double>::infinity(), log_probs.options());
  if (result.numel() == 0) {
    return result;
  }
  const auto alpha = log_alpha.contiguous(), beta = at::empty(alpha.sizes(), alpha.options());
  const Ctc ctc(log_probs, targets, input_lengths, target_lengths, alpha.size(2), blank);
  ctc.run(Step::kBeta, {beta, alpha});
  ctc.run(Step::kGather, {result, alpha, beta});
  ctc.run(Step::kFinish, {result, losses.contiguous(), grad}, zero_infinity);
  return result;
}

at::Tensor loss_backward_of_tensors(const at::Tensor& grad, const at::Tensor& log_probs, const at::Tensor& targets,
                                    const at::Tensor& input_lengths, const at::Tensor& target_lengths,
                                    const at::Tensor& losses, const at::Tensor& log_alpha, int64_t blank,
                                    bool zero_infinity) {
  check_lengths(input_lengths, target_lengths);
  return loss_backward(grad, log_probs, targets, numbers_of(input_lengths), numbers_of(target_lengths), losses,
                       log_alpha, blank, zero_infinity);
}

} // namespace

void add(Registrar& m) {
  TB_COMPOSITION(m, "_ctc_loss", _ctc_loss, loss);
  TB_COMPOSITION(m, "_ctc_loss.Tensor", _ctc_loss_Tensor, loss_of_tensors);
  TB_COMPOSITION(m, "_ctc_loss_backward", _ctc_loss_backward, loss_backward);
  TB_COMPOSITION(m, "_ctc_loss_backward.Tensor", _ctc_loss_backward_Tensor, loss_backward_of_tensors);
}

} // namespace torch_backend::compiled::ctc
