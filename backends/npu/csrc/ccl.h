// Collectives: the table "ccl.1", over HCCL.
#pragma once

#include "torch_backend/device.h"

namespace npu {

// NULL where CANN has no HCCL. comm_abort is left out: HCCL cannot end a pending call.
const tb_ccl_table* collectives();

} // namespace npu
