// Finding hidden waits: warn or raise where an operation makes the host wait for the device.
#pragma once

#include <atomic>

namespace torch_backend {

enum class SyncDebugMode : int { kIgnore = 0, kWarn = 1, kError = 2 };

namespace detail {
extern std::atomic<SyncDebugMode> sync_debug_mode;
void report_sync(const char* what);
} // namespace detail

/// Process-wide, as torch.cuda.set_sync_debug_mode.
inline void set_sync_debug_mode(SyncDebugMode mode) {
  detail::sync_debug_mode.store(mode, std::memory_order_relaxed);
}

inline SyncDebugMode sync_debug_mode() {
  return detail::sync_debug_mode.load(std::memory_order_relaxed);
}

/// Called before every wait that a user did not ask for by name. `what` is what waits, e.g. "aten::item".
inline void warn_or_error_on_sync(const char* what) {
  if (__builtin_expect(sync_debug_mode() != SyncDebugMode::kIgnore, 0)) {
    detail::report_sync(what);
  }
}

} // namespace torch_backend
