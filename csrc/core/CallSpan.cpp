#include "csrc/core/CallSpan.h"

namespace torch_backend {

std::atomic<CallObserver> call_observer{nullptr};

} // namespace torch_backend
