// Compiled modules on disk, so that a program compiles them once.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

namespace torch_backend::compiled {

/// A folder of images, shared by all processes of a user. A file is written whole or not at all, and one that is damaged
/// counts as missing. What cannot be read or written is left: the cache never fails a call. Threads: any.
class ImageCache {
 public:
  /// `limit_bytes` of a folder whose images stay, such as a wheel's.
  static constexpr uint64_t kNoLimit = ~uint64_t{0};

  /// `folder` is made when the first image is stored. Over `limit_bytes` the images that were used longest ago go; 0: nothing
  /// is kept or looked for.
  ImageCache(std::string folder, uint64_t limit_bytes) : folder_(std::move(folder)), limit_bytes_(limit_bytes) {}

  /// That of the process: $TORCH_BACKEND_CACHE, else $XDG_CACHE_HOME/torch_backend, else ~/.cache/torch_backend, with at most
  /// $TORCH_BACKEND_CACHE_MIB (1024; 0 turns it off).
  static ImageCache& of_process();

  /// `key` is anything that tells images apart: what they were made of, and what they are for. Of several texts, key_of.
  std::optional<std::string> find(const std::string& key) const;
  void store(const std::string& key, const std::string& image) const;

  /// No other texts have the same key.
  static std::string key_of(std::initializer_list<std::string_view> texts);

  const std::string& folder() const {
    return folder_;
  }

 private:
  std::string file_of(const std::string& key) const;
  void make_room() const;

  std::string folder_;
  uint64_t limit_bytes_;
};

} // namespace torch_backend::compiled
