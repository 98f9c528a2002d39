// softmax and log_softmax along any dimension, and their backward passes.

#include "csrc/ops/compiled/engine/Kernels.h"
#include "csrc/ops/compiled/engine/Overloads.h"
#include "csrc/ops/compiled/families/Pointwise.h"
#include "csrc/ops/compiled/loops/Reduce.h"
#include "csrc/ops/compiled/loops/Rows.h"

namespace torch_backend::compiled::softmax {
namespace {

/// Both ways to compute one of them.
struct Softmax {
  RowEntry rows;
  const char* reduction; // of a backward pass, over all inputs but those that are not counted
  int num_reduced;
  PointwiseEntry map; // of the inputs, and what was reduced
};

constexpr Softmax kSoftmax{{"softmax",
                            0,
                            "",
                            "",
                            1,
                            "const T e = exp(x0 - a[0]); S(0) += e; STASH(e)",
                            "const T scale = (T)1 / b[0];",
                            "out = STASHED(exp(x0 - a[0])) * scale;",
                            {},
                            true},
                           nullptr,
                           0,
                           {"softmax", nullptr, "T x, T top, T total, TB_PRIVATE T* out",
                            "*out = exp(x - top) / total;", nullptr, nullptr, "", "", 1, "ttt"}};
constexpr Softmax kLogSoftmax{{"log_softmax",
                               0,
                               "",
                               "",
                               1,
                               "S(0) += exp(x0 - a[0]);",
                               "const T total = log(b[0]);",
                               "out = x0 - a[0] - total;",
                               {},
                               false},
                              nullptr,
                              0,
                              {"log_softmax", nullptr, "T x, T top, T total, TB_PRIVATE T* out",
                               "*out = x - top - log(total);", nullptr, nullptr, "", "", 1, "ttt"}};
constexpr Softmax kSoftmaxBackward{
    {"softmax_backward", 1, "S(0) += x0 * x1;", "", 0, "", "", "out = (x0 - a[0]) * x1;", {}, false},
    "dot",
    2,
    {"softmax_backward", nullptr, "T grad, T y, T total, TB_PRIVATE T* out", "*out = (grad - total) * y;", nullptr,
     nullptr, "", "", 1, "ttt"}};
constexpr Softmax kLogSoftmaxBackward{
    {"log_softmax_backward", 1, "S(0) += x0;", "", 0, "", "", "out = x0 - exp(x1) * a[0];", {}, false},
    "sum",
    1,
    {"log_softmax_backward", nullptr, "T grad, T y, T total, TB_PRIVATE T* out", "*out = grad - exp(y) * total;",
     nullptr, nullptr, "", "", 1, "ttt"}};

uint64_t wrapped_dim(const tb_arg& argument, int64_t num_dims) {
  return num_dims == 0 ? 0 : uint64_t{1} << (argument.v.i < 0 ? argument.v.i + num_dims : argument.v.i);
}

tb_status call(const Softmax& softmax, const tb_kernel_context& context, const View& out, c10::ArrayRef<View> inputs,
               uint64_t dims) {
  const auto compute = compute_type(inputs[0].type());
  if (!is_floating(compute) || !is_floating(out.type())) {
    return TB_STATUS_UNSUPPORTED;
  }
  auto status = run_rows(context, softmax.rows, out, inputs, {}, dims, compute);
  if (status != TB_STATUS_UNSUPPORTED) {
    return status;
  }
  View total, top;
  const Dims sizes = sizes_without(inputs[0], dims);
  if (!temporary(context, compute, sizes, &total, &status)) {
    return status;
  }
  c10::SmallVector<View, 3> operands(inputs.begin(), inputs.end());
  if (softmax.reduction) {
    status = reduce(context, reduction(softmax.reduction), total,
                    inputs.slice(0, static_cast<std::size_t>(softmax.num_reduced)), dims, compute);
  } else {
    if (!temporary(context, compute, sizes, &top, &status)) {
      return status;
    }
    status = reduce(context, reduction("amax"), top, inputs[0], dims, compute);
    if (status == TB_STATUS_OK) {
      operands.push_back(repeated_over(top, inputs[0], dims));
      status = reduce(context, reduction("sum_exp"), total, operands, dims, compute);
    }
  }
  if (status != TB_STATUS_OK) {
    return status;
  }
  operands.push_back(repeated_over(total, inputs[0], dims));
  return pointwise::compute_elements(context, softmax.map, out, operands, {}, compute) ? TB_STATUS_OK
                                                                                       : TB_STATUS_UNSUPPORTED;
}

tb_status forward(const void* data, const tb_kernel_context& context, const tb_arg* args, int32_t) {
  using Op = op::_softmax_out;
  static_assert(agree<Op, op::_log_softmax_out>());
  View self, out;
  if (!view_of(args[Op::self], &self) || !view_of(args[Op::out], &out)) {
    return TB_STATUS_UNSUPPORTED;
  }
  return call(*static_cast<const Softmax*>(data), context, out, self, wrapped_dim(args[Op::dim], self.dim()));
}

tb_status backward(const void* data, const tb_kernel_context& context, const tb_arg* args, int32_t) {
  using Op = op::_softmax_backward_data_out;
  static_assert(agree<Op, op::_log_softmax_backward_data_out>("grad_output output dim"));
  static_assert(+Op::grad_input == +op::_log_softmax_backward_data_out::out);
  View inputs[2], out;
  if (!view_of(args[Op::grad_output], &inputs[0]) || !view_of(args[Op::output], &inputs[1]) ||
      !view_of(args[Op::grad_input], &out) || inputs[0].type() != inputs[1].type()) {
    return TB_STATUS_UNSUPPORTED;
  }
  return call(*static_cast<const Softmax*>(data), context, out, inputs, wrapped_dim(args[Op::dim], inputs[0].dim()));
}

} // namespace

void add(Kernels& kernels) {
  kernels.add(op::_softmax_out::kName, forward, 0, &kSoftmax);
  kernels.add(op::_log_softmax_out::kName, forward, 0, &kLogSoftmax);
  kernels.add(op::_softmax_backward_data_out::kName, backward, 0, &kSoftmaxBackward);
  kernels.add(op::_log_softmax_backward_data_out::kName, backward, 0, &kLogSoftmaxBackward);
}

} // namespace torch_backend::compiled::softmax
