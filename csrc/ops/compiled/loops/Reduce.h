// Reductions of tensors of any layout over any of their dimensions.
#pragma once

#include <cstdint>
#include <string_view>

#include <c10/util/ArrayRef.h>

#include "csrc/ops/compiled/engine/KernelText.h"
#include "csrc/ops/compiled/engine/Modules.h"
#include "csrc/ops/compiled/engine/View.h"
#include "torch_backend/device.h"

namespace torch_backend::compiled {

/// The table's entry of that name, which must exist.
const ReductionEntry& reduction(std::string_view name);

/// One result for each place of the dimensions that are not in `dims`, a bit for each. Inputs have one shape; an output has
/// as many dimensions, those that are reduced of any size and stride. TB_STATUS_UNSUPPORTED, with nothing done: dtypes or
/// layouts that there is no kernel for. Throws what the plugin answers.
tb_status reduce(const tb_kernel_context& context, const ReductionEntry& entry, c10::ArrayRef<View> outputs,
                 c10::ArrayRef<View> inputs, uint64_t dims, ValueType compute, c10::ArrayRef<double> numbers = {});

/// HIGHEST, LOWEST and LAST_INDEX, which the entries' texts use.
void define_limits(const Specialization& facts, SourceText& text);

/// `view`, in which the reduced dimensions are left out, with them: of size 1.
View with_reduced(View view, int64_t num_dims, uint64_t dims);

/// With the sizes of `like`: elements repeat along the dimensions in `dims`.
View repeated_over(const View& view, const View& like, uint64_t dims);

/// The sizes of `view`, those of `dims` 1.
Dims sizes_without(const View& view, uint64_t dims);

/// All dimensions of a tensor.
inline uint64_t all_dims(int64_t num_dims) {
  return num_dims >= 64 ? ~uint64_t{0} : (uint64_t{1} << num_dims) - 1;
}

} // namespace torch_backend::compiled
