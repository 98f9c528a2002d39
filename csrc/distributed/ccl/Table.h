// A device library's own collectives, its table "ccl.1".
#pragma once

#include "torch_backend/device.h"

namespace torch_backend::ccl {

/// The active plugin's table, with NULL for every optional slot that it does not have; NULL if it offers none.
const tb_ccl_table* table();

} // namespace torch_backend::ccl
