// Modules and launches, whose blocks run on the stream's thread.
#include <cstring>

#include "common/simt/program.h"
#include "compiler.h"
#include "driver.h"
#include "recording.h"

struct CUmod_st {
  sim::CUcontext context = nullptr;
  std::shared_ptr<const plugin::simt::program> code;
  std::unique_ptr<const sim::recorded_module> text; // in its place, where nothing runs
  std::mutex mutex;                                 // guards functions
  std::map<std::string, sim::CUfunction> functions;
  std::atomic<int> pending{0};
  std::atomic<bool> unloaded{false};
};

struct CUfunc_st {
  sim::CUmodule module = nullptr;
  const simt_kernel* kernel = nullptr;
  std::string name;
};

namespace sim {
namespace {

struct launch {
  CUfunction function;
  plugin::simt::launch_shape shape;
  std::vector<std::vector<char>> values; // of the parameters
};

int run(const launch& l, CUcontext context) {
  CUmodule module = l.function->module;
  const simt_kernel* kernel = l.function->kernel;
  if (module->unloaded) return refuse(kCUDA_ERROR_LAUNCH_FAILED, "%s: its module is unloaded", kernel->name);
  auto values = l.values;
  std::vector<void*> parameters;
  for (size_t i = 0; i < values.size(); ++i) {
    if (kernel->parameters[i].is_pointer) {
      CUdeviceptr given = 0;
      std::memcpy(&given, values[i].data(), sizeof given);
      char* found = given ? resolve(given, 0, context) : nullptr;
      if (given && !found)
        return refuse(kCUDA_ERROR_ILLEGAL_ADDRESS, "%s: parameter %zu is not memory that the device can access",
                      kernel->name, i);
      std::memcpy(values[i].data(), &found, sizeof found);
    }
    parameters.push_back(values[i].data());
  }
  const plugin::result r = module->code->run(*kernel, l.shape, parameters.data(), 0,
                                             uint64_t{l.shape.grid.x} * l.shape.grid.y * l.shape.grid.z);
  return r.ok() ? 0 : refuse(kCUDA_ERROR_ILLEGAL_ADDRESS, "%s", r.text.c_str());
}

} // namespace
} // namespace sim

using namespace sim;

CU_API cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned count, int*, void**) {
  CUcontext context = nullptr;
  if (const int error = enter("cuModuleLoadDataEx", &context)) return error;
  if (const int error = refuse_unsafe("cuModuleLoadDataEx")) return error;
  if (count) return refuse(kCUDA_ERROR_INVALID_VALUE, "cuModuleLoadDataEx: options are not simulated");
  const int arch = setting("CAPABILITY", 90);
  const auto* bytes = static_cast<const char*>(image);
  size_t size = 0;
  std::string code, log;
  if (std::strncmp(bytes, kPtx, sizeof kPtx - 1) == 0) {
    if (!runs_kernels()) {
      *module = make<CUmod_st>();
      (*module)->context = context;
      (*module)->text = std::make_unique<recorded_module>(bytes + sizeof kPtx - 1);
      return 0;
    }
    code = build_module(bytes + sizeof kPtx - 1, arch, false, &log);
    if (code.empty()) return refuse(kCUDA_ERROR_INVALID_PTX, "cuModuleLoadDataEx: %s", log.c_str());
  } else {
    if (const int error = check_code(image, arch, &size)) return error;
    code.assign(bytes, size);
  }
  std::shared_ptr<const plugin::simt::program> opened;
  const plugin::result r = plugin::simt::program::open(std::move(code), &opened);
  if (!r.ok()) return refuse(kCUDA_ERROR_INVALID_IMAGE, "cuModuleLoadDataEx: %s", r.text.c_str());
  *module = make<CUmod_st>();
  (*module)->context = context;
  (*module)->code = std::move(opened);
  return 0;
}

CU_API cuModuleUnload(CUmodule module) {
  CUcontext context = nullptr;
  if (const int error = enter("cuModuleUnload", &context)) return error;
  if (const int error = refuse_unsafe("cuModuleUnload")) return error;
  if (!registry<CUmod_st>::all().has(module) || module->context != context)
    return refuse(kCUDA_ERROR_INVALID_HANDLE, "cuModuleUnload: not a module of this context");
  if (module->pending) return refuse(kCUDA_ERROR_INVALID_VALUE, "cuModuleUnload: its code still runs");
  registry<CUmod_st>::all().remove(module);
  module->unloaded = true;
  for (const auto& [name, function] : module->functions) registry<CUfunc_st>::all().remove(function);
  return 0;
}

CU_API cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  CUcontext context = nullptr;
  if (const int error = enter("cuModuleGetFunction", &context)) return error;
  if (!registry<CUmod_st>::all().has(module) || module->context != context)
    return refuse(kCUDA_ERROR_INVALID_HANDLE, "cuModuleGetFunction: not a module of this context");
  const std::lock_guard<std::mutex> lock(module->mutex);
  CUfunction& made = module->functions[name];
  const auto make_function = [&](const simt_kernel* kernel) {
    made = make<CUfunc_st>();
    made->module = module;
    made->kernel = kernel;
    made->name = name;
  };
  if (!made && module->text) make_function(nullptr);
  if (const simt_kernel* found = !made && module->code ? module->code->find(name) : nullptr) make_function(found);
  *function = made;
  if (made) return 0;
  module->functions.erase(name);
  return kCUDA_ERROR_NOT_FOUND; // how programs ask
}

CU_API cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                      unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream handle, void** params,
                      void** extra) {
  CUstream stream = nullptr;
  if (const int error = enter("cuLaunchKernel", handle, &stream)) return error;
  if (!registry<CUfunc_st>::all().has(function))
    return refuse(kCUDA_ERROR_INVALID_HANDLE, "cuLaunchKernel: not a function");
  if (function->module->context != stream->context)
    return refuse(kCUDA_ERROR_INVALID_HANDLE, "cuLaunchKernel: module and stream are of two contexts");
  if (!grid_x || !grid_y || !grid_z || !block_x || !block_y || !block_z || grid_x > 0x7fffffff || grid_y > 65535 ||
      grid_z > 65535 || block_x > 1024 || block_y > 1024 || block_z > 64 || block_x * block_y * block_z > 1024)
    return refuse(kCUDA_ERROR_INVALID_VALUE, "cuLaunchKernel: a grid of %u x %u x %u blocks of %u x %u x %u", grid_x,
                  grid_y, grid_z, block_x, block_y, block_z);
  if (shared_bytes > kSharedBytes)
    return refuse(kCUDA_ERROR_INVALID_VALUE, "cuLaunchKernel: %u bytes of shared memory", shared_bytes);
  if (extra) return refuse(kCUDA_ERROR_INVALID_VALUE, "cuLaunchKernel: `extra` is not simulated");
  launch l{function, {{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_bytes}, {}};
  if (const auto& text = function->module->text) {
    record_launch(*text, function->name, l.shape.grid, l.shape.block, shared_bytes, params);
    return 0;
  }
  for (size_t i = 0; function->kernel->parameters[i].size; ++i) {
    if (!params || !params[i]) return refuse(kCUDA_ERROR_INVALID_VALUE, "cuLaunchKernel: parameter %zu is missing", i);
    const auto* value = static_cast<const char*>(params[i]);
    l.values.emplace_back(value, value + function->kernel->parameters[i].size);
  }
  struct pending {
    CUmodule of;
    explicit pending(CUmodule module) : of(module) {
      ++of->pending;
    }
    ~pending() {
      --of->pending;
    }
  };
  auto held = std::make_shared<pending>(function->module);
  traced_work work{traced_work::kKernel, function->kernel->name};
  return enqueue("cuLaunchKernel", stream,
                 {[l = std::move(l), held, stream] { return run(l, stream->context); }, false, std::move(work)});
}
