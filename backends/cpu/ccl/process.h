// Whether a process of this machine is still there.
#pragma once

#include <sys/types.h>

#include <cstdint>

namespace xcpu::ccl {

// Process numbers mean the same only where this is the same; 0 if the system does not say.
uint64_t process_namespace();

// A process to be watched. Best made while it is known to live: a number may be given to another process later.
class watched_process {
 public:
  // One of another namespace, or this process itself, counts as alive.
  watched_process(pid_t process, uint64_t its_namespace);
  ~watched_process();
  watched_process(watched_process&& other) noexcept;
  watched_process(const watched_process&) = delete;
  watched_process& operator=(const watched_process&) = delete;

  // From the moment it has ended, also if its parent has not yet asked for its exit code.
  bool has_ended() const;

 private:
  pid_t process_;
  bool known_ended_ = false;
  int descriptor_ = -1; // -1: the kernel has none to give; then its number is asked for
};

} // namespace xcpu::ccl
