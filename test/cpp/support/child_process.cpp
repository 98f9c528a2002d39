#include "support/child_process.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

namespace torch_backend::testing {
namespace {

bool is_child = false;

constexpr unsigned kPatienceSeconds = 30;

// Handlers of our own, so that it makes no difference whether a sanitizer handles the signal.
void exit_on(int signal, int status) {
  static int statuses[64];
  statuses[signal] = status;
  struct sigaction action = {};
  action.sa_handler = [](int received) { _exit(statuses[received]); };
  sigaction(signal, &action, nullptr);
}

} // namespace

int run_in_child(const std::function<int()>& code) {
  const pid_t child = fork();
  if (child < 0) return kCrash;
  if (child == 0) {
    is_child = true;
    exit_on(SIGSEGV, kSegmentationFault);
    exit_on(SIGBUS, kSegmentationFault);
    exit_on(SIGALRM, kHang);
    alarm(kPatienceSeconds);
    std::exit(code());
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : kCrash;
}

bool in_child() {
  return is_child;
}

} // namespace torch_backend::testing
