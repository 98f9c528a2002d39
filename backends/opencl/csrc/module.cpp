#include "module.h"

#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "allocation.h"
#include "stream.h"

struct tb_function {
  explicit tb_function(cl_kernel kernel) : kernel(kernel) {}
  tb_function(const tb_function&) = delete;
  tb_function& operator=(const tb_function&) = delete;
  ~tb_function() {
    ocl::cl.ReleaseKernel(kernel); // the driver keeps it for launches that are pending
  }

  std::mutex mutex; // guards the kernel's arguments, from the first that is set to the launch
  const cl_kernel kernel;
};

struct tb_module {
  explicit tb_module(cl_program program) : program(program) {}
  tb_module(const tb_module&) = delete;
  tb_module& operator=(const tb_module&) = delete;
  ~tb_module() {
    functions.clear();
    ocl::cl.ReleaseProgram(program);
  }

  const cl_program program;
  std::mutex mutex; // guards functions
  std::map<std::string, std::unique_ptr<tb_function>> functions;
};

namespace ocl {
namespace {

constexpr char kSource[] = "opencl-c", kImage[] = "image";

std::string build_log(const device& d, cl_program program) {
  size_t size = 0;
  if (cl.GetProgramBuildInfo(program, d.found.id, CL_PROGRAM_BUILD_LOG, 0, nullptr, &size) != CL_SUCCESS || size == 0)
    return "";
  std::string log(size, '\0');
  cl.GetProgramBuildInfo(program, d.found.id, CL_PROGRAM_BUILD_LOG, size, log.data(), nullptr);
  return log.c_str();
}

// PyTorch divides and takes roots as IEEE 754 says; OpenCL C does where it is asked to, and the device can. Drivers print
// how many warnings there were; they are about tests for NaN of whole numbers.
const char* build_options(const device& d) {
  const auto arithmetic = device_info<cl_device_fp_config>(d.found.id, CL_DEVICE_SINGLE_FP_CONFIG);
  return arithmetic & CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT ? "-cl-std=CL1.2 -w -cl-fp32-correctly-rounded-divide-sqrt"
                                                          : "-cl-std=CL1.2 -w";
}

result build(const device& d, const tb_module& module) {
  result r = check(cl.BuildProgram(module.program, 1, &d.found.id, build_options(d), nullptr, nullptr), "module_load");
  if (!r.ok()) r.text += "\n" + build_log(d, module.program);
  return r;
}

result load_source(const device& d, const void* text, size_t size, std::unique_ptr<tb_module>* out_module) {
  if (!device_info<cl_bool>(d.found.id, CL_DEVICE_COMPILER_AVAILABLE))
    return failure(TB_STATUS_UNSUPPORTED, "module_load: the device's OpenCL driver has no compiler");
  const char* source = static_cast<const char*>(text);
  cl_int error = CL_SUCCESS;
  const cl_program program = cl.CreateProgramWithSource(d.context, 1, &source, &size, &error);
  if (error != CL_SUCCESS) return check(error, "clCreateProgramWithSource");
  *out_module = std::make_unique<tb_module>(program);
  return build(d, **out_module);
}

// Whatever the driver does not like about it: the source is the way out.
result load_image(const device& d, const void* image, size_t size, std::unique_ptr<tb_module>* out_module) {
  const auto* bytes = static_cast<const unsigned char*>(image);
  cl_int error = CL_SUCCESS, refused = CL_SUCCESS;
  const cl_program program = cl.CreateProgramWithBinary(d.context, 1, &d.found.id, &size, &bytes, &refused, &error);
  result r = check(error, "clCreateProgramWithBinary");
  if (r.ok()) {
    *out_module = std::make_unique<tb_module>(program);
    r = build(d, **out_module);
  }
  if (!r.ok()) r.status = TB_STATUS_UNSUPPORTED;
  return r;
}

// A parameter of "opencl-c" at `index`, which is left at the next: a pointer is two.
cl_int set_pointer(const device& d, const lookup& addresses, cl_kernel kernel, const void* address, cl_uint* index) {
  cl_ulong offset = 0;
  cl_int error;
  if (d.svm) {
    error = cl.SetKernelArgSVMPointer(kernel, (*index)++, address);
  } else {
    cl_mem buffer = nullptr;
    if (address) {
      const allocation* a = addresses.find(address);
      if (!a) return CL_INVALID_ARG_VALUE;
      buffer = a->buffer;
      offset = a->offset_of(address);
    }
    error = cl.SetKernelArg(kernel, (*index)++, sizeof buffer, &buffer);
  }
  return error == CL_SUCCESS ? cl.SetKernelArg(kernel, (*index)++, sizeof offset, &offset) : error;
}

result set_params(const device& d, cl_kernel kernel, const tb_launch_param* params, uint32_t num_params) {
  const lookup addresses;
  cl_uint index = 0;
  for (uint32_t i = 0; i < num_params; ++i) {
    const tb_launch_param& p = params[i];
    const cl_int error =
        p.kind == TB_PARAM_POINTER
            ? set_pointer(d, addresses, kernel, p.data, &index)
            : cl.SetKernelArg(kernel, index++, p.size_bytes, p.data); // the data of LOCAL is NULL, as OpenCL has it
    if (error != CL_SUCCESS)
      return failure(TB_STATUS_INVALID_ARGUMENT, "module_launch: parameter %u, of kind %u and %u bytes: %s", i, p.kind,
                     p.size_bytes, error_text(error).c_str());
  }
  return {};
}

} // namespace

const char* const* module_formats() {
  static const char* const formats[] = {kSource, nullptr};
  return formats;
}

result module_load(int32_t device, const char* format, const void* image, uint64_t size_bytes, tb_module** out_module) {
  const ocl::device& d = device_at(device);
  std::unique_ptr<tb_module> module;
  result r;
  if (std::strcmp(format, kSource) == 0)
    r = load_source(d, image, size_bytes, &module);
  else if (std::strcmp(format, kImage) == 0)
    r = load_image(d, image, size_bytes, &module);
  else
    r = failure(TB_STATUS_UNSUPPORTED, "module_load: format \"%s\" is neither \"%s\" nor \"%s\"", format, kSource,
                kImage);
  if (r.ok()) *out_module = module.release();
  return r;
}

result module_unload(int32_t, tb_module* module) {
  delete module;
  return {};
}

result module_function(int32_t, tb_module* module, const char* name, tb_function** out_function) {
  const std::lock_guard<std::mutex> lock(module->mutex);
  std::unique_ptr<tb_function>& function = module->functions[name];
  if (!function) {
    cl_int error = CL_SUCCESS;
    const cl_kernel kernel = cl.CreateKernel(module->program, name, &error);
    if (error != CL_SUCCESS) {
      module->functions.erase(name);
      result r = check(error, "module_function");
      r.text += std::string(", of \"") + name + "\"";
      return r;
    }
    function = std::make_unique<tb_function>(kernel);
  }
  *out_function = function.get();
  return {};
}

result module_launch(int32_t device, tb_function* function, const uint32_t grid[3], const uint32_t block[3],
                     const tb_launch_param* params, uint32_t num_params, tb_stream* stream) {
  queue& q = queue_of(device, stream);
  size_t global[3], local[3];
  for (int i = 0; i < 3; ++i) {
    local[i] = block[i];
    global[i] = static_cast<size_t>(grid[i]) * block[i];
  }
  const cl_uint dimensions = global[2] > 1 ? 3 : global[1] > 1 ? 2 : 1;
  const std::lock_guard<std::mutex> lock(function->mutex);
  result r = set_params(q.owner(), function->kernel, params, num_params);
  if (!r.ok()) return r;
  return q.enqueue("module_launch", [&](cl_command_queue c, cl_event* event) {
    return cl.EnqueueNDRangeKernel(c, function->kernel, dimensions, nullptr, global, local, 0, nullptr, event);
  });
}

result module_image(int32_t device, tb_module* module, void* out_image, uint64_t* size_bytes) {
  (void)device; // its program has no other device
  size_t needed = 0;
  result r = check(cl.GetProgramInfo(module->program, CL_PROGRAM_BINARY_SIZES, sizeof needed, &needed, nullptr),
                   "module_image");
  if (!r.ok()) return r;
  if (needed == 0) return failure(TB_STATUS_UNSUPPORTED, "module_image: the driver does not give binaries");
  auto* bytes = static_cast<unsigned char*>(out_image);
  if (needed <= *size_bytes)
    r = check(cl.GetProgramInfo(module->program, CL_PROGRAM_BINARIES, sizeof bytes, &bytes, nullptr), "module_image");
  if (r.ok()) *size_bytes = needed;
  return r;
}

} // namespace ocl
