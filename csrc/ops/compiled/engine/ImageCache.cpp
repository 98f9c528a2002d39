#include "csrc/ops/compiled/engine/ImageCache.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <sstream>
#include <system_error>
#include <utility>
#include <vector>

#include <c10/util/StringUtil.h>
#include <c10/util/hash.h>

namespace torch_backend::compiled {
namespace {

namespace fs = std::filesystem;

constexpr char kMagic[] = "torch_backend image 1\n";
constexpr uint64_t kDefaultLimitMiB = 1024;
/// How much of the limit is left in use when room is made.
constexpr double kKept = 0.8;
/// Uses are noted in the file's time, but not all of them.
constexpr auto kNoteEvery = std::chrono::hours(6);

std::string digest(const std::string& text) {
  return c10::sha1(text).str();
}

/// What a file holds: a line that says what it is, the digest of the image, the image.
std::string wrapped(const std::string& image) {
  return kMagic + digest(image) + image;
}

std::optional<std::string> unwrapped(const std::string& contents) {
  constexpr std::size_t kMagicBytes = sizeof(kMagic) - 1;
  constexpr std::size_t kDigestBytes = 40;
  if (contents.size() < kMagicBytes + kDigestBytes || contents.compare(0, kMagicBytes, kMagic) != 0) {
    return std::nullopt;
  }
  std::string image = contents.substr(kMagicBytes + kDigestBytes);
  return contents.compare(kMagicBytes, kDigestBytes, digest(image)) == 0 ? std::optional(std::move(image))
                                                                         : std::nullopt;
}

std::string folder_of_process() {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value ? value : "");
  };
  if (const auto folder = variable("TORCH_BACKEND_CACHE"); !folder.empty()) {
    return folder;
  }
  if (const auto caches = variable("XDG_CACHE_HOME"); !caches.empty()) {
    return caches + "/torch_backend";
  }
  const auto home = variable("HOME");
  return home.empty() ? std::string() : home + "/.cache/torch_backend";
}

uint64_t limit_of_process() {
  const char* text = std::getenv("TORCH_BACKEND_CACHE_MIB");
  char* end = nullptr;
  const auto mib = text && *text ? std::strtoull(text, &end, 10) : kDefaultLimitMiB;
  return (end && *end ? kDefaultLimitMiB : mib) << 20;
}

} // namespace

std::string ImageCache::key_of(std::initializer_list<std::string_view> texts) {
  std::string key;
  for (const auto text : texts) {
    key += c10::str(text.size(), ':', text);
  }
  return key;
}

ImageCache& ImageCache::of_process() {
  static auto* instance = new ImageCache(folder_of_process(), limit_of_process());
  return *instance;
}

std::string ImageCache::file_of(const std::string& key) const {
  return folder_ + '/' + digest(key) + ".image";
}

std::optional<std::string> ImageCache::find(const std::string& key) const {
  if (limit_bytes_ == 0 || folder_.empty()) {
    return std::nullopt;
  }
  const auto path = file_of(key);
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return std::nullopt;
  }
  std::ostringstream contents;
  contents << file.rdbuf();
  auto image = unwrapped(contents.str());
  std::error_code ignored;
  const auto now = fs::file_time_type::clock::now();
  if (image && limit_bytes_ != kNoLimit && now - fs::last_write_time(path, ignored) > kNoteEvery) {
    fs::last_write_time(path, now, ignored);
  }
  return image;
}

void ImageCache::store(const std::string& key, const std::string& image) const {
  if (limit_bytes_ == 0 || folder_.empty() || image.size() > limit_bytes_) {
    return;
  }
  std::error_code failed;
  if (fs::create_directories(folder_, failed)) {
    fs::permissions(folder_, fs::perms::owner_all, failed);
  }
  static std::once_flag once; // looking through the folder once a process is enough
  std::call_once(once, [&] { make_room(); });
  // Two threads or processes may store the same image: each renames a file of its own.
  std::string temporary = folder_ + "/.new-XXXXXX";
  const int descriptor = ::mkstemp(temporary.data());
  if (descriptor < 0) {
    return;
  }
  ::close(descriptor);
  {
    std::ofstream file(temporary, std::ios::binary | std::ios::trunc);
    const auto contents = wrapped(image);
    file.write(contents.data(), static_cast<std::streamsize>(contents.size()));
    file.close();
    if (!file) {
      fs::remove(temporary, failed);
      return;
    }
  }
  fs::rename(temporary, file_of(key), failed);
  if (failed) {
    fs::remove(temporary, failed);
  }
}

void ImageCache::make_room() const {
  struct Image {
    fs::file_time_type used;
    uint64_t size_bytes;
    fs::path path;
  };
  std::vector<Image> images;
  uint64_t total = 0;
  std::error_code failed;
  const auto now = fs::file_time_type::clock::now();
  for (auto entry = fs::directory_iterator(folder_, failed); !failed && entry != fs::directory_iterator();
       entry.increment(failed)) {
    std::error_code gone; // another process makes room as well
    const auto size = entry->file_size(gone);
    const auto used = entry->last_write_time(gone);
    const auto name = entry->path().filename().string();
    if (gone) {
      continue;
    }
    if (entry->path().extension() == ".image") {
      images.push_back({used, size, entry->path()});
      total += size;
    } else if (name.rfind(".new-", 0) == 0 && now - used > kNoteEvery) {
      fs::remove(entry->path(), gone); // of a process that did not live to rename it
    }
  }
  if (total <= limit_bytes_) {
    return;
  }
  std::sort(images.begin(), images.end(), [](const auto& a, const auto& b) { return a.used < b.used; });
  for (const auto& image : images) {
    if (static_cast<double>(total) <= kKept * static_cast<double>(limit_bytes_)) {
      break;
    }
    std::error_code gone;
    fs::remove(image.path, gone);
    total -= image.size_bytes;
  }
}

} // namespace torch_backend::compiled
