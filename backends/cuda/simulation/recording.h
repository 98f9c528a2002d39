// What programs compile and launch, written down in the folder CUDA_SIM_RECORD. With CUDA_SIM_RUN=0 nothing is compiled or
// run.
#pragma once

#include <string>

#include "common/simt/kernel_abi.h"

namespace sim {

// The text of a module, in the file NAME.cu of the folder, if there is one. The name.
std::string record_text(const std::string& text);

bool runs_kernels();

// What takes the place of a module that is not run.
struct recorded_module {
  std::string name;
  size_t pointers = 0; // which its functions take, before all else

  explicit recorded_module(const std::string& text);
};

// A line in the file "launches" of the folder: module, function, grid, block, bytes of shared memory, pointers.
void record_launch(const recorded_module& module, const std::string& function, simt_index grid, simt_index block,
                   unsigned shared_bytes, void** parameters);

// What programs read, as nothing was computed: zeros, but that of whatever they count with 64 bits there is one.
void copy_unknown_result(void* to, size_t bytes);

} // namespace sim
