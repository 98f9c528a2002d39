// Operators: the table "kernels.1".
#pragma once

#include "torch_backend/device.h"

namespace npu {

// Those that the installed CANN has; none without libopapi.so.
const tb_kernel_table& operator_table();

} // namespace npu
