#include "csrc/memory/HostAllocator.h"

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <vector>

#include <c10/util/Exception.h>
#include <torch/headeronly/version.h>

#include "csrc/core/AsyncError.h"
#include "csrc/core/Capture.h"
#include "csrc/core/Event.h"
#include "csrc/core/FailedWait.h"
#include "csrc/core/Runtime.h"
#include "csrc/core/Status.h"

namespace torch_backend {
namespace {

constexpr std::size_t kPage = 4096;

/// What is behind a pinned block.
struct HostMemory {
  std::size_t size = 0;
  c10::DeviceIndex device = 0; // that was asked for it
  bool from_plugin = false;    // else from the C library
};

/// All pinned memory by address.
class HostRegistry {
 public:
  void add(void* base, const HostMemory& memory) {
    const std::unique_lock lock(mutex_);
    entries_[base] = memory;
  }
  HostMemory remove(void* base) {
    const std::unique_lock lock(mutex_);
    const auto found = entries_.find(base);
    const auto memory = found->second;
    entries_.erase(found);
    return memory;
  }
  /// The start of the memory `ptr` points into, NULL if it is not pinned.
  void* base_of(const void* ptr) const {
    const std::shared_lock lock(mutex_);
    auto entry = entries_.upper_bound(const_cast<void*>(ptr));
    if (entry == entries_.begin()) {
      return nullptr;
    }
    --entry;
    const auto offset = static_cast<std::size_t>(static_cast<const char*>(ptr) - static_cast<char*>(entry->first));
    return offset < entry->second.size ? entry->first : nullptr;
  }

 private:
  mutable std::shared_mutex mutex_; // guards entries_
  std::map<void*, HostMemory> entries_;
};

HostRegistry& registry() {
  static auto* instance = new HostRegistry;
  return *instance;
}

int64_t microseconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - start).count();
}

/// The base class calls free_block with its locks held; the plugin must not be called then, so blocks are only
/// collected there and go back to the plugin when the base class is done.
class HostAllocatorImpl final : public at::CachingHostAllocatorImpl<Stream, Event> {
  using Base = at::CachingHostAllocatorImpl<Stream, Event>;
  using HostBlock = at::HostBlock<Stream>;

 public:
  void free(void* context) override {
    Base::free(context);
    give_back_collected();
  }

  void empty_cache() override {
    Base::empty_cache();
    give_back_collected();
  }

  void copy_data(void* dest, const void* src, std::size_t count) const override {
    std::memcpy(dest, src, count);
  }

 private:
  void allocate_host_memory(std::size_t size, void** ptr) override {
    const auto start = std::chrono::steady_clock::now();
    HostMemory memory{size, current_device(), true};
    auto& api = device_api();
    auto status = api.memory_allocate(memory.device, TB_MEMORY_HOST, size, nullptr, ptr);
    if (status == TB_STATUS_OUT_OF_MEMORY) {
      empty_cache();
      status = api.memory_allocate(memory.device, TB_MEMORY_HOST, size, nullptr, ptr);
    }
    if (status == TB_STATUS_UNSUPPORTED) {
      take_error_text();
      memory.from_plugin = false;
      *ptr = std::aligned_alloc(kPage, (size + kPage - 1) / kPage * kPage);
      status = *ptr ? TB_STATUS_OK : TB_STATUS_OUT_OF_MEMORY;
    }
    TORCH_CHECK_WITH(OutOfMemoryError, status == TB_STATUS_OK, "Out of pinned host memory of ", api.name(), ":",
                     static_cast<int>(memory.device), ": tried to allocate ", c10::CachingAllocator::format_size(size),
                     ". ", take_error_text());
    registry().add(*ptr, memory);
    const std::lock_guard<std::mutex> lock(stats_.timing_mutex_);
    stats_.host_alloc_time.increase(microseconds_since(start));
  }

  void free_block(HostBlock* block) override {
    const std::lock_guard<std::mutex> lock(collected_mutex_);
    collected_.push_back(block->ptr_);
    any_collected_.store(true, std::memory_order_relaxed);
  }

  void give_back_collected() {
    if (!any_collected_.load(std::memory_order_relaxed)) {
      return;
    }
    std::vector<void*> blocks;
    {
      const std::lock_guard<std::mutex> lock(collected_mutex_);
      blocks.swap(collected_);
      any_collected_.store(false, std::memory_order_relaxed);
    }
    for (void* block : blocks) {
      const auto start = std::chrono::steady_clock::now();
      const auto memory = registry().remove(block);
      if (memory.from_plugin) {
        device_api().memory_free(memory.device, TB_MEMORY_HOST, block, memory.size, nullptr);
      } else {
        std::free(block); // the unqualified name is the member, which would deadlock
      }
      const std::lock_guard<std::mutex> lock(stats_.timing_mutex_);
      stats_.host_free_time.increase(microseconds_since(start));
    }
  }

  /// Called from destructors, so it must not throw. An event that is missing keeps the block from being reused; one that
  /// was never recorded is complete.
  void record_stream(std::optional<std::vector<Event>>& events, Stream stream) override {
    Event event(/*enable_timing=*/false);
    try {
      event.record(stream);
      events->push_back(std::move(event));
    } catch (const c10::Error& error) {
      if (wait_until_over(device_api(), stream.device_index(), stream.handle())) {
        events->emplace_back(/*enable_timing=*/false);
        return;
      }
      TORCH_WARN("Pinned memory will not be reused, because no event could be recorded on a stream that used it: ",
                 error.what_without_backtrace());
    }
  }

  bool query_event(Event& event) override {
    auto& api = device_api();
    std::exception_ptr reported;
    const bool over = is_over(api, event.device_index(), [&] { return event.query(); }, &reported);
    if (reported && !api.is_lost(event.device_index())) {
      record_async_error(event.device_index(), reported);
    }
    return over;
  }

  Stream get_current_stream() const override {
    return current_stream();
  }

  bool stream_is_capturing(Stream stream) const override {
    return graph::is_capturing(stream);
  }

#if TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR == 13
  // With a threshold, this version may hand out a block that is too small.
  std::size_t pinned_max_round_threshold() const override {
    return std::numeric_limits<std::size_t>::max();
  }
#endif

  std::mutex collected_mutex_; // guards collected_
  std::vector<void*> collected_;
  std::atomic<bool> any_collected_{false};
};

void free_host_memory(void* context);
using CachingHostAllocator = at::CachingHostAllocatorInterface<HostAllocatorImpl, &free_host_memory>;

CachingHostAllocator& instance() {
  static auto* allocator = new CachingHostAllocator;
  return *allocator;
}

void free_host_memory(void* context) {
  instance().free(context);
}

} // namespace

at::HostAllocator& host_allocator() {
  return instance();
}

void register_host_allocator() {
  at::setHostAllocator(c10::DeviceType::PrivateUse1, &host_allocator());
}

bool is_pinned_ptr(const void* ptr) {
  if (registry().base_of(ptr)) {
    return true;
  }
  auto* plugin = active_plugin();
  if (!ptr || !plugin || !plugin->api().initialized() || plugin->api().in_bad_fork()) {
    return false;
  }
  tb_pointer_info info{};
  info.struct_size = sizeof(info);
  return plugin->api().memory_query(ptr, &info) == TB_STATUS_OK && info.kind == TB_MEMORY_HOST;
}

bool record_pinned_use(const void* ptr, const Stream& stream) {
  void* base = registry().base_of(ptr);
  return base && host_allocator().record_event(base, nullptr, stream.unwrap());
}

bool record_pinned_use(const c10::DataPtr& data, const Stream& stream) {
  if (data.get_deleter() == &free_host_memory) {
    return host_allocator().record_event(data.get(), data.get_context(), stream.unwrap());
  }
  return record_pinned_use(data.get(), stream);
}

} // namespace torch_backend
