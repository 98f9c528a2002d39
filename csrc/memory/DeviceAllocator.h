// PyTorch's allocator of the active device type: one CachingAllocator per device.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include <c10/core/CachingDeviceAllocator.h>

#include "csrc/core/DeviceApi.h"
#include "csrc/core/Stream.h"
#include "csrc/memory/CachingAllocator.h"

namespace torch_backend {

/// A device's allocator exists from its first use on and until the process ends. Functions that name a device throw for
/// an index out of range. All may be called from any thread, and none holds a lock while it calls the plugin.
class DeviceAllocator final : public c10::DeviceAllocator {
 public:
  // ---- c10::Allocator ----

  /// On the calling thread's current device, for its current stream there. The context of the DataPtr is the pointer
  /// itself, and its deleter finds the owner by that: the DataPtr may be relabelled with another device.
  c10::DataPtr allocate(std::size_t size) override;
  c10::DeleterFnPtr raw_deleter() const override;
  /// Enqueued on the current stream of the destination's device.
  void copy_data(void* dest, const void* src, std::size_t count) const override;

  // ---- c10::DeviceAllocator ----

  bool initialized() override;
  /// Of all devices.
  void emptyCache(c10::MempoolId_t pool = {0, 0}) override;
  /// No-op for memory that is not from here.
  void recordStream(const c10::DataPtr& ptr, c10::Stream stream) override;
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override;
  void resetAccumulatedStats(c10::DeviceIndex device) override;
  void resetPeakStats(c10::DeviceIndex device) override;
  /// Free and total bytes.
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override;

  // ---- ours ----

  c10::DataPtr allocate_on(std::size_t size, c10::DeviceIndex device, const Stream& stream);
  /// As allocate, for the host to use from now on, out of the stream's order. See Note [Memory for the host].
  c10::DataPtr allocate_for_host(std::size_t size);
  /// Takes back memory by its address alone. Never throws.
  void free(void* ptr) noexcept;
  void empty_cache(c10::DeviceIndex device, c10::MempoolId_t pool = {0, 0});
  bool can_empty_cache(c10::DeviceIndex device);
  /// Of every device on which no graph is being captured.
  void empty_cache_unless_capturing();
  /// Whether `ptr` points into memory in use that came from here; on which device, and where that allocation lies.
  bool owns(const void* ptr, c10::DeviceIndex* out_device, void** out_base, std::size_t* out_size) const;
  /// The device whose memory `ptr` points into, be it from here or, as far as the plugin tells, from elsewhere.
  std::optional<c10::DeviceIndex> device_of(const void* ptr) const;
  /// Whether `data` is an allocation of ours as allocate returned it, whatever device it is labelled with. Cheap.
  bool is_own(const c10::DataPtr& data) const;

  /// See CachingAllocator.
  void export_memory(void* ptr, c10::DeviceIndex device, tb_ipc_handle* out_segment, uint64_t* out_offset);
  /// Of all devices.
  void collect_lent();

  void set_memory_fraction(double fraction, c10::DeviceIndex device);
  double memory_fraction(c10::DeviceIndex device);
  void add_out_of_memory_observer(OutOfMemoryObserver observer);

  /// Private pools; see CachingAllocator.
  void retain_pool(c10::DeviceIndex device, c10::MempoolId_t pool);
  void release_pool(c10::DeviceIndex device, c10::MempoolId_t pool);
  int pool_use_count(c10::DeviceIndex device, c10::MempoolId_t pool);
  void begin_allocate_to_pool(c10::DeviceIndex device, c10::MempoolId_t pool, std::function<bool(c10::Stream)> filter,
                              bool capturing);
  /// Everything the calling thread allocates on the device.
  void begin_allocate_current_thread_to_pool(c10::DeviceIndex device, c10::MempoolId_t pool);
  void end_allocate_to_pool(c10::DeviceIndex device, c10::MempoolId_t pool);
  PoolCheckpoint checkpoint_pool(c10::DeviceIndex device, c10::MempoolId_t pool);
  void restore_pool(c10::DeviceIndex device, const PoolCheckpoint& checkpoint);

  /// On all devices, those not used yet included.
  void record_history(const HistoryOptions& options);
  bool history_enabled() const;
  /// One entry per device of the plugin; empty for devices that were never used.
  std::vector<AllocatorSnapshot> snapshot(std::optional<c10::MempoolId_t> pool = std::nullopt,
                                          bool include_trace = true) const;

 private:
  CachingAllocator& of(c10::DeviceIndex device) {
    auto* allocator = peek(device);
    return C10_LIKELY(allocator != nullptr) ? *allocator : create(device);
  }
  /// NULL if the device was never used.
  CachingAllocator* peek(c10::DeviceIndex device) const {
    return allocators_[static_cast<std::size_t>(device)].load(std::memory_order_acquire);
  }
  CachingAllocator& create(c10::DeviceIndex device);
  template <typename Visit>
  void for_each(Visit visit) const;

  std::array<std::atomic<CachingAllocator*>, kMaxDevices> allocators_{};
  std::atomic<CachingAllocator*> only_{nullptr}; // while one device is in use, which is so in most processes
  mutable std::mutex mutex_;                     // guards the creation of allocators and what follows
  int num_allocators_ = 0;
  HistoryOptions history_;
  std::vector<OutOfMemoryObserver> observers_;
};

/// Lives until the process ends.
DeviceAllocator& device_allocator();

/// Make it PyTorch's allocator of PrivateUse1.
void register_device_allocator();

} // namespace torch_backend
