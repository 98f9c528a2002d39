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

#include "csrc/core/Handshake.h"
#include "csrc/core/KernelHost.h"
#include "csrc/core/Runtime.h"
#include "csrc/core/Status.h"
#include "csrc/core/Text.h"

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
  const auto keys = option_keys(*plugin);
  if (!keys) {
    return;
  }
  const std::string name = plugin->name;
  const auto is_known = [&](const std::string& setting, const auto& spell) {
    return std::any_of(keys->begin(), keys->end(),
                       [&](const std::string& key) { return setting == spell(name + "." + key); });
  };
  const auto warn = [&](const std::string& setting) {
    TORCH_WARN("Device '", name, "' has no option '", setting, "'. It has: ", c10::Join(", ", *keys), ".");
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

void host_log(int32_t level, const char* plugin_text) {
  const std::string text = as_utf8(plugin_text, kMaxTextBytes);
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

/// The allocator may have asked other devices for their events.
tb_status back_to(const tb_kernel_context* context, tb_status status) {
  const tb_status bound = device_api().bind_again(context->device);
  return status == TB_STATUS_OK ? bound : status;
}

tb_status host_alloc_output(const tb_kernel_context* context, int32_t index, int32_t ndim, const int64_t* shape,
                            tb_tensor* out_tensor) {
  auto* host = RunningKernel::host_of(context);
  return host ? back_to(context, host->alloc_output(index, ndim, shape, out_tensor))
              : host_fail(TB_STATUS_INVALID_ARGUMENT, "alloc_output%s", kNoKernel);
}

tb_status host_alloc_workspace(const tb_kernel_context* context, uint64_t size_bytes, void** out_ptr) {
  auto* host = RunningKernel::host_of(context);
  return host ? back_to(context, host->alloc_workspace(size_bytes, out_ptr))
              : host_fail(TB_STATUS_INVALID_ARGUMENT, "alloc_workspace%s", kNoKernel);
}

constexpr tb_host kHost = {sizeof(tb_host), TB_ABI_MAJOR, TB_ABI_MINOR,      host_fail,
                           host_log,        host_option,  host_alloc_output, host_alloc_workspace};

// ---- loading ----

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
      vendor_(as_utf8(plugin->vendor, kMaxTextBytes)),
      version_(as_utf8(plugin->version, kMaxTextBytes)),
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
  const auto find = table_function(*plugin_);
  return find ? find(name) : nullptr;
}

const OptionalTables& Plugin::tables() {
  std::call_once(read_tables_once_, [this] { tables_ = read_optional_tables(table_function(*plugin_), name()); });
  return tables_;
}

} // namespace torch_backend
