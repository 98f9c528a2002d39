#undef _FORTIFY_SOURCE // which takes a jump to another stack for a mistake
#include "fiber.h"

#include <sys/mman.h>

#include <cerrno>
#include <system_error>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#elif defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace plugin::simt {
namespace {
thread_local fiber* beginning = nullptr;

// What stacks of one size begin with would share a few places of a processor's caches.
size_t next_offset() {
  static thread_local size_t turns = 0;
  return turns++ % 128 * 448;
}

} // namespace

// Jumps save no signal mask, for which swapcontext calls the system.
fiber::fiber(void (*run)()) : run_(run) {
  void* made = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (made == MAP_FAILED) throw std::system_error(errno, std::generic_category(), "no memory for an item's stack");
  stack_ = static_cast<char*>(made);
  getcontext(&start_);
  start_.uc_stack.ss_sp = stack_;
  start_.uc_stack.ss_size = kStackBytes - next_offset();
  makecontext(&start_, begin, 0);
#if defined(__SANITIZE_THREAD__)
  of_sanitizer_ = __tsan_create_fiber(0);
#endif
}

fiber::~fiber() {
#if defined(__SANITIZE_THREAD__)
  __tsan_destroy_fiber(of_sanitizer_);
#endif
  munmap(stack_, kStackBytes);
}

void fiber::begin() {
  fiber* self = beginning;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, &self->callers_stack_, &self->callers_stack_bytes_);
#endif
  self->run_();
}

#if defined(__SANITIZE_THREAD__)
#define SIMT_UNCHECKED __attribute__((no_sanitize_thread)) // it is entered as one fiber and left as another
#else
#define SIMT_UNCHECKED
#endif

SIMT_UNCHECKED void fiber::resume() {
  if (!_setjmp(caller_)) {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(&callers_, stack_, kStackBytes);
#elif defined(__SANITIZE_THREAD__)
    callers_ = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(of_sanitizer_, 0);
#endif
    if (started_) _longjmp(here_, 1);
    started_ = true;
    beginning = this;
    setcontext(&start_);
  }
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(callers_, nullptr, nullptr);
#endif
}

SIMT_UNCHECKED void fiber::pause() {
  if (!_setjmp(here_)) {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(&of_sanitizer_, callers_stack_, callers_stack_bytes_);
#elif defined(__SANITIZE_THREAD__)
    __tsan_switch_to_fiber(callers_, 0);
#endif
    _longjmp(caller_, 1);
  }
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(of_sanitizer_, &callers_stack_, &callers_stack_bytes_);
#endif
}

} // namespace plugin::simt
