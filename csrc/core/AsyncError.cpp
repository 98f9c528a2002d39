#include "csrc/core/AsyncError.h"

#include <array>
#include <atomic>
#include <mutex>
#include <utility>

#include "csrc/core/DeviceApi.h"

namespace torch_backend {
namespace {

struct Slot {
  std::atomic<bool> pending{false}; // so that a wait without errors takes no lock
  std::mutex mutex;                 // guards error
  std::exception_ptr error;
};

Slot& slot(int device) {
  static auto* slots = new std::array<Slot, kMaxDevices>;
  return (*slots)[static_cast<std::size_t>(device)];
}

std::atomic<void (*)()> record_known{nullptr};

} // namespace

void ask_for_async_errors(void (*record)()) noexcept {
  record_known.store(record, std::memory_order_release);
}

void record_known_async_errors() noexcept {
  if (const auto record = record_known.load(std::memory_order_acquire)) {
    const WithoutInterpreterLock unlocked;
    record();
  }
}

void record_async_error(int device, std::exception_ptr error) noexcept {
  auto& s = slot(device);
  const std::lock_guard<std::mutex> lock(s.mutex);
  if (!s.error) {
    s.error = std::move(error);
    s.pending.store(true, std::memory_order_release);
  }
}

void raise_async_error(int device) {
  if (static_cast<unsigned>(device) >= static_cast<unsigned>(kMaxDevices)) {
    return; // a wait has been refused for that reason
  }
  auto& s = slot(device);
  if (__builtin_expect(!s.pending.load(std::memory_order_acquire), 1)) {
    return;
  }
  std::exception_ptr error;
  {
    const std::lock_guard<std::mutex> lock(s.mutex);
    error = std::exchange(s.error, nullptr);
    s.pending.store(false, std::memory_order_release);
  }
  if (error) {
    std::rethrow_exception(error);
  }
}

} // namespace torch_backend
