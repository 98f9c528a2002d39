// The user's settings, "xcuda.<key>", read once at load. README.md lists them.
#pragma once

#include <string>

#include "result.h"

namespace xcuda {

struct options {
  std::string library_path;   // folders with libraries of CUDA, separated by colons
  bool fmad = false;          // a * b + c in kernels is rounded once
  bool stream_alloc = false;  // device memory comes from the driver's pool, in the order of streams
  bool deterministic = false; // convolutions give the same bits each time
  bool allow_tf32 = false;    // in products of matrices and convolutions
  // Products of matrices, as torch.backends.cuda.matmul has them.
  bool allow_fp16_reduced_precision_reduction = true;
  bool allow_bf16_reduced_precision_reduction = true;
};

// Settled by read_options; constant afterwards.
const options& settings();

// The keys there are, for tb_plugin.
const char* const* option_keys();

// On failure nothing is settled and the text says what is allowed.
result read_options();

} // namespace xcuda
