// A loaded device library: found, opened, shaken hands with, checked.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "csrc/core/DeviceApi.h"
#include "csrc/core/OptionalTables.h"
#include "torch_backend/device.h"

namespace torch_backend {

/// Lives until the process ends: device libraries are never unloaded, because their threads and handlers cannot be.
class Plugin {
 public:
  /// Load the library at `path`. Loading the same file again returns the same plugin. Throws RuntimeError with what was
  /// asked, what is so, and what to do, if the file is missing, is no plugin, speaks another ABI major, fails in its
  /// entry function, or leaves required slots unset. Threads: any.
  static Plugin& load(const std::string& path);

  /// Take a device library that was made in this process: call its tb_plugin_entry, and check what it returns as load
  /// does. `origin` takes the place of the path, and names the same plugin when it is given again. Threads: any.
  static Plugin& load_entry(tb_plugin_entry_function entry, const std::string& origin);

  /// What loading gives every plugin. Its functions may be called from any thread.
  static const tb_host* host();

  /// Set "<plugin>.<key>" for tb_host::option; replaces an earlier value and the environment variable.
  static void set_option(const std::string& key, const std::string& value);

  /// The library's file; the origin of one that was made in this process.
  const std::string& path() const {
    return path_;
  }
  const std::string& name() const {
    return api_->name();
  }
  const std::string& vendor() const {
    return vendor_;
  }
  const std::string& version() const {
    return version_;
  }
  std::pair<uint32_t, uint32_t> abi_version() const {
    return {abi_major_, abi_minor_};
  }
  DeviceApi& api() {
    return *api_;
  }
  /// An optional table ("kernels.1"), NULL if the plugin does not offer it.
  const void* table(const char* name) const;
  /// The other optional tables, which are read once. Throws ValueError if one cannot be used.
  const OptionalTables& tables();

 private:
  Plugin(const tb_plugin* plugin, std::string path);

  template <typename FindEntry>
  static Plugin& load_once(const std::string& origin, FindEntry find_entry);

  const tb_plugin* plugin_;
  std::string path_;
  std::string vendor_;
  std::string version_;
  uint32_t abi_major_;
  uint32_t abi_minor_;
  std::unique_ptr<DeviceApi> api_;
  std::once_flag read_tables_once_;
  OptionalTables tables_;
};

} // namespace torch_backend
