// What one rank moves in calls that run together: one, or those between group_begin and group_end.
//
// Messages to one rank are written, and those from one rank read, in the order they were added. Nothing else is
// ordered, so that the ranks of a group cannot wait for each other in a circle.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <tuple>

#include "../result.h"
#include "communicator.h"

namespace xcpu::ccl {

// One message. The rank itself is a peer like any other.
struct transfer {
  const int32_t peer;
  const bool sends;
  unsigned char* data; // only read by one that sends; null: into scratch
  const uint64_t size_bytes;
  uint64_t done_bytes = 0;
  std::unique_ptr<unsigned char[]> scratch;
};

// Messages of one call, in any order, and what is done when all of them have been moved.
struct step {
  const std::shared_ptr<communicator> comm;
  const signature call;
  const step* const after; // begins when that has ended, if there is one
  std::deque<transfer> transfers;
  std::function<result()> then;
  size_t num_open = 0; // of the transfers

  // The memory is accessed when the batch runs.
  void send(int32_t peer, const void* data, uint64_t size_bytes);
  void receive(int32_t peer, void* data, uint64_t size_bytes);
  // Into memory of the step's own.
  const transfer* receive(int32_t peer, uint64_t size_bytes);
};

class batch {
 public:
  step& add(const std::shared_ptr<communicator>& comm, const signature& call, const step* after = nullptr);
  // run() will fail with it and move nothing.
  void fail_with(const result& why);

  // Every rank's own, before anything is enqueued. If it is ok, run() has to follow.
  result begin();
  // Once. If it fails, so have all its communicators.
  result run();
  // Of the run.
  const result& outcome() const {
    return failure_;
  }

  const std::set<std::shared_ptr<communicator>>& communicators() const {
    return communicators_;
  }

 private:
  struct pending {
    step* of;
    transfer* what;
  };
  using lane = std::tuple<communicator*, int32_t, bool>; // a peer, and whether it is sent to

  result check(const communicator& comm) const;
  void fill_lanes();
  result move_all();
  result advance(bool* out_moved);
  result look_for_failures(bool ask_processes);

  std::set<std::shared_ptr<communicator>> communicators_; // in the order of their turns, which is one for all batches
  std::deque<step> steps_;                                // where they stay
  std::map<lane, std::deque<pending>> lanes_;             // none is empty
  result failure_;
};

} // namespace xcpu::ccl
