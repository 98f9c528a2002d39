// Calls that run together: one, or those between group_begin and group_end that have something in common.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "../result.h"
#include "plan.h"

namespace xcpu::ccl {

// Memory of a device that a batch reads or writes (TB_MAP_*).
struct access {
  int32_t device;
  const void* ptr;
  uint64_t size_bytes;
  uint32_t kind;
};

class batch {
 public:
  // The plan of a communicator, made when it is first asked for.
  plan& plan_of(const std::shared_ptr<communicator>& comm);
  void needs(const access& what);
  // run() will fail with it and move nothing.
  void fail_with(const result& why);

  // Every rank's own, before anything is enqueued.
  result check() const;
  // Settles the order among all calls of its communicators. Under a lock of all communicators; once, before run().
  void take_tickets();

  // Once. If it fails, so have all its communicators.
  result run();

 private:
  struct member {
    plan what;
    uint64_t ticket = 0;
  };
  result run_in_turn();
  result move_all();
  result look_for_failures(bool ask_processes);
  void wait(uint32_t first_seen) const;

  std::deque<member> members_;
  std::vector<access> accesses_;
  result failure_;
};

} // namespace xcpu::ccl
