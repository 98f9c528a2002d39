// Modules and launches. The items of a block run one after the other on the stream's thread; each that waits at a barrier
// keeps a stack of its own until all have come there.
#include <dlfcn.h>
#include <setjmp.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "compiler.h"
#include "driver.h"
#include "kernel_abi.h"
#include "recording.h"

struct CUmod_st {
  sim::CUcontext context = nullptr;
  const sim_module* code = nullptr;
  std::unique_ptr<const sim::recorded_module> text; // in its place, where nothing runs
  std::mutex running;                               // of one launch at a time
  std::mutex mutex;                                 // guards functions
  std::map<std::string, sim::CUfunction> functions;
  std::atomic<int> pending{0};
  std::atomic<bool> unloaded{false};
};

struct CUfunc_st {
  sim::CUmodule module = nullptr;
  const sim_kernel* kernel = nullptr;
  std::string name;
};

namespace sim {
namespace {

constexpr size_t kStackBytes = 256 << 10;
constexpr unsigned char kUnwritten = 0xD5;
constexpr unsigned kGuardBytes = 64; // behind dynamic shared memory

// ---- a block ----

class block;
thread_local block* running = nullptr;

struct fiber {
  jmp_buf here;
  bool started = false, waits = false;
  ucontext_t start;
};

class block {
 public:
  block(const sim_module* code, const sim_kernel* kernel, void** parameters, sim_index size)
      : code_(code), kernel_(kernel), parameters_(parameters), size_(size) {
    *code->barrier = [] { running->wait(); };
  }

  void run() {
    running = this;
    next_ = 0;
    auto& all = fibers();
    size_t used = 0;
    for (; next_ < items(); ++used) {
      if (used == all.size()) all.push_back(make());
      resume(all[used]);
    }
    for (bool any = true; any;) {
      any = false;
      for (size_t i = 0; i < used; ++i)
        if (all[i]->waits) resume(all[i]), any = true;
    }
    running = nullptr;
  }

 private:
  static std::vector<fiber*>& fibers() {
    static thread_local std::vector<fiber*> all; // kept as long as the thread, and then leaked
    return all;
  }
  static fiber* make() {
    auto* made = new fiber;
    getcontext(&made->start);
    made->start.uc_stack.ss_sp =
        mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    made->start.uc_stack.ss_size = kStackBytes;
    if (made->start.uc_stack.ss_sp == MAP_FAILED) std::abort();
    makecontext(&made->start, [] { running->work(); }, 0);
    return made;
  }

  unsigned items() const {
    return size_.x * size_.y * size_.z;
  }
  void resume(fiber* f) {
    current_ = f;
    if (_setjmp(scheduler_)) return;
    if (f->started) _longjmp(f->here, 1);
    f->started = true;
    setcontext(&f->start);
  }
  static void leave(fiber* f) {
    if (!_setjmp(f->here)) _longjmp(running->scheduler_, 1);
  }
  // On a fiber's stack, for ever: one item after the other.
  [[noreturn]] void work() {
    for (fiber* self = running->current_;;) {
      block& b = *running;
      while (b.next_ < b.items()) {
        const unsigned item = b.next_++;
        *b.code_->thread = {item % b.size_.x, item / b.size_.x % b.size_.y, item / b.size_.x / b.size_.y};
        b.kernel_->run(b.parameters_);
      }
      leave(self);
    }
  }
  void wait() {
    fiber* self = current_;
    const sim_index thread = *code_->thread;
    self->waits = true;
    leave(self);
    self->waits = false;
    *running->code_->thread = thread;
  }

  const sim_module* code_;
  const sim_kernel* kernel_;
  void** parameters_;
  const sim_index size_;
  unsigned next_ = 0;
  fiber* current_ = nullptr;
  jmp_buf scheduler_;
};

// ---- a launch ----

struct launch {
  CUfunction function;
  sim_index grid, size;
  unsigned shared_bytes;
  std::vector<std::vector<char>> values; // of the parameters
};

int run(const launch& l, CUcontext context) {
  CUmodule module = l.function->module;
  const sim_kernel* kernel = l.function->kernel;
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
  const std::lock_guard<std::mutex> lock(module->running);
  const sim_module* code = module->code;
  *code->block_size = l.size;
  *code->grid_size = l.grid;
  block b(code, kernel, parameters.data(), l.size);
  for (unsigned z = 0; z < l.grid.z; ++z)
    for (unsigned y = 0; y < l.grid.y; ++y)
      for (unsigned x = 0; x < l.grid.x; ++x) {
        std::memset(code->shared, kUnwritten, l.shared_bytes + kGuardBytes);
        *code->block = {x, y, z};
        b.run();
        for (unsigned i = 0; i < kGuardBytes; ++i)
          if (code->shared[l.shared_bytes + i] != kUnwritten)
            return refuse(kCUDA_ERROR_ILLEGAL_ADDRESS, "%s: writes behind its %u bytes of shared memory", kernel->name,
                          l.shared_bytes);
      }
  return 0;
}

const sim_module* open_code(const std::string& code) {
  std::string path = (std::filesystem::temp_directory_path() / "cuda-sim-XXXXXX").string();
  const int file = mkstemp(path.data());
  if (file < 0) std::abort();
  close(file);
  std::ofstream(path, std::ios::binary) << code;
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  unlink(path.c_str());
  return library ? static_cast<const sim_module*>(dlsym(library, "sim_this_module")) : nullptr;
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
  const sim_module* opened = open_code(code);
  if (!opened) return refuse(kCUDA_ERROR_INVALID_IMAGE, "cuModuleLoadDataEx: %s", dlerror());
  *module = make<CUmod_st>();
  (*module)->context = context;
  (*module)->code = opened;
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
  const auto make_function = [&](const sim_kernel* kernel) {
    made = make<CUfunc_st>();
    made->module = module;
    made->kernel = kernel;
    made->name = name;
  };
  if (!made && module->text) make_function(nullptr);
  for (const sim_kernel* k = module->code ? module->code->kernels : nullptr; !made && k && k->name; ++k)
    if (std::strcmp(k->name, name) == 0) make_function(k);
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
  launch l{function, {grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_bytes, {}};
  if (const auto& text = function->module->text) {
    record_launch(*text, function->name, l.grid, l.size, shared_bytes, params);
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
