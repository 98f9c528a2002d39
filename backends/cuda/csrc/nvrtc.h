// NVRTC, the compiler of CUDA C++ that is a library, opened when the driver is started.
//
// Names are those of NVIDIA's nvrtc.h; backends/cuda/test/declarations.cpp compares them.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "result.h"

extern "C" struct _nvrtcProgram; // NOLINT: NVRTC's name

namespace xcuda {

using nvrtcResult = int;
using nvrtcProgram = _nvrtcProgram*;

// X(name, parameters)
#define XCUDA_NVRTC_FUNCTIONS(X)                                                                                       \
  X(Version, (int* major, int* minor))                                                                                 \
  X(GetNumSupportedArchs, (int* count))                                                                                \
  X(GetSupportedArchs, (int* archs))                                                                                   \
  X(CreateProgram, (nvrtcProgram * program, const char* source, const char* name, int count, const char* const* texts, \
                    const char* const* names))                                                                         \
  X(CompileProgram, (nvrtcProgram program, int count, const char* const* options))                                     \
  X(GetProgramLogSize, (nvrtcProgram program, size_t* bytes))                                                          \
  X(GetProgramLog, (nvrtcProgram program, char* text))                                                                 \
  X(GetCUBINSize, (nvrtcProgram program, size_t* bytes))                                                               \
  X(GetCUBIN, (nvrtcProgram program, char* code))                                                                      \
  X(GetPTXSize, (nvrtcProgram program, size_t* bytes))                                                                 \
  X(GetPTX, (nvrtcProgram program, char* code))                                                                        \
  X(DestroyProgram, (nvrtcProgram * program))

struct nvrtc_functions {
#define XCUDA_MEMBER(name, parameters) nvrtcResult(*name) parameters = nullptr;
  XCUDA_NVRTC_FUNCTIONS(XCUDA_MEMBER)
#undef XCUDA_MEMBER
};

// "NVRTC 12.9, contracted" and the like: all that what it makes depends on, but the architecture. "" if there is none.
const std::string& compiler_version();

// Code of `source` for devices of this capability: a cubin, or PTX where the compiler is older than the device. Fails
// with the compiler's messages.
result compile(std::string_view source, int capability_major, int capability_minor, std::string* out_code);

} // namespace xcuda
