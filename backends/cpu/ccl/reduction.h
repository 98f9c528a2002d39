// The arithmetic of collectives.
#pragma once

#include <cstdint>

#include "torch_backend/device.h"

namespace xcpu::ccl {

// out[i] = sources[0][i] op sources[1][i] op ..., in this order and rounded once, for `count` numbers.
using reduce_function = void (*)(const void* const* sources, int num_sources, void* out, uint64_t count);

struct reduction {
  reduce_function function; // null: there is none
  uint64_t number_bytes;    // of what it takes for one number: a complex one is two
};

// TB_REDUCE_* of elements of `dtype`. Halves are computed with as floats, and averages of integers are cut off. Of
// bools sum and max are "or", product and min "and". NaN is the smallest and the largest. There is none of float8, and
// no product of complex numbers: the core builds what is missing.
reduction find_reduction(tb_dtype dtype, int32_t which);

} // namespace xcpu::ccl
