#include "csrc/memory/Statistics.h"

#include <algorithm>
#include <limits>

namespace torch_backend {
namespace {

using c10::CachingDeviceAllocator::DeviceStats;

// Fields that came later than the oldest PyTorch we support.
template <typename Stats, typename Pools>
void set_pool_stats(Stats& stats, const Pools& pools) {
  if constexpr (requires { stats.reserved_bytes_by_private_pools; }) {
    for (const auto& [id, counters] : pools) {
      auto& array = stats.reserved_bytes_by_private_pools[id];
      std::transform(counters.begin(), counters.end(), array.begin(), to_stat);
    }
  }
}

} // namespace

c10::CachingAllocator::Stat to_stat(const Counter& counter) {
  c10::CachingAllocator::Stat stat;
  stat.current = counter.current;
  stat.peak = counter.peak;
  stat.allocated = counter.allocated;
  stat.freed = counter.freed();
  return stat;
}

template <typename Visit>
void Statistics::for_each(Visit visit) {
  for (auto& counters : counters_) {
    std::for_each(counters.begin(), counters.end(), visit);
  }
  for (auto& [id, counters] : reserved_by_pool_) {
    std::for_each(counters.begin(), counters.end(), visit);
  }
  visit(oversize_allocations);
  visit(oversize_segments);
}

void Statistics::increase_pool_reserved(c10::MempoolId_t pool, bool small, std::size_t amount) {
  auto& counters = reserved_by_pool_[pool];
  counters[kAll].increase(static_cast<int64_t>(amount));
  counters[small ? kSmall : kLarge].increase(static_cast<int64_t>(amount));
}

void Statistics::decrease_pool_reserved(c10::MempoolId_t pool, bool small, std::size_t amount) {
  auto& counters = reserved_by_pool_[pool];
  counters[kAll].decrease(static_cast<int64_t>(amount));
  counters[small ? kSmall : kLarge].decrease(static_cast<int64_t>(amount));
}

int64_t Statistics::private_pools_reserved() const {
  int64_t total = 0;
  for (const auto& [id, counters] : reserved_by_pool_) {
    total += counters[kAll].current;
  }
  return total;
}

void Statistics::reset_accumulated() {
  for_each([](Counter& counter) { counter.reset_accumulated(); });
  num_alloc_retries = num_ooms = num_sync_all_streams = num_device_alloc = num_device_free = 0;
}

void Statistics::reset_peak() {
  for_each([](Counter& counter) { counter.reset_peak(); });
}

DeviceStats Statistics::to_device_stats(std::size_t max_split_size) const {
  DeviceStats stats;
  const auto fill = [this](c10::CachingAllocator::StatArray& array, Metric metric) {
    for (std::size_t kind = 0; kind < kKinds; ++kind) {
      array[kind] = to_stat(counters_[kind][static_cast<std::size_t>(metric)]);
    }
  };
  fill(stats.allocation, Metric::kAllocations);
  fill(stats.allocated_bytes, Metric::kAllocatedBytes);
  fill(stats.requested_bytes, Metric::kRequestedBytes);
  fill(stats.active, Metric::kActive);
  fill(stats.active_bytes, Metric::kActiveBytes);
  fill(stats.inactive_split, Metric::kInactiveSplit);
  fill(stats.inactive_split_bytes, Metric::kInactiveSplitBytes);
  fill(stats.segment, Metric::kSegments);
  fill(stats.reserved_bytes, Metric::kReservedBytes);
  set_pool_stats(stats, reserved_by_pool_);
  stats.oversize_allocations = to_stat(oversize_allocations);
  stats.oversize_segments = to_stat(oversize_segments);
  stats.num_alloc_retries = num_alloc_retries;
  stats.num_ooms = num_ooms;
  stats.num_sync_all_streams = num_sync_all_streams;
  stats.num_device_alloc = num_device_alloc;
  stats.num_device_free = num_device_free;
  // What torch.cuda reports for "no limit".
  constexpr auto kUnlimited = static_cast<std::size_t>(std::numeric_limits<int64_t>::max());
  stats.max_split_size = max_split_size > kUnlimited ? -1 : static_cast<int64_t>(max_split_size);
  return stats;
}

} // namespace torch_backend
