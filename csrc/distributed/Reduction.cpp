#include "csrc/distributed/Reduction.h"

#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <c10/core/ScalarType.h>
#include <c10/util/Exception.h>

namespace torch_backend {
namespace {

using c10d::ReduceOp;

const char* name_of(ReduceOp::RedOpType op) {
  switch (op) {
    case ReduceOp::SUM:
      return "SUM";
    case ReduceOp::AVG:
      return "AVG";
    case ReduceOp::PRODUCT:
      return "PRODUCT";
    case ReduceOp::MIN:
      return "MIN";
    case ReduceOp::MAX:
      return "MAX";
    case ReduceOp::BAND:
      return "BAND";
    case ReduceOp::BOR:
      return "BOR";
    case ReduceOp::BXOR:
      return "BXOR";
    case ReduceOp::PREMUL_SUM:
      return "PREMUL_SUM";
    default:
      return "an unknown operator";
  }
}

bool is_defined_for(ReduceOp::RedOpType op, c10::ScalarType type) {
  const bool integral = c10::isIntegralType(type, /*includeBool=*/true);
  switch (op) {
    case ReduceOp::SUM:
      return true;
    case ReduceOp::AVG:
      return type != c10::kBool;
    case ReduceOp::PREMUL_SUM:
      return !integral;
    case ReduceOp::BAND:
    case ReduceOp::BOR:
    case ReduceOp::BXOR:
      return integral;
    case ReduceOp::PRODUCT:
    case ReduceOp::MIN:
    case ReduceOp::MAX:
      return !c10::isComplexType(type);
    default:
      return false;
  }
}

/// A sum of bools is true if one of them is, a product if all are.
ReduceOp::RedOpType on_bytes_of_bool(ReduceOp::RedOpType op) {
  switch (op) {
    case ReduceOp::SUM:
      return ReduceOp::MAX;
    case ReduceOp::PRODUCT:
      return ReduceOp::MIN;
    default:
      return op;
  }
}

double factor_of(const ReduceOp& op) {
  // The name it has in every version.
  const auto* supplement = dynamic_cast<const c10d::NCCLPreMulSumSupplement*>(op.supplement_.get());
  TORCH_CHECK_VALUE(supplement, "PREMUL_SUM needs a factor: torch.distributed._make_nccl_premul_sum(factor).");
  return supplement->tensor_factor.defined() ? supplement->tensor_factor.item().toDouble() : supplement->double_factor;
}

} // namespace

c10::ScalarType computed_as(c10::ScalarType type) {
  switch (type) {
    case c10::kUInt16:
      return c10::kInt;
    case c10::kUInt32:
      return c10::kLong;
    case c10::kFloat8_e4m3fn:
    case c10::kFloat8_e4m3fnuz:
    case c10::kFloat8_e5m2:
    case c10::kFloat8_e5m2fnuz:
      return c10::kFloat;
    default:
      return type;
  }
}

Reduction::Reduction(const char* what, const ReduceOp& op, c10::ScalarType type, int num_ranks)
    : op_(op), num_ranks_(num_ranks) {
  TORCH_CHECK_VALUE(is_defined_for(op.op_, type), what, " cannot reduce tensors of dtype ", type, " with ",
                    name_of(op.op_), ".");
  if (type == c10::kBool) {
    op_ = ReduceOp(on_bytes_of_bool(op.op_));
  } else if (op.op_ == ReduceOp::AVG) {
    op_ = ReduceOp(ReduceOp::SUM);
    divides_ = true;
  } else if (op.op_ == ReduceOp::PREMUL_SUM) {
    op_ = ReduceOp(ReduceOp::SUM);
    factor_ = factor_of(op);
  }
}

void Reduction::multiply(const std::vector<at::Tensor>& inputs) const {
  for (const auto& input : inputs) {
    input.mul_(*factor_);
  }
}

void Reduction::combine(const at::Tensor& parts, const at::Tensor& out) const {
  const at::Tensor flat = parts.view({num_ranks_, -1});
  const at::Tensor result = out.view({-1});
  result.copy_(flat[0]);
  for (int rank = 1; rank < num_ranks_; ++rank) {
    const at::Tensor part = flat[rank];
    switch (op_.op_) {
      case ReduceOp::SUM:
        result.add_(part);
        break;
      case ReduceOp::PRODUCT:
        result.mul_(part);
        break;
      case ReduceOp::MIN:
        at::minimum_out(const_cast<at::Tensor&>(result), result, part);
        break;
      case ReduceOp::MAX:
        at::maximum_out(const_cast<at::Tensor&>(result), result, part);
        break;
      case ReduceOp::BAND:
        result.bitwise_and_(part);
        break;
      case ReduceOp::BOR:
        result.bitwise_or_(part);
        break;
      case ReduceOp::BXOR:
        result.bitwise_xor_(part);
        break;
      default:
        TORCH_INTERNAL_ASSERT(false, "not an operator of communicators");
    }
  }
}

void Reduction::divide(const std::vector<at::Tensor>& outputs) const {
  for (const auto& output : outputs) {
    if (output.is_floating_point()) {
      output.div_(num_ranks_);
    } else {
      output.div_(num_ranks_, "trunc");
    }
  }
}

} // namespace torch_backend
