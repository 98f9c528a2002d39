// A shared object in this process.
#pragma once

#include <memory>
#include <string>

#include "../result.h"

namespace plugin {

// Shared by the module and by launches that are pending.
class library {
 public:
  // The file may go once it is open.
  static result open(const std::string& path, std::shared_ptr<const library>* out_library);
  ~library();
  library(const library&) = delete;
  library& operator=(const library&) = delete;

  // Null if the library itself has no such symbol.
  void* find(const char* name) const;

 private:
  explicit library(void* handle) : handle_(handle) {}

  void* handle_;
};

} // namespace plugin
