// What a rank says when a collective has failed.
#pragma once

#include <exception>
#include <string>

namespace torch_backend {

/// "all_reduce failed on rank 0 of 2: <text of the cause>", as torch.distributed.DistBackendError. A failure that is one
/// already is returned as it is.
std::exception_ptr describe_collective_failure(const std::exception_ptr& cause, const char* what, int rank, int size);

/// The text of an exception, without the stack that c10's errors come with.
std::string text_of(const std::exception_ptr& error);

} // namespace torch_backend
