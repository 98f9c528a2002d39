// What a call is, as far as the ranks have to agree, and how errors name it.
#pragma once

#include <cstdint>
#include <string>

#include "torch_backend/device.h"

namespace xcpu::ccl {

enum class operation : uint32_t {
  point_to_point,
  all_reduce,
  reduce,
  broadcast,
  all_gather,
  reduce_scatter,
  all_to_all,
};

constexpr int32_t kNoReduction = -1, kNoRoot = -1;

// Lies in shared memory as it is.
struct signature {
  operation what;
  tb_dtype dtype;
  int32_t reduction; // TB_REDUCE_* or kNoReduction
  int32_t root;      // or kNoRoot
  uint64_t count;    // elements: the call's, and those of the message where they differ from rank to rank
};

bool same(const signature& a, const signature& b);

// Which side of a point-to-point message makes the call.
enum class side { sends, receives };

// "recv of 12 elements of float32"
std::string describe(const signature& call, side which);

// "float32"
std::string dtype_name(tb_dtype dtype);

} // namespace xcpu::ccl
