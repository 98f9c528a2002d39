// The code of a module, in as many copies as threads run it at the same time: what is a block's lies in the code's static
// memory, and a processor reads that faster than memory of the thread's.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "../host_compiler/library.h"
#include "../result.h"
#include "kernel_abi.h"
#include "races.h"

namespace plugin::simt {

// How a kernel is launched.
struct launch_shape {
  simt_index grid, block;
  uint32_t shared_bytes; // dynamic
};

class program {
 public:
  // `object` is what compile has made.
  static result open(std::string object, std::shared_ptr<const program>* out_program);

  // Null if there is none. Valid as long as the program.
  const simt_kernel* find(std::string_view name) const;

  // Blocks `first` to `end - 1` of a launch, in this thread. parameters[i] points at the value. `looked_for` may be null.
  result run(const simt_kernel& kernel, const launch_shape& shape, void* const* parameters, uint64_t first,
             uint64_t end, races* looked_for = nullptr) const;

 private:
  struct copy {
    std::shared_ptr<const library> code;
    const simt_module* module;
  };
  explicit program(std::string object) : object_(std::move(object)) {}
  result open_copy(copy* out_copy) const;

  const std::string object_;
  copy first_;               // whose kernels stand for those of all
  mutable std::mutex mutex_; // guards idle_
  mutable std::vector<copy> idle_;
};

} // namespace plugin::simt
