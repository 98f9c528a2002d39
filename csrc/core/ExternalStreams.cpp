#include "csrc/core/ExternalStreams.h"

#include <algorithm>
#include <array>
#include <exception>
#include <utility>

#include "csrc/core/AsyncError.h"
#include "csrc/core/Capture.h"
#include "csrc/core/InterpreterLock.h"
#include "csrc/core/Limits.h"
#include "csrc/core/Runtime.h"

namespace torch_backend {

void ExternalStreams::enter(const Stream& stream) {
  const WithoutInterpreterLock unlocked;
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto known = std::find_if(known_.begin(), known_.end(), [&](const Known& one) { return one.stream == stream; });
  if (known == known_.end()) {
    known_.push_back({stream, 1});
  } else {
    ++known->num_threads;
  }
}

void ExternalStreams::leave(const Stream& stream) noexcept {
  const WithoutInterpreterLock unlocked;
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto known = std::find_if(known_.begin(), known_.end(), [&](const Known& one) { return one.stream == stream; });
  if (known == known_.end() || --known->num_threads > 0) {
    return;
  }
  try {
    if (!graph::is_capturing(stream)) {
      known->left.record(stream);
    }
  } catch (...) {
    record_async_error(stream.device_index(), std::current_exception());
  }
  forget_complete();
}

void ExternalStreams::forget_complete() noexcept {
  const auto is_over = [](const Known& one) {
    try {
      return one.num_threads == 0 && one.left.query();
    } catch (...) {
      // For whoever waits for the device next; see Note [Failed waits].
      record_async_error(one.stream.device_index(), std::current_exception());
      return device_api().is_lost(one.stream.device_index());
    }
  };
  known_.erase(std::remove_if(known_.begin(), known_.end(), is_over), known_.end());
}

std::vector<Stream> ExternalStreams::current() {
  const WithoutInterpreterLock unlocked;
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<Stream> current;
  for (const auto& one : known_) {
    if (one.num_threads > 0) {
      current.push_back(one.stream);
    }
  }
  return current;
}

void ExternalStreams::synchronize_left() {
  const WithoutInterpreterLock unlocked;
  while (auto left = take_left()) {
    try {
      left->left.synchronize(); // without the mutex: others go on
    } catch (...) {
      if (!device_api().is_lost(left->stream.device_index())) {
        const std::lock_guard<std::mutex> lock(mutex_);
        known_.push_back(std::move(*left)); // its work may go on: Note [Failed waits]
      }
      throw;
    }
  }
}

std::optional<ExternalStreams::Known> ExternalStreams::take_left() {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto next = std::find_if(known_.begin(), known_.end(), [](const Known& one) { return one.num_threads == 0; });
  if (next == known_.end()) {
    return std::nullopt;
  }
  auto taken = std::move(*next);
  known_.erase(next);
  return taken;
}

void ExternalStreams::forget_left() {
  const WithoutInterpreterLock unlocked;
  const std::lock_guard<std::mutex> lock(mutex_);
  known_.erase(std::remove_if(known_.begin(), known_.end(), [](const Known& one) { return one.num_threads == 0; }),
               known_.end());
}

ExternalStreams& external_streams(c10::DeviceIndex device) {
  static auto* all = new std::array<ExternalStreams, kMaxDevices>;
  return (*all)[static_cast<std::size_t>(device)];
}

} // namespace torch_backend
