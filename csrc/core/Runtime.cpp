#include "csrc/core/Runtime.h"

#include <pthread.h>

#include <atomic>

#include <c10/util/Exception.h>

#include "csrc/core/AsyncError.h"
#include "csrc/core/Capture.h"
#include "csrc/core/ErrorCell.h"
#include "csrc/core/ExternalStreams.h"
#include "csrc/core/FailedWait.h"
#include "csrc/core/Stream.h"

namespace torch_backend {
namespace {

std::atomic<Plugin*> active{nullptr};

thread_local c10::DeviceIndex this_device = 0;

void after_fork_in_child() {
  if (auto* plugin = active.load()) {
    plugin->api().after_fork_in_child();
  }
}

} // namespace

void set_active_plugin(Plugin& plugin) {
  Plugin* none = nullptr;
  if (!active.compare_exchange_strong(none, &plugin)) {
    TORCH_CHECK(none == &plugin, "PyTorch has room for one out-of-tree device type per process and '", none->name(),
                "' (", none->path(), ") is active, so '", plugin.name(), "' (", plugin.path(),
                ") cannot be activated. Choose one with the environment variable TORCH_BACKEND.");
    return;
  }
  pthread_atfork(nullptr, nullptr, after_fork_in_child);
}

Plugin* active_plugin() noexcept {
  return active.load(std::memory_order_acquire);
}

DeviceApi& device_api() {
  auto* plugin = active.load(std::memory_order_acquire);
  TORCH_CHECK(plugin,
              "No device of torch_backend is active. Set TORCH_BACKEND=<name> before Python starts, or call "
              "torch_backend.activate(name); `torch-backend list` shows what there is.");
  return plugin->api();
}

c10::DeviceIndex device_count() noexcept {
  auto* plugin = active_plugin();
  // Activation asked for the count already, so this reads a cached number.
  return plugin ? static_cast<c10::DeviceIndex>(plugin->api().device_count()) : 0;
}

c10::DeviceIndex current_device() noexcept {
  return this_device;
}

c10::DeviceIndex resolve_device(c10::DeviceIndex device) {
  if (device == -1) {
    return this_device;
  }
  const int count = device_count();
  TORCH_CHECK_INDEX(device >= 0 && device < count, "Device index ", static_cast<int>(device),
                    " is out of range: ", device_api().name(), " has ", count, count == 1 ? " device" : " devices",
                    ", 0 to ", count - 1, ".");
  return device;
}

void set_device(c10::DeviceIndex device) {
  TORCH_CHECK_INDEX(device >= 0, "Device index ", static_cast<int>(device), " is not valid: it must not be negative.");
  this_device = resolve_device(device);
}

c10::DeviceIndex exchange_device(c10::DeviceIndex device) {
  const auto before = this_device;
  if (device >= 0 && device != before) {
    set_device(device);
  }
  return before;
}

void synchronize_device(c10::DeviceIndex device) {
  const auto index = resolve_device(device);
  auto& api = device_api();
  graph::refuse_in_capture(current_stream(index), "synchronize");
  wait_and_raise_async_error(index, [&] {
    if (api.device_synchronize(index) == TB_STATUS_UNSUPPORTED) {
      for (const auto& stream : all_streams(index)) {
        stream.synchronize();
      }
      external_streams(index).synchronize_left();
    } else {
      external_streams(index).forget_left();
    }
  });
  retry_releases(api);
  raise_device_error(index, nullptr);
}

} // namespace torch_backend
