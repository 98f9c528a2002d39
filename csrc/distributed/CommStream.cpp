#include "csrc/distributed/CommStream.h"

#include <mutex>
#include <vector>

#include "csrc/core/InterpreterLock.h"
#include "csrc/core/Runtime.h"

namespace torch_backend {
namespace {

struct Spare {
  std::mutex mutex; // guards streams
  std::vector<Stream> streams;
};

Spare& spare() {
  static auto* all = new Spare;
  return *all;
}

Stream take(c10::DeviceIndex device) {
  auto& api = device_api();
  if (!api.async()) {
    return default_stream(device);
  }
  {
    auto& unused = spare();
    const std::lock_guard<std::mutex> lock(unused.mutex);
    for (auto it = unused.streams.begin(); it != unused.streams.end(); ++it) {
      if (it->device_index() == device) {
        const Stream stream = *it;
        unused.streams.erase(it);
        return stream;
      }
    }
  }
  // The most urgent: what waits for other ranks should not wait for the device's own work as well.
  return lasting_stream(stream_priority_range(device).second, device);
}

} // namespace

CommStream::CommStream(c10::DeviceIndex device) : stream_(take(device)) {}

CommStream::~CommStream() {
  if (device_api().async()) {
    auto& unused = spare();
    const std::lock_guard<std::mutex> lock(unused.mutex);
    unused.streams.push_back(stream_);
  }
}

} // namespace torch_backend
