// CUDA C++ to a shared object, by the host's compiler.
#pragma once

#include <string>

namespace sim {

// The code of a module for devices of capability `arch`, 90 for 9.0; "" and the compiler's messages if it refuses.
std::string build_module(const std::string& source, int arch, bool fmad, std::string* out_log);

// Code is an ELF file with this behind it.
struct code_end {
  char magic[8];
  long long arch;
  unsigned long long sum; // of all before
};
constexpr int kCodeVersionAt = 6;
constexpr char kCodeMagic[8] = "SIMCOD2";

// Whole code for this device, or an error as cuModuleLoadData has it. *out_size is without the end.
int check_code(const void* code, int arch, size_t* out_size);

constexpr char kPtx[] = "// simulated PTX\n";

} // namespace sim
