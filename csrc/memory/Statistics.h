// What the allocator counts. The meaning of every number is that of torch.cuda.memory_stats.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>

#include <c10/core/CachingDeviceAllocator.h>

namespace torch_backend {

/// A quantity that goes up and down. `freed` follows from the others, which keeps the way down short.
struct Counter {
  void increase(int64_t amount) {
    current += amount;
    allocated += amount;
    peak = current > peak ? current : peak;
  }
  void decrease(int64_t amount) {
    current -= amount;
  }
  int64_t freed() const {
    return base + allocated - current;
  }
  void reset_accumulated() {
    allocated = 0;
    base = current;
  }
  void reset_peak() {
    peak = current;
  }

  int64_t current = 0;
  int64_t peak = 0;
  int64_t allocated = 0; // since the last reset
  int64_t base = 0;      // `current` at the last reset
};

enum class Metric : uint8_t {
  kAllocations,
  kAllocatedBytes,
  kRequestedBytes,
  kActive, // allocated, or freed and waiting for a stream
  kActiveBytes,
  kInactiveSplit, // free parts of segments that are in use elsewhere
  kInactiveSplitBytes,
  kSegments,
  kReservedBytes,
  kCount
};

/// Statistics of one device. Guarded by the allocator's mutex.
class Statistics {
 public:
  void increase(Metric metric, bool small, std::size_t amount) {
    at(kAll, metric).increase(static_cast<int64_t>(amount));
    at(small ? kSmall : kLarge, metric).increase(static_cast<int64_t>(amount));
  }
  void decrease(Metric metric, bool small, std::size_t amount) {
    at(kAll, metric).decrease(static_cast<int64_t>(amount));
    at(small ? kSmall : kLarge, metric).decrease(static_cast<int64_t>(amount));
  }
  /// By `amount`, which may be negative: only the sum of what happened at once counts as allocated or freed.
  void change(Metric metric, bool small, int64_t amount) {
    if (amount >= 0) {
      increase(metric, small, static_cast<std::size_t>(amount));
    } else {
      decrease(metric, small, static_cast<std::size_t>(-amount));
    }
  }
  int64_t current(Metric metric) const {
    return counters_[kAll][static_cast<std::size_t>(metric)].current;
  }
  void increase_pool_reserved(c10::MempoolId_t pool, bool small, std::size_t amount);
  void decrease_pool_reserved(c10::MempoolId_t pool, bool small, std::size_t amount);
  /// Bytes reserved by all private pools together.
  int64_t private_pools_reserved() const;

  void reset_accumulated();
  void reset_peak();

  Counter oversize_allocations;
  Counter oversize_segments;
  int64_t num_alloc_retries = 0;
  int64_t num_ooms = 0;
  int64_t num_sync_all_streams = 0;
  int64_t num_device_alloc = 0;
  int64_t num_device_free = 0;

  c10::CachingDeviceAllocator::DeviceStats to_device_stats(std::size_t max_split_size) const;

 private:
  enum Kind : uint8_t { kAll, kSmall, kLarge, kKinds }; // in the order of c10's StatType
  using Counters = std::array<Counter, static_cast<std::size_t>(Metric::kCount)>;
  using PoolCounters = std::array<Counter, kKinds>;

  Counter& at(Kind kind, Metric metric) {
    return counters_[kind][static_cast<std::size_t>(metric)];
  }
  template <typename Visit>
  void for_each(Visit visit);

  std::array<Counters, kKinds> counters_{};
  std::map<c10::MempoolId_t, PoolCounters> reserved_by_pool_;
};

/// Statistics as c10 and Python read them: nested or flat, with the names of torch.cuda.memory_stats.
c10::CachingAllocator::Stat to_stat(const Counter& counter);

} // namespace torch_backend
