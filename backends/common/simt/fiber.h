// A function on a stack of its own, which pauses and goes on.
#pragma once

#include <setjmp.h>
#include <ucontext.h>

#include <cstddef>

namespace plugin::simt {

// All is of one thread.
class fiber {
 public:
  // `run` never returns.
  explicit fiber(void (*run)());
  ~fiber(); // wherever it has paused: nothing there is destroyed
  fiber(const fiber&) = delete;
  fiber& operator=(const fiber&) = delete;

  // Runs it, from its beginning or from where it has paused, until it pauses.
  void resume();
  // Within `run`.
  void pause();

  bool has(const void* address) const {
    return address >= stack_ && address < stack_ + kStackBytes;
  }

 private:
  static constexpr size_t kStackBytes = 256 << 10;

  static void begin();

  void (*const run_)();
  char* stack_;
  bool started_ = false;
  ucontext_t start_;
  jmp_buf here_, caller_;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  void *of_sanitizer_ = nullptr, *callers_ = nullptr;
  const void* callers_stack_ = nullptr;
  size_t callers_stack_bytes_ = 0;
#endif
};

} // namespace plugin::simt
