#include "csrc/ops/compiled/engine/AheadImages.h"

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <utility>

#include <c10/util/StringUtil.h>

#include "csrc/core/Plugin.h"
#include "csrc/core/Runtime.h"
#include "csrc/ops/compiled/engine/ImageCache.h"

namespace torch_backend::compiled {
namespace {

struct Ahead {
  bool compiles = false;
  std::function<std::string(const std::string&)> compiler;
  std::atomic<uint64_t> num_kept{0};
  std::unique_ptr<ImageCache> images;
};

std::string ahead_folder() {
  const char* set = std::getenv("TORCH_BACKEND_IMAGES");
  if (set && *set) {
    return set;
  }
  return (std::filesystem::path(active_plugin()->path()).parent_path() / "images").string();
}

Ahead& ahead() {
  static auto* instance = [] {
    auto* made = new Ahead;
    made->images = std::make_unique<ImageCache>(ahead_folder(), ImageCache::kNoLimit);
    return made;
  }();
  return *instance;
}

std::string key_of(int device, const char* format, const std::string& text) {
  const auto& properties = device_api().properties(device);
  const auto& plugin = *active_plugin();
  return "ahead" + ImageCache::key_of({plugin.name(), plugin.vendor(), plugin.version(),
                                       properties.arch[0] != '\0' ? properties.arch : properties.name, format, text});
}

} // namespace

void throw_missing_image(int device, const std::string& function, const std::string& reason) {
  const auto& name = device_api().name();
  const auto text =
      c10::str(name, ":", device, " has no image of the kernel ", function, ", and its driver does not compile it",
               reason.empty() ? "" : ": ", reason, ". `torch-backend compile-kernels --device ", name, " -o ",
               ahead().images->folder(), " SCRIPT` compiles what a program needs.");
  TORCH_WARN_ONCE(text, " What has no image runs on the CPU. This is said once; torch_backend.fallback.report() has ",
                  "every operator.");
  throw MissingImage({__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, text);
}

std::optional<std::string> find_ahead_image(int device, const char* format, const std::string& text) {
  return ahead().images->find(key_of(device, format, text));
}

void compile_ahead(std::string folder, std::function<std::string(const std::string& text)> compiler) {
  auto& all = ahead();
  all.images = std::make_unique<ImageCache>(std::move(folder), ImageCache::kNoLimit);
  all.compiler = std::move(compiler);
  all.compiles = true;
}

const std::function<std::string(const std::string& text)>& ahead_compiler() {
  return ahead().compiler;
}

void keep_ahead_image(int device, const char* format, const std::string& text, const std::string& image) {
  auto& all = ahead();
  if (all.compiles) {
    all.images->store(key_of(device, format, text), image);
    ++all.num_kept;
  }
}

bool compiles_ahead() {
  return ahead().compiles;
}

uint64_t num_ahead_images() {
  return ahead().num_kept;
}

} // namespace torch_backend::compiled
