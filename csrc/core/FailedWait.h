// What is known of a stream's work after a call for it has failed.
#pragma once

#include <cstddef>
#include <exception>
#include <memory>

#include <c10/util/FunctionRef.h>

#include "torch_backend/device.h"

namespace torch_backend {

class DeviceApi;

/// Note [Failed waits]
/// A wait, a query, or a call that enqueues can fail while work goes on: the call itself gave up (a time-out), or a later
/// step of several could not be enqueued. Or everything is over, and what was reported is the failure of earlier work,
/// which a device reports once. The error does not tell which. So memory that the work uses is neither freed nor handed out
/// until a later wait has succeeded or the device is lost, which ends its work. What such a later wait reports and
/// survives is raised by the next wait for the device (see AsyncError.h).

/// What `query` says of work, asked again if that fails; true if the device is lost. What it throws first goes to
/// `out_reported`, else that is left alone.
bool is_over(const DeviceApi& api, int device, c10::function_ref<bool()> query,
             std::exception_ptr* out_reported) noexcept;

/// Whether everything enqueued on `stream` before the call is over: waits for it, and again if that fails. Blocks.
bool wait_until_over(DeviceApi& api, int device, tb_stream* stream) noexcept;

/// The same for what came before the last record of `event`.
bool wait_until_over(DeviceApi& api, int device, tb_event* event) noexcept;

/// Let go of `memory` when wait_until_over says that the stream's work is over: now, or in a later call of retry_releases.
/// From any thread; `memory` is let go of without a lock.
void release_when_over(DeviceApi& api, int device, tb_stream* stream, std::shared_ptr<void> memory);

/// Copies `size` bytes of device memory to `dst` behind what is on `stream`, and waits. What fails throws, and `dst`, which
/// may be on the stack, is not written then, neither now nor later.
void read_memory(DeviceApi& api, int device, void* dst, const void* src, std::size_t size, tb_stream* stream);

/// For what release_when_over could not wait for, and what hold_until_passed keeps. Called where a user gives memory back
/// or waits for a whole device.
void retry_releases(DeviceApi& api);

} // namespace torch_backend
