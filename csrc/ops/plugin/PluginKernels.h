// The active plugin's table "kernels.1".
#pragma once

#include "torch_backend/device.h"

namespace torch_backend {

class Plugin;

/// Read and check the table of `plugin`, which is about to become active, and give its kernels to KernelTable. Throws
/// ValueError naming every malformed entry. Once, from activate; nothing is registered yet.
void load_plugin_kernels(const Plugin& plugin);

/// The table as it was read: its slots, and zero where the plugin has none.
const tb_kernel_table& plugin_kernel_table();

} // namespace torch_backend
