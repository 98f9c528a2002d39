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

namespace xcpu::ccl {

class plan {
 public:
  explicit plan(std::shared_ptr<communicator> comm);

  // The memory is accessed when the plan runs. A message to the rank itself has to meet one from itself.
  void send(int32_t peer, const signature& call, const void* data, uint64_t size_bytes);
  void receive(int32_t peer, const signature& call, void* data, uint64_t size_bytes);
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
  struct step {
    signature call;
    unsigned char* data; // only read by one that sends
    uint64_t size_bytes;
    uint64_t done_bytes = 0;
  };
  struct local_copy {
    void* dst;
    const void* src;
    uint64_t size_bytes;
  };
  using steps = std::deque<step>;

  void copy_to_self();
  bool advance_send(int32_t peer);
  result advance_receive(int32_t peer, bool* out_moved);
  result unexpected(int32_t peer, const signature& theirs, const signature& ours) const;
  void end_front(steps* which);

  const std::shared_ptr<communicator> comm_;
  std::vector<local_copy> copies_;
  std::vector<steps> outgoing_, incoming_; // by rank; what is done is taken away
  uint64_t num_open_ = 0;                  // of all of them
};

} // namespace xcpu::ccl
