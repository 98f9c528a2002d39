// A shared object in this process.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "../result.h"

namespace xcpu::modules {

// What a module's functions are: see "c++" at tb_launch_param.
using block_function = void (*)(const uint32_t* block, const uint32_t* grid, const uint32_t* block_size,
                                void* const* params);

// Shared by the module and by launches that are pending.
class library {
 public:
  // The file may go once it is open.
  static result open(const std::string& path, std::shared_ptr<const library>* out_library);
  ~library();
  library(const library&) = delete;
  library& operator=(const library&) = delete;

  // Null if the library itself has no such function.
  block_function find(const char* name) const;

 private:
  explicit library(void* handle) : handle_(handle) {}

  void* handle_;
};

} // namespace xcpu::modules
