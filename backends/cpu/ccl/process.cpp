#include "process.h"

#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

namespace xcpu::ccl {
namespace {

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

constexpr pid_t kNotWatched = 0;

} // namespace

uint64_t process_namespace() {
  struct stat what;
  return stat("/proc/self/ns/pid", &what) == 0 ? what.st_ino : 0;
}

watched_process::watched_process(pid_t process, uint64_t its_namespace)
    : process_(process == getpid() || its_namespace != process_namespace() ? kNotWatched : process) {
  if (process_ == kNotWatched) return;
  descriptor_ = static_cast<int>(syscall(SYS_pidfd_open, process_, 0));
  known_ended_ = descriptor_ < 0 && errno == ESRCH;
}

watched_process::~watched_process() {
  if (descriptor_ >= 0) close(descriptor_);
}

watched_process::watched_process(watched_process&& other) noexcept
    : process_(other.process_), known_ended_(other.known_ended_), descriptor_(other.descriptor_) {
  other.descriptor_ = -1;
}

bool watched_process::has_ended() const {
  if (process_ == kNotWatched || known_ended_) return known_ended_;
  if (descriptor_ < 0) return kill(process_, 0) != 0 && errno == ESRCH;
  pollfd question{descriptor_, POLLIN, 0};
  return poll(&question, 1, 0) == 1;
}

} // namespace xcpu::ccl
