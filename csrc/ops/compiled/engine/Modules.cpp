#include "csrc/ops/compiled/engine/Modules.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include "csrc/core/Limits.h"
#include "csrc/core/Plugin.h"
#include "csrc/core/Runtime.h"
#include "csrc/core/Status.h"
#include "csrc/ops/compiled/engine/AheadImages.h"
#include "csrc/ops/compiled/engine/ImageCache.h"
#include "csrc/ops/compiled/engine/KernelText.h"
#include "csrc/ops/compiled/engine/Rehearsal.h"
#include "csrc/ops/plugin/PluginKernels.h"

namespace torch_backend::compiled {
namespace {

struct Language {
  const char* format;
  const char* name; // of its prelude
};
constexpr Language kLanguages[] = {{"c++", "cpp"}, {"opencl-c", "opencl"}, {"cuda-c", "cuda"}};

/// The first of the device's formats that kernels are written in; NULL: none.
const Language* language() {
  static const Language* const found = [] {
    const auto* formats = plugin_kernel_table().module_formats;
    for (; formats && *formats; ++formats) {
      for (const auto& candidate : kLanguages) {
        if (std::string_view(*formats) == candidate.format) {
          return &candidate;
        }
      }
    }
    return static_cast<const Language*>(nullptr);
  }();
  return found;
}

struct Hash {
  std::size_t operator()(const Specialization& key) const noexcept {
    return key.hash();
  }
};

struct Compiled {
  std::mutex mutex; // held while it is compiled
  std::atomic<bool> ready{false};
  bool is_missing = false; // guarded by mutex
  int device = 0;
  Function function;
};

struct DeviceModules {
  using Entry = std::pair<const Specialization, Compiled>;
  std::mutex mutex; // guards by_key, whose entries stay where they are
  std::unordered_map<Specialization, Compiled, Hash> by_key;
  std::atomic<bool> lacks_any{false};
};

DeviceModules& modules_of(int device) {
  static auto* all = new std::array<DeviceModules, kMaxDevices>;
  return (*all)[static_cast<std::size_t>(device)];
}

/// Everything that an image depends on. "" if the device's images are not kept.
std::string cache_key(int device, const std::string& text) {
  const auto& properties = device_api().properties(device);
  if (!plugin_kernel_table().module_image || properties.driver_version[0] == '\0') {
    return {};
  }
  const auto& plugin = *active_plugin();
  return ImageCache::key_of({plugin.name(), plugin.vendor(), plugin.version(), properties.name, properties.arch,
                             properties.driver_version, language()->format, text});
}

/// Whether `slot`, which is about an image, has failed: no error, as there is the source. Throws if the device is lost.
bool failed(tb_status status, const char* slot, int device) {
  if (status == TB_STATUS_DEVICE_LOST) {
    throw_status(status, device_api().name(), slot, device);
  }
  take_error_text();
  return status != TB_STATUS_OK;
}

/// NULL: the driver does not take it.
tb_module* load_image(int device, const std::string& image) {
  auto& api = device_api();
  tb_module* module = nullptr;
  const auto status =
      api.call(device, "module_load", plugin_kernel_table().module_load, static_cast<int32_t>(device), "image",
               static_cast<const void*>(image.data()), static_cast<uint64_t>(image.size()), &module);
  return failed(status, "module_load", device) ? nullptr : module;
}

std::string image_of(int device, tb_module* module) {
  auto& api = device_api();
  const auto slot = plugin_kernel_table().module_image;
  uint64_t size = 0;
  std::string image;
  if (!slot) {
    return image;
  }
  for (int i = 0; i < 2; ++i) { // its size, then itself
    image.resize(size);
    const auto status = api.call(device, "module_image", slot, static_cast<int32_t>(device), module,
                                 static_cast<void*>(image.data()), &size);
    if (failed(status, "module_image", device)) {
      return {};
    }
  }
  image.resize(std::min<std::size_t>(image.size(), size));
  return image;
}

/// A compilation. While there are any, one line on the terminal says why a program's first start takes long; then the line
/// is gone. Threads: any.
class Compilation {
 public:
  explicit Compilation(bool is_kept) : is_kept_(is_kept) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (running_++ == 0) {
      since_ = Clock::now();
    }
    show();
  }
  Compilation(const Compilation&) = delete;
  Compilation& operator=(const Compilation&) = delete;
  ~Compilation() {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++finished_;
    if (--running_ == 0) {
      taken_ += Clock::now() - since_;
    }
    show();
  }

 private:
  using Clock = std::chrono::steady_clock;

  void show() const {
    static const bool is_wanted = [] {
      const char* set = std::getenv("TORCH_BACKEND_PROGRESS");
      return !set || std::string_view(set) != "0";
    }();
    if (!is_wanted || !::isatty(STDERR_FILENO)) {
      return;
    }
    std::string line = "\r\x1b[K";
    if (running_ > 0) {
      const auto taken = std::chrono::duration_cast<std::chrono::seconds>(taken_ + (Clock::now() - since_));
      line += c10::str("torch_backend: ", device_api().name(), " compiles the kernels of this program, ", finished_,
                       " in ", taken.count(), " s", is_kept_ ? ", and keeps them in " : "",
                       is_kept_ ? ImageCache::of_process().folder() : "");
    }
    std::fputs(line.c_str(), stderr);
    std::fflush(stderr);
  }

  const bool is_kept_;
  static inline std::mutex mutex_; // guards what follows
  static inline int running_ = 0;
  static inline int finished_ = 0;
  static inline Clock::time_point since_; // a compilation has been running
  static inline Clock::duration taken_{};
};

/// What the device makes of source; NULL if its driver compiles none, and its reason is the thread's error text.
tb_module* load_source(int device, const std::string& text, bool is_kept) {
  auto& api = device_api();
  tb_module* module = nullptr;
  const Compilation compilation(is_kept);
  const auto status =
      api.call(device, "module_load", plugin_kernel_table().module_load, static_cast<int32_t>(device),
               language()->format, static_cast<const void*>(text.c_str()), static_cast<uint64_t>(text.size()), &module);
  if (status == TB_STATUS_UNSUPPORTED) {
    return nullptr;
  }
  if (status != TB_STATUS_OK) {
    throw_status(status, api.name(), "module_load", device);
  }
  api.check_given(module, "module_load", "out_module", device);
  return module;
}

/// `function` names the kernel to the user. Throws MissingImage.
tb_module* load_module(int device, const std::string& text, const std::string& function) {
  const auto* format = language()->format;
  if (const auto image = find_ahead_image(device, format, text)) {
    if (auto* module = load_image(device, *image)) {
      return module;
    }
  }
  if (const auto& compiler = ahead_compiler()) {
    const Compilation compilation(/*is_kept=*/false);
    const auto image = compiler(text);
    auto* module = load_image(device, image);
    TORCH_CHECK(module, device_api().name(), ":", device, " does not take what the compiler made of the kernel ",
                function, ", ", image.size(), " bytes: module_load of an \"image\" has refused it.");
    keep_ahead_image(device, format, text, image);
    return module;
  }
  const auto key = cache_key(device, text);
  auto& cache = ImageCache::of_process();
  if (!key.empty() && !compiles_ahead()) {
    if (const auto image = cache.find(key)) {
      if (auto* module = load_image(device, *image)) {
        return module;
      }
    }
  }
  auto* module = load_source(device, text, !key.empty());
  if (!module) {
    throw_missing_image(device, function, take_error_text());
  }
  if (!key.empty() || compiles_ahead()) {
    if (const auto image = image_of(device, module); !image.empty()) {
      keep_ahead_image(device, format, text, image);
      if (!key.empty()) {
        cache.store(key, image);
      }
    }
  }
  return module;
}

Function compile(int device, const std::string& text, const std::string& name) {
  const auto& table = plugin_kernel_table();
  auto& api = device_api();
  const auto unload = [&](tb_module* module) {
    api.clean_up(device, "module_unload", table.module_unload, static_cast<int32_t>(device), module);
  };
  std::unique_ptr<tb_module, decltype(unload)> module(load_module(device, text, name), unload);
  Function function;
  api.check_call(device, "module_function", table.module_function, static_cast<int32_t>(device), module.get(),
                 name.c_str(), &function.handle);
  api.check_given(function.handle, "module_function", "out_function", device);
  module.release(); // for as long as the process lives
  return function;
}

/// Compiled, now or before; NULL in a rehearsal, for what is not.
const DeviceModules::Entry* compile_once(int device, const Specialization& wanted) {
  auto& all = modules_of(device);
  DeviceModules::Entry* entry = nullptr;
  {
    const std::lock_guard<std::mutex> lock(all.mutex);
    entry = &*all.by_key.try_emplace(wanted).first;
  }
  auto& compiled = entry->second;
  if (compiled.ready.load(std::memory_order_acquire)) {
    return entry;
  }
  if (Rehearsal::note(wanted)) {
    return nullptr;
  }
  const std::lock_guard<std::mutex> lock(compiled.mutex);
  if (!compiled.ready.load(std::memory_order_relaxed)) {
    const auto& skeleton = wanted.skeleton();
    SourceText text(language()->name);
    wanted.write(text);
    const auto name = skeleton.function + text.suffix();
    if (compiled.is_missing) {
      throw_missing_image(device, name, "");
    }
    try {
      compiled.function = compile(device, text.complete(skeleton.texts, runs_in_stretches(device)), name);
    } catch (const MissingImage&) {
      compiled.is_missing = true;
      all.lacks_any.store(true, std::memory_order_relaxed);
      throw;
    }
    compiled.device = device;
    compiled.ready.store(true, std::memory_order_release);
  }
  return entry;
}

} // namespace

bool has_modules() {
  return plugin_kernel_table().module_launch && language();
}

const char* module_format() {
  return has_modules() ? language()->format : nullptr;
}

int most_pointers() {
  return std::string_view(language()->name) == "opencl" ? 36 : 120;
}

bool runs_in_stretches(int device) {
  return device_api().properties(device).warp_size == 1;
}

bool has_matrices(int device) {
  constexpr int32_t kAmpere = 8;
  return std::string_view(language()->name) == "cuda" && device_api().properties(device).capability_major >= kAmpere;
}

bool blocks_take_turns(int device) {
  return std::string_view(language()->name) == "cuda" && !runs_in_stretches(device);
}

bool lacks_images(int device) {
  return modules_of(device).lacks_any.load(std::memory_order_relaxed);
}

const Function& find_function(int device, const Specialization& wanted) {
  // What this thread has launched lately, by the high bits of the hash and the device: no lock, no walk through the
  // table.
  static constexpr int kRecentBits = 8;
  static thread_local std::array<const DeviceModules::Entry*, std::size_t{1} << kRecentBits> recent{};
  auto& last = recent[(wanted.hash() >> (64 - kRecentBits)) ^ static_cast<std::size_t>(device)];
  if (C10_UNLIKELY(!last || last->second.device != device || !(last->first == wanted))) {
    const auto* found = compile_once(device, wanted);
    if (!found) {
      static constexpr Function kNotLaunched;
      return kNotLaunched;
    }
    last = found;
  }
  return last->second.function;
}

Function compile_text(int device, const char* texts, const std::string& body, const char* name,
                      c10::function_ref<void(SourceText&)> write) {
  SourceText text(language()->name);
  write(text);
  return compile(device, text.complete(texts, runs_in_stretches(device)) + body, name + text.suffix());
}

} // namespace torch_backend::compiled
