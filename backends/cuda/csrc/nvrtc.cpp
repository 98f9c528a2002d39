#include "nvrtc.h"

#include <dlfcn.h>

#include <algorithm>
#include <vector>

#include "cu.h"
#include "library.h"
#include "options.h"

namespace xcuda {
namespace {

struct compiler {
  nvrtc_functions call;
  const char* (*error_string)(nvrtcResult) = nullptr;
  std::string version, why_not;
  std::vector<int> archs; // 90 for 9.0, ascending

  compiler() {
    open();
    if (!why_not.empty()) version.clear();
  }

 private:
  void open() {
    const std::vector<std::string> names = versions_of("libnvrtc.so");
    std::string tried;
    void* library = open_library(names, &tried);
    if (!library) {
      why_not = "NVRTC, CUDA's compiler, is not installed (" + tried + "): pip install nvidia-cuda-nvrtc" +
                (driver_version() / 1000 == 12 ? "-cu12" : "") +
                ", or set the option xcuda.library_path to the folder of " + names[0];
      return;
    }
    open_beside(library, "nvrtcVersion", "libnvrtc-builtins.so*");
#define XCUDA_LOAD(name, parameters) call.name = reinterpret_cast<decltype(call.name)>(dlsym(library, "nvrtc" #name));
#define XCUDA_NEED(name, parameters) \
  if (!call.name) why_not = "libnvrtc has no nvrtc" #name ": it is older than CUDA 12.0";
    XCUDA_NVRTC_FUNCTIONS(XCUDA_LOAD)
    XCUDA_NVRTC_FUNCTIONS(XCUDA_NEED)
#undef XCUDA_LOAD
#undef XCUDA_NEED
    error_string = reinterpret_cast<decltype(error_string)>(dlsym(library, "nvrtcGetErrorString"));
    if (why_not.empty()) ask();
  }
  void ask() {
    int major = 0, minor = 0, count = 0;
    call.Version(&major, &minor);
    call.GetNumSupportedArchs(&count);
    archs.resize(static_cast<size_t>(count));
    call.GetSupportedArchs(archs.data());
    std::sort(archs.begin(), archs.end());
    version = "NVRTC " + std::to_string(major) + "." + std::to_string(minor) + (settings().fmad ? ", fmad" : "");
  }
};

const compiler& nvrtc() {
  static const auto& opened = *new compiler;
  return opened;
}

result check_call(nvrtcResult error, const char* what) {
  if (error == 0) return {};
  const compiler& c = nvrtc();
  return failure(TB_STATUS_INTERNAL, "%s: %s", what, c.error_string ? c.error_string(error) : "failed");
}

struct program {
  nvrtcProgram handle = nullptr;
  ~program() {
    if (handle) nvrtc().call.DestroyProgram(&handle);
  }
};

std::string log_of(nvrtcProgram handle) {
  size_t size = 0;
  if (nvrtc().call.GetProgramLogSize(handle, &size) != 0 || size == 0) return "";
  std::string text(size, '\0');
  nvrtc().call.GetProgramLog(handle, text.data());
  return text.c_str();
}

template <typename Size, typename Get>
result take(nvrtcProgram handle, Size size_of, Get get, std::string* out_code) {
  size_t size = 0;
  result r = check_call(size_of(handle, &size), "nvrtcGetCUBINSize");
  if (!r.ok()) return r;
  std::string code(size, '\0');
  r = check_call(get(handle, code.data()), "nvrtcGetCUBIN");
  if (r.ok()) *out_code = std::move(code);
  return r;
}

} // namespace

const std::string& compiler_version() {
  return nvrtc().version;
}

result compile(std::string_view source, int capability_major, int capability_minor, std::string* out_code) {
  const compiler& c = nvrtc();
  if (!c.why_not.empty()) return {TB_STATUS_INTERNAL, c.why_not};
  const int wanted = capability_major * 10 + capability_minor;
  const auto above = std::upper_bound(c.archs.begin(), c.archs.end(), wanted);
  if (above == c.archs.begin())
    return failure(TB_STATUS_INTERNAL, "%s compiles for sm_%d and later, and this device is sm_%d", c.version.c_str(),
                   c.archs.empty() ? 0 : c.archs[0], wanted);
  const int arch = *std::prev(above);
  const std::string target = (arch == wanted ? "-arch=sm_" : "-arch=compute_") + std::to_string(arch);
  const char* options[] = {target.c_str(), "-std=c++17", settings().fmad ? "-fmad=true" : "-fmad=false"};
  program p;
  result r = check_call(c.call.CreateProgram(&p.handle, std::string(source).c_str(), "module.cu", 0, nullptr, nullptr),
                        "nvrtcCreateProgram");
  if (!r.ok()) return r;
  if (c.call.CompileProgram(p.handle, 3, options) != 0)
    return {TB_STATUS_INVALID_ARGUMENT, c.version + " refuses the module:\n" + log_of(p.handle)};
  return arch == wanted ? take(p.handle, c.call.GetCUBINSize, c.call.GetCUBIN, out_code)
                        : take(p.handle, c.call.GetPTXSize, c.call.GetPTX, out_code);
}

} // namespace xcuda
