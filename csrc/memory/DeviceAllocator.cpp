#include "csrc/memory/DeviceAllocator.h"

#include <memory>
#include <thread>

#include <c10/util/Exception.h>

#include "csrc/core/FailedWait.h"
#include "csrc/core/Runtime.h"

namespace torch_backend {
namespace {

c10::Device device_at(c10::DeviceIndex index) {
  return {c10::DeviceType::PrivateUse1, index};
}

void free_device_memory(void* ptr) {
  device_allocator().free(ptr);
}

/// Of a stream as its own device's allocator sees it. The default stream, the usual one, has id 0 and no handle.
StreamRef ref(const Stream& stream) {
  return {stream.id(), stream.id() == 0 ? nullptr : stream.handle(), -1};
}

} // namespace

// ---- c10::Allocator ----

c10::DataPtr DeviceAllocator::allocate(std::size_t size) {
  const auto device = current_device();
  void* ptr = nullptr;
  if (C10_LIKELY(size != 0)) {
    auto& allocator = of(device);
    ptr = allocator.allocate(size, allocator.tells_streams_apart() ? ref(current_stream()) : StreamRef{});
  }
  return {ptr, ptr, &free_device_memory, device_at(device)};
}

c10::DataPtr DeviceAllocator::allocate_on(std::size_t size, c10::DeviceIndex device, const Stream& stream) {
  const auto index = resolve_device(device);
  TORCH_CHECK_VALUE(stream.device_index() == index, "Memory of ", device_at(index), " was asked for ", stream.unwrap(),
                    ", which is a stream of another device.");
  void* const ptr = size == 0 ? nullptr : of(index).allocate(size, ref(stream));
  return {ptr, ptr, &free_device_memory, device_at(index)};
}

/// Note [Memory for the host]
/// Free memory may still be used by work of its stream, enqueued before it was freed, by any thread and at any time. Work
/// of the stream comes after that; the host does not, be it that it has waited for the stream before. So it waits after
/// the memory is taken: from then on nobody else has it.
c10::DataPtr DeviceAllocator::allocate_for_host(std::size_t size) {
  c10::DataPtr data = allocate(size);
  if (data && device_api().async()) {
    current_stream().synchronize();
  }
  return data;
}

c10::DeleterFnPtr DeviceAllocator::raw_deleter() const {
  return &free_device_memory;
}

void DeviceAllocator::free(void* ptr) noexcept {
  if (!ptr) {
    return;
  }
  // Threads mostly free memory of the device they work on.
  auto* likely = only_.load(std::memory_order_acquire);
  likely = likely ? likely : peek(current_device());
  if (C10_LIKELY(likely && likely->free(ptr))) {
    return;
  }
  for (const auto& slot : allocators_) {
    auto* allocator = slot.load(std::memory_order_acquire);
    if (allocator && allocator != likely && allocator->free(ptr)) {
      return;
    }
  }
  TORCH_WARN("Device memory at ", ptr, " was freed, but it is not in use: it was freed twice, or is not from here.");
}

void DeviceAllocator::copy_data(void* dest, const void* src, std::size_t count) const {
  if (count == 0) {
    return;
  }
  auto& api = device_api();
  auto to = current_device();
  auto from = to;
  void* base = nullptr;
  std::size_t size = 0;
  owns(dest, &to, &base, &size);
  owns(src, &from, &base, &size);
  if (to == from) {
    api.memory_copy(to, dest, from, src, count, TB_COPY_DEVICE_TO_DEVICE, current_stream(to).handle());
    return;
  }
  // Between devices: rare (a clone under another current device), so simple.
  const std::shared_ptr<char[]> staging(new char[count]);
  const auto source = current_stream(from);
  const auto target = current_stream(to);
  try {
    api.memory_copy(-1, staging.get(), from, src, count, TB_COPY_DEVICE_TO_HOST, source.handle());
    source.synchronize();
    api.memory_copy(to, dest, -1, staging.get(), count, TB_COPY_HOST_TO_DEVICE, target.handle());
    target.synchronize();
  } catch (...) {
    release_when_over(api, from, source.handle(), staging);
    release_when_over(api, to, target.handle(), staging);
    throw;
  }
}

// ---- c10::DeviceAllocator ----

bool DeviceAllocator::initialized() {
  auto* plugin = active_plugin();
  return plugin && plugin->api().initialized();
}

void DeviceAllocator::emptyCache(c10::MempoolId_t pool) {
  retry_releases(device_api());
  for_each([&](CachingAllocator& allocator) { allocator.empty_cache(pool); });
}

void DeviceAllocator::recordStream(const c10::DataPtr& ptr, c10::Stream stream) {
  if (!ptr.get()) {
    return;
  }
  const Stream used_by(stream);
  bool found = false;
  for_each([&](CachingAllocator& allocator) {
    auto reference = ref(used_by);
    reference.device = allocator.device() == used_by.device_index() ? c10::DeviceIndex{-1} : used_by.device_index();
    found = found || allocator.record_stream(ptr.get(), reference);
  });
}

c10::CachingDeviceAllocator::DeviceStats DeviceAllocator::getDeviceStats(c10::DeviceIndex device) {
  auto* allocator = peek(resolve_device(device));
  return allocator ? allocator->statistics() : c10::CachingDeviceAllocator::DeviceStats{};
}

void DeviceAllocator::resetAccumulatedStats(c10::DeviceIndex device) {
  if (auto* allocator = peek(resolve_device(device))) {
    allocator->reset_accumulated_statistics();
  }
}

void DeviceAllocator::resetPeakStats(c10::DeviceIndex device) {
  if (auto* allocator = peek(resolve_device(device))) {
    allocator->reset_peak_statistics();
  }
}

std::pair<size_t, size_t> DeviceAllocator::getMemoryInfo(c10::DeviceIndex device) {
  return of(resolve_device(device)).memory_info();
}

// ---- ours ----

CachingAllocator& DeviceAllocator::create(c10::DeviceIndex device) {
  // The constructor starts the driver, so no lock is held; of two threads that come here, one keeps its allocator.
  auto fresh = std::make_unique<CachingAllocator>(device_api(), device);
  const std::lock_guard<std::mutex> lock(mutex_);
  auto& slot = allocators_[static_cast<std::size_t>(device)];
  if (!slot.load(std::memory_order_relaxed)) {
    if (history_.enabled) {
      fresh->record_history(history_);
    }
    for (const auto& observer : observers_) {
      fresh->add_out_of_memory_observer(observer);
    }
    ++num_allocators_;
    only_.store(num_allocators_ == 1 ? fresh.get() : nullptr, std::memory_order_release);
    slot.store(fresh.release(), std::memory_order_release);
  }
  return *slot.load(std::memory_order_relaxed);
}

template <typename Visit>
void DeviceAllocator::for_each(Visit visit) const {
  for (const auto& slot : allocators_) {
    if (auto* allocator = slot.load(std::memory_order_acquire)) {
      visit(*allocator);
    }
  }
}

void DeviceAllocator::empty_cache(c10::DeviceIndex device, c10::MempoolId_t pool) {
  retry_releases(device_api());
  if (auto* allocator = peek(resolve_device(device))) {
    allocator->empty_cache(pool);
  }
}

void DeviceAllocator::empty_cache_unless_capturing() {
  retry_releases(device_api());
  for_each([](CachingAllocator& allocator) { allocator.empty_cache_unless_capturing(); });
}

bool DeviceAllocator::can_empty_cache(c10::DeviceIndex device) {
  auto* allocator = peek(resolve_device(device));
  return !allocator || allocator->can_empty_cache();
}

bool DeviceAllocator::owns(const void* ptr, c10::DeviceIndex* out_device, void** out_base,
                           std::size_t* out_size) const {
  bool found = false;
  for_each([&](CachingAllocator& allocator) {
    if (!found && allocator.owns(ptr, out_base, out_size)) {
      *out_device = allocator.device();
      found = true;
    }
  });
  return found;
}

std::optional<c10::DeviceIndex> DeviceAllocator::device_of(const void* ptr) const {
  c10::DeviceIndex device = 0;
  void* base = nullptr;
  std::size_t size = 0;
  if (owns(ptr, &device, &base, &size)) {
    return device;
  }
  tb_pointer_info info{};
  const bool is_known = device_api().memory_query(ptr, &info) == TB_STATUS_OK && info.device >= 0 &&
                        (info.kind == TB_MEMORY_DEVICE || info.kind == TB_MEMORY_SHARED);
  return is_known ? std::optional(static_cast<c10::DeviceIndex>(info.device)) : std::nullopt;
}

bool DeviceAllocator::is_own(const c10::DataPtr& data) const {
  return data.get_deleter() == &free_device_memory;
}

void DeviceAllocator::export_memory(void* ptr, c10::DeviceIndex device, tb_ipc_handle* out_segment,
                                    uint64_t* out_offset) {
  of(resolve_device(device)).export_memory(ptr, out_segment, out_offset);
}

void DeviceAllocator::collect_lent() {
  for_each([](CachingAllocator& allocator) { allocator.collect_lent(); });
}

void DeviceAllocator::set_memory_fraction(double fraction, c10::DeviceIndex device) {
  of(resolve_device(device)).set_memory_fraction(fraction);
}

double DeviceAllocator::memory_fraction(c10::DeviceIndex device) {
  auto* allocator = peek(resolve_device(device));
  return allocator ? allocator->memory_fraction() : 1.0;
}

void DeviceAllocator::add_out_of_memory_observer(OutOfMemoryObserver observer) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for_each([&](CachingAllocator& allocator) { allocator.add_out_of_memory_observer(observer); });
  observers_.push_back(std::move(observer));
}

void DeviceAllocator::retain_pool(c10::DeviceIndex device, c10::MempoolId_t pool) {
  of(resolve_device(device)).retain_pool(pool);
}

void DeviceAllocator::release_pool(c10::DeviceIndex device, c10::MempoolId_t pool) {
  of(resolve_device(device)).release_pool(pool);
}

int DeviceAllocator::pool_use_count(c10::DeviceIndex device, c10::MempoolId_t pool) {
  return of(resolve_device(device)).pool_use_count(pool);
}

void DeviceAllocator::begin_allocate_to_pool(c10::DeviceIndex device, c10::MempoolId_t pool,
                                             std::function<bool(c10::Stream)> filter, bool capturing) {
  const auto index = resolve_device(device);
  of(index).begin_allocate_to_pool(
      pool,
      [filter = std::move(filter), index](const StreamRef& stream) {
        return filter(c10::Stream(c10::Stream::UNSAFE, device_at(index), stream.id));
      },
      capturing);
}

void DeviceAllocator::begin_allocate_current_thread_to_pool(c10::DeviceIndex device, c10::MempoolId_t pool) {
  const auto thread = std::this_thread::get_id();
  of(resolve_device(device))
      .begin_allocate_to_pool(
          pool, [thread](const StreamRef&) { return std::this_thread::get_id() == thread; }, /*capturing=*/false);
}

void DeviceAllocator::end_allocate_to_pool(c10::DeviceIndex device, c10::MempoolId_t pool) {
  of(resolve_device(device)).end_allocate_to_pool(pool);
}

PoolCheckpoint DeviceAllocator::checkpoint_pool(c10::DeviceIndex device, c10::MempoolId_t pool) {
  return of(resolve_device(device)).checkpoint_pool(pool);
}

void DeviceAllocator::restore_pool(c10::DeviceIndex device, const PoolCheckpoint& checkpoint) {
  of(resolve_device(device)).restore_pool(checkpoint);
}

void DeviceAllocator::record_history(const HistoryOptions& options) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for_each([&](CachingAllocator& allocator) { allocator.record_history(options); });
  history_ = options;
}

bool DeviceAllocator::history_enabled() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return history_.enabled;
}

std::vector<AllocatorSnapshot> DeviceAllocator::snapshot(std::optional<c10::MempoolId_t> pool,
                                                         bool include_trace) const {
  std::vector<AllocatorSnapshot> result(static_cast<std::size_t>(device_count()));
  for_each([&](CachingAllocator& allocator) {
    result.at(static_cast<std::size_t>(allocator.device())) = allocator.snapshot(pool, include_trace);
  });
  return result;
}

DeviceAllocator& device_allocator() {
  static auto* instance = new DeviceAllocator;
  return *instance;
}

void register_device_allocator() {
  c10::SetAllocator(c10::DeviceType::PrivateUse1, &device_allocator());
}

} // namespace torch_backend
