// One launch of a module's function.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "../result.h"
#include "common/simt/program.h"
#include "source.h"

namespace xcpu::modules {

// A block that loops over its items itself has one. Its local memory, in all LOCAL parameters, stays in a processor's own
// cache, or is what a GPU has.
struct launch_limits {
  uint32_t block[3], items;
  uint32_t local_bytes;
};
const launch_limits& limits();

// What is launched: one of both.
struct function_code {
  block_function in_order = nullptr;
  const simt_kernel* side_by_side = nullptr;
  const simt::program* program = nullptr; // its own
};

class launch {
 public:
  // Checks and copies all that the caller may change afterwards. May be called again.
  result set(const function_code& code, const uint32_t* grid, const uint32_t* block, const tb_launch_param* params,
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
  result check_parameters(const tb_launch_param* params, uint32_t num_params) const;
  result set_arguments(const tb_launch_param* params, uint32_t num_params);
  uint64_t num_blocks() const;
  void run_blocks(uint64_t first, uint64_t end, void* const* arguments) const;
  void run_in_order(uint64_t first, uint64_t end) const;
  result run_side_by_side(uint64_t first, uint64_t end, simt::races* looked_for) const;
  result run_accessible() const;
  result run_protected() const;

  function_code code_;
  index grid_{}, block_{};
  std::vector<void*> arguments_; // what the function is called with, but for local memory
  std::vector<unit> values_;
  std::vector<const void*> pointers_; // that are not null
  std::vector<local> locals_;         // in order; side by side their offsets are values
  size_t local_bytes_ = 0;
};

} // namespace xcpu::modules
