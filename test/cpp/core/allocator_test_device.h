// A device for allocator tests: addresses without memory behind them, and events that complete when the test says so.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "csrc/core/DeviceApi.h"
#include "csrc/memory/CachingAllocator.h"

namespace torch_backend::test {

constexpr std::size_t kKiB = 1024;
constexpr std::size_t kMiB = 1024 * kKiB;
constexpr std::size_t kGiB = 1024 * kMiB;

struct DeviceOptions {
  bool async = true;
  uint64_t extra_capabilities = TB_CAP_EVENT_RERECORD;
  uint64_t memory_bytes = 8 * kGiB;
  uint64_t granularity_bytes = 0;
  uint64_t max_allocation_bytes = 0;
  bool says_total = true; // in its properties
  bool has_memory_info = true;
  uint64_t commit_granularity_bytes = 0; // TB_CAP_VIRTUAL_MEMORY unless 0
};

struct TestEvent {
  int64_t stream = 0;
  bool complete = true;
};

/// The state behind the table. Slots have no context argument, so there is one at a time. Its mutex guards all fields.
struct TestDevice {
  explicit TestDevice(const DeviceOptions& options);
  ~TestDevice();
  static TestDevice& get();

  tb_core_table table() const;

  /// What was enqueued on the stream so far is done.
  void complete(int64_t stream);
  void complete_all();
  /// Work was enqueued: memory of this stream must not be freed before it was waited for.
  void enqueue_work(int64_t stream);

  std::size_t live_bytes();
  /// Plugin allocations, reservations and commits.
  std::size_t num_live_segments();
  /// Whether one allocation, or commits that touch, have all of it.
  bool has_memory(uintptr_t address, std::size_t size);

  /// Called at the start of every slot. Counts it, and fails the call number `fail_at` with `fail_with`.
  tb_status enter(const char* slot);

  DeviceOptions options;
  std::recursive_mutex mutex;
  std::map<uintptr_t, uint64_t> live;       // segments
  std::map<uintptr_t, uint64_t> sizes_ever; // no address is used twice
  std::map<uintptr_t, uint64_t> reservations;
  std::map<uintptr_t, uint64_t> commits;
  uintptr_t next_address = uintptr_t{1} << 40;
  std::map<tb_event*, std::unique_ptr<TestEvent>> events;
  std::map<int64_t, bool> busy; // streams with work that was not waited for
  int num_event_creates = 0;
  int num_allocates = 0;
  int num_frees = 0;
  int num_reserves = 0;
  int num_commits = 0;
  int num_decommits = 0;
  int num_exports = 0;
  int frees_of_busy_streams = 0;
  int64_t num_calls = 0;
  int64_t fail_at = -1;
  tb_status fail_with = TB_STATUS_INTERNAL;
  bool failed = false;
  bool lost = false;
  int calls_after_lost = 0;
  /// Called without the mutex, at the start of the named slot.
  std::function<void(const std::string& slot)> on_slot;
  std::map<uintptr_t, int64_t> stream_of_segment; // as told to memory_allocate
};

inline StreamRef stream(int64_t id) {
  return {id, reinterpret_cast<tb_stream*>(id), -1};
}

/// An allocator on a fresh device. `restart` replaces both.
class AllocatorTest : public ::testing::Test {
 protected:
  AllocatorTest() {
    restart({});
  }
  ~AllocatorTest() override;

  void restart(const DeviceOptions& options);
  /// Set PyTorch's allocator settings until the test ends.
  void configure(const std::string& settings);

  void* allocate(std::size_t size, int64_t on = 0) {
    return allocator->allocate(size, stream(on));
  }
  c10::CachingDeviceAllocator::DeviceStats stats() const {
    return allocator->statistics();
  }
  int64_t allocated_bytes() const {
    return stats().allocated_bytes[0].current;
  }
  int64_t reserved_bytes() const {
    return stats().reserved_bytes[0].current;
  }

  std::unique_ptr<TestDevice> device;
  std::unique_ptr<DeviceApi> api;
  std::unique_ptr<CachingAllocator> allocator;

 private:
  bool configured_ = false;
};

/// What the blocks and the numbers of an allocator must always agree on. For statistics that were never reset.
void expect_consistent(CachingAllocator& allocator);

} // namespace torch_backend::test
