#include "find.h"

#include <cstdio>

#include "common/count_in_child.h"
#include "options.h"

namespace ocl {
namespace {

constexpr size_t kMaxDevices = 64;

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

result count(int32_t* out_count) {
  std::vector<found_device> devices;
  const result r = find_devices(&devices);
  *out_count = static_cast<int32_t>(devices.size());
  return r;
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

result count_devices(int32_t* out_count) {
  return count_in_child(count,
                        "an OpenCL driver crashed or hung when it was asked for its devices; clinfo shows which, and "
                        "OCL_ICD_VENDORS chooses among the drivers",
                        out_count);
}

} // namespace ocl
