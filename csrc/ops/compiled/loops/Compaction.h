// Elements of a tensor that are not zero, in order.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>

#include "csrc/ops/compiled/engine/View.h"
#include "torch_backend/device.h"

namespace torch_backend::compiled {

/// Work on the elements that are chosen. Use the functions in their order.
class Compaction {
 public:
  /// `elements` are contiguous, of any dtype; `op` is of static storage, and so is `chosen`, a condition as in the skeleton.
  /// Enqueues the count; throws NoWorkspace.
  Compaction(const tb_kernel_context& context, const char* op, const View& elements, const char* chosen = nullptr);

  /// How many. Waits for the stream.
  int64_t count();

  /// out[i * stride_row + d * stride_dim] = coordinate d, in `shape`, of the i-th one; int64.
  void write_places(char* out, int64_t stride_row, int64_t stride_dim, int ndim, const int64_t* shape);
  /// out[i] = elements[place of the i-th one], both contiguous.
  void select(char* out, const char* elements, int element_bytes);
  /// elements[place of the i-th one] = source[i]; too small a `source_count` is an error of the device.
  void scatter(char* elements, const char* source, int element_bytes, int64_t source_count);
  /// out[i] = elements[order[place of the i-th one]], where `order` are 32-bit numbers. Unless NULL, starts[i] is that place,
  /// and inverse[order[place]] how many are chosen before and at a place, less one; int64.
  void unique(char* out, const char* elements, int element_bytes, const char* order, char* inverse, char* starts);

 private:
  struct Action {
    const char* name;
    int element_bytes = 8;
    std::array<int64_t, 2> numbers = {};
    c10::ArrayRef<int64_t> shape = {};
  };
  void run(const Action& action, std::initializer_list<const void*> pointers);

  const tb_kernel_context& context_;
  const char* op_;
  const View elements_;
  const char* chosen_;
  int64_t chunk_; // elements of each
  int64_t chunks_;
  char* counts_; // of each
  char* bits_;   // of each element
};

} // namespace torch_backend::compiled
