// Images of another size, and images with borders, forward and backward.

#include <algorithm>
#include <array>
#include <cstdint>

#include "csrc/ops/generated/Families.h"
#include "csrc/ops/generated/Launch.h"
#include "csrc/ops/generated/Modules.h"
#include "csrc/ops/generated/Support.h"
#include "csrc/ops/generated/ValueType.h"
#include "csrc/ops/generated/Volume.h"

namespace torch_backend::generated {
namespace {

/// The struct Args of the skeleton.
struct Args {
  int64_t batches, channels;
  std::array<int64_t, 3> image, result, padding;
  int64_t aligns_corners;
  std::array<int64_t, 5> image_strides, result_strides;
  std::array<int64_t, 3> scales;
};

/// As the skeleton numbers them.
enum Mode : int { kNearest, kNearestExact, kLinear, kCubic, kReflected, kReplicated };

struct Resample {
  int dims;
  Mode mode;
  bool is_backward;
};

tb_status run(const Resample& resample, const tb_kernel_context& context, const tb_tensor& image,
              const tb_tensor& result, const tb_arg* corners, const tb_arg* scales, Args args) {
  const auto type = value_type(image.dtype);
  const bool is_nearest = resample.mode == kNearest || resample.mode == kNearestExact;
  const bool takes_whole = resample.mode == kReflected || resample.mode == kReplicated || type == ValueType::u8;
  if (type == ValueType::none || type == ValueType::b8 || type != value_type(result.dtype) ||
      (!is_floating(type) && !(takes_whole && (is_nearest || resample.mode >= kReflected)))) {
    return TB_STATUS_UNSUPPORTED;
  }
  const auto compute = is_nearest && !is_floating(type) ? ValueType::f32 : compute_type(type);
  if (!computes(context.device, compute)) {
    return TB_STATUS_UNSUPPORTED;
  }
  const Volume in(image, resample.dims), out(result, resample.dims);
  args.batches = in.sizes[0];
  args.channels = in.sizes[1];
  args.image = in.image();
  args.result = out.image();
  args.image_strides = in.strides;
  args.result_strides = out.strides;
  args.aligns_corners = corners && corners->v.i != 0;
  for (std::size_t d = 0; d < 3; ++d) {
    const auto given = static_cast<int>(d) - (3 - resample.dims);
    const auto size = static_cast<double>(args.image[d]), wanted = static_cast<double>(args.result[d]);
    double scale = size / wanted;
    if (args.aligns_corners) {
      scale = wanted > 1 ? (size - 1) / (wanted - 1) : 0;
    } else if (scales && given >= 0 && scales[given].tag == TB_ARG_FLOAT && scales[given].v.f > 0) {
      scale = 1 / scales[given].v.f;
    }
    args.scales[d] = is_floating(compute) ? scalar_of(scale, compute) : 0;
  }
  const bool fits_32 = in.fits_32() && out.fits_32();
  static const char kKind = 0;
  KernelKey key{&kKind};
  key.words[0] = static_cast<uint64_t>(type) << 8 | static_cast<uint64_t>(resample.mode) << 4 |
                 static_cast<uint64_t>(resample.is_backward) << 1 | static_cast<uint64_t>(fits_32);
  const auto& function = find_function(context.device, key, "resample", "resample", [&](SourceText& text) {
    text.compute_in(compute);
    text.index_of(fits_32);
    text.define("VALUE", name_of(type));
    text.define("MODE", static_cast<int64_t>(resample.mode));
    if (resample.is_backward) {
      text.define("BACKWARD", 1);
    }
    text.parameters(2);
  });
  Launch launch(context);
  launch.pointer(resample.is_backward ? image : result);
  launch.pointer(resample.is_backward ? result : image);
  launch.value(&args, sizeof(args));
  if (resample.is_backward) {
    launch.run(function, in.count(), std::max<int64_t>(out.count() / in.count(), 1));
  } else {
    const int64_t row = runs_in_stretches(context.device) ? out.sizes[4] : 1;
    launch.run(function, out.count() / row, row);
  }
  return TB_STATUS_OK;
}

bool has_corners(Mode mode) {
  return mode == kLinear || mode == kCubic;
}

/// (self, output_size, [align_corners,] scales for each dimension, out)
tb_status upsample(const void* entry, const tb_kernel_context& context, const tb_arg* args, int32_t num_args) {
  const auto& resample = *static_cast<const Resample*>(entry);
  const auto* scales = args + (has_corners(resample.mode) ? 3 : 2);
  return run(resample, context, tensor_in(args[0]), tensor_in(args[num_args - 1]),
             has_corners(resample.mode) ? &args[2] : nullptr, scales, Args{});
}

/// (grad_output, output_size, input_size, [align_corners,] scales for each dimension, grad_input)
tb_status upsample_backward(const void* entry, const tb_kernel_context& context, const tb_arg* args, int32_t num_args) {
  const auto& resample = *static_cast<const Resample*>(entry);
  const auto* scales = args + (has_corners(resample.mode) ? 4 : 3);
  return run(resample, context, tensor_in(args[num_args - 1]), tensor_in(args[0]),
             has_corners(resample.mode) ? &args[3] : nullptr, scales, Args{});
}

/// Of before and after each dimension, the last one first: what is before it.
Args padded(const tb_arg& list, int dims) {
  Args all{};
  const auto* values = static_cast<const int64_t*>(list.v.p);
  for (int d = 0; d < dims; ++d) {
    all.padding[static_cast<std::size_t>(2 - d)] = values[d * 2];
  }
  return all;
}

/// (self, padding, out)
tb_status pad(const void* entry, const tb_kernel_context& context, const tb_arg* args, int32_t /*num_args*/) {
  const auto& resample = *static_cast<const Resample*>(entry);
  return run(resample, context, tensor_in(args[0]), tensor_in(args[2]), nullptr, nullptr,
             padded(args[1], resample.dims));
}

/// (grad_output, self, padding, grad_input)
tb_status pad_backward(const void* entry, const tb_kernel_context& context, const tb_arg* args, int32_t /*num_args*/) {
  const auto& resample = *static_cast<const Resample*>(entry);
  return run(resample, context, tensor_in(args[3]), tensor_in(args[0]), nullptr, nullptr,
             padded(args[2], resample.dims));
}

struct Operator {
  const char* overload;
  GeneratedFunction function;
  Resample resample;
};

#define TB_RESAMPLE(name, forward, backward, dims, mode)  \
  {"aten::" name ".out", forward, {dims, mode, false}}, { \
    "aten::" name "_backward.grad_input", backward, {     \
      dims, mode, true                                    \
    }                                                     \
  }

constexpr Operator kOperators[] = {
    TB_RESAMPLE("upsample_nearest1d", upsample, upsample_backward, 1, kNearest),
    TB_RESAMPLE("upsample_nearest2d", upsample, upsample_backward, 2, kNearest),
    TB_RESAMPLE("upsample_nearest3d", upsample, upsample_backward, 3, kNearest),
    TB_RESAMPLE("_upsample_nearest_exact1d", upsample, upsample_backward, 1, kNearestExact),
    TB_RESAMPLE("_upsample_nearest_exact2d", upsample, upsample_backward, 2, kNearestExact),
    TB_RESAMPLE("_upsample_nearest_exact3d", upsample, upsample_backward, 3, kNearestExact),
    TB_RESAMPLE("upsample_linear1d", upsample, upsample_backward, 1, kLinear),
    TB_RESAMPLE("upsample_bilinear2d", upsample, upsample_backward, 2, kLinear),
    TB_RESAMPLE("upsample_trilinear3d", upsample, upsample_backward, 3, kLinear),
    TB_RESAMPLE("upsample_bicubic2d", upsample, upsample_backward, 2, kCubic),
    TB_RESAMPLE("reflection_pad1d", pad, pad_backward, 1, kReflected),
    TB_RESAMPLE("reflection_pad2d", pad, pad_backward, 2, kReflected),
    TB_RESAMPLE("reflection_pad3d", pad, pad_backward, 3, kReflected),
    TB_RESAMPLE("replication_pad1d", pad, pad_backward, 1, kReplicated),
    TB_RESAMPLE("replication_pad2d", pad, pad_backward, 2, kReplicated),
    TB_RESAMPLE("replication_pad3d", pad, pad_backward, 3, kReplicated),
};

} // namespace

void add_resample(Kernels& kernels) {
  for (const auto& each : kOperators) {
    kernels.add(each.overload, each.function, 0, &each.resample);
  }
}

} // namespace torch_backend::generated
