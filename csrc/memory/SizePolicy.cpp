#include "csrc/memory/SizePolicy.h"

#include <algorithm>
#include <bit>

#include <c10/core/AllocatorConfig.h>
#include <c10/util/Exception.h>

namespace torch_backend {
namespace {

constexpr std::size_t kLargestRequest = std::size_t{1} << 62;

using Config = c10::CachingAllocator::AcceleratorAllocatorConfig;

void warn_of_unsupported_settings() {
  if (Config::use_expandable_segments()) {
    TORCH_WARN_ONCE(
        "PYTORCH_ALLOC_CONF asks for expandable_segments, which this device does not offer: it has no "
        "TB_CAP_VIRTUAL_MEMORY. Memory is allocated in segments of fixed size. To limit fragmentation, set "
        "max_split_size_mb instead.");
  }
}

} // namespace

SizePolicy::SizePolicy(std::size_t granularity, std::size_t max_allocation, std::size_t commit_granularity)
    : granularity_(std::max<std::size_t>(granularity, FreeList::kGrain)),
      commit_granularity_(commit_granularity),
      largest_(max_allocation == 0 ? kLargestRequest : max_allocation & ~(granularity_ - 1)),
      power2_divisions_(Config::roundup_power2_divisions()) {
  if (commit_granularity_ == 0) {
    warn_of_unsupported_settings();
  }
}

std::size_t SizePolicy::divided_block_size(std::size_t size) const {
  const std::size_t divisions = Config::roundup_power2_divisions(size);
  if (divisions > 1 && size > FreeList::kGrain * divisions) {
    const std::size_t step = std::bit_floor(size) / divisions;
    size = step <= FreeList::kGrain ? size : (size + step - 1) / step * step;
  }
  return std::min(round_up(size, FreeList::kGrain), largest_);
}

bool SizePolicy::fits_unsplit_limits(std::size_t size, std::size_t block_size) const {
  const std::size_t limit = max_split_size();
  if (block_size < limit) {
    return true;
  }
  return size >= limit && block_size - size < Config::max_non_split_rounding_size();
}

std::size_t SizePolicy::segment_size(std::size_t size) const {
  const std::size_t large = Config::large_segment_size();
  const std::size_t segment = size <= kSmallSize ? kSmallSegment
                              : size < large / 2 ? large
                                                 : round_up(size, kSegmentRounding);
  return std::min(round_up(segment, granularity_), largest_);
}

std::size_t SizePolicy::least_segment_size(std::size_t size) const {
  return round_up(size, granularity_);
}

bool SizePolicy::uses_expandable_segments() const {
  return commit_granularity_ != 0 && Config::use_expandable_segments();
}

std::size_t SizePolicy::page_size(bool small) const {
  return round_up(small ? kSmallSegment : Config::large_segment_size(), commit_granularity_);
}

std::size_t SizePolicy::max_split_size() const {
  return Config::max_split_size();
}

double SizePolicy::garbage_collection_threshold() const {
  return Config::garbage_collection_threshold();
}

std::string allocator_settings() {
  return Config::last_allocator_settings();
}

} // namespace torch_backend
