// The one active plugin of the process, and the calling thread's current device.
#pragma once

#include <c10/core/Device.h>

#include "csrc/core/DeviceApi.h"
#include "csrc/core/Plugin.h"

namespace torch_backend {

/// Make `plugin` the one that everything below is about. Once per process; the same plugin again is a no-op, another
/// one throws RuntimeError naming both. Part of activate (csrc/torch/Activate.h), which users call.
void set_active_plugin(Plugin& plugin);

/// NULL before activation.
Plugin* active_plugin() noexcept;

/// The active plugin's calls. Throws RuntimeError before activation.
DeviceApi& device_api();

/// Number of devices of the active plugin; 0 in place of an error (c10's guard must not throw).
c10::DeviceIndex device_count() noexcept;

/// The calling thread's device, 0 at first. Never initializes.
c10::DeviceIndex current_device() noexcept;
/// Throws for an index out of range: which one, and what exists.
void set_device(c10::DeviceIndex device);
/// Returns the device before. `device` -1 changes nothing.
c10::DeviceIndex exchange_device(c10::DeviceIndex device);

/// `device` -1 is the current device; throws for an index out of range.
c10::DeviceIndex resolve_device(c10::DeviceIndex device);

/// Wait for everything enqueued on the device.
void synchronize_device(c10::DeviceIndex device = -1);

} // namespace torch_backend
