#include "csrc/core/FailedWait.h"

#include <atomic>
#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

#include "csrc/core/AsyncError.h"
#include "csrc/core/DeviceApi.h"
#include "csrc/core/HeldMemory.h"

namespace torch_backend {
namespace {

constexpr int kAttempts = 2;

template <typename Wait>
bool succeeds(const DeviceApi& api, int device, Wait wait) noexcept {
  std::exception_ptr reported;
  const auto attempt = [&] {
    wait();
    if (reported) {
      record_async_error(device, reported);
    }
    return true;
  };
  return is_over(api, device, attempt, &reported);
}

struct Kept {
  int device;
  tb_stream* stream;
  std::shared_ptr<void> memory;
};

class KeptMemory {
 public:
  void add(Kept entry) {
    const std::lock_guard<std::mutex> lock(mutex_);
    entries_.push_back(std::move(entry));
    any_.store(true, std::memory_order_release);
  }
  std::vector<Kept> take() {
    if (!any_.load(std::memory_order_acquire)) {
      return {};
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    any_.store(false, std::memory_order_relaxed);
    return std::exchange(entries_, {});
  }

 private:
  std::atomic<bool> any_{false};
  std::mutex mutex_; // guards entries_
  std::vector<Kept> entries_;
};

KeptMemory& kept() {
  static auto* instance = new KeptMemory; // never destroyed: what is in it may still be used
  return *instance;
}

} // namespace

bool is_over(const DeviceApi& api, int device, c10::function_ref<bool()> query,
             std::exception_ptr* out_reported) noexcept {
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    try {
      return query();
    } catch (...) {
      *out_reported = *out_reported ? *out_reported : std::current_exception();
    }
    if (api.is_lost(device)) {
      return true;
    }
  }
  return false;
}

bool wait_until_over(DeviceApi& api, int device, tb_stream* stream) noexcept {
  return succeeds(api, device, [&] { api.stream_synchronize(device, stream); });
}

bool wait_until_over(DeviceApi& api, int device, tb_event* event) noexcept {
  return succeeds(api, device, [&] { api.event_synchronize(device, event); });
}

void release_when_over(DeviceApi& api, int device, tb_stream* stream, std::shared_ptr<void> memory) {
  if (!wait_until_over(api, device, stream)) {
    kept().add({device, stream, std::move(memory)});
  }
}

void read_memory(DeviceApi& api, int device, void* dst, const void* src, std::size_t size, tb_stream* stream) {
  const std::shared_ptr<char[]> staging(new char[size]);
  try {
    api.memory_copy(-1, staging.get(), device, src, size, TB_COPY_DEVICE_TO_HOST, stream);
    api.stream_synchronize(device, stream);
  } catch (...) {
    release_when_over(api, device, stream, staging);
    throw;
  }
  std::memcpy(dst, staging.get(), size);
}

void retry_releases(DeviceApi& api) {
  release_passed(api);
  for (auto& [device, stream, memory] : kept().take()) {
    release_when_over(api, device, stream, std::move(memory));
  }
}

} // namespace torch_backend
