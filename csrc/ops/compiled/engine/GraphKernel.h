// Kernels whose text torch.compile wrote: torch_backend/compile/modules.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>

#include "csrc/core/Limits.h"
#include "csrc/ops/compiled/engine/Modules.h"

namespace torch_backend::compiled {

/// One kernel of a compiled graph, which profilers call `name`. Its function is `graph_kernel`; its parameters are the pointers p0, p1, ..., the error
/// cell last if it `may_fail`, and `args.n`, numbers of which the first is what tb_report takes as `op`. Compiled for a
/// device when it is first wanted there, and kept for as long as the process lives. Threads: any.
class GraphKernel {
 public:
  struct Text {
    std::string name;
    std::string texts; // of codegen/kernels that go before it, with spaces between them
    std::string body;
    ValueType compute_type; // T
    bool is_32_bit;         // Index
    int num_pointers;       // without the error cell
    int num_numbers;        // without the first
    bool may_fail;
    /// Units of work that a block has, whose items share them as the text says; 0: items divide all among themselves.
    int64_t per_block;
  };

  explicit GraphKernel(Text text);

  /// Blocks until it is compiled. Throws RuntimeError with the compiler's messages.
  const Function& compile(int device);

  const Text& text() const {
    return text_;
  }

  /// On the calling thread's stream. `units` of work, of about `cost` loads or products each; none: nothing happens. `pointers`
  /// and `words`, of eight bytes, are as many as the text says. Throws what the plugin answers.
  void launch(int device, int64_t units, int64_t cost, const void* const* pointers, const int64_t* words);

 private:
  struct Slot {
    std::mutex mutex; // held while it is compiled
    std::atomic<bool> ready{false};
    Function function;
  };

  Text text_;
  std::array<Slot, kMaxDevices> slots_;
};

} // namespace torch_backend::compiled
