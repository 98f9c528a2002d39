// One rank of a communicator: what it shares with the others, the order of its calls, and its failure.
//
// A communicator fails as a whole: after the first failure every call fails with its text, and the other ranks are told.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "../record.h"
#include "../result.h"
#include "segment.h"

namespace xcpu::ccl {

class communicator {
 public:
  // Joins the others, who may come later: see wait_for_all.
  static result join(int32_t device, int32_t num_ranks, int32_t rank, const void* unique_id,
                     std::shared_ptr<communicator>* out_communicator);
  // Tells the others that nothing more will come.
  ~communicator();
  communicator(const communicator&) = delete;
  communicator& operator=(const communicator&) = delete;

  // Blocks until every rank has joined. TIMEOUT names those that did not.
  result wait_for_all();

  int32_t device() const {
    return device_;
  }
  int32_t rank() const {
    return rank_;
  }
  int32_t num_ranks() const {
    return num_ranks_;
  }
  // For whoever has the turn.
  channel to(int32_t peer) const {
    return segment_->between(rank_, peer);
  }
  channel from(int32_t peer) const {
    return segment_->between(peer, rank_);
  }

  // ---- order: calls run one after the other, as they were submitted, whatever thread runs them ----

  std::mutex turn;                      // held while calls run
  std::shared_ptr<record> last;         // the end of those submitted last to an asynchronous device
  std::atomic<uint64_t> num_pending{0}; // submitted and not yet at their end

  // ---- failure ----

  // Why there will be nothing more of `peer`, or ok. Whether its process lives is a call of the system: `ask_process`.
  result lost(int32_t peer, bool ask_process) const;
  // The first one stays. Returns it.
  result fail(const result& why);
  // Ok as long as there is none.
  result own_failure() const;
  // Also one that no call has met yet: a rank that has failed, or that is gone without a word.
  result query_error();
  // Calls that wait, in any thread, fail. With none on its way it only says that this rank is done.
  void abort();

 private:
  struct registry;
  communicator(int32_t device, int32_t num_ranks, int32_t rank, std::unique_ptr<segment> memory)
      : device_(device), num_ranks_(num_ranks), rank_(rank), segment_(std::move(memory)) {}
  result check_those_present() const;
  std::string absent_ranks() const;
  void leave();
  void end_as(rank_state state);

  const int32_t device_, num_ranks_, rank_;
  const std::unique_ptr<segment> segment_;
  mutable std::mutex mutex_; // guards the next
  result failure_;
};

} // namespace xcpu::ccl

struct tb_comm {
  std::shared_ptr<xcpu::ccl::communicator> shared; // also held by work that is on its way
};
