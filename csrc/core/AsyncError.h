// Errors of work that ran after the call that enqueued it had returned.
#pragma once

#include <exception>

#include "csrc/core/InterpreterLock.h"

namespace torch_backend {

/// Keep the first error of `device` until it is raised. From any thread.
void record_async_error(int device, std::exception_ptr error) noexcept;

/// Raise and forget the error of `device`, if there is one. Called by every wait; no device may have that index.
void raise_async_error(int device);

/// `record`, called when a device fails a wait and from any thread, records what its owner knows of failed work and has not
/// recorded yet. One owner; it does not throw.
void ask_for_async_errors(void (*record)()) noexcept;

/// Ask whoever wants to be.
void record_known_async_errors() noexcept;

/// Call `wait`, which waits for `device`, and raise the error of work that is known by then. It comes before what `wait`
/// itself throws: who recorded it knows more of the work than the device. Work may need the interpreter's lock to end.
template <typename Wait>
void wait_and_raise_async_error(int device, Wait wait) {
  try {
    const WithoutInterpreterLock unlocked;
    wait();
  } catch (...) {
    record_known_async_errors();
    raise_async_error(device);
    throw;
  }
  raise_async_error(device);
}

} // namespace torch_backend
