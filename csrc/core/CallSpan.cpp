#include "csrc/core/CallSpan.h"

namespace torch_backend {

std::atomic<CallObserver> call_observer{nullptr};

void CallSpan::end() noexcept {
  delete call_;
}

} // namespace torch_backend
