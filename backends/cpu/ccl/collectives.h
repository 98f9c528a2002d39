// How a collective is made of messages between pairs of ranks, for one rank.
#pragma once

#include <cstdint>

#include "plan.h"
#include "reduction.h"
#include "signature.h"

namespace xcpu::ccl {

// `in` and `out` may be the same memory; of all_gather and reduce_scatter also where one is the rank's part of the other.
struct buffers {
  const void* in;
  void* out;
  uint64_t element_bytes;
};

void plan_all_reduce(plan& p, const signature& call, const buffers& b, const reduction& with);
void plan_reduce(plan& p, const signature& call, const buffers& b, const reduction& with);
void plan_broadcast(plan& p, const signature& call, const buffers& b);
void plan_all_gather(plan& p, const signature& call, const buffers& b);
void plan_reduce_scatter(plan& p, const signature& call, const buffers& b, const reduction& with);

// Counts and offsets in elements, one for each rank.
void plan_all_to_all(plan& p, const signature& call, const buffers& b, const uint64_t* send_counts,
                     const uint64_t* send_offsets, const uint64_t* recv_counts, const uint64_t* recv_offsets);

} // namespace xcpu::ccl
