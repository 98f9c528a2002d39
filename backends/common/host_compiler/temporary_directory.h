// A directory of this process's own for files that another program writes or reads.
#pragma once

#include <string>
#include <string_view>

namespace plugin {

// Where TMPDIR says, else in /tmp. Gone with everything in it when this is. Throws std::system_error, as the functions.
class temporary_directory {
 public:
  temporary_directory();
  ~temporary_directory();
  temporary_directory(const temporary_directory&) = delete;
  temporary_directory& operator=(const temporary_directory&) = delete;

  const std::string& path() const {
    return path_;
  }
  std::string file(const char* name) const {
    return path_ + "/" + name;
  }

 private:
  std::string path_;
};

void write_file(const std::string& path, std::string_view content);
std::string read_file(const std::string& path);

} // namespace plugin
