#include "csrc/distributed/Failure.h"

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

namespace torch_backend {

std::string text_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const c10::Error& e) {
    return e.what_without_backtrace();
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
    return "unknown error";
  }
}

std::exception_ptr describe_collective_failure(const std::exception_ptr& cause, const char* what, int rank, int size) {
  try {
    std::rethrow_exception(cause);
  } catch (const c10::DistBackendError&) {
    return cause;
  } catch (...) {}
  return std::make_exception_ptr(c10::DistBackendError(
      {__func__, __FILE__, static_cast<uint32_t>(__LINE__)},
      c10::str(what, " failed on rank ", rank, " of ", size, ": ", text_of(cause),
               "\nAnother rank may have ended, may not have come to this call within the time-out, or may have made "
               "another one; its own output says more. TORCH_DISTRIBUTED_DEBUG=DETAIL checks that all ranks make the "
               "same calls.")));
}

} // namespace torch_backend
