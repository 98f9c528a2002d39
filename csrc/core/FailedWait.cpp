#include "csrc/core/FailedWait.h"

#include <exception>

#include "csrc/core/AsyncError.h"
#include "csrc/core/DeviceApi.h"

namespace torch_backend {
namespace {

constexpr int kAttempts = 2;

template <typename Wait>
bool succeeds(const DeviceApi& api, int device, Wait wait) noexcept {
  std::exception_ptr reported;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    try {
      wait();
      if (reported) {
        record_async_error(device, reported);
      }
      return true;
    } catch (...) {
      reported = reported ? reported : std::current_exception();
    }
    if (api.is_lost(device)) {
      return true;
    }
  }
  return false;
}

} // namespace

bool wait_until_over(DeviceApi& api, int device, tb_stream* stream) noexcept {
  return succeeds(api, device, [&] { api.stream_synchronize(device, stream); });
}

bool wait_until_over(DeviceApi& api, int device, tb_event* event) noexcept {
  return succeeds(api, device, [&] { api.event_synchronize(device, event); });
}

} // namespace torch_backend
