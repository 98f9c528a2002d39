#include "temporary_directory.h"

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

namespace plugin {
namespace {

[[noreturn]] void fail(const std::string& what) {
  throw std::system_error(errno, std::generic_category(), what);
}

} // namespace

temporary_directory::temporary_directory() {
  std::error_code none;
  const std::filesystem::path where = std::filesystem::temp_directory_path(none);
  path_ = (none ? std::filesystem::path("/tmp") : where) / "torch_backend_XXXXXX";
  if (!mkdtemp(path_.data())) fail("no directory " + path_ + " can be made (TMPDIR says where)");
}

temporary_directory::~temporary_directory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

void write_file(const std::string& path, std::string_view content) {
  std::ofstream file(path, std::ios::binary);
  file.write(content.data(), static_cast<std::streamsize>(content.size()));
  file.close();
  if (!file) fail("cannot write " + path);
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) fail("cannot read " + path);
  return {std::istreambuf_iterator<char>(file), {}};
}

} // namespace plugin
