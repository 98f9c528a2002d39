#include "communicator.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <thread>

namespace xcpu::ccl {
namespace {

using clock = std::chrono::steady_clock;

// As long as other libraries wait. A rank that is late has perhaps compiled, or loaded a model, before its first call.
constexpr auto kJoinTimeout = std::chrono::minutes(10);
constexpr auto kLookAgain = std::chrono::milliseconds(1);

} // namespace

// Those that leave when the process ends in order, so that others can tell that from a crash. Not in a process that was
// forked off. Never destroyed: worker threads may outlast static destruction.
struct communicator::registry {
  const pid_t process = getpid();
  std::mutex mutex; // guards all
  std::set<communicator*> all;

  static registry& get() {
    static registry& r = *[] {
      std::atexit([] {
        if (getpid() != get().process) return;
        const std::lock_guard<std::mutex> lock(get().mutex);
        for (communicator* c : get().all) c->leave();
      });
      return new registry;
    }();
    return r;
  }
};

result communicator::join(int32_t device, int32_t num_ranks, int32_t rank, const void* unique_id,
                          std::shared_ptr<communicator>* out_communicator) {
  std::unique_ptr<segment> memory;
  if (result r = segment::join(unique_id, num_ranks, rank, &memory); !r.ok()) return r;
  out_communicator->reset(new communicator(device, num_ranks, rank, std::move(memory)));
  const std::lock_guard<std::mutex> lock(registry::get().mutex);
  registry::get().all.insert(out_communicator->get());
  return {};
}

communicator::~communicator() {
  {
    const std::lock_guard<std::mutex> lock(registry::get().mutex);
    registry::get().all.erase(this);
  }
  leave();
}

void communicator::leave() {
  end_as(rank_state::left);
  if (!segment_->is_complete()) segment_->unlink();
}

// The first end is the one the others see.
void communicator::end_as(rank_state state) {
  rank_state present = rank_state::present;
  segment_->rank(rank_).state.compare_exchange_strong(present, state);
}

result communicator::wait_for_all() {
  const auto end = clock::now() + kJoinTimeout;
  while (!segment_->is_complete()) {
    result r = check_those_present();
    if (r.ok() && clock::now() > end)
      r = failure(TB_STATUS_TIMEOUT, "comm_create: rank %d of %d has waited %lld minutes for %s", rank_, num_ranks_,
                  static_cast<long long>(kJoinTimeout.count()), absent_ranks().c_str());
    if (!r.ok()) {
      segment_->unlink();
      return fail(r);
    }
    std::this_thread::sleep_for(kLookAgain);
  }
  return {};
}

result communicator::check_those_present() const {
  for (int32_t peer = 0; peer < num_ranks_; ++peer) {
    if (segment_->rank(peer).state.load() == rank_state::absent) continue;
    if (result r = lost(peer, true); !r.ok() && !segment_->is_complete())
      return failure(r.status, "comm_create: %s; %s has not come", r.text.c_str(), absent_ranks().c_str());
  }
  return {};
}

std::string communicator::absent_ranks() const {
  std::string text;
  for (int32_t peer = 0; peer < num_ranks_; ++peer)
    if (segment_->rank(peer).state.load() == rank_state::absent)
      text += (text.empty() ? "rank " : ", rank ") + std::to_string(peer);
  return text;
}

result communicator::lost(int32_t peer, bool ask_process) const {
  if (peer == rank_) return own_failure();
  const shared_rank& other = segment_->rank(peer);
  const bool has_ended = ask_process && segment_->has_ended(peer);
  // Asked afterwards: it may have said so just before it ended.
  switch (other.state.load()) {
    case rank_state::left:
      return failure(TB_STATUS_INTERNAL, "rank %d waits for rank %d, which has destroyed its communicator or ended",
                     rank_, peer);
    case rank_state::failed:
      return failure(TB_STATUS_INTERNAL, "rank %d has failed: %.*s", peer, static_cast<int>(kFailureTextBytes - 1),
                     other.failure_text);
    default:
      if (!has_ended) return {};
      return failure(TB_STATUS_INTERNAL,
                     "the process of rank %d (pid %d) has ended without destroying its communicator", peer,
                     other.process);
  }
}

result communicator::fail(const result& why) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (failure_.ok()) {
    failure_ = why;
    // Nobody reads it before the state says that it is there, and the state changes once.
    shared_rank& own = segment_->rank(rank_);
    if (own.state.load() == rank_state::present)
      std::snprintf(own.failure_text, kFailureTextBytes, "%s", why.text.c_str());
    end_as(rank_state::failed);
  }
  return failure_;
}

result communicator::own_failure() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return failure_;
}

result communicator::query_error() {
  result r = own_failure();
  for (int32_t peer = 0; r.ok() && peer < num_ranks_; ++peer) {
    result why = lost(peer, true);
    // A rank that has left in order is missed only by a call that waits for it.
    if (!why.ok() && segment_->rank(peer).state.load() != rank_state::left) r = fail(why);
  }
  return r;
}

void communicator::abort() {
  if (num_pending == 0) end_as(rank_state::left);
  fail(failure(TB_STATUS_INTERNAL, "rank %d of %d was aborted (comm_abort)", rank_, num_ranks_));
}

} // namespace xcpu::ccl
