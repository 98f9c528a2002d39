#include "csrc/ops/compiled/composed/Ranges.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <ATen/Dispatch.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange_ops.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/eye_ops.h>
#include <ATen/ops/linspace_ops.h>
#include <c10/core/DeviceGuard.h>

#include "csrc/core/DType.h"
#include "csrc/core/Runtime.h"
#include "csrc/core/Stream.h"
#include "csrc/ops/compiled/engine/Launch.h"
#include "csrc/ops/compiled/engine/Modules.h"
#include "csrc/ops/dispatch/Registrar.h"
#include "csrc/ops/host/AtenKernel.h"
#include "csrc/profiler/Recording.h"

namespace torch_backend::compiled::ranges {
namespace {

bool is_offered(const at::Tensor& out) {
  return !device_api().host_access() && is_common(value_type(tb_dtype_or_none(out.scalar_type())));
}

/// What PyTorch's meta kernel says of the size, and raises of the arguments.
template <class Call>
void fit(const at::Tensor& out, Call call) {
  at::assert_no_internal_overlap(out);
  at::Tensor meta = at::empty({0}, out.options().device(c10::kMeta));
  call(meta);
  if (out.numel() != meta.numel() || out.dim() == 0) {
    out.resize_(meta.sizes());
  }
}

struct Range {
  c10::Scalar start, step, end;
  bool two_ended;
};

/// Into a tensor of one dimension.
void write_range(const at::Tensor& out, const Range& range, const char* name) {
  const int device = out.device().index();
  const auto type = value_type(tb_dtype_or_none(out.scalar_type()));
  const auto wide = is_floating(type) || range.two_ended ? ValueType::f64 : ValueType::i64;
  const auto compute = computes(device, wide) ? wide : ValueType::f32;
  const bool fits = out.numel() * std::max<int64_t>(out.stride(0), 1) < (int64_t{1} << 30);
  static constexpr Skeleton kRange{"range", "range"};
  Specialization wanted(kRange);
  wanted.compute_in(compute).index_of(fits).type("OUT", type).flag("TWO_ENDED", range.two_ended).parameters(1);
  const auto& function = find_function(device, wanted);
  struct {
    int64_t count, stride;
    int64_t scalars[3];
  } args{out.numel(), out.stride(0), {}};
  const c10::Scalar* numbers[] = {&range.start, &range.step, &range.end};
  for (int i = 0; i < 3; ++i) {
    if (compute == ValueType::i64) {
      args.scalars[i] = numbers[i]->toLong();
    } else if (compute == ValueType::f64) {
      const double value = numbers[i]->toDouble();
      std::memcpy(&args.scalars[i], &value, sizeof(value));
    } else {
      const auto value = static_cast<float>(numbers[i]->toDouble());
      std::memcpy(&args.scalars[i], &value, sizeof(value));
    }
  }
  tb_kernel_context context{};
  context.device = device;
  context.stream = current_stream(out.device().index()).handle();
  CallSpan span("kernel_launch", device);
  span.kernel(context.stream, name);
  Launch launch(context);
  launch.pointer(static_cast<const char*>(out.const_data_ptr()));
  launch.value(&args, sizeof(args));
  launch.run(function, out.numel());
  span.enqueued();
}

void write_shaped(const at::Tensor& out, const Range& range, const char* name) {
  if (out.numel() == 0) {
    return;
  }
  const c10::DeviceGuard guard(out.device());
  if (out.dim() == 1) {
    write_range(out, range, name);
    return;
  }
  const at::Tensor line = at::empty({out.numel()}, out.options());
  write_range(line, range, name);
  out.copy_(line.view(out.sizes()));
}

at::Tensor& arange_out(const at::Scalar& start, const at::Scalar& end, const at::Scalar& step, at::Tensor& out) {
  if (!is_offered(out)) {
    return AtenKernel<at::_ops::arange_start_out>::call(start, end, step, out);
  }
  fit(out, [&](at::Tensor& meta) { at::_ops::arange_start_out::call(start, end, step, meta); });
  write_shaped(out, {start, step, end, false}, "aten::arange.start_out");
  return out;
}

at::Tensor& linspace_out(const at::Scalar& start, const at::Scalar& end, int64_t steps, at::Tensor& out) {
  if (!is_offered(out)) {
    return AtenKernel<at::_ops::linspace_out>::call(start, end, steps, out);
  }
  c10::Scalar first = start, last = steps > 1 ? end : start;
  if (steps > 0 && c10::isIntegralType(out.scalar_type(), /*includeBool=*/false)) {
    AT_DISPATCH_INTEGRAL_TYPES(out.scalar_type(), "linspace", [&] { // raises if they do not fit, wraps unsigned ones
      first = static_cast<int64_t>(first.to<scalar_t>());
      last = static_cast<int64_t>(last.to<scalar_t>());
    });
  } else if (c10::isFloatingType(out.scalar_type()) && steps > 1) {
    check_fits(first, out.scalar_type());
    check_fits(last, out.scalar_type());
  }
  fit(out, [&](at::Tensor& meta) { at::_ops::linspace_out::call(start, end, steps, meta); });
  const double step = steps > 1 ? (last.toDouble() - first.toDouble()) / static_cast<double>(steps - 1) : 0;
  write_shaped(out, {first, step, last, true}, "aten::linspace.out");
  return out;
}

at::Tensor& eye_out(c10::SymInt n, c10::SymInt m, at::Tensor& out) {
  if (device_api().host_access()) {
    return AtenKernel<at::_ops::eye_m_out>::call(std::move(n), std::move(m), out);
  }
  const auto rows = n.guard_int(__FILE__, __LINE__), columns = m.guard_int(__FILE__, __LINE__);
  TORCH_CHECK(rows >= 0, "n must be greater or equal to 0, got ", rows);
  TORCH_CHECK(columns >= 0, "m must be greater or equal to 0, got ", columns);
  out.resize_({rows, columns}).zero_();
  out.diagonal().fill_(1);
  return out;
}

at::Tensor& square_eye_out(c10::SymInt n, at::Tensor& out) {
  return eye_out(n, n, out);
}

} // namespace

void add(Registrar& m) {
  m.impl("arange.start_out", TORCH_FN(arange_out), Source::kGenerated);
  m.impl("linspace.out", TORCH_FN(linspace_out), Source::kGenerated);
  m.impl("eye.out", TORCH_FN(square_eye_out), Source::kGenerated);
  m.impl("eye.m_out", TORCH_FN(eye_out), Source::kGenerated);
}

} // namespace torch_backend::compiled::ranges
