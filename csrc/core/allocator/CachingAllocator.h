// The stream-aware caching allocator of one device.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Device.h>

#include "csrc/core/DeviceApi.h"
#include "csrc/core/allocator/Block.h"
#include "csrc/core/allocator/BlockTable.h"
#include "csrc/core/allocator/EventPool.h"
#include "csrc/core/allocator/MemoryPool.h"
#include "csrc/core/allocator/SizePolicy.h"
#include "csrc/core/allocator/Snapshot.h"
#include "csrc/core/allocator/SpinMutex.h"
#include "csrc/core/allocator/Statistics.h"
#include "csrc/core/allocator/Trace.h"

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
/// Threads: every function may be called from any thread. mutex_ guards everything that changes, except what says
/// otherwise. No plugin slot, no context callback, no pool filter and no observer is called while it is held: a slot
/// may block for long, or need a lock (Python's, for one) that the thread waiting for mutex_ holds. So functions that
/// call the plugin drop the mutex, and look again at what they knew after they took it back.
class CachingAllocator {
 public:
  /// Initializes the plugin. `api` outlives the allocator.
  CachingAllocator(DeviceApi& api, c10::DeviceIndex device);
  /// Gives everything back. No block may be in use.
  ~CachingAllocator();
  CachingAllocator(const CachingAllocator&) = delete;
  CachingAllocator& operator=(const CachingAllocator&) = delete;

  c10::DeviceIndex device() const {
    return device_;
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
  /// Not while the plugin captures a graph, which a wait for the device would fail.
  bool can_empty_cache();

  /// Whether `ptr` points into memory of this allocator that is in use; the base and size of that allocation.
  bool owns(const void* ptr, void** out_base, std::size_t* out_size) const;

  // ---- other processes; see Note [Lending memory to other processes] ----

  /// How another process finds memory that allocate returned: the handle of its segment, and where it lies in that.
  /// From now on, once it is freed, it is not reused while the loan book says that it is lent. Throws if `ptr` is no
  /// allocation of this device, and what the plugin reports.
  void export_memory(void* ptr, tb_ipc_handle* out_segment, uint64_t* out_offset);
  /// Reuse memory that was freed while it was lent, and has come back. Also done before the plugin is asked for more.
  void collect_lent();

  // ---- limits and numbers ----

  /// Bytes free on the device and in total: what the driver says, else total_memory_bytes less what is held here.
  std::pair<std::size_t, std::size_t> memory_info();
  /// Never hold more than this part, 0 to 1, of the device's total memory. 1 lifts the limit.
  void set_memory_fraction(double fraction);
  double memory_fraction() const;
  c10::CachingDeviceAllocator::DeviceStats statistics() const;
  void reset_accumulated_statistics();
  void reset_peak_statistics();
  void add_out_of_memory_observer(OutOfMemoryObserver observer);

  // ---- private pools ----

  /// Makes the pool if there is none with this id. Each call needs a release_pool.
  void retain_pool(c10::MempoolId_t pool);
  /// When the last holder is gone the pool's cached segments go with the next empty_cache, and the rest as it is freed.
  void release_pool(c10::MempoolId_t pool);
  int pool_use_count(c10::MempoolId_t pool) const;
  /// From now on allocations that `filter` accepts come from the pool, until end_allocate_to_pool. Retains the pool.
  /// The latest route that accepts wins. `capturing`: see PoolRoute.
  void begin_allocate_to_pool(c10::MempoolId_t pool, PoolRoute::Filter filter, bool capturing);
  void end_allocate_to_pool(c10::MempoolId_t pool);

  // ---- history ----

  void record_history(const HistoryOptions& options);
  bool history_enabled() const {
    return attention_.load(std::memory_order_relaxed) & kHistory;
  }
  /// All segments, or those of one private pool.
  AllocatorSnapshot snapshot(std::optional<c10::MempoolId_t> pool, bool include_trace);

 private:
  using Lock = std::unique_lock<SpinMutex>;

  /// What allocate and free rarely have to look at; bits of attention_.
  enum Attention : uint32_t { kHistory = 1, kPendingEvents = 2, kRoutes = 4 };

  struct Request {
    std::size_t requested;
    std::size_t size; // of the block
    StreamRef stream;
    bool small;
    c10::MempoolId_t pool{0, 0};
    ContextPtr context;
  };
  struct PendingUse {
    RecordedEvent event;
    Block* block;
    bool failed = false; // to be waited for or queried, at least once
  };
  struct UseQueue {
    StreamRef stream;
    std::deque<PendingUse> uses; // oldest first
  };
  struct DeferredFree {
    Block* block;
    std::vector<StreamRef> uses;
  };
  struct Totals {
    std::size_t allocated;
    std::size_t reserved;
  };
  /// Why a request for a segment was not met.
  struct Refusal {
    bool limit_hit = false;
    std::string plugin_text;
  };
  using Routes = std::vector<PoolRoute>;

  // CachingAllocator.cpp: the way to a hit, and back.
  bool refuses_work() const noexcept {
    return api_.in_bad_fork() || api_.is_lost(device_);
  }
  [[noreturn]] void refuse();
  void prepare(Request& request, const StreamRef& stream);
  BlockPool& pool_for(const Request& request);
  Block* take(BlockPool& pool, std::size_t size);
  void hand_out(Block* block, Request& request);
  void split(Block* block, std::size_t size);
  void make_free(Block* block);
  Block* merge_with_free_neighbours(Block* block);
  Totals totals() const;
  void report_to_profiler(void* ptr, int64_t change, const Totals& totals) const;
  void trace(TraceAction action, const void* ptr, std::size_t size, const BlockPool& pool, ContextPtr context);
  ContextPtr gather_context(RecordContext at_least) const;

  // Pending.cpp: blocks other streams have used.
  void retire(Block* block, const std::vector<StreamRef>& uses);
  void record_use(Block* block, const StreamRef& stream) noexcept;
  void retire_deferred();
  /// Frees the blocks whose events are complete; waits for all events if `wait`. Throws what the plugin reports.
  void process_events(bool wait);
  bool is_complete(PendingUse& use, bool wait, std::exception_ptr* out_error) noexcept;
  void finish_use(Block* block);
  void set_attention(Attention bit, bool on);

  // Segments.cpp: to and from the plugin.
  Block* allocate_from_plugin(Request& request, Lock& lock);
  Block* recover(Request& request, Refusal& refusal, Lock& lock);
  Block* request_segment(Request& request, std::size_t segment_size, Refusal& refusal, Lock& lock);
  Block* add_segment(void* base, std::size_t size, BlockPool& pool, ContextPtr context);
  void reattach_segment(Segment segment);
  /// Every free block that is a whole segment, of the pools `select` accepts.
  std::vector<Segment> detach_cached(const std::function<bool(const MemoryPool&)>& select);
  std::vector<Segment> detach(const std::vector<Block*>& blocks);
  std::vector<Segment> detach_oversize(const Request& request);
  void collect_garbage(Lock& lock);
  void release_cached(Lock& lock);
  /// Not under the mutex. Throws what the plugin reports.
  void free_segments(std::vector<Segment> segments);
  std::exception_ptr wait_for_streams(std::vector<Segment>& segments, std::vector<Segment>* out_kept);
  void erase_pool_if_unused(c10::MempoolId_t pool);
  [[noreturn]] void throw_out_of_memory(const Request& request, const Refusal& refusal, Lock& lock);
  std::size_t total_memory();

  DeviceApi& api_;
  const c10::DeviceIndex device_;
  const bool async_;
  const bool stream_ordered_; // TB_CAP_STREAM_ALLOC
  const SizePolicy policy_;
  EventPool events_; // has its own lock

  /// Set under mutex_; read without it, where being a moment late does no harm.
  std::atomic<uint32_t> attention_{0};

  mutable SpinMutex mutex_;
  std::condition_variable_any segments_freed_; // when releasing_ becomes 0
  BlockArena arena_;
  BlockTable table_; // of all blocks, free or not
  std::map<const void*, Segment> segments_;
  MemoryPool default_pool_{{0, 0}};
  std::map<c10::MempoolId_t, std::unique_ptr<MemoryPool>> private_pools_;
  std::shared_ptr<const Routes> routes_; // replaced, never changed: filters are called without the mutex
  int captures_ = 0;                     // routes that capture
  Statistics stats_;
  std::size_t requesting_bytes_ = 0; // segments the plugin is being asked for
  int releasing_ = 0;                // calls that give segments back just now
  std::optional<std::size_t> limit_;
  double fraction_ = 1.0;
  std::vector<OutOfMemoryObserver> observers_;

  std::vector<UseQueue> queues_;       // one per stream that used another stream's memory
  std::size_t num_pending_ = 0;        // blocks of queues_ and deferred_, counted once per event
  int num_looked_at_ = 0;              // entries some thread has taken from queues_ to query them
  std::vector<Block*> lent_;           // freed, and lent to other processes when last looked at
  std::vector<DeferredFree> deferred_; // freed during a capture, when no event may be recorded

  TraceRing ring_;
  std::atomic<CreateContextFn> create_context_{nullptr};
  std::atomic<RecordContext> record_context_{RecordContext::kNever};
};

} // namespace torch_backend
