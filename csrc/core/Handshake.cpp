#include "csrc/core/Handshake.h"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstring>

#include <c10/util/Exception.h>

#include "csrc/core/AddressSpace.h"
#include "csrc/core/Text.h"

namespace torch_backend {
namespace {

/// NULL if there are none.
const char* const* option_keys_of(const tb_plugin& plugin) {
  const bool has_field = plugin.struct_size >= offsetof(tb_plugin, option_keys) + sizeof(plugin.option_keys);
  return has_field ? plugin.option_keys : nullptr;
}

constexpr std::size_t kMaxNameLength = 63;

bool is_device_name(const char* name) {
  if (!name || !std::islower(static_cast<unsigned char>(name[0])) ||
      ::strnlen(name, kMaxNameLength + 1) > kMaxNameLength) {
    return false;
  }
  for (const char* c = name; *c; ++c) {
    const auto character = static_cast<unsigned char>(*c);
    if (!std::islower(character) && !std::isdigit(character) && character != '_') {
      return false;
    }
  }
  return true;
}

/// What the plugin's pointers point at can be read.
void check_memory(const AddressSpace& memory, const tb_plugin* plugin, const std::string& origin) {
  const auto check = [&](bool fits, const char* field, const void* value) {
    TORCH_CHECK(fits, "Plugin ", origin, ": its tb_plugin.", field, " points at ", value, ", where there is no such ",
                "thing. Is struct_size the sizeof(tb_plugin) that the plugin was compiled with?");
  };
  const auto check_text = [&](const char* text, const char* field) {
    check(!text || memory.is_string(text), field, static_cast<const void*>(text));
  };
  check_text(plugin->name, "name");
  check_text(plugin->vendor, "vendor");
  check_text(plugin->version, "version");
  check(!plugin->core || memory.is_readable(plugin->core, sizeof(plugin->core->struct_size)), "core", plugin->core);
  const auto table = table_function(*plugin);
  check(!table || memory.is_code(reinterpret_cast<const void*>(table)), "table", reinterpret_cast<const void*>(table));
  for (const char* const* key = option_keys_of(*plugin); key; ++key) {
    check(memory.is_readable(key, sizeof(*key)), "option_keys", key);
    if (!*key) {
      break;
    }
    check_text(*key, "option_keys");
  }
}

} // namespace

void check_handshake(const tb_plugin* plugin, const std::string& origin) {
  const AddressSpace memory;
  const auto is_there = [&](uint64_t size_bytes) {
    return memory.is_readable(plugin, std::min<uint64_t>(size_bytes, sizeof(*plugin)));
  };
  TORCH_CHECK(is_there(sizeof(plugin->struct_size)) && is_there(plugin->struct_size), "Plugin ", origin,
              ": its tb_plugin_entry returned ", static_cast<const void*>(plugin), ", where there is no tb_plugin.");
  TORCH_CHECK(plugin->struct_size >= offsetof(tb_plugin, core) + sizeof(plugin->core), "Plugin ", origin,
              ": its tb_plugin has struct_size ", plugin->struct_size,
              ", too small to hold the core table. Set struct_size = sizeof(tb_plugin).");
  TORCH_CHECK(plugin->abi_major == TB_ABI_MAJOR, "Plugin ", origin, " speaks version ", plugin->abi_major, ".",
              plugin->abi_minor, " of the device ABI and this torch_backend speaks ", TB_ABI_MAJOR, ".", TB_ABI_MINOR,
              "; the major versions must be equal. Rebuild the plugin with the headers in `python -m torch_backend "
              "--include-dir`, or install the torch_backend it was built for.");
  check_memory(memory, plugin, origin);
  TORCH_CHECK(
      is_device_name(plugin->name), "Plugin ", origin, " calls its device '",
      plugin->name ? as_utf8(plugin->name, 64) : "(null)",
      "'; a device name is a lower-case letter followed by lower-case letters, digits and underscores, at most ",
      kMaxNameLength, " characters.");
  TORCH_CHECK(plugin->core != nullptr, "Plugin ", origin, " has no core table (tb_plugin.core is NULL).");
  constexpr std::size_t kRequired = offsetof(tb_core_table, memory_copy) + sizeof(tb_core_table::memory_copy);
  TORCH_CHECK(plugin->core->struct_size >= kRequired, "Plugin ", origin, ": its tb_core_table has struct_size ",
              plugin->core->struct_size, ", but the five required slots need ", kRequired,
              ". Set struct_size = sizeof(tb_core_table).");
}

TableFunction table_function(const tb_plugin& plugin) {
  const bool has_field = plugin.struct_size >= offsetof(tb_plugin, table) + sizeof(plugin.table);
  return has_field ? plugin.table : nullptr;
}

std::optional<std::vector<std::string>> option_keys(const tb_plugin& plugin) {
  const auto* first = option_keys_of(plugin);
  if (!first) {
    return std::nullopt;
  }
  std::vector<std::string> keys;
  for (const char* const* key = first; *key; ++key) {
    keys.push_back(as_utf8(*key, kMaxTextBytes));
  }
  return keys;
}

} // namespace torch_backend
