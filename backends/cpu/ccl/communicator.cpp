#include "communicator.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <set>

namespace xcpu::ccl {
namespace {

using clock = std::chrono::steady_clock;

// As long as other libraries wait. A rank that is late has perhaps compiled, or loaded a model, before its first call.
constexpr auto kJoinTimeout = std::chrono::minutes(10);
constexpr auto kLookAgain = std::chrono::milliseconds(100);

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
  result r = segment::open(unique_id, num_ranks, &memory);
  if (r.ok()) r = memory->join(rank);
  if (!r.ok()) return r;
  out_communicator->reset(new communicator(device, num_ranks, rank, std::move(memory)));
  const std::lock_guard<std::mutex> lock(registry::get().mutex);
  registry::get().all.insert(out_communicator->get());
  return {};
}

communicator::communicator(int32_t device, int32_t num_ranks, int32_t rank, std::unique_ptr<segment> memory)
    : device_(device), num_ranks_(num_ranks), rank_(rank), segment_(std::move(memory)) {
  for (int32_t peer = 0; peer < num_ranks; ++peer) {
    if (peer == rank) continue;
    writers_.emplace_back(segment_->between(rank, peer));
    readers_.emplace_back(segment_->between(peer, rank));
  }
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
  if (own().state.compare_exchange_strong(present, state)) segment_->ring_all();
}

result communicator::wait_for_all() {
  const auto end = clock::now() + kJoinTimeout;
  while (!segment_->is_complete()) {
    const uint32_t seen = bell().rings();
    if (segment_->is_complete()) break;
    result r = own_failure();
    if (r.ok()) r = check_those_present();
    if (r.ok() && clock::now() > end)
      r = failure(TB_STATUS_TIMEOUT, "comm_create: rank %d of %d has waited %lld minutes for %s", rank_, num_ranks_,
                  static_cast<long long>(kJoinTimeout.count()), absent_ranks().c_str());
    if (!r.ok()) {
      segment_->unlink();
      return fail(r);
    }
    bell().wait(seen, kLookAgain);
  }
  for (int32_t peer = 0; peer < num_ranks_; ++peer) {
    if (peer == rank_) continue;
    const shared_rank& other = segment_->rank(peer);
    processes_.emplace_back(other.process, other.process_namespace);
  }
  return {};
}

result communicator::check_those_present() const {
  for (int32_t peer = 0; peer < num_ranks_; ++peer) {
    const shared_rank& other = segment_->rank(peer);
    const rank_state state = other.state.load();
    if (peer == rank_) continue;
    if (state == rank_state::left || state == rank_state::failed)
      return failure(TB_STATUS_INTERNAL, "comm_create: rank %d has given up while rank %d waited for %s", peer, rank_,
                     absent_ranks().c_str());
    if (state != rank_state::present) continue;
    if (watched_process(other.process, other.process_namespace).has_ended())
      return failure(TB_STATUS_INTERNAL,
                     "comm_create: the process of rank %d (pid %d) ended while rank %d waited for %s", peer,
                     other.process, rank_, absent_ranks().c_str());
  }
  return {};
}

std::string communicator::absent_ranks() const {
  std::string text;
  for (int32_t peer = 0; peer < num_ranks_; ++peer) {
    const rank_state state = segment_->rank(peer).state.load();
    if (state == rank_state::absent || state == rank_state::joining)
      text += (text.empty() ? "rank " : ", rank ") + std::to_string(peer);
  }
  return text;
}

uint64_t communicator::take_ticket() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return num_tickets_++;
}

result communicator::wait_for_turn(uint64_t ticket) {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [&] { return turn_ == ticket || !failure_.ok(); });
  return failure_;
}

void communicator::end_turn(uint64_t ticket) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (turn_ <= ticket) turn_ = ticket + 1;
  }
  changed_.notify_all();
}

result communicator::lost(int32_t peer, bool ask_process) const {
  const shared_rank& other = segment_->rank(peer);
  switch (other.state.load()) {
    case rank_state::left:
      return failure(TB_STATUS_INTERNAL, "rank %d waits for rank %d, which has destroyed its communicator or ended",
                     rank_, peer);
    case rank_state::failed:
      return failure(TB_STATUS_INTERNAL, "rank %d has failed: %.*s", peer, static_cast<int>(kFailureTextBytes - 1),
                     other.failure_text);
    default:
      break;
  }
  if (!ask_process || processes_.empty() || !processes_[index_of(peer)].has_ended()) return {};
  // It may have said so just before it ended.
  if (other.state.load() != rank_state::present) return lost(peer, false);
  return failure(TB_STATUS_INTERNAL, "the process of rank %d (pid %d) has ended without destroying its communicator",
                 peer, other.process);
}

result communicator::fail(const result& why) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (failure_.ok()) {
      failure_ = why;
      // Nobody reads it before the state says that it is there, and the state changes once.
      if (own().state.load() == rank_state::present)
        std::snprintf(own().failure_text, kFailureTextBytes, "%s", why.text.c_str());
      end_as(rank_state::failed);
    }
  }
  bell().ring();
  changed_.notify_all();
  return own_failure();
}

result communicator::own_failure() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return failure_;
}

result communicator::query_error() {
  result r = own_failure();
  for (int32_t peer = 0; r.ok() && peer < num_ranks_; ++peer) {
    if (peer == rank_) continue;
    result why = lost(peer, true);
    // A rank that has left in order is missed only by a call that waits for it.
    if (!why.ok() && segment_->rank(peer).state.load() != rank_state::left) r = fail(why);
  }
  return r;
}

void communicator::abort() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (turn_ == num_tickets_) end_as(rank_state::left);
  }
  fail(failure(TB_STATUS_INTERNAL, "rank %d of %d was aborted (comm_abort)", rank_, num_ranks_));
}

} // namespace xcpu::ccl
