// Kernels that compute each element of the output from those at its place.
#pragma once

#include <ATen/core/Tensor.h>

#include <c10/util/ArrayRef.h>

#include "csrc/core/Stream.h"
#include "csrc/ops/compiled/engine/KernelText.h"
#include "csrc/ops/compiled/engine/Modules.h"
#include "csrc/ops/compiled/engine/View.h"
#include "torch_backend/device.h"

namespace torch_backend::compiled::pointwise {

/// dst[...] = src[...] for tensors of one device and shape with any strides and dtypes, enqueued on `stream`; conj and neg
/// bits are taken into account. False, with nothing done: no modules, or dtypes that they do not take.
bool copy_elements(const at::Tensor& dst, const at::Tensor& src, const Stream& stream);

/// dst[...] = src[...] of one shape; dtypes may differ. False, with nothing done, where no kernel takes them.
bool copy_views(const tb_kernel_context& context, const View& dst, const View& src);

/// Launch `entry`, of static storage, whose arguments are first tensors and then numbers. All views have one shape; an
/// input without an address is None. False, with nothing done: dtypes or layouts that there is no kernel for.
bool compute_elements(const tb_kernel_context& context, const PointwiseEntry& entry, c10::ArrayRef<View> outputs,
                      c10::ArrayRef<View> inputs, c10::ArrayRef<double> numbers, ValueType compute);

/// Defines `void apply(entry.parameters)`, which computes an element where PyTorch computes in `value`.
void write_apply(SourceText& text, const PointwiseEntry& entry, ValueType value);

} // namespace torch_backend::compiled::pointwise
