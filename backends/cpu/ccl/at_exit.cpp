#include "at_exit.h"

#include <unistd.h>

#include <cstdlib>
#include <map>
#include <mutex>

namespace xcpu::ccl {
namespace {

struct registry {
  const pid_t process = getpid();
  std::mutex mutex; // guards subjects
  std::map<void*, void (*)(void*)> subjects;
};

void call_all();

// Never destroyed: worker threads may outlast static destruction.
registry& registered() {
  static registry& r = *[] {
    std::atexit(call_all);
    return new registry;
  }();
  return r;
}

void call_all() {
  registry& r = registered();
  if (getpid() != r.process) return;
  const std::lock_guard<std::mutex> lock(r.mutex);
  for (const auto& [subject, function] : r.subjects) function(subject);
}

} // namespace

void at_exit_add(void* subject, void (*function)(void* subject)) {
  registry& r = registered();
  const std::lock_guard<std::mutex> lock(r.mutex);
  r.subjects.emplace(subject, function);
}

void at_exit_remove(void* subject) {
  registry& r = registered();
  const std::lock_guard<std::mutex> lock(r.mutex);
  r.subjects.erase(subject);
}

} // namespace xcpu::ccl
