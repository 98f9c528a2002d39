// Finding a device library by its name, and activating it: what torch_backend.activate does in Python.

#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <optional>
#include <sstream>
#include <string_view>

#include <dlfcn.h>

#include <ATen/core/Tensor.h>
#include <c10/core/AutogradState.h>
#include <c10/util/Exception.h>

#include "csrc/core/Plugin.h"
#include "csrc/core/Runtime.h"
#include "csrc/torch/Activate.h"
#include "torch_backend/api.h"

namespace torch_backend {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "libtorch_backend_";
constexpr std::string_view kSuffix = ".so";

std::optional<std::string> device_in(const fs::path& file) {
  const std::string name = file.filename().string();
  const bool is_library = name.size() > kPrefix.size() + kSuffix.size() && name.rfind(kPrefix, 0) == 0 &&
                          name.compare(name.size() - kSuffix.size(), kSuffix.size(), kSuffix) == 0;
  return is_library ? std::optional(name.substr(kPrefix.size(), name.size() - kPrefix.size() - kSuffix.size()))
                    : std::nullopt;
}

std::vector<fs::path> places() {
  std::vector<fs::path> found;
  if (const char* listed = std::getenv("TORCH_BACKEND_PATH")) {
    std::istringstream all(listed);
    for (std::string place; std::getline(all, place, ':');) {
      if (!place.empty()) {
        found.emplace_back(place);
      }
    }
  }
  Dl_info self;
  if (dladdr(reinterpret_cast<const void*>(&available_devices), &self) && self.dli_fname) {
    std::error_code none;
    const auto file = fs::canonical(self.dli_fname, none);
    found.push_back(none ? fs::path(self.dli_fname).parent_path() : file.parent_path());
  }
  return found;
}

/// Libraries by the name that their file has; of two the one that is found first.
std::map<std::string, fs::path> libraries() {
  std::map<std::string, fs::path> found;
  for (const auto& place : places()) {
    std::error_code none;
    if (fs::is_directory(place, none)) {
      for (const auto& entry : fs::directory_iterator(place, none)) {
        if (const auto name = device_in(entry.path())) {
          found.emplace(*name, entry.path());
        }
      }
    } else if (const auto name = device_in(place); name && fs::exists(place, none)) {
      found.emplace(*name, place);
    }
  }
  return found;
}

std::string file_of(const std::string& device) {
  if (device.find('/') != std::string::npos) {
    return device;
  }
  const auto all = libraries();
  const auto found = all.find(device);
  if (found == all.end()) {
    std::string known;
    for (const auto& [name, path] : all) {
      known += (known.empty() ? "" : ", ") + name;
    }
    std::string looked;
    for (const auto& place : places()) {
      looked += (looked.empty() ? "" : ", ") + place.string();
    }
    TORCH_CHECK(
        false, "There is no device library for '", device, "': looked for ", kPrefix, device, kSuffix, " in ", looked,
        ". Found there: ", known.empty() ? "none" : known,
        ". Name the library by its path, or put its folder into TORCH_BACKEND_PATH; devices of Python packages, "
        "and those written in Python, are found from Python only.");
  }
  return found->second.string();
}

/// Options are set before the library is opened, under the name that its file has.
Plugin& load(const std::string& file, const Options& options) {
  if (options.empty()) {
    return Plugin::load(file);
  }
  const auto name = device_in(file);
  TORCH_CHECK_VALUE(name, "Options cannot be given to '", file,
                    "': which device it holds is not known before it is loaded. Call the file "
                    "libtorch_backend_<name>.so, or set TORCH_BACKEND_<NAME>_<KEY> in the environment.");
  for (const auto& [key, value] : options) {
    Plugin::set_option(*name + "." + key, value);
  }
  Plugin& plugin = Plugin::load(file);
  TORCH_CHECK(plugin.name() == *name, "Options were set for the device '", *name, "', but '", file,
              "' holds the device '", plugin.name(), "'. Call the file libtorch_backend_", plugin.name(), ".so.");
  return plugin;
}

} // namespace

c10::Device activate(const std::string& device, const Options& options) {
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  const std::string file = file_of(device);
  const bool first = active_plugin() == nullptr;
  TORCH_CHECK(first || options.empty(), "Options for '", device, "' come too late: '", active_plugin()->name(),
              "' is active, and a device library reads its options while it loads. Give them to the first activate().");
  Plugin& plugin = load(file, options);
  activate(plugin);
  if (first && !plugin.api().async()) {
    c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
  }
  return c10::Device(c10::DeviceType::PrivateUse1);
}

std::vector<std::string> available_devices() {
  std::vector<std::string> names;
  for (const auto& [name, path] : libraries()) {
    names.push_back(name);
  }
  return names;
}

} // namespace torch_backend
