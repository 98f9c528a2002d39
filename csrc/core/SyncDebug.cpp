#include "csrc/core/SyncDebug.h"

#include <c10/util/Exception.h>

namespace torch_backend::detail {

std::atomic<SyncDebugMode> sync_debug_mode{SyncDebugMode::kIgnore};

void report_sync(const char* what) {
  TORCH_CHECK(sync_debug_mode.load() != SyncDebugMode::kError, "Called a synchronizing operation: ", what,
              " makes the host wait for the device, which set_sync_debug_mode('error') forbids.");
  TORCH_WARN("Called a synchronizing operation: ", what, " makes the host wait for the device.");
}

} // namespace torch_backend::detail
