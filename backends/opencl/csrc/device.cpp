#include "device.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "common/forked_child.h"
#include "options.h"
#include "stream.h"

#ifndef CL_DEVICE_UUID_KHR
#define CL_DEVICE_UUID_KHR 0x106A
#endif

namespace ocl {
namespace {

std::vector<std::unique_ptr<device>>& devices() {
  static auto& all = *new std::vector<std::unique_ptr<device>>;
  return all;
}

bool has_extension(const device& d, const char* name) {
  const std::string all = " " + info_text(cl.GetDeviceInfo, d.found.id, CL_DEVICE_EXTENSIONS) + " ";
  return all.find(std::string(" ") + name + " ") != std::string::npos;
}

// ---- what is found out by trying ----

// Whether markers on a queue carry times: two of them, and something in between.
bool markers_have_times(const device& d) {
  cl_int error = CL_SUCCESS;
  const cl_mem memory = cl.CreateBuffer(d.context, CL_MEM_READ_WRITE, 4096, nullptr, &error);
  if (error != CL_SUCCESS) return false;
  cl_event start = nullptr, end = nullptr;
  cl_ulong started = 0, ended = 0;
  const char zero = 0;
  const bool has =
      cl.EnqueueMarkerWithWaitList(d.service, 0, nullptr, &start) == CL_SUCCESS &&
      cl.EnqueueFillBuffer(d.service, memory, &zero, 1, 0, 4096, 0, nullptr, nullptr) == CL_SUCCESS &&
      cl.EnqueueMarkerWithWaitList(d.service, 0, nullptr, &end) == CL_SUCCESS &&
      cl.WaitForEvents(1, &end) == CL_SUCCESS &&
      cl.GetEventProfilingInfo(start, CL_PROFILING_COMMAND_END, sizeof started, &started, nullptr) == CL_SUCCESS &&
      cl.GetEventProfilingInfo(end, CL_PROFILING_COMMAND_END, sizeof ended, &ended, nullptr) == CL_SUCCESS;
  if (start) cl.ReleaseEvent(start);
  if (end) cl.ReleaseEvent(end);
  cl.ReleaseMemObject(memory);
  return has && started > 0 && ended > started;
}

result choose_memory(device* d) {
  const auto offered = device_info<cl_device_svm_capabilities>(d->found.id, CL_DEVICE_SVM_CAPABILITIES);
  const bool has_svm = d->found.major >= 2 && (offered & CL_DEVICE_SVM_COARSE_GRAIN_BUFFER) && cl.SVMAlloc &&
                       cl.SVMFree && cl.EnqueueSVMMemcpy && cl.EnqueueSVMMemFill && cl.SetKernelArgSVMPointer;
  if (settings().memory == memory_mode::svm && !has_svm)
    return failure(TB_STATUS_UNSUPPORTED, "ocl.memory is \"svm\", but this device has no shared virtual memory");
  d->svm = has_svm && settings().memory == memory_mode::svm;
  return {};
}

// ---- properties ----

void copy_text(char* to, size_t size, const std::string& text) {
  std::snprintf(to, size, "%s", text.c_str());
}

// Short enough for its field, and another one whenever any of them changes.
std::string driver_version(const device& d) {
  const std::string driver = info_text(cl.GetDeviceInfo, d.found.id, CL_DRIVER_VERSION);
  uint64_t hash = 0xcbf29ce484222325; // FNV-1a
  for (const std::string& text : {info_text(cl.GetPlatformInfo, d.found.platform, CL_PLATFORM_VERSION),
                                  info_text(cl.GetDeviceInfo, d.found.id, CL_DEVICE_VERSION),
                                  info_text(cl.GetDeviceInfo, d.found.id, CL_DEVICE_NAME), driver})
    for (const char c : text + '\n') hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  char id[17];
  std::snprintf(id, sizeof id, "%016llx", static_cast<unsigned long long>(hash));
  return driver.substr(0, 40) + " " + id;
}

void set_compute_dtypes(const device& d, uint64_t* mask) {
  const auto add = [mask](uint32_t code, uint32_t bits) {
    mask[TB_DTYPE_MASK_WORD(code, bits)] |= TB_DTYPE_MASK_FLAG(code, bits);
  };
  add(TB_DTYPE_BOOL, 8);
  for (const uint32_t bits : {8u, 16u, 32u, 64u}) {
    add(TB_DTYPE_INT, bits);
    add(TB_DTYPE_UINT, bits);
  }
  add(TB_DTYPE_FLOAT, 32);
  if (device_info<cl_device_fp_config>(d.found.id, CL_DEVICE_DOUBLE_FP_CONFIG)) add(TB_DTYPE_FLOAT, 64);
  if (has_extension(d, "cl_khr_fp16")) add(TB_DTYPE_FLOAT, 16);
}

void set_limits(const device& d, tb_device_properties* p) {
  constexpr uint64_t most = UINT32_MAX;
  const cl_device_id id = d.found.id;
  size_t sizes[3] = {1, 1, 1};
  if (device_info<cl_uint>(id, CL_DEVICE_MAX_WORK_ITEM_DIMENSIONS) == 3)
    cl.GetDeviceInfo(id, CL_DEVICE_MAX_WORK_ITEM_SIZES, sizeof sizes, sizes, nullptr);
  for (int i = 0; i < 3; ++i) p->max_block[i] = static_cast<uint32_t>(std::min<uint64_t>(sizes[i], most));
  const auto items = device_info<size_t>(id, CL_DEVICE_MAX_WORK_GROUP_SIZE, 1);
  p->max_block_items = static_cast<uint32_t>(std::min<uint64_t>(items, most));
  p->preferred_block_items = std::min(p->max_block_items, 256u);
  p->local_memory_bytes =
      static_cast<uint32_t>(std::min<uint64_t>(device_info<cl_ulong>(id, CL_DEVICE_LOCAL_MEM_SIZE), most));
}

void describe(device* d) {
  tb_device_properties& p = d->properties;
  const cl_device_id id = d->found.id;
  copy_text(p.name, sizeof p.name, info_text(cl.GetDeviceInfo, id, CL_DEVICE_NAME));
  copy_text(p.arch, sizeof p.arch, "opencl" + std::to_string(d->found.major) + "." + std::to_string(d->found.minor));
  copy_text(p.driver_version, sizeof p.driver_version, driver_version(*d));
  p.capabilities = TB_CAP_ASYNC | TB_CAP_EVENT_RERECORD;
  if (markers_have_times(*d)) p.capabilities |= TB_CAP_EVENT_TIMING;
  p.total_memory_bytes = device_info<cl_ulong>(id, CL_DEVICE_GLOBAL_MEM_SIZE, 1);
  p.max_allocation_bytes = device_info<cl_ulong>(id, CL_DEVICE_MAX_MEM_ALLOC_SIZE);
  const auto alignment_bits = device_info<cl_uint>(id, CL_DEVICE_MEM_BASE_ADDR_ALIGN, 1024);
  p.allocation_alignment_bytes = std::clamp<uint64_t>(alignment_bits / 8, 64, 4096);
  p.capability_major = d->found.major;
  p.capability_minor = d->found.minor;
  p.multiprocessor_count = static_cast<int32_t>(device_info<cl_uint>(id, CL_DEVICE_MAX_COMPUTE_UNITS, 1));
  // OpenCL does not tell; a processor runs the items of a group one after the other, and others at least this many at once.
  p.warp_size = (device_info<cl_device_type>(id, CL_DEVICE_TYPE) & CL_DEVICE_TYPE_CPU) != 0 ? 1 : 32;
  p.numa_node = -1;
  if (has_extension(*d, "cl_khr_device_uuid")) cl.GetDeviceInfo(id, CL_DEVICE_UUID_KHR, sizeof p.uuid, p.uuid, nullptr);
  set_limits(*d, &p);
  set_compute_dtypes(*d, p.compute_dtype_mask);
}

result open(device* d) {
  cl_int error = CL_SUCCESS;
  d->context = cl.CreateContext(nullptr, 1, &d->found.id, nullptr, nullptr, &error);
  if (error != CL_SUCCESS) return check(error, "clCreateContext");
  d->service = cl.CreateCommandQueue(d->context, d->found.id, CL_QUEUE_PROFILING_ENABLE, &error);
  if (error != CL_SUCCESS) return check(error, "clCreateCommandQueue");
  result r = choose_memory(d);
  if (!r.ok()) return r;
  describe(d);
  return start_default_queue(*d);
}

} // namespace

device& device_at(int32_t index) {
  return *devices()[index];
}

result initialize() {
  std::vector<found_device> found;
  result r = find_devices(&found);
  if (!r.ok()) return r;
  std::vector<std::unique_ptr<device>> opened;
  for (const found_device& f : found) {
    opened.emplace_back(new device(static_cast<int32_t>(opened.size()), f));
    if (r = open(opened.back().get()); !r.ok()) {
      r.text = "OpenCL device " + info_text(cl.GetDeviceInfo, f.id, CL_DEVICE_NAME) + ": " + r.text +
               ". ocl.platform and ocl.device_type can leave it out";
      return r;
    }
  }
  if (r = watch_forks("ocl"); !r.ok()) return r;
  devices() = std::move(opened);
  return {};
}

result device_count(int32_t* out_count) {
  static std::mutex mutex; // guards counted
  static int32_t counted = -1;
  const std::lock_guard<std::mutex> lock(mutex);
  if (counted < 0)
    if (result r = count_devices(&counted); !r.ok()) return r;
  *out_count = counted;
  return {};
}

result device_properties(int32_t device, tb_device_properties* out_properties) {
  tb_device_properties properties = device_at(device).properties;
  properties.struct_size = std::min<uint64_t>(out_properties->struct_size, sizeof properties);
  std::memcpy(out_properties, &properties, properties.struct_size);
  return {};
}

} // namespace ocl
