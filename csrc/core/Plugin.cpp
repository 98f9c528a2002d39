#include "csrc/core/Plugin.h"

#include <dlfcn.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <unordered_map>

#include <c10/util/Exception.h>
#include <c10/util/Logging.h>
#include <c10/util/StringUtil.h>

#include "csrc/core/KernelHost.h"
#include "csrc/core/Status.h"

namespace torch_backend {
namespace {

// ---- options ----

struct Options {
  std::mutex mutex; // guards values
  // node-based: pointers handed to plugins stay valid; a replaced value is kept in `retired` for the same reason.
  std::unordered_map<std::string, std::shared_ptr<const std::string>> values;
  std::vector<std::shared_ptr<const std::string>> retired;
};

Options& options() {
  static auto* instance = new Options;
  return *instance;
}

std::string environment_name(const char* key) {
  std::string name = "TORCH_BACKEND_";
  for (const char* c = key; *c; ++c) {
    name += std::isalnum(static_cast<unsigned char>(*c)) ? static_cast<char>(std::toupper(*c)) : '_';
  }
  return name;
}

const char* host_option(const char* key) {
  auto& all = options();
  const std::lock_guard<std::mutex> lock(all.mutex);
  const auto found = all.values.find(key);
  if (found != all.values.end()) {
    return found->second->c_str();
  }
  // Copied, because a later setenv may move what getenv returned.
  const char* value = std::getenv(environment_name(key).c_str());
  return value ? all.values.emplace(key, std::make_shared<const std::string>(value)).first->second->c_str() : nullptr;
}

/// A mistyped key would otherwise change nothing, silently.
void warn_of_unknown_options(const tb_plugin* plugin) {
  const bool has_keys =
      plugin->struct_size >= offsetof(tb_plugin, option_keys) + sizeof(plugin->option_keys) && plugin->option_keys;
  if (!has_keys) {
    return;
  }
  std::vector<std::string> keys;
  for (const char* const* key = plugin->option_keys; *key; ++key) {
    keys.emplace_back(*key);
  }
  const std::string name = plugin->name;
  const auto is_known = [&](const std::string& setting, const auto& spell) {
    return std::any_of(keys.begin(), keys.end(),
                       [&](const std::string& key) { return setting == spell(name + "." + key); });
  };
  const auto warn = [&](const std::string& setting) {
    TORCH_WARN("Device '", name, "' has no option '", setting, "'. It has: ", c10::Join(", ", keys), ".");
  };
  auto& all = options();
  const std::lock_guard<std::mutex> lock(all.mutex);
  for (const auto& [setting, value] : all.values) {
    if (setting.rfind(name + ".", 0) == 0 && !is_known(setting, [](const std::string& key) { return key; })) {
      warn(setting);
    }
  }
  const std::string prefix = environment_name((name + ".").c_str());
  for (char** entry = environ; *entry; ++entry) {
    const std::string variable(*entry, std::strcspn(*entry, "="));
    if (variable.rfind(prefix, 0) == 0 &&
        !is_known(variable, [](const std::string& key) { return environment_name(key.c_str()); })) {
      warn(variable);
    }
  }
}

// ---- the other services ----

tb_status host_fail(tb_status code, const char* format, ...) {
  std::va_list args;
  va_start(args, format);
  set_error_text(code, format, args);
  va_end(args);
  return code;
}

void host_log(int32_t level, const char* text) {
  switch (level) {
    case TB_LOG_DEBUG:
      VLOG(1) << text;
      break;
    case TB_LOG_INFO:
      LOG(INFO) << text;
      break;
    case TB_LOG_WARNING:
      LOG(WARNING) << text;
      break;
    default:
      LOG(ERROR) << text;
  }
}

constexpr const char* kNoKernel = " works only in a kernel, on the thread that called it and with its own context";

tb_status host_alloc_output(const tb_kernel_context* context, int32_t index, int32_t ndim, const int64_t* shape,
                            tb_tensor* out_tensor) {
  auto* host = RunningKernel::host_of(context);
  return host ? host->alloc_output(index, ndim, shape, out_tensor)
              : host_fail(TB_STATUS_INVALID_ARGUMENT, "alloc_output%s", kNoKernel);
}

tb_status host_alloc_workspace(const tb_kernel_context* context, uint64_t size_bytes, void** out_ptr) {
  auto* host = RunningKernel::host_of(context);
  return host ? host->alloc_workspace(size_bytes, out_ptr)
              : host_fail(TB_STATUS_INVALID_ARGUMENT, "alloc_workspace%s", kNoKernel);
}

constexpr tb_host kHost = {sizeof(tb_host), TB_ABI_MAJOR, TB_ABI_MINOR,      host_fail,
                           host_log,        host_option,  host_alloc_output, host_alloc_workspace};

// ---- handshake ----

bool is_device_name(const char* name) {
  if (!name || !std::islower(static_cast<unsigned char>(name[0]))) {
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

void check_handshake(const tb_plugin* plugin, const std::string& origin) {
  TORCH_CHECK(plugin->struct_size >= offsetof(tb_plugin, core) + sizeof(plugin->core), "Plugin ", origin,
              ": its tb_plugin has struct_size ", plugin->struct_size,
              ", too small to hold the core table. Set struct_size = sizeof(tb_plugin).");
  TORCH_CHECK(plugin->abi_major == TB_ABI_MAJOR, "Plugin ", origin, " speaks version ", plugin->abi_major, ".",
              plugin->abi_minor, " of the device ABI and this torch_backend speaks ", TB_ABI_MAJOR, ".", TB_ABI_MINOR,
              "; the major versions must be equal. Rebuild the plugin with the headers in `python -m torch_backend "
              "--include-dir`, or install the torch_backend it was built for.");
  TORCH_CHECK(is_device_name(plugin->name), "Plugin ", origin, " calls its device '",
              plugin->name ? plugin->name : "(null)",
              "'; a device name is a lower-case letter followed by lower-case letters, digits and underscores.");
  TORCH_CHECK(plugin->core != nullptr, "Plugin ", origin, " has no core table (tb_plugin.core is NULL).");
  constexpr std::size_t kRequired = offsetof(tb_core_table, memory_copy) + sizeof(tb_core_table::memory_copy);
  TORCH_CHECK(plugin->core->struct_size >= kRequired, "Plugin ", origin, ": its tb_core_table has struct_size ",
              plugin->core->struct_size, ", but the five required slots need ", kRequired,
              ". Set struct_size = sizeof(tb_core_table).");
}

std::string canonical_path(const std::string& path) {
  struct stat info{};
  TORCH_CHECK(::stat(path.c_str(), &info) == 0, "There is no device library at '", path, "'.");
  TORCH_CHECK(S_ISREG(info.st_mode), "'", path, "' is not a file, so it cannot be a device library.");
  char* resolved = ::realpath(path.c_str(), nullptr);
  std::string result = resolved ? resolved : path;
  std::free(resolved);
  return result;
}

struct Registry {
  std::mutex mutex; // guards plugins; held while a plugin loads, so that its entry runs once
  std::map<std::string, std::unique_ptr<Plugin>> plugins; // by path or origin
};

Registry& registry() {
  static auto* instance = new Registry;
  return *instance;
}

tb_plugin_entry_function open_library(const std::string& path) {
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char* reason = ::dlerror();
    TORCH_CHECK(false, "Cannot load device library '", path, "': ", reason ? reason : "unknown error",
                ". It must be a shared library for this machine whose own dependencies can be found.");
  }
  auto entry = reinterpret_cast<tb_plugin_entry_function>(::dlsym(library, TB_PLUGIN_ENTRY_NAME));
  TORCH_CHECK(entry, "'", path, "' is a shared library but not a device library: it does not export ",
              TB_PLUGIN_ENTRY_NAME, ". Mark that function TB_EXPORT, and extern \"C\" in C++.");
  return entry;
}

const tb_plugin* enter(tb_plugin_entry_function entry, const std::string& origin) {
  take_error_text();
  const tb_plugin* plugin = entry(&kHost);
  const std::string text = take_error_text();
  TORCH_CHECK(plugin, "Device library '", origin,
              "' refused to load: ", text.empty() ? "its tb_plugin_entry returned NULL and gave no reason" : text);
  check_handshake(plugin, c10::str("'", origin, "'"));
  return plugin;
}

} // namespace

const tb_host* Plugin::host() {
  return &kHost;
}

void Plugin::set_option(const std::string& key, const std::string& value) {
  auto& all = options();
  const std::lock_guard<std::mutex> lock(all.mutex);
  auto& slot = all.values[key];
  if (slot) {
    all.retired.push_back(slot);
  }
  slot = std::make_shared<const std::string>(value);
}

Plugin::Plugin(const tb_plugin* plugin, std::string path)
    : plugin_(plugin),
      path_(std::move(path)),
      vendor_(plugin->vendor ? plugin->vendor : ""),
      version_(plugin->version ? plugin->version : ""),
      abi_major_(plugin->abi_major),
      abi_minor_(plugin->abi_minor),
      api_(std::make_unique<DeviceApi>(plugin->name, *plugin->core)) {}

template <typename FindEntry>
Plugin& Plugin::load_once(const std::string& origin, FindEntry find_entry) {
  auto& all = registry();
  const std::lock_guard<std::mutex> lock(all.mutex);
  auto& slot = all.plugins[origin];
  if (!slot) {
    const tb_plugin* plugin = enter(find_entry(), origin);
    slot.reset(new Plugin(plugin, origin));
    warn_of_unknown_options(plugin);
  }
  return *slot;
}

Plugin& Plugin::load(const std::string& path) {
  const std::string file = canonical_path(path);
  return load_once(file, [&] { return open_library(file); });
}

Plugin& Plugin::load_entry(tb_plugin_entry_function entry, const std::string& origin) {
  return load_once(origin, [&] { return entry; });
}

const void* Plugin::table(const char* name) const {
  const bool has_slot = plugin_->struct_size >= offsetof(tb_plugin, table) + sizeof(plugin_->table);
  return has_slot && plugin_->table ? plugin_->table(name) : nullptr;
}

} // namespace torch_backend
