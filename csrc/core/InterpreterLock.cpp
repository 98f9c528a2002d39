#include "csrc/core/InterpreterLock.h"

namespace torch_backend {
namespace {

InterpreterLock interpreter;

} // namespace

void set_interpreter_lock(InterpreterLock lock) {
  interpreter = lock;
}

WithoutInterpreterLock::WithoutInterpreterLock() : state_(interpreter.release ? interpreter.release() : nullptr) {}

WithoutInterpreterLock::~WithoutInterpreterLock() {
  if (state_) {
    interpreter.acquire(state_);
  }
}

} // namespace torch_backend
