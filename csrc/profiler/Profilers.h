// PyTorch's profilers for the active device.
#pragma once

namespace torch_backend {

/// Give torch.profiler the device's activity (Kineto's plug-in), and torch.autograd.profiler.profile(use_kineto=False)
/// the device's events. Once per process.
void register_profilers();

namespace profiler {

/// Each registers one of them. Kineto's does nothing if PyTorch was built without it.
void register_kineto_profiler();
void register_event_profiler();

} // namespace profiler
} // namespace torch_backend
