// Rows of tensors that are read several times: sums over each, then every element of it.
#pragma once

#include <cstdint>

#include <c10/util/ArrayRef.h>

#include "csrc/ops/compiled/engine/View.h"
#include "torch_backend/device.h"

namespace torch_backend::compiled {

/// Text of codegen/kernels/skeletons/rows.c. Inputs are x0, x1, ...; sums a[0], ..., b[0], ...; TB_SCALAR(0) a number. Of
/// static storage.
struct RowEntry {
  const char* name;   // in the function's
  int sums_a;         // 0: the maximum of x0
  const char* term_a; // "S(0) += x0;"
  const char* derive_a;
  int sums_b;
  const char* term_b;
  const char* derive_b;
  const char* map;            // "out = x0 - a[0];"
  const char* row_results[2]; // what outputs 1 and 2 get, if there are any
  /// In term_b STASH(e) keeps a value for the element, which map has as STASHED(e); e is computed again where the output
  /// cannot hold it.
  bool stashes;
};

/// outputs[0] gets every element, the others one for each row; inputs without an address are `absent`, of static
/// storage, everywhere. As
/// reduce(), but that rows must be such that their elements are side by side, and not too long: else
/// TB_STATUS_UNSUPPORTED.
tb_status run_rows(const tb_kernel_context& context, const RowEntry& entry, c10::ArrayRef<View> outputs,
                   c10::ArrayRef<View> inputs, c10::ArrayRef<const char*> absent, uint64_t dims, ValueType compute,
                   double number = 0);

} // namespace torch_backend::compiled
