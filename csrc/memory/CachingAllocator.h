// The stream-aware caching allocator of one device.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Device.h>

#include "csrc/core/DeviceApi.h"
#include "csrc/memory/AllocatorState.h"
#include "csrc/memory/Block.h"
#include "csrc/memory/BlockCache.h"
#include "csrc/memory/Loans.h"
#include "csrc/memory/MemoryPool.h"
#include "csrc/memory/PendingUses.h"
#include "csrc/memory/PoolCheckpoint.h"
#include "csrc/memory/Recorder.h"
#include "csrc/memory/Segments.h"

namespace torch_backend {

/// Called before an out-of-memory error is raised: device, bytes asked, the device's total, and its free bytes.
using OutOfMemoryObserver =
    std::function<void(int64_t device, std::size_t requested, std::size_t total, std::size_t free)>;

/// Note [Caching allocator]
/// Memory comes from the plugin in segments, which are cut into blocks and kept when blocks are freed. Free blocks
/// belong to the stream they were allocated on: work enqueued there later runs after the work that used them, so they
/// are reused at once and without waiting. A block that another stream has used as well (record_stream) is pending
/// until events on those streams are complete. On a synchronous device nothing is ever in flight, and all streams share
/// their memory.
///
/// Layers, each of which knows those before it: Recorder (history), BlockCache (blocks, and which are free), Segments
/// (to and from the plugin), Loans (to other processes), PendingUses (of other streams).
///
/// Threads: every function may be called from any thread. One mutex guards everything that changes in any layer, except
/// what says otherwise. No plugin slot, no context callback, no pool filter and no observer is called while it is held:
/// a slot may block for long, or need a lock (Python's, for one) that the thread waiting for the mutex holds. So
/// functions that call the plugin drop the mutex, and look again at what they knew after they took it back.
class CachingAllocator {
 public:
  /// Initializes the plugin. `api` outlives the allocator.
  CachingAllocator(DeviceApi& api, c10::DeviceIndex device);
  /// Gives everything back. No block may be in use.
  ~CachingAllocator();
  CachingAllocator(const CachingAllocator&) = delete;
  CachingAllocator& operator=(const CachingAllocator&) = delete;

  c10::DeviceIndex device() const {
    return state_.device;
  }

  /// Whether allocate looks at the stream.
  bool tells_streams_apart() const noexcept {
    return state_.async || state_.attention.load(std::memory_order_relaxed) != 0;
  }
  /// Memory that work enqueued on `stream` may use from now on. Throws torch.OutOfMemoryError, with what is known about
  /// the device's memory, and torch.AcceleratorError if the device is lost. Pre: size > 0.
  void* allocate(std::size_t size, const StreamRef& stream);
  /// Take back what allocate returned. False, and no change, if it is no allocation of this device. Never throws: what
  /// the plugin then fails to do keeps the memory out of circulation.
  bool free(void* ptr) noexcept;
  /// The memory is not reused before what is enqueued on `stream` at the time of its free is complete. False if `ptr`
  /// is no allocation of this device.
  bool record_stream(void* ptr, const StreamRef& stream);

  /// Give cached segments back to the plugin: those of the default pool and of private pools nobody holds, or those of
  /// one private pool. Waits for the streams that used them.
  void empty_cache(c10::MempoolId_t pool = {0, 0});
  /// The same, or nothing while a graph is being captured.
  void empty_cache_unless_capturing();
  /// Not while the plugin captures a graph, which a wait for the device would fail.
  bool can_empty_cache() {
    const Lock lock(state_.mutex);
    return !blocks_.pools.capturing();
  }

  /// Whether `ptr` points into memory of this allocator that is in use; the base and size of that allocation.
  bool owns(const void* ptr, void** out_base, std::size_t* out_size) const;

  // ---- other processes; see Note [Lending memory to other processes] ----

  /// How another process finds memory that allocate returned: the handle of its segment, and where it lies in that.
  /// From now on, once it is freed, it is not reused while the loan book says that it is lent. Throws if `ptr` is no
  /// allocation of this device, and what the plugin reports.
  void export_memory(void* ptr, tb_ipc_handle* out_segment, uint64_t* out_offset) {
    loans_.export_memory(ptr, out_segment, out_offset);
  }
  /// Reuse memory that was freed while it was lent, and has come back. Also done before the plugin is asked for more.
  void collect_lent() {
    loans_.collect();
  }

  // ---- limits and numbers ----

  /// Bytes free on the device and in total: what the driver says, else total_memory_bytes less what is held here. Throws
  /// if the device says neither.
  std::pair<std::size_t, std::size_t> memory_info();
  /// Never hold more than this part, 0 to 1, of the device's total memory. 1 lifts the limit.
  void set_memory_fraction(double fraction) {
    segments_.set_memory_fraction(fraction);
  }
  double memory_fraction() const {
    const Lock lock(state_.mutex);
    return segments_.memory_fraction();
  }
  c10::CachingDeviceAllocator::DeviceStats statistics();
  void reset_accumulated_statistics() {
    const Lock lock(state_.mutex);
    blocks_.merge_loose();
    state_.stats.reset_accumulated();
  }
  void reset_peak_statistics() {
    const Lock lock(state_.mutex);
    blocks_.merge_loose();
    state_.stats.reset_peak();
  }
  void add_out_of_memory_observer(OutOfMemoryObserver observer) {
    const Lock lock(state_.mutex);
    observers_.push_back(std::move(observer));
  }

  // ---- private pools ----

  /// Makes the pool if there is none with this id. Each call needs a release_pool.
  void retain_pool(c10::MempoolId_t pool) {
    const Lock lock(state_.mutex);
    blocks_.pools.retain(pool);
  }
  /// When the last holder is gone the pool's cached segments go with the next empty_cache, and the rest as it is freed.
  void release_pool(c10::MempoolId_t pool) {
    const Lock lock(state_.mutex);
    blocks_.pools.release(pool);
  }
  int pool_use_count(c10::MempoolId_t pool) const {
    const Lock lock(state_.mutex);
    return blocks_.pools.use_count(pool);
  }
  /// From now on allocations that `filter` accepts come from the pool, until end_allocate_to_pool. Retains the pool.
  /// The latest route that accepts wins. `capturing`: see PoolRoute.
  void begin_allocate_to_pool(c10::MempoolId_t pool, PoolRoute::Filter filter, bool capturing);
  void end_allocate_to_pool(c10::MempoolId_t pool) {
    const Lock lock(state_.mutex);
    blocks_.pools.end_route(pool);
  }

  /// See Note [Graphs that share a pool]. Memory that was freed, and that other streams may still use, is in no
  /// checkpoint.
  PoolCheckpoint checkpoint_pool(c10::MempoolId_t pool) const;
  /// From now on what `checkpoint` has is allocated, and nothing else of its pool: DataPtrs of memory that is not must
  /// have lost their deleters. Waits for the streams that use memory of theirs which was freed. Throws if the pool has
  /// given such memory back, or other processes use it.
  void restore_pool(const PoolCheckpoint& checkpoint);

  // ---- history ----

  void record_history(const HistoryOptions& options) {
    recorder_.configure(options);
  }
  bool history_enabled() const {
    return recorder_.enabled();
  }
  /// All segments, or those of one private pool.
  AllocatorSnapshot snapshot(std::optional<c10::MempoolId_t> pool, bool include_trace) {
    const Lock lock(state_.mutex);
    blocks_.merge_loose();
    return recorder_.snapshot(segments_.all(), pool, include_trace);
  }

 private:
  struct Totals {
    std::size_t allocated;
    std::size_t reserved;
  };

  bool refuses_work() const noexcept {
    return state_.api.in_bad_fork() || state_.api.is_lost(state_.device);
  }
  [[noreturn]] void refuse();
  void prepare(Request& request, const StreamRef& stream);
  Block* allocate_from_plugin(const Request& request, Lock& lock);
  Block* recover(const Request& request, Refusal& refusal, Lock& lock);
  [[noreturn]] void throw_out_of_memory(const Request& request, const Refusal& refusal, Lock& lock);
  void retire(Block* block, Lock& lock) noexcept;
  Totals totals() const;
  void report_to_profiler(void* ptr, int64_t change, const Totals& totals) const;

  AllocatorState state_;
  Recorder recorder_;
  BlockCache blocks_;
  Segments segments_;
  Loans loans_;
  PendingUses pending_;
  std::vector<OutOfMemoryObserver> observers_;
};

} // namespace torch_backend
