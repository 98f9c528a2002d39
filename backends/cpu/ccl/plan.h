// What one rank does in a group of calls: copies of its own, and messages to and from every other rank.
//
// Messages to one rank are written, and those from one rank read, in the order they were planned. Nothing else is
// ordered, so that the ranks of a group cannot wait for each other in a circle.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "../result.h"
#include "communicator.h"
#include "reduction.h"

namespace xcpu::ccl {

class plan {
 public:
  struct step {
    signature call;
    unsigned char* data; // only read by one that sends
    uint64_t size_bytes;
    uint64_t done_bytes = 0;
    const unsigned char* own = nullptr; // of a reduction, as is the next
    reduction with{};
    int num_before = 0;       // of those it waits for
    std::vector<step*> after; // that wait for this one
  };

  explicit plan(std::shared_ptr<communicator> comm);
  plan(plan&&) = default;

  // The memory is accessed when the plan runs. A message to the rank itself has to meet one from itself.
  step* send(int32_t peer, const signature& call, const void* data, uint64_t size_bytes);
  step* receive(int32_t peer, const signature& call, void* data, uint64_t size_bytes);
  // Receives a message from every other rank, all of the size of `own`, and writes what all and `own` make together, in
  // the order of the ranks. `out` may be `own`.
  step* reduce(const signature& call, const void* own, void* out, uint64_t size_bytes, const reduction& with);
  // `second` begins when `first` has ended.
  void order(step* first, step* second);
  // Within this rank, before any message. Nothing if both are the same.
  void copy(void* dst, const void* src, uint64_t size_bytes);

  // INVALID_ARGUMENT if a message to the rank itself meets none.
  result check() const;

  // ---- running; all by one thread, when it is the communicator's turn ----

  void start();
  // Moves what can be moved now. `out_moved` is not changed if nothing was.
  result advance(bool* out_moved);
  bool finished() const {
    return num_open_ == 0;
  }
  // Why nothing will be moved any more, or ok. See communicator::lost.
  result lost(bool ask_processes) const;

  communicator& comm() const {
    return *comm_;
  }

 private:
  struct local_copy {
    void* dst;
    const void* src;
    uint64_t size_bytes;
  };
  using steps = std::deque<step*>;

  step* add(const signature& call, void* data, uint64_t size_bytes);
  void copy_to_self();
  bool advance_send(int32_t peer);
  result advance_receive(int32_t peer, bool* out_moved);
  result advance_reduce(step* next, bool* out_moved);
  bool find_sources(step* next, uint64_t* out_bytes, bool* out_moved, result* out_failure);
  result unexpected(int32_t peer, const signature& theirs, const signature& ours) const;
  void end(step* which);

  const std::shared_ptr<communicator> comm_;
  std::vector<local_copy> copies_;
  std::deque<step> all_;                   // where they stay
  std::vector<steps> outgoing_, incoming_; // by rank; what is done is taken away. A reduction is with all other ranks
  std::vector<const void*> sources_;       // of a reduction, by rank
  uint64_t num_open_ = 0;                  // of all_
};

} // namespace xcpu::ccl
