#include "batch.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

#include "../scoped_access.h"
#include "../spin.h"

namespace xcpu::ccl {
namespace {

using clock = std::chrono::steady_clock;

// Data mostly come within microseconds, if the other rank runs at the same time; with more ranks than processors it
// does so only when this one lets it. What is late is looked for less and less often.
constexpr int kLooksBeforeYield = 200, kLooksBeforeSleep = 220;
constexpr auto kSleepsGrowBy = std::chrono::microseconds(20), kLongestSleep = std::chrono::microseconds(1000);
constexpr auto kAskProcessesEvery = std::chrono::milliseconds(100);

result unexpected(int32_t peer, const signature& theirs, const step& ours) {
  return failure(TB_STATUS_INVALID_ARGUMENT, "rank %d calls %s, and rank %d %s: they have to agree", peer,
                 describe(theirs, side::sends).c_str(), ours.comm->rank(), describe(ours.call, side::receives).c_str());
}

// Both move the next piece of a message, if there is one, or room for one.
result send_piece(const step& of, transfer& t, bool* out_moved) {
  channel to = of.comm->to(t.peer);
  if (!to.has_room()) return {};
  const uint64_t size = std::min(t.size_bytes - t.done_bytes, to.capacity_bytes());
  const scoped_access access(size > 0 ? of.comm->device() : kHostSide, t.data + t.done_bytes, size, TB_MAP_READ);
  if (!access.opened().ok()) return access.opened();
  to.write(of.call, t.data + t.done_bytes, size);
  t.done_bytes += size;
  *out_moved = true;
  return {};
}

result receive_piece(const step& of, transfer& t, bool* out_moved) {
  channel from = of.comm->from(t.peer);
  const piece* next = from.front();
  if (!next) return {};
  if (!same(next->call, of.call)) return unexpected(t.peer, next->call, of);
  if (!t.data) {
    t.scratch.reset(new unsigned char[t.size_bytes]);
    t.data = t.scratch.get();
  }
  const uint64_t size = next->size_bytes;
  const scoped_access access(size > 0 && !t.scratch ? of.comm->device() : kHostSide, t.data + t.done_bytes, size,
                             TB_MAP_READ | TB_MAP_WRITE);
  if (!access.opened().ok()) return access.opened();
  if (size > 0) std::memcpy(t.data + t.done_bytes, next + 1, size);
  from.take();
  t.done_bytes += size;
  *out_moved = true;
  return {};
}

} // namespace

void step::send(int32_t peer, const void* data, uint64_t size_bytes) {
  transfers.push_back({peer, true, static_cast<unsigned char*>(const_cast<void*>(data)), size_bytes, 0, nullptr});
}

void step::receive(int32_t peer, void* data, uint64_t size_bytes) {
  transfers.push_back({peer, false, static_cast<unsigned char*>(data), size_bytes, 0, nullptr});
}

const transfer* step::receive(int32_t peer, uint64_t size_bytes) {
  receive(peer, nullptr, size_bytes);
  return &transfers.back();
}

step& batch::add(const std::shared_ptr<communicator>& comm, const signature& call, const step* after) {
  communicators_.insert(comm);
  steps_.push_back({comm, call, after, {}, nullptr});
  return steps_.back();
}

void batch::fail_with(const result& why) {
  if (failure_.ok()) failure_ = why;
}

result batch::begin() {
  for (const auto& comm : communicators_) {
    result r = comm->own_failure();
    if (r.ok()) r = check(*comm);
    if (!r.ok()) return r;
  }
  for (const auto& comm : communicators_) ++comm->num_pending;
  return {};
}

// Nobody else would ever answer a rank's message to itself.
result batch::check(const communicator& comm) const {
  int sent = 0, received = 0;
  for (const step& s : steps_)
    for (const transfer& t : s.transfers)
      if (s.comm.get() == &comm && t.peer == comm.rank()) ++(t.sends ? sent : received);
  if (sent == received) return {};
  return failure(TB_STATUS_INVALID_ARGUMENT,
                 "rank %d sends itself %d messages and receives %d of them; both have to be in one group "
                 "(group_begin, group_end)",
                 comm.rank(), sent, received);
}

result batch::run() {
  std::vector<std::unique_lock<std::mutex>> turns;
  for (const auto& comm : communicators_) {
    turns.emplace_back(comm->turn);
    fail_with(comm->own_failure());
  }
  if (failure_.ok()) failure_ = move_all();
  for (const auto& comm : communicators_) {
    if (!failure_.ok()) comm->fail(failure_);
    --comm->num_pending;
  }
  return failure_;
}

void batch::fill_lanes() {
  for (step& s : steps_) {
    s.num_open = s.transfers.size();
    for (transfer& t : s.transfers) lanes_[{s.comm.get(), t.peer, t.sends}].push_back({&s, &t});
  }
}

result batch::move_all() {
  fill_lanes();
  int idle = 0;
  auto asked = clock::now();
  while (!lanes_.empty()) {
    bool moved = false;
    if (result r = advance(&moved); !r.ok()) return r;
    idle = moved ? 0 : idle + 1;
    if (idle <= kLooksBeforeYield) {
      pause_processor();
    } else if (idle <= kLooksBeforeSleep) {
      sched_yield();
    } else {
      const auto now = clock::now();
      const bool ask_processes = now - kAskProcessesEvery > asked;
      if (ask_processes) asked = now;
      if (result r = look_for_failures(ask_processes); !r.ok()) return r;
      std::this_thread::sleep_for(std::min(kSleepsGrowBy * (idle - kLooksBeforeSleep), kLongestSleep));
    }
  }
  return {};
}

// A piece of what comes next in every lane. `out_moved` is not changed if nothing could be moved.
result batch::advance(bool* out_moved) {
  for (auto next = lanes_.begin(); next != lanes_.end();) {
    const auto [of, what] = next->second.front();
    bool moved = false;
    if (!of->after || of->after->num_open == 0)
      if (result r = (what->sends ? send_piece : receive_piece)(*of, *what, &moved); !r.ok()) return r;
    *out_moved |= moved;
    if (moved && what->done_bytes == what->size_bytes) {
      next->second.pop_front();
      if (--of->num_open == 0 && of->then)
        if (result r = of->then(); !r.ok()) return r;
    }
    next = next->second.empty() ? lanes_.erase(next) : std::next(next);
  }
  return {};
}

// What a rank wrote before it ended is still there to be read: a loss counts only if nothing is moved after it was seen.
result batch::look_for_failures(bool ask_processes) {
  for (const auto& [where, waiting] : lanes_) {
    const auto& [comm, peer, sends] = where;
    if (result r = comm->own_failure(); !r.ok()) return r;
    const result lost = comm->lost(peer, ask_processes);
    if (lost.ok()) continue;
    bool moved = false;
    result r = advance(&moved);
    return r.ok() && !moved ? lost : r;
  }
  return {};
}

} // namespace xcpu::ccl
