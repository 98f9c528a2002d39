// Which memory of a private pool is in use at a moment, to come back to.
#pragma once

#include <cstddef>
#include <vector>

#include <c10/core/Allocator.h>

namespace torch_backend {

/// Note [Graphs that share a pool]
/// A graph's memory is in use while it is captured, and free for the next capture once its tensors are gone. When a graph
/// is replayed its results come to be where they were captured, although nobody has allocated them. Before another graph
/// is captured after such a replay, the pool is set to what was in use when the replayed one had been captured: the new
/// one then gets no memory of results that live. What CUDA's allocator calls a checkpoint.
struct PoolCheckpoint {
  struct Use {
    void* ptr;
    std::size_t size;      // of the block
    std::size_t requested; // of the allocation
  };

  c10::MempoolId_t pool;
  std::vector<Use> uses;
};

} // namespace torch_backend
