// Images of another size, and images with borders, forward and backward.

#include <algorithm>
#include <array>
#include <cstdint>

#include "csrc/ops/compiled/engine/Kernels.h"
#include "csrc/ops/compiled/engine/Launch.h"
#include "csrc/ops/compiled/engine/Modules.h"
#include "csrc/ops/compiled/engine/Overloads.h"
#include "csrc/ops/compiled/engine/Support.h"
#include "csrc/ops/compiled/engine/ValueType.h"
#include "csrc/ops/compiled/engine/View.h"
#include "csrc/ops/compiled/engine/Volume.h"

namespace torch_backend::compiled::resample {
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
enum Mode : int { kNearest, kNearestExact, kLinear, kCubic, kReflected, kReplicated, kLanczos };

struct Resample {
  int dims;
  Mode mode;
  bool is_backward;
};

/// Elements of the image for one of the result in dimension d of three.
double scale_of(const Resample& resample, const Args& args, std::size_t d, const tb_arg* scales) {
  const auto given = static_cast<int>(d) - (3 - resample.dims);
  const auto size = static_cast<double>(args.image[d]), wanted = static_cast<double>(args.result[d]);
  if (args.aligns_corners) {
    return wanted > 1 ? (size - 1) / (wanted - 1) : 0;
  }
  const bool is_given = scales && given >= 0 && scales[given].tag == TB_ARG_FLOAT && scales[given].v.f > 0;
  return is_given ? 1 / scales[given].v.f : size / wanted;
}

tb_status run(const Resample& resample, const tb_kernel_context& context, const tb_tensor& image,
              const tb_tensor& result, const tb_arg* corners, const tb_arg* scales, Args args) {
  const auto type = value_type(image.dtype);
  const bool is_nearest = resample.mode == kNearest || resample.mode == kNearestExact;
  const bool moves = resample.mode == kReflected || resample.mode == kReplicated;
  if (type == ValueType::none || type == ValueType::b8 || type != value_type(result.dtype) ||
      (!is_floating(type) && !moves && !(type == ValueType::u8 && is_nearest))) {
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
    args.scales[d] = is_floating(compute) ? scalar_of(scale_of(resample, args, d, scales), compute) : 0;
  }
  const bool fits_32 = in.fits_32() && out.fits_32();
  static constexpr Skeleton kResample{"resample", "resample"};
  Specialization wanted(kResample);
  wanted.compute_in(compute)
      .index_of(fits_32)
      .type("VALUE", type)
      .number("MODE", resample.mode)
      .flag("BACKWARD", resample.is_backward)
      .parameters(2);
  const auto& function = find_function(context.device, wanted);
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

constexpr bool has_corners(Mode mode) {
  return mode == kLinear || mode == kCubic;
}

/// The scales of each dimension follow each other.
template <class Op>
constexpr int32_t first_scale() {
  if constexpr (requires { Op::scales; }) {
    return Op::scales;
  } else if constexpr (requires { Op::scales_d; }) {
    return Op::scales_d;
  } else {
    return Op::scales_h;
  }
}

template <class Op, Mode kMode>
const tb_arg* corners_of(const tb_arg* args) {
  if constexpr (has_corners(kMode)) {
    return &args[Op::align_corners];
  }
  return nullptr;
}

template <class Op, Mode kMode>
tb_status upsample(const void* entry, const tb_kernel_context& context, const tb_arg* args, int32_t) {
  return run(*static_cast<const Resample*>(entry), context, tensor_in(args[Op::self]), tensor_in(args[Op::out]),
             corners_of<Op, kMode>(args), args + first_scale<Op>(), Args{});
}

template <class Op, Mode kMode>
tb_status upsample_backward(const void* entry, const tb_kernel_context& context, const tb_arg* args, int32_t) {
  return run(*static_cast<const Resample*>(entry), context, tensor_in(args[Op::grad_input]),
             tensor_in(args[Op::grad_output]), corners_of<Op, kMode>(args), args + first_scale<Op>(), Args{});
}

/// One dimension of `image` and `result`, which have the other sizes in common, from one to the other.
void antialias(const Resample& resample, const tb_kernel_context& context, const View& image, const View& result,
               std::size_t axis, ValueType compute, double scale, bool aligns_corners) {
  const tb_tensor described[] = {image.tensor(), result.tensor()};
  const Volume in(described[0], 2), out(described[1], 2);
  const bool fits_32 = in.fits_32() && out.fits_32();
  const View& stored = resample.is_backward ? image : result;
  const View& loaded = resample.is_backward ? result : image;
  static constexpr Skeleton kAntialias{"antialias", "antialias"};
  Specialization wanted(kAntialias);
  wanted.compute_in(compute)
      .index_of(fits_32)
      .type("LOADED", loaded.type())
      .type("STORED", stored.type())
      .number("MODE", resample.mode)
      .number("AXIS", static_cast<int64_t>(axis))
      .flag("BACKWARD", resample.is_backward)
      .parameters(2);
  const auto& function = find_function(context.device, wanted);
  Args args{in.sizes[0], in.sizes[1], in.image(), out.image(), {}, aligns_corners, in.strides, out.strides, {}};
  args.scales[axis] = scalar_of(scale, compute);
  Launch launch(context);
  launch.pointer(stored.data);
  launch.pointer(loaded.data);
  launch.value(&args, sizeof(args));
  const int64_t row = runs_in_stretches(context.device) ? stored.sizes.back() : 1;
  launch.run(function, stored.numel() / row, row * 16);
}

/// Rows, then columns; a gradient the other way.
tb_status run_antialiased(const Resample& resample, const tb_kernel_context& context, const tb_tensor& image,
                          const tb_tensor& result, const tb_arg& corners, const tb_arg* scales) {
  const View in(image), out(result);
  const auto compute = compute_type(in.type());
  if (!is_floating(in.type()) || out.type() != in.type() || !computes(context.device, compute)) {
    return TB_STATUS_UNSUPPORTED;
  }
  Args sizes{};
  sizes.image = Volume(image, 2).image();
  sizes.result = Volume(result, 2).image();
  sizes.aligns_corners = corners.v.i != 0;
  Dims between_sizes = in.sizes;
  between_sizes.back() = out.sizes.back();
  View between(nullptr, compute, between_sizes);
  between.data = workspace(context, between.numel() * between.element_bytes());
  const auto along = [&](const View& from, const View& to, std::size_t axis) {
    antialias(resample, context, from, to, axis, compute, scale_of(resample, sizes, axis, scales),
              sizes.aligns_corners != 0);
  };
  resample.is_backward ? along(between, out, 1) : along(in, between, 2);
  resample.is_backward ? along(in, between, 2) : along(between, out, 1);
  return TB_STATUS_OK;
}

template <class Op, Mode>
tb_status upsample_antialiased(const void* entry, const tb_kernel_context& context, const tb_arg* args, int32_t) {
  return run_antialiased(*static_cast<const Resample*>(entry), context, tensor_in(args[Op::self]),
                         tensor_in(args[Op::out]), args[Op::align_corners], args + first_scale<Op>());
}

template <class Op, Mode>
tb_status upsample_antialiased_backward(const void* entry, const tb_kernel_context& context, const tb_arg* args,
                                        int32_t) {
  return run_antialiased(*static_cast<const Resample*>(entry), context, tensor_in(args[Op::grad_input]),
                         tensor_in(args[Op::grad_output]), args[Op::align_corners], args + first_scale<Op>());
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

template <class Op, Mode>
tb_status pad(const void* entry, const tb_kernel_context& context, const tb_arg* args, int32_t) {
  const auto& resample = *static_cast<const Resample*>(entry);
  return run(resample, context, tensor_in(args[Op::self]), tensor_in(args[Op::out]), nullptr, nullptr,
             padded(args[Op::padding], resample.dims));
}

template <class Op, Mode>
tb_status pad_backward(const void* entry, const tb_kernel_context& context, const tb_arg* args, int32_t) {
  const auto& resample = *static_cast<const Resample*>(entry);
  return run(resample, context, tensor_in(args[Op::grad_input]), tensor_in(args[Op::grad_output]), nullptr, nullptr,
             padded(args[Op::padding], resample.dims));
}

struct Operator {
  const char* overload;
  KernelFunction function;
  Resample resample;
};

#define TB_RESAMPLE(name, forward, backward, dims, mode)                                              \
  {op::name##_out::kName, guarded<forward<op::name##_out, mode>>, {dims, mode, false}}, {             \
    op::name##_backward_grad_input::kName, guarded<backward<op::name##_backward_grad_input, mode>>, { \
      dims, mode, true                                                                                \
    }                                                                                                 \
  }
#define TB_ANTIALIASED(name, mode) TB_RESAMPLE(name, upsample_antialiased, upsample_antialiased_backward, 2, mode)

constexpr Operator kOperators[] = {
    TB_RESAMPLE(upsample_nearest1d, upsample, upsample_backward, 1, kNearest),
    TB_RESAMPLE(upsample_nearest2d, upsample, upsample_backward, 2, kNearest),
    TB_RESAMPLE(upsample_nearest3d, upsample, upsample_backward, 3, kNearest),
    TB_RESAMPLE(_upsample_nearest_exact1d, upsample, upsample_backward, 1, kNearestExact),
    TB_RESAMPLE(_upsample_nearest_exact2d, upsample, upsample_backward, 2, kNearestExact),
    TB_RESAMPLE(_upsample_nearest_exact3d, upsample, upsample_backward, 3, kNearestExact),
    TB_RESAMPLE(upsample_linear1d, upsample, upsample_backward, 1, kLinear),
    TB_RESAMPLE(upsample_bilinear2d, upsample, upsample_backward, 2, kLinear),
    TB_RESAMPLE(upsample_trilinear3d, upsample, upsample_backward, 3, kLinear),
    TB_RESAMPLE(upsample_bicubic2d, upsample, upsample_backward, 2, kCubic),
    TB_ANTIALIASED(_upsample_bilinear2d_aa, kLinear),
    TB_ANTIALIASED(_upsample_bicubic2d_aa, kCubic),
#ifdef TB_HAS__upsample_lanczos2d_aa_out
    TB_ANTIALIASED(_upsample_lanczos2d_aa, kLanczos),
#endif
    TB_RESAMPLE(reflection_pad1d, pad, pad_backward, 1, kReflected),
    TB_RESAMPLE(reflection_pad2d, pad, pad_backward, 2, kReflected),
    TB_RESAMPLE(reflection_pad3d, pad, pad_backward, 3, kReflected),
    TB_RESAMPLE(replication_pad1d, pad, pad_backward, 1, kReplicated),
    TB_RESAMPLE(replication_pad2d, pad, pad_backward, 2, kReplicated),
    TB_RESAMPLE(replication_pad3d, pad, pad_backward, 3, kReplicated),
};

} // namespace

void add(Kernels& kernels) {
  for (const auto& each : kOperators) {
    kernels.add(each.overload, each.function, 0, &each.resample);
  }
}

} // namespace torch_backend::compiled::resample
