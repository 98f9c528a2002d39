#include "find.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "options.h"

namespace ocl {
namespace {

constexpr size_t kMaxDevices = 64;
constexpr int kDriverTimeoutMs = 60'000;

void find_on(cl_platform_id platform, std::vector<found_device>* out_devices) {
  cl_uint count = 0;
  if (cl.GetDeviceIDs(platform, settings().device_type, 0, nullptr, &count) != CL_SUCCESS) return;
  std::vector<cl_device_id> ids(count);
  if (count == 0 || cl.GetDeviceIDs(platform, settings().device_type, count, ids.data(), nullptr) != CL_SUCCESS) return;
  for (const cl_device_id id : ids) {
    found_device device{platform, id, 0, 0};
    const std::string version = info_text(cl.GetDeviceInfo, id, CL_DEVICE_VERSION);
    std::sscanf(version.c_str(), "OpenCL %d.%d", &device.major, &device.minor);
    const bool new_enough = device.major > 1 || (device.major == 1 && device.minor >= 2);
    if (new_enough && device_info<cl_bool>(id, CL_DEVICE_AVAILABLE) && out_devices->size() < kMaxDevices)
      out_devices->push_back(device);
  }
}

// What the child process tells.
struct answer {
  int32_t count;
  tb_status status;
  char text[504];
};

answer ask_drivers() {
  std::vector<found_device> devices;
  const result r = find_devices(&devices);
  answer a{static_cast<int32_t>(devices.size()), r.status, ""};
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

result find_devices(std::vector<found_device>* out_devices) {
  cl_uint count = 0;
  cl.GetPlatformIDs(0, nullptr, &count); // fails if there are none
  if (count == 0)
    return failure(TB_STATUS_UNSUPPORTED,
                   "OpenCL's loader finds no driver. Install one: that of your device, or one for the CPU (Debian and "
                   "Ubuntu: apt-get install pocl-opencl-icd). clinfo lists what there is");
  std::vector<cl_platform_id> platforms(count);
  if (result r = check(cl.GetPlatformIDs(count, platforms.data(), nullptr), "clGetPlatformIDs"); !r.ok()) return r;
  std::string seen;
  for (const cl_platform_id platform : platforms) {
    const std::string name = info_text(cl.GetPlatformInfo, platform, CL_PLATFORM_NAME);
    seen += (seen.empty() ? "\"" : ", \"") + name + "\"";
    if (name.find(settings().platform) != std::string::npos) find_on(platform, out_devices);
  }
  if (!out_devices->empty()) return {};
  return failure(
      TB_STATUS_UNSUPPORTED,
      "no OpenCL device that is available, of OpenCL 1.2 or later, and let through by ocl.platform (\"%s\") and "
      "ocl.device_type; the platforms are %s",
      settings().platform.c_str(), seen.c_str());
}

result count_in_child(int32_t* out_count) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return failure(TB_STATUS_INTERNAL, "pipe2: %s", std::strerror(errno));
  const pid_t child = fork();
  if (child == 0) {
    const answer a = ask_drivers();
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
  if (!told)
    return failure(TB_STATUS_INTERNAL,
                   "an OpenCL driver crashed or hung when it was asked for its devices; clinfo shows which, and "
                   "OCL_ICD_VENDORS chooses among the drivers");
  if (a.status == TB_STATUS_OK) *out_count = a.count;
  return {a.status, a.text};
}

} // namespace ocl
