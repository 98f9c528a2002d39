// Settings for when the tests are built with -fsanitize; the sanitizers look these functions up, nobody else calls
// them.
#include "support/child_process.h"

#define TB_SANITIZER_HOOK extern "C" __attribute__((used, visibility("default"), no_sanitize("address", "thread")))

// Too large allocations return null, as without a sanitizer.
TB_SANITIZER_HOOK const char* __asan_default_options() {
  return "allocator_may_return_null=1";
}

// Forked children start threads, and exit without the second that is meant for threads to finish.
TB_SANITIZER_HOOK const char* __tsan_default_options() {
  return "allocator_may_return_null=1:die_after_fork=0:atexit_sleep_ms=0";
}

// In a forked child the stacks of the other threads, which hold on to memory, are not known as such any more.
TB_SANITIZER_HOOK int __lsan_is_turned_off() {
  return torch_backend::testing::in_child();
}
