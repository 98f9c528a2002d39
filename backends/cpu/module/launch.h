// One launch of a module's function.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "library.h"

namespace xcpu::modules {

// Of one block, in all its LOCAL parameters. What is used again and again stays in a processor's own cache.
constexpr uint32_t kLocalMemoryBytes = 256 << 10;

// A block loops over its items itself.
constexpr uint32_t kBlockItems = 1;

class launch {
 public:
  // Checks and copies all that the caller may change afterwards. May be called again.
  result set(block_function code, const uint32_t* grid, const uint32_t* block, const tb_launch_param* params,
             uint32_t num_params);

  // Every block, on one thread or several. In protected mode the memory that is pointed at is accessible meanwhile.
  result run() const;

 private:
  struct local {
    size_t argument;
    size_t offset_bytes; // in the memory of a block
  };
  struct alignas(16) unit { // no C type has a larger alignment
    unsigned char bytes[16];
  };
  using index = std::array<uint32_t, 3>;

  result check() const;
  result set_arguments(const tb_launch_param* params, uint32_t num_params);
  uint64_t num_blocks() const;
  void run_blocks(uint64_t first, uint64_t end, void* const* arguments) const;
  void run_range(uint64_t first, uint64_t end) const;
  void run_accessible() const;
  result run_protected() const;

  block_function code_ = nullptr;
  index grid_{}, block_{};
  std::vector<void*> arguments_; // what the function is called with, but for local memory
  std::vector<unit> values_;
  std::vector<const void*> pointers_; // that are not null
  std::vector<local> locals_;
  size_t local_bytes_ = 0;
};

} // namespace xcpu::modules
