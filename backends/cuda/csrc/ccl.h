// Collectives: the table "ccl.1", over NCCL.
#pragma once

#include "torch_backend/device.h"

namespace xcuda {

// NULL where NCCL is not installed. all_to_all is left out: the core makes it of send and recv.
const tb_ccl_table* collectives();

} // namespace xcuda
