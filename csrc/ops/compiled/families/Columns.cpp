#include "csrc/ops/compiled/families/Columns.h"
#include "csrc/ops/compiled/engine/Overloads.h"

#include <algorithm>

#include "csrc/core/DType.h"
#include "csrc/core/Runtime.h"
#include "csrc/core/Stream.h"
#include "csrc/ops/compiled/engine/Geometry.h"
#include "csrc/ops/compiled/engine/Kernels.h"
#include "csrc/ops/compiled/engine/Launch.h"
#include "csrc/ops/compiled/engine/Modules.h"
#include "csrc/ops/compiled/engine/ValueType.h"
#include "csrc/ops/compiled/engine/Volume.h"
#include "csrc/profiler/Recording.h"

namespace torch_backend::compiled::columns {
namespace {

/// The struct Args of the skeleton.
struct Args {
  int64_t batches, channels;
  std::array<int64_t, 3> image, windows, kernel, stride, padding, dilation;
  std::array<int64_t, 5> image_strides;
  std::array<int64_t, 2> column_strides;
};

constexpr int64_t kLimit32 = Geometry::kLimit32;

void launch(const tb_kernel_context& context, ValueType type, const Args& args, const void* to, const void* from,
            bool gather) {
  const int64_t kernel_size = args.kernel[0] * args.kernel[1] * args.kernel[2];
  const int64_t num_windows = args.windows[0] * args.windows[1] * args.windows[2];
  const int64_t rows = args.channels * kernel_size;
  int64_t last = 0;
  for (std::size_t d = 0; d < 3; ++d) {
    last += (args.image[d] + args.padding[d]) * args.image_strides[d + 2];
  }
  last += args.batches * args.image_strides[0] + args.channels * args.image_strides[1];
  const bool fits_32 = last < kLimit32 && rows * num_windows * args.batches < kLimit32 &&
                       args.batches * args.column_strides[0] + rows * args.column_strides[1] < kLimit32;
  const bool is_dense = args.image_strides[4] == 1;
  const bool is_unit = args.stride[2] == 1;
  static constexpr Skeleton kColumns{"columns", "columns"};
  Specialization wanted(kColumns);
  wanted.compute_in(compute_type(type))
      .index_of(fits_32)
      .type("IMAGE", type)
      .text("IMAGE_STEP", is_dense ? "1" : "args.image_strides[4]")
      .flag("STRIDE", is_unit)
      .flag("GATHER", gather)
      .parameters(2);
  const auto& function = find_function(context.device, wanted);
  Launch launch(context);
  launch.pointer(to);
  launch.pointer(from);
  launch.value(&args, sizeof(args));
  const bool by_rows = runs_in_stretches(context.device);
  if (gather) {
    const int64_t elements = args.batches * args.channels * args.image[0] * args.image[1] * args.image[2];
    launch.run(function, by_rows ? std::max<int64_t>(elements / args.image[2], 1) : elements,
               by_rows ? args.image[2] * kernel_size : kernel_size);
  } else {
    launch.run(function, rows * args.batches * (by_rows ? num_windows / args.windows[2] : num_windows),
               by_rows ? args.windows[2] : 1);
  }
}

const char* address(const at::Tensor& tensor) {
  return static_cast<const char*>(tensor.storage().data()) +
         static_cast<std::size_t>(tensor.storage_offset()) * tensor.element_size();
}

tb_kernel_context context_of(const at::Tensor& tensor) {
  tb_kernel_context context{};
  context.device = tensor.device().index();
  context.stream = device_api().async() ? current_stream(tensor.device().index()).handle() : nullptr;
  return context;
}

void run(const at::Tensor& image, const at::Tensor& columns, const Windows& windows, bool gather) {
  Args args{image.size(0),
            image.size(1),
            windows.image,
            windows.count,
            windows.kernel,
            windows.stride,
            windows.padding,
            windows.dilation,
            {image.stride(0), image.stride(1), image.stride(2), image.stride(3), image.stride(4)},
            {columns.stride(0), columns.stride(1)}};
  const auto context = context_of(image);
  CallSpan span("kernel_launch", context.device);
  span.kernel(context.stream, gather ? "aten::col2im" : "aten::im2col");
  launch(context, value_type(tb_dtype_or_none(image.scalar_type())), args, address(gather ? image : columns),
         address(gather ? columns : image), gather);
  span.enqueued();
}

/// The struct Args of the skeleton "depthwise".
struct ChannelArgs {
  int64_t batches, channels;
  std::array<int64_t, 3> image, windows, kernel, stride, padding, dilation;
  std::array<int64_t, 5> image_strides, window_strides;
  int64_t features;
};

/// The last two of `of`'s three.
std::array<int64_t, 3> pair(const tb_arg& of, int64_t first) {
  const auto* values = static_cast<const int64_t*>(of.v.p);
  return {first, values[0], values[of.length > 1 ? 1 : 0]};
}

/// A contiguous image [batch,] channels, height, width.
struct Image {
  explicit Image(const tb_tensor& tensor) {
    for (int d = 0; d < 3; ++d) {
      sizes[static_cast<std::size_t>(d)] = tensor.shape[tensor.ndim - 3 + d];
    }
    batches = tensor.ndim == 4 ? tensor.shape[0] : 1;
  }
  std::array<int64_t, 3> sizes;
  int64_t batches;
};

template <class Op>
tb_status launch_contiguous(const tb_kernel_context& context, const tb_tensor& image_tensor, const tb_tensor& columns,
                            const tb_arg* args, bool gather) {
  const auto type = value_type(image_tensor.dtype);
  const Image image(image_tensor);
  const int64_t area = image.sizes[1] * image.sizes[2];
  const auto address = [](const tb_tensor& tensor) {
    return static_cast<const char*>(tensor.data) + tensor.byte_offset;
  };
  Args all{image.batches,
           image.sizes[0],
           {1, image.sizes[1], image.sizes[2]},
           {},
           pair(args[Op::kernel_size], 1),
           pair(args[Op::stride], 1),
           pair(args[Op::padding], 0),
           pair(args[Op::dilation], 1),
           {image.sizes[0] * area, area, area, image.sizes[2], 1},
           {}};
  if (all.padding[1] < 0 || all.padding[2] < 0) {
    return TB_STATUS_UNSUPPORTED; // PyTorch's kernel refuses it, its meta function does not
  }
  for (std::size_t d = 0; d < 3; ++d) {
    all.windows[d] =
        (all.image[d] + 2 * all.padding[d] - all.dilation[d] * (all.kernel[d] - 1) - 1) / all.stride[d] + 1;
  }
  const int64_t num_windows = all.windows[1] * all.windows[2];
  all.column_strides = {image.sizes[0] * all.kernel[1] * all.kernel[2] * num_windows, num_windows};
  launch(context, type, all, address(gather ? image_tensor : columns), address(gather ? columns : image_tensor),
         gather);
  return TB_STATUS_OK;
}

tb_status im2col(const void* /*entry*/, const tb_kernel_context& context, const tb_arg* args, int32_t /*num_args*/) {
  using Op = op::im2col_out;
  return launch_contiguous<Op>(context, tensor_in(args[Op::self]), tensor_in(args[Op::out]), args, /*gather=*/false);
}

tb_status col2im(const void* /*entry*/, const tb_kernel_context& context, const tb_arg* args, int32_t /*num_args*/) {
  using Op = op::col2im_out;
  return launch_contiguous<Op>(context, tensor_in(args[Op::out]), tensor_in(args[Op::self]), args, /*gather=*/true);
}

} // namespace

void convolve_channels(const at::Tensor& image, const at::Tensor& weight, const at::Tensor& bias,
                       const at::Tensor& output, const Windows& windows) {
  if (output.numel() == 0) {
    return;
  }
  ChannelArgs args{output.size(0),
                   output.size(1),
                   windows.image,
                   windows.count,
                   windows.kernel,
                   windows.stride,
                   windows.padding,
                   windows.dilation,
                   {},
                   {},
                   output.size(1) / image.size(1)};
  int64_t last = std::max(output.numel(), image.numel());
  for (const auto* tensor : {&image, &output}) {
    int64_t reach = 0;
    for (std::size_t d = 0; d < 5; ++d) {
      const auto dim = static_cast<int64_t>(d);
      (tensor == &image ? args.image_strides : args.window_strides)[d] = tensor->stride(dim);
      reach += tensor->size(dim) * tensor->stride(dim);
    }
    last = std::max(last, reach);
  }
  const auto type = value_type(tb_dtype_or_none(image.scalar_type()));
  const bool fits_32 = last < kLimit32;
  const bool is_dense = args.image_strides[4] == 1;
  const bool is_unit = args.stride[2] == 1;
  const auto context = context_of(image);
  CallSpan span("kernel_launch", context.device);
  span.kernel(context.stream, "aten::_conv_depthwise2d");
  static constexpr Skeleton kDepthwise{"depthwise", "depthwise"};
  Specialization wanted(kDepthwise);
  wanted.compute_in(compute_type(type))
      .index_of(fits_32)
      .type("VALUE", type)
      .text("IMAGE_STEP", is_dense ? "1" : "args.image_strides[4]")
      .flag("STRIDE", is_unit)
      .flag("BIAS", bias.defined())
      .parameters(bias.defined() ? 4 : 3);
  const auto& function = find_function(context.device, wanted);
  Launch launch(context);
  launch.pointer(address(output));
  launch.pointer(address(image));
  launch.pointer(address(weight));
  if (bias.defined()) {
    launch.pointer(address(bias));
  }
  launch.value(&args, sizeof(args));
  const int64_t row = runs_in_stretches(context.device) ? args.windows[2] : 1;
  launch.run(function, output.numel() / row, row * windows.kernel_size());
  span.enqueued();
}

void image_to_columns(const at::Tensor& image, const at::Tensor& columns, const Windows& windows) {
  run(image, columns, windows, /*gather=*/false);
}

void columns_to_image(const at::Tensor& columns, const at::Tensor& image, const Windows& windows) {
  run(image, columns, windows, /*gather=*/true);
}

void add(Kernels& kernels) {
  kernels.add(op::im2col_out::kName, im2col, TB_KERNEL_NEEDS_CONTIGUOUS);
  kernels.add(op::col2im_out::kName, col2im, TB_KERNEL_NEEDS_CONTIGUOUS);
}

} // namespace torch_backend::compiled::columns
