#include "find.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "cu.h"

namespace xcuda {
namespace {

constexpr int kMaxDevices = 64;
constexpr int kDriverTimeoutMs = 60'000;

// What the child process tells.
struct answer {
  int32_t count;
  tb_status status;
  char text[504];
};

answer ask_driver() {
  int count = 0;
  result r = start_driver();
  if (r.ok()) r = check(cu.DeviceGetCount(&count), "cuDeviceGetCount");
  if (r.ok() && count == 0)
    r = failure(TB_STATUS_UNSUPPORTED,
                "the driver shows no GPU: nvidia-smi -L lists them, and CUDA_VISIBLE_DEVICES may hide them");
  answer a{count, r.status, ""};
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

result ask_in_child(answer* out_answer) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return failure(TB_STATUS_INTERNAL, "pipe2: %s", std::strerror(errno));
  const pid_t child = fork();
  if (child == 0) {
    const answer a = ask_driver();
    _exit(write(ends[1], &a, sizeof a) == sizeof a ? 0 : 1);
  }
  const int fork_error = errno;
  close(ends[1]);
  const bool told = child > 0 && receive(ends[0], out_answer);
  close(ends[0]);
  if (child < 0) return failure(TB_STATUS_INTERNAL, "fork: %s", std::strerror(fork_error));
  if (!told) kill(child, SIGKILL); // it hangs, or has crashed and this does nothing
  while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) {}
  if (told) return {};
  return failure(TB_STATUS_INTERNAL,
                 "NVIDIA's driver crashed or hung when it was asked for its devices: see nvidia-smi");
}

} // namespace

result count_devices(int32_t* out_count) {
  answer a{};
  int count = 0;
  if (cu.DeviceGetCount(&count) == kCUDA_ERROR_NOT_INITIALIZED) {
    if (result r = ask_in_child(&a); !r.ok()) return r;
  } else {
    a = ask_driver(); // somebody has started it
  }
  if (a.status == TB_STATUS_OK) *out_count = std::min(a.count, kMaxDevices);
  return {a.status, a.text};
}

} // namespace xcuda
