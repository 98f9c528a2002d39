// Errors of work that ran after the call that enqueued it had returned.
#pragma once

#include <exception>

namespace torch_backend {

/// Keep the first error of `device` until it is raised. From any thread.
void record_async_error(int device, std::exception_ptr error) noexcept;

/// Raise and forget the error of `device`, if there is one. Called by every wait.
void raise_async_error(int device);

} // namespace torch_backend
