// Ranges for CANN's profiler: the table "prof.1".
#pragma once

#include "torch_backend/device.h"

namespace npu {

// NULL where CANN has no libms_tools_ext.so. Only ranges are served: msprof writes what it traces to files and hands no
// records out, so the slots for tracing answer UNSUPPORTED, and the core measures with events.
const tb_profiler_table* ranges();

} // namespace npu
