#include "batch.h"

#include <sched.h>

#include <chrono>

#include "../scoped_access.h"
#include "../spin.h"

namespace xcpu::ccl {
namespace {

using clock = std::chrono::steady_clock;

// Data mostly come within microseconds, if the other rank runs at the same time; with more ranks than processors it
// does so only when this one lets it.
constexpr int kLooksBeforeYield = 200, kYieldsBeforeSleep = 20;
constexpr auto kLongestSleep = std::chrono::milliseconds(100);
// One thread that waits for several communicators hears only the bell of the first.
constexpr auto kSleepOfSeveral = std::chrono::microseconds(200);
constexpr auto kAskProcessesEvery = std::chrono::milliseconds(100);

} // namespace

plan& batch::plan_of(const std::shared_ptr<communicator>& comm) {
  for (member& m : members_)
    if (&m.what.comm() == comm.get()) return m.what;
  members_.push_back({plan(comm)});
  return members_.back().what;
}

void batch::needs(const access& what) {
  if (what.size_bytes > 0) accesses_.push_back(what);
}

void batch::fail_with(const result& why) {
  if (failure_.ok()) failure_ = why;
}

result batch::check() const {
  for (const member& m : members_) {
    result r = m.what.comm().own_failure();
    if (r.ok()) r = m.what.check();
    if (!r.ok()) return r;
  }
  return {};
}

void batch::take_tickets() {
  for (member& m : members_) m.ticket = m.what.comm().take_ticket();
}

result batch::run() {
  result r;
  for (const member& m : members_)
    if (r.ok()) r = m.what.comm().wait_for_turn(m.ticket);
  if (r.ok()) r = failure_;
  if (r.ok()) r = run_in_turn();
  for (const member& m : members_) {
    if (!r.ok()) m.what.comm().fail(r);
    m.what.comm().end_turn(m.ticket);
  }
  return r;
}

result batch::run_in_turn() {
  std::deque<scoped_access> open;
  for (const access& a : accesses_) {
    open.emplace_back(a.device, a.ptr, a.size_bytes, a.kind);
    if (!open.back().opened().ok()) return open.back().opened();
  }
  for (member& m : members_) m.what.start();
  return move_all();
}

result batch::move_all() {
  int idle = 0;
  auto asked = clock::now();
  for (;;) {
    const uint32_t seen = members_.front().what.comm().bell().rings();
    bool moved = false, finished = true;
    for (member& m : members_) {
      if (result r = m.what.advance(&moved); !r.ok()) return r;
      finished &= m.what.finished();
    }
    if (finished) return {};
    if (moved) {
      idle = 0;
      continue;
    }
    if (++idle <= kLooksBeforeYield) {
      pause_processor();
      continue;
    }
    if (idle <= kLooksBeforeYield + kYieldsBeforeSleep) {
      sched_yield();
      continue;
    }
    const auto now = clock::now();
    const bool ask_processes = now - kAskProcessesEvery > asked;
    if (ask_processes) asked = now;
    if (result r = look_for_failures(ask_processes); !r.ok()) return r;
    wait(seen);
  }
}

// What a rank wrote before it ended is still there to be read: a loss counts only if nothing is moved after it was seen.
result batch::look_for_failures(bool ask_processes) {
  for (member& m : members_) {
    if (result r = m.what.comm().own_failure(); !r.ok()) return r;
    if (m.what.finished()) continue;
    result lost = m.what.lost(ask_processes);
    if (lost.ok()) continue;
    bool moved = false;
    if (result r = m.what.advance(&moved); !r.ok()) return r;
    if (!moved) return lost;
  }
  return {};
}

void batch::wait(uint32_t first_seen) const {
  members_.front().what.comm().bell().wait(
      first_seen, members_.size() == 1 ? std::chrono::microseconds(kLongestSleep) : kSleepOfSeveral);
}

} // namespace xcpu::ccl
