// prof.1: what CUPTI records of kernels, copies and fills, and ranges for NVIDIA's tools.
#pragma once

#include "device.h"

namespace xcuda {

// The table; null where CUPTI is not installed.
const tb_profiler_table* profiler();

// For records of work on it, before it is destroyed. Pre: the device's context is the thread's.
void note_stream(device& d, tb_stream* stream);

} // namespace xcuda
