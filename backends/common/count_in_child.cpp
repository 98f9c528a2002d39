#include "count_in_child.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace plugin {
namespace {

constexpr int kDriverTimeoutMs = 60'000;

// What the child process tells.
struct answer {
  int32_t count;
  tb_status status;
  char text[504];
};

answer ask(result (*count)(int32_t*)) {
  answer a{};
  const result r = count(&a.count);
  a.status = r.status;
  std::snprintf(a.text, sizeof a.text, "%s", r.text.c_str());
  return a;
}

// The writer's end closes with its process, however that ends. True if the whole answer has come.
bool receive(int from, answer* out_answer) {
  pollfd waiting{from, POLLIN, 0};
  int ready;
  do ready = poll(&waiting, 1, kDriverTimeoutMs);
  while (ready < 0 && errno == EINTR);
  ssize_t size = -1;
  if (ready > 0) do // written at once: it is smaller than what pipes keep together
      size = read(from, out_answer, sizeof *out_answer);
    while (size < 0 && errno == EINTR);
  return size == static_cast<ssize_t>(sizeof *out_answer);
}

} // namespace

result count_in_child(result (*count)(int32_t* out_count), const char* crashed, int32_t* out_count) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return failure(TB_STATUS_INTERNAL, "pipe2: %s", std::strerror(errno));
  const pid_t child = fork();
  if (child == 0) {
    const answer a = ask(count);
    _exit(write(ends[1], &a, sizeof a) == sizeof a ? 0 : 1);
  }
  const int fork_error = errno;
  close(ends[1]);
  answer a{};
  const bool told = child > 0 && receive(ends[0], &a);
  close(ends[0]);
  if (child < 0) return failure(TB_STATUS_INTERNAL, "fork: %s", std::strerror(fork_error));
  if (!told) kill(child, SIGKILL); // it hangs, or has crashed and this does nothing
  while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) {}
  if (!told) return failure(TB_STATUS_INTERNAL, "%s", crashed);
  if (a.status == TB_STATUS_OK) *out_count = a.count;
  return {a.status, a.text};
}

} // namespace plugin
