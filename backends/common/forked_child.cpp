#include "forked_child.h"

#include <pthread.h>

#include <atomic>
#include <cstring>

namespace plugin {
namespace {
std::atomic<bool> forked{false};
const char* name = "";
} // namespace

result watch_forks(const char* device_name) {
  name = device_name;
  const int error = pthread_atfork(nullptr, nullptr, [] { forked.store(true, std::memory_order_relaxed); });
  return error ? failure(TB_STATUS_INTERNAL, "pthread_atfork: %s", std::strerror(error)) : result();
}

bool in_forked_child() {
  return forked.load(std::memory_order_relaxed);
}

result forked_child_failure() {
  return failure(TB_STATUS_INTERNAL, "%s cannot be used in a process that was forked after its first use", name);
}

} // namespace plugin
