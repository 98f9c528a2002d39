// The lock of a language's interpreter, seen from the core, which knows no language.
#pragma once

namespace torch_backend {

/// How the calling thread lets go of the interpreter's lock and takes it again.
struct InterpreterLock {
  /// Returns what acquire needs; NULL if the thread does not hold the lock.
  void* (*release)() = nullptr;
  /// Not called with NULL.
  void (*acquire)(void* state) = nullptr;
};

/// Once, by the bindings, before a device is loaded.
void set_interpreter_lock(InterpreterLock lock);

/// Note [Slots and the interpreter's lock]
///   A slot may be a function of Python, which runs under the interpreter's lock and may lose it to another thread in the
///   middle. A thread that waits for one of the core's mutexes, while the mutex' owner is in a slot, must therefore not
///   hold the interpreter's lock: it would wait for a thread that waits for it. Wherever a mutex is held around a slot,
///   one of these is made before the mutex is locked, and goes after it is unlocked.
///
///   What is on a stream may also be such a function: a compiled graph. So slots that wait for a stream are called without
///   the lock, which PyTorch holds in some calls that copy: storages', torch.load, the numbers that repr shows.
class WithoutInterpreterLock {
 public:
  WithoutInterpreterLock();
  ~WithoutInterpreterLock();
  WithoutInterpreterLock(const WithoutInterpreterLock&) = delete;
  WithoutInterpreterLock& operator=(const WithoutInterpreterLock&) = delete;

 private:
  void* state_;
};

} // namespace torch_backend
