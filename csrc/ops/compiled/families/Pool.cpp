// Pooling, forward and backward.

#include <algorithm>
#include <array>
#include <cstdint>

#include "csrc/ops/compiled/engine/Kernels.h"
#include "csrc/ops/compiled/engine/Launch.h"
#include "csrc/ops/compiled/engine/Modules.h"
#include "csrc/ops/compiled/engine/Overloads.h"
#include "csrc/ops/compiled/engine/ValueType.h"
#include "csrc/ops/compiled/engine/Volume.h"

namespace torch_backend::compiled::pool {
namespace {

/// The struct Args of the skeleton.
struct Args {
  int64_t batches, channels;
  std::array<int64_t, 3> image, windows, kernel, stride, padding, dilation;
  std::array<int64_t, 5> image_strides, window_strides, index_strides;
  int64_t counts_padding, divisor;
};

struct Pool {
  int dims;
  bool is_maximum, is_adaptive, is_backward;
};

tb_status run(const Pool& pool, const tb_kernel_context& context, const tb_tensor& image, const tb_tensor& windows,
              const tb_tensor* indices, Args args) {
  const auto type = value_type(image.dtype);
  const auto compute = compute_type(type);
  if (type == ValueType::none || type == ValueType::b8 || type != value_type(windows.dtype) ||
      (indices && value_type(indices->dtype) != ValueType::i64) || !computes(context.device, compute)) {
    return TB_STATUS_UNSUPPORTED;
  }
  const Volume in(image, pool.dims), out(windows, pool.dims), places(indices ? *indices : windows, pool.dims);
  args.batches = in.sizes[0];
  args.channels = in.sizes[1];
  args.image = in.image();
  args.windows = out.image();
  args.image_strides = in.strides;
  args.window_strides = out.strides;
  args.index_strides = places.strides;
  const bool fits_32 = in.fits_32() && out.fits_32() && places.fits_32();
  const bool by_rows = runs_in_stretches(context.device);
  const auto is_dense = [&](std::size_t d, int64_t stride) { return in.sizes[d] == 1 || in.strides[d] == stride; };
  const bool scatters = by_rows && pool.is_maximum && pool.is_backward && type == compute && is_dense(4, 1) &&
                        is_dense(3, in.sizes[4]) && is_dense(2, in.sizes[4] * in.sizes[3]);
  static constexpr Skeleton kPool{"pool", "pool"};
  Specialization wanted(kPool);
  wanted.compute_in(compute)
      .index_of(fits_32)
      .type("VALUE", type)
      .text("SMALLEST", is_floating(type)           ? "-INFINITY"
                        : compute == ValueType::i32 ? "-2147483647 - 1"
                                                    : "(i64)((u64)1 << 63)")
      .flag("MAXIMUM", pool.is_maximum)
      .flag("ADAPTIVE", pool.is_adaptive)
      .flag("BACKWARD", pool.is_backward)
      .flag("SCATTER", scatters)
      .parameters(pool.is_maximum ? 3 : 2);
  const auto& function = find_function(context.device, wanted);
  Launch launch(context);
  launch.pointer(pool.is_backward ? image : windows);
  launch.pointer(pool.is_backward ? windows : image);
  if (pool.is_maximum) {
    launch.pointer(*indices);
  }
  launch.value(&args, sizeof(args));
  if (scatters) {
    launch.run(function, in.sizes[0] * in.sizes[1], in.image()[0] * in.image()[1] * in.image()[2]);
    return TB_STATUS_OK;
  }
  const Volume& written = pool.is_backward ? in : out;
  const int64_t row = by_rows ? written.sizes[4] : 1;
  const int64_t cost = pool.is_adaptive ? std::max<int64_t>(in.count() / out.count(), 1)
                                        : args.kernel[0] * args.kernel[1] * args.kernel[2];
  launch.run(function, written.count() / row, row * cost);
  return TB_STATUS_OK;
}

constexpr std::array<int64_t, 3> kOnes{1, 1, 1};

/// An empty stride is the kernel's size.
template <class Op>
Args windows_of(const tb_arg* args, int dims) {
  Args all{};
  all.kernel = for_each_dim(args[Op::kernel_size], dims, 1);
  all.stride = args[Op::stride].length == 0 ? all.kernel : for_each_dim(args[Op::stride], dims, 1);
  all.padding = for_each_dim(args[Op::padding], dims, 0);
  all.dilation = kOnes;
  return all;
}

tb_status max_pool(const void* entry, const tb_kernel_context& context, const tb_arg* args, int32_t /*num_args*/) {
  using Op = op::max_pool2d_with_indices_out;
  static_assert(agree<Op, op::max_pool3d_with_indices_out>());
  const auto& pool = *static_cast<const Pool*>(entry);
  Args all = windows_of<Op>(args, pool.dims);
  all.dilation = for_each_dim(args[Op::dilation], pool.dims, 1);
  return run(pool, context, tensor_in(args[Op::self]), tensor_in(args[Op::out]), &tensor_in(args[Op::indices]), all);
}

tb_status max_pool_backward(const void* entry, const tb_kernel_context& context, const tb_arg* args,
                            int32_t /*num_args*/) {
  using Op = op::max_pool2d_with_indices_backward_grad_input;
  static_assert(agree<Op, op::max_pool3d_with_indices_backward_grad_input>());
  const auto& pool = *static_cast<const Pool*>(entry);
  Args all = windows_of<Op>(args, pool.dims);
  all.dilation = for_each_dim(args[Op::dilation], pool.dims, 1);
  return run(pool, context, tensor_in(args[Op::grad_input]), tensor_in(args[Op::grad_output]),
             &tensor_in(args[Op::indices]), all);
}

template <class Op>
Args mean_windows_of(const tb_arg* args, int dims) {
  Args all = windows_of<Op>(args, dims);
  const auto& divisor = args[Op::divisor_override];
  all.counts_padding = args[Op::count_include_pad].v.i;
  all.divisor = divisor.tag == TB_ARG_INT ? divisor.v.i : 0;
  return all;
}

tb_status avg_pool(const void* entry, const tb_kernel_context& context, const tb_arg* args, int32_t /*num_args*/) {
  using Op = op::avg_pool2d_out;
  static_assert(agree<Op, op::avg_pool3d_out>());
  const auto& pool = *static_cast<const Pool*>(entry);
  return run(pool, context, tensor_in(args[Op::self]), tensor_in(args[Op::out]), nullptr,
             mean_windows_of<Op>(args, pool.dims));
}

tb_status avg_pool_backward(const void* entry, const tb_kernel_context& context, const tb_arg* args,
                            int32_t /*num_args*/) {
  using Op = op::avg_pool2d_backward_grad_input;
  static_assert(agree<Op, op::avg_pool3d_backward_grad_input>());
  const auto& pool = *static_cast<const Pool*>(entry);
  return run(pool, context, tensor_in(args[Op::grad_input]), tensor_in(args[Op::grad_output]), nullptr,
             mean_windows_of<Op>(args, pool.dims));
}

tb_status adaptive_pool(const void* entry, const tb_kernel_context& context, const tb_arg* args, int32_t /*num_args*/) {
  using Op = op::adaptive_max_pool2d_out;
  using Mean = op::_adaptive_avg_pool2d;
  static_assert(agree<Op, op::adaptive_max_pool3d_out>() && agree<Mean, op::_adaptive_avg_pool3d>());
  static_assert(agree<Op, Mean>("self output_size") && +Op::out == +Mean::result);
  const auto& pool = *static_cast<const Pool*>(entry);
  return run(pool, context, tensor_in(args[Op::self]), tensor_in(args[Op::out]),
             pool.is_maximum ? &tensor_in(args[Op::indices]) : nullptr, Args{});
}

tb_status adaptive_pool_backward(const void* entry, const tb_kernel_context& context, const tb_arg* args,
                                 int32_t /*num_args*/) {
  using Op = op::adaptive_max_pool2d_backward_grad_input;
  using Mean = op::_adaptive_avg_pool2d_backward;
  static_assert(agree<Op, op::adaptive_max_pool3d_backward_grad_input>() &&
                agree<Mean, op::_adaptive_avg_pool3d_backward>() && agree<Op, Mean>("grad_output self"));
  const auto& pool = *static_cast<const Pool*>(entry);
  return run(pool, context, tensor_in(args[pool.is_maximum ? +Op::grad_input : +Mean::result]),
             tensor_in(args[Op::grad_output]), pool.is_maximum ? &tensor_in(args[Op::indices]) : nullptr, Args{});
}

} // namespace

void add(Kernels& kernels) {
  // Dimensions, largest, adaptive, backward.
  static constexpr Pool kMax2{2, true, false, false}, kMax3{3, true, false, false};
  static constexpr Pool kMax2Backward{2, true, false, true}, kMax3Backward{3, true, false, true};
  static constexpr Pool kMean2{2, false, false, false}, kMean3{3, false, false, false};
  static constexpr Pool kMean2Backward{2, false, false, true}, kMean3Backward{3, false, false, true};
  static constexpr Pool kAdaptiveMax2{2, true, true, false}, kAdaptiveMax3{3, true, true, false};
  static constexpr Pool kAdaptiveMax2Backward{2, true, true, true}, kAdaptiveMax3Backward{3, true, true, true};
  static constexpr Pool kAdaptiveMean2{2, false, true, false}, kAdaptiveMean3{3, false, true, false};
  static constexpr Pool kAdaptiveMean2Backward{2, false, true, true}, kAdaptiveMean3Backward{3, false, true, true};
  kernels.add(op::max_pool2d_with_indices_out::kName, max_pool, 0, &kMax2);
  kernels.add(op::max_pool3d_with_indices_out::kName, max_pool, 0, &kMax3);
  kernels.add(op::max_pool2d_with_indices_backward_grad_input::kName, max_pool_backward, 0, &kMax2Backward);
  kernels.add(op::max_pool3d_with_indices_backward_grad_input::kName, max_pool_backward, 0, &kMax3Backward);
  kernels.add(op::avg_pool2d_out::kName, avg_pool, 0, &kMean2);
  kernels.add(op::avg_pool3d_out::kName, avg_pool, 0, &kMean3);
  kernels.add(op::avg_pool2d_backward_grad_input::kName, avg_pool_backward, 0, &kMean2Backward);
  kernels.add(op::avg_pool3d_backward_grad_input::kName, avg_pool_backward, 0, &kMean3Backward);
  kernels.add(op::adaptive_max_pool2d_out::kName, adaptive_pool, 0, &kAdaptiveMax2);
  kernels.add(op::adaptive_max_pool3d_out::kName, adaptive_pool, 0, &kAdaptiveMax3);
  kernels.add(op::adaptive_max_pool2d_backward_grad_input::kName, adaptive_pool_backward, 0, &kAdaptiveMax2Backward);
  kernels.add(op::adaptive_max_pool3d_backward_grad_input::kName, adaptive_pool_backward, 0, &kAdaptiveMax3Backward);
  kernels.add(op::_adaptive_avg_pool2d::kName, adaptive_pool, 0, &kAdaptiveMean2);
  kernels.add(op::_adaptive_avg_pool3d::kName, adaptive_pool, 0, &kAdaptiveMean3);
  kernels.add(op::_adaptive_avg_pool2d_backward::kName, adaptive_pool_backward, 0, &kAdaptiveMean2Backward);
  kernels.add(op::_adaptive_avg_pool3d_backward::kName, adaptive_pool_backward, 0, &kAdaptiveMean3Backward);
}

} // namespace torch_backend::compiled::pool
