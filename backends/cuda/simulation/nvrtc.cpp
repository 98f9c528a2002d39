// The simulated NVRTC.
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <vector>

#include "common/simulation/rules.h"
#include "compiler.h"
#include "recording.h"

const char* const sim::kPrefix = "CUDA_SIM";

#define NVRTC_API extern "C" __attribute__((visibility("default"))) int

namespace {

constexpr int kOutOfMemory = 1, kInvalidInput = 3, kInvalidProgram = 4, kInvalidOption = 5, kCompilation = 6;

// Of the capabilities that CUDA_SIM_ARCHS lists.
std::vector<int> archs() {
  const char* set = sim::setting("ARCHS");
  std::istringstream text(set ? set : "75 80 90");
  std::vector<int> all;
  for (int arch; text >> arch;) all.push_back(arch);
  return all;
}

} // namespace

struct _nvrtcProgram {
  std::string source, log, code, ptx;
};

namespace {
using nvrtcProgram = _nvrtcProgram*;

int copy(const std::string& what, char* to) {
  std::memcpy(to, what.data(), what.size());
  return 0;
}
} // namespace

// As the file is called: libnvrtc.so.12.
NVRTC_API nvrtcVersion(int* major, int* minor) {
  Dl_info info{};
  dladdr(reinterpret_cast<void*>(nvrtcVersion), &info);
  const std::string path = info.dli_fname ? info.dli_fname : "";
  *major = std::atoi(path.substr(path.find(".so.") + 4).c_str());
  *minor = 4;
  return 0;
}

extern "C" __attribute__((visibility("default"))) const char* nvrtcGetErrorString(int error) {
  switch (error) {
    case kOutOfMemory:
      return "NVRTC_ERROR_OUT_OF_MEMORY";
    case kInvalidProgram:
      return "NVRTC_ERROR_INVALID_PROGRAM";
    case kInvalidOption:
      return "NVRTC_ERROR_INVALID_OPTION";
    case kCompilation:
      return "NVRTC_ERROR_COMPILATION";
    default:
      return "NVRTC_ERROR";
  }
}

NVRTC_API nvrtcGetNumSupportedArchs(int* count) {
  *count = static_cast<int>(archs().size());
  return 0;
}

NVRTC_API nvrtcGetSupportedArchs(int* all) {
  for (const int arch : archs()) *all++ = arch;
  return 0;
}

NVRTC_API nvrtcCreateProgram(nvrtcProgram* program, const char* source, const char*, int count, const char* const*,
                             const char* const*) {
  if (const int fault = sim::injected_fault("nvrtcCreateProgram")) return fault;
  if (!source || count != 0) return sim::refuse(kInvalidInput, "nvrtcCreateProgram: no source, or headers");
  *program = new _nvrtcProgram{source, {}, {}, {}};
  return 0;
}

NVRTC_API nvrtcDestroyProgram(nvrtcProgram* program) {
  delete *program;
  *program = nullptr;
  return 0;
}

NVRTC_API nvrtcCompileProgram(nvrtcProgram program, int count, const char* const* options) {
  if (const int fault = sim::injected_fault("nvrtcCompileProgram")) return fault;
  int arch = 0;
  bool fmad = true, real = false;
  for (int i = 0; i < count; ++i) {
    const std::string option = options[i];
    if (std::sscanf(options[i], "-arch=sm_%d", &arch) == 1)
      real = true;
    else if (option == "-fmad=false")
      fmad = false;
    else if (std::sscanf(options[i], "-arch=compute_%d", &arch) != 1 && option != "-fmad=true" &&
             option != "-std=c++17")
      return sim::refuse(kInvalidOption, "nvrtcCompileProgram: %s", options[i]);
  }
  bool known = false;
  for (const int each : archs()) known |= each == arch;
  if (!known) return sim::refuse(kInvalidOption, "nvrtcCompileProgram: no supported -arch");
  std::string text = "//";
  for (int i = 0; i < count; ++i) text += std::string(" ") + options[i];
  text += '\n' + program->source;
  sim::record_text(text);
  if (!sim::runs_kernels()) {
    program->code = sim::kPtx + text + '\0';
    return 0;
  }
  program->code = sim::build_module(program->source, arch, fmad, &program->log);
  if (program->code.empty()) return kCompilation;
  program->ptx = sim::kPtx + program->source + '\0';
  if (!real) program->code.clear();
  return 0;
}

NVRTC_API nvrtcGetProgramLogSize(nvrtcProgram program, size_t* bytes) {
  *bytes = program->log.size() + 1;
  return 0;
}
NVRTC_API nvrtcGetProgramLog(nvrtcProgram program, char* text) {
  return copy(program->log + '\0', text);
}
NVRTC_API nvrtcGetCUBINSize(nvrtcProgram program, size_t* bytes) {
  *bytes = program->code.size();
  return 0;
}
NVRTC_API nvrtcGetCUBIN(nvrtcProgram program, char* code) {
  if (program->code.empty()) return sim::refuse(kInvalidProgram, "nvrtcGetCUBIN: compiled for no real architecture");
  return copy(program->code, code);
}
NVRTC_API nvrtcGetPTXSize(nvrtcProgram program, size_t* bytes) {
  *bytes = program->ptx.size();
  return 0;
}
NVRTC_API nvrtcGetPTX(nvrtcProgram program, char* code) {
  return copy(program->ptx, code);
}
