// One rank of a communicator: its ends of the channels, the order of its calls, and its failure.
//
// A communicator fails as a whole: after the first failure every call fails with its text, and the other ranks are told.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "../result.h"
#include "channel.h"
#include "process.h"
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

  // ---- order: calls run one after the other, as they were submitted, whatever thread runs them ----

  // The place of the next call. Under a lock of all communicators, so that all have the same order.
  uint64_t take_ticket();
  // Waits until the calls before are done. The failure of the communicator ends the wait.
  result wait_for_turn(uint64_t ticket);
  void end_turn(uint64_t ticket);

  // ---- for the thread whose turn it is ----

  channel_writer& writer_to(int32_t peer) {
    return writers_[index_of(peer)];
  }
  channel_reader& reader_from(int32_t peer) {
    return readers_[index_of(peer)];
  }
  // Rings when a channel of this rank or the state of a rank has changed, and when this communicator has failed.
  doorbell& bell() const {
    return own().bell;
  }
  void wake(int32_t peer) const {
    segment_->rank(peer).bell.ring();
  }

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
  communicator(int32_t device, int32_t num_ranks, int32_t rank, std::unique_ptr<segment> memory);
  size_t index_of(int32_t peer) const {
    return static_cast<size_t>(peer > rank_ ? peer - 1 : peer);
  }
  shared_rank& own() const {
    return segment_->rank(rank_);
  }
  result check_those_present() const;
  std::string absent_ranks() const;
  void leave();
  void end_as(rank_state state);

  const int32_t device_, num_ranks_, rank_;
  const std::unique_ptr<segment> segment_;
  std::vector<channel_writer> writers_; // by index_of
  std::vector<channel_reader> readers_;
  std::vector<watched_process> processes_; // empty until all have joined

  mutable std::mutex mutex_; // guards all below
  std::condition_variable changed_;
  uint64_t num_tickets_ = 0, turn_ = 0;
  result failure_;
};

} // namespace xcpu::ccl

struct tb_comm {
  std::shared_ptr<xcpu::ccl::communicator> shared; // also held by work that is on its way
};
