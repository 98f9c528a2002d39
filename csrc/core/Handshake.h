// What a plugin's entry function returns, read with care.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "torch_backend/device.h"

namespace torch_backend {

/// Throws RuntimeError, with what is so and what to do, unless `plugin` can be worked with. `origin` names it in the error.
/// Past this its strings, and the pointers that it declares, can be read.
void check_handshake(const tb_plugin* plugin, const std::string& origin);

using TableFunction = const void* (*)(const char* name);

/// NULL if the plugin has no optional tables.
TableFunction table_function(const tb_plugin& plugin);

/// Nothing if the plugin does not say which options it has.
std::optional<std::vector<std::string>> option_keys(const tb_plugin& plugin);

} // namespace torch_backend
