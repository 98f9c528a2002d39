// Elements of a mask that are not zero, in order.
#pragma once

#include <cstdint>

#include "csrc/ops/compiled/engine/View.h"
#include "torch_backend/device.h"

namespace torch_backend::compiled {

/// Work on one mask: how many of its elements are not zero before each of them. Use the functions in their order.
class Compaction {
 public:
  /// `mask` is contiguous, of any dtype; `op` is of static storage. Enqueues the count; throws NoWorkspace.
  Compaction(const tb_kernel_context& context, const char* op, const View& mask);

  /// How many. Waits for the stream.
  int64_t count();

  /// out[i * stride_row + d * stride_dim] = coordinate d, in `shape`, of the i-th one; int64. Those from `limit` on are left
  /// out.
  void write_places(char* out, int64_t stride_row, int64_t stride_dim, int ndim, const int64_t* shape, int64_t limit);
  /// out[i] = elements[place of the i-th one], both contiguous.
  void select(char* out, const char* elements, int element_bytes);
  /// elements[place of the i-th one] = source[i]; too small a `source_count` is an error of the device.
  void scatter(char* elements, const char* source, int element_bytes, int64_t source_count);

 private:
  void run(const char* action, const char* first, const char* second, int element_bytes, const int64_t* numbers);

  const tb_kernel_context& context_;
  const char* op_;
  const View mask_;
  int64_t chunk_; // elements of each
  int64_t chunks_;
  char* counts_; // before each chunk, and in all
};

} // namespace torch_backend::compiled
