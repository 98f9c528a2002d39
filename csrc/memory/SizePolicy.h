// How sizes are rounded, when blocks are split, how large segments are: PYTORCH_ALLOC_CONF.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "csrc/memory/FreeList.h"

namespace torch_backend {

/// Requests up to this size come from the small pool, whose segments are kSmallSegment.
constexpr std::size_t kSmallSize = std::size_t{1} << 20;
constexpr std::size_t kSmallSegment = std::size_t{2} << 20;
constexpr std::size_t kSegmentRounding = std::size_t{2} << 20;

/// Reads c10's AcceleratorAllocatorConfig at each decision, so that settings changed at run time take effect. Keys it
/// honours: max_split_size_mb, max_non_split_rounding_mb, roundup_power2_divisions, garbage_collection_threshold,
/// large_segment_size_mb, expandable_segments. What the device cannot do is warned about once.
class SizePolicy {
 public:
  /// `granularity`: what plugin requests are rounded up to; a power of two, or 0. `max_allocation`: what one of them may
  /// be at most; 0 if it may be anything. `commit_granularity`: of memory behind reserved addresses; 0 if the device has
  /// none.
  SizePolicy(std::size_t granularity, std::size_t max_allocation, std::size_t commit_granularity);

  /// What cannot be had in one piece is larger. Adding and rounding sizes up to it cannot overflow.
  std::size_t largest_request() const {
    return largest_;
  }

  /// Size of the block for a request of `size` > 0, here and below at most largest_request().
  std::size_t block_size(std::size_t size) const {
    // c10 has an entry for each power of two; the first is for all sizes below 2 MiB too.
    if (__builtin_expect(power2_divisions_.empty() || (power2_divisions_.front() <= 1 && size <= kSmallSize), 1)) {
      return round_up(size, FreeList::kGrain);
    }
    return divided_block_size(size);
  }

  /// Whether a block that is `remaining` larger than a block of `size` is cut in two.
  /// `any`: however small, in the small pool and in expandable segments.
  bool should_split(std::size_t size, std::size_t remaining, bool any) const {
    return any ? remaining >= FreeList::kGrain : remaining > kSmallSize && size < max_split_size();
  }

  /// Whether a free large block of `block_size` may serve `size`: oversize blocks are neither cut nor wasted.
  bool fits_unsplit_limits(std::size_t size, std::size_t block_size) const;

  /// Size of the segment to ask the plugin for; and the least that would do.
  std::size_t segment_size(std::size_t size) const;
  std::size_t least_segment_size(std::size_t size) const;
  bool can_do_with_less(std::size_t size) const {
    return uses_expandable_segments() || least_segment_size(size) < segment_size(size);
  }

  /// Whether segments are expandable from now on; and the pieces in which they get memory.
  bool uses_expandable_segments() const;
  std::size_t page_size(bool small) const;

  std::size_t max_split_size() const;
  double garbage_collection_threshold() const;

 private:
  static std::size_t round_up(std::size_t size, std::size_t multiple) {
    return (size + multiple - 1) & ~(multiple - 1);
  }
  std::size_t divided_block_size(std::size_t size) const;

  std::size_t granularity_;
  std::size_t commit_granularity_;
  std::size_t largest_;                              // a multiple of it
  const std::vector<std::size_t>& power2_divisions_; // c10's, which lives until the process ends
};

/// The settings as a string, "" if this PyTorch does not tell.
std::string allocator_settings();

} // namespace torch_backend
