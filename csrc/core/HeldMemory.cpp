#include "csrc/core/HeldMemory.h"

#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <utility>

#include "csrc/core/AsyncError.h"
#include "csrc/core/DeviceApi.h"
#include "csrc/core/Event.h"
#include "csrc/core/FailedWait.h"
#include "csrc/core/Runtime.h"

namespace torch_backend {
namespace {

struct Held {
  Event event;
  std::shared_ptr<void> memory;
};

/// Oldest first, which is the first to be over if there is one stream.
class HeldMemory {
 public:
  void add(Held entry) {
    const std::lock_guard<std::mutex> lock(mutex_);
    entries_.push_back(std::move(entry));
  }
  void put_back(Held entry) {
    const std::lock_guard<std::mutex> lock(mutex_);
    entries_.push_front(std::move(entry));
  }
  std::optional<Held> take_oldest() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (entries_.empty()) {
      return std::nullopt;
    }
    std::optional<Held> oldest(std::move(entries_.front()));
    entries_.pop_front();
    return oldest;
  }

 private:
  std::mutex mutex_; // guards entries_
  std::deque<Held> entries_;
};

HeldMemory& held() {
  static auto* instance = new HeldMemory; // never destroyed: what is in it may still be used
  return *instance;
}

bool is_passed(const DeviceApi& api, const Event& event) {
  std::exception_ptr reported;
  const bool over = is_over(api, event.device_index(), [&] { return event.query(); }, &reported);
  if (reported && !api.is_lost(event.device_index())) {
    record_async_error(event.device_index(), reported);
  }
  return over;
}

} // namespace

void hold_until_passed(const Stream& stream, std::shared_ptr<void> memory) {
  release_passed(device_api());
  Event event(/*enable_timing=*/false);
  event.record(stream);
  held().add({std::move(event), std::move(memory)});
}

void release_passed(const DeviceApi& api) {
  while (auto oldest = held().take_oldest()) {
    if (!is_passed(api, oldest->event)) {
      held().put_back(std::move(*oldest));
      return;
    }
  }
}

} // namespace torch_backend
