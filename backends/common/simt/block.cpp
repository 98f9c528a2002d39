#include "block.h"

#include <algorithm>

namespace plugin::simt {
namespace {
thread_local block* running = nullptr;
}

struct block::strand {
  fiber on{work};
  state waits = state::kNoItem;
  uint32_t item = 0;
};

const simt_host block::kHost = {
    [] { running->wait(state::kAtBarrier); },
    [] { running->wait(state::kAtWarp); },
    [](const void* at, unsigned long size_bytes, simt_access how, unsigned since) {
      running->access(at, size_bytes, how, since);
    },
    [] {
      if (running->races_) running->races_->fence();
    },
};

// Those of the thread.
block::strands& block::idle() {
  static thread_local strands all;
  return all;
}

block::block(const simt_module& code, const simt_kernel& kernel, void* const* parameters, simt_index size,
             races* looked_for)
    : code_(code),
      kernel_(kernel),
      parameters_(parameters),
      size_(size),
      races_(looked_for),
      warps_((items() + kSimtWarp - 1) / kSimtWarp) {
  *code.host = &kHost;
  *code.block_size = size;
}

block::~block() = default;

std::string block::run(uint32_t number) {
  running = this;
  number_ = number;
  next_ = *code_.barriers = 0;
  std::string wrong = run_warps(true);
  while (wrong.empty() && std::any_of(warps_.begin(), warps_.end(), [](const strands& w) { return !w.empty(); })) {
    ++*code_.barriers;
    wrong = run_warps(false);
  }
  running = nullptr;
  for (strands& warp : warps_) warp.clear(); // in the middle of something
  return wrong;
}

// Until all items wait at a barrier or have ended.
std::string block::run_warps(bool first) {
  uint32_t waiting = 0;
  const strand* some = nullptr;
  for (uint32_t warp = 0; warp < warps_.size(); ++warp) {
    if (first)
      start(warp);
    else
      for (const auto& each : warps_[warp]) resume(each.get());
    if (std::string wrong = run_warp(warp); !wrong.empty()) return wrong;
    waiting += static_cast<uint32_t>(warps_[warp].size());
    if (!warps_[warp].empty()) some = warps_[warp].front().get();
  }
  if (waiting == 0 || waiting == items()) return "";
  return "item " + std::to_string(some->item) + " waits at a barrier where " + std::to_string(items() - waiting) +
         " of the block's " + std::to_string(items()) + " items never come";
}

void block::start(uint32_t warp) {
  end_ = std::min(items(), (warp + 1) * kSimtWarp);
  while (next_ < end_) {
    if (idle().empty()) idle().push_back(std::make_unique<strand>());
    auto taken = std::move(idle().back());
    idle().pop_back();
    resume(taken.get());
    (taken->waits == state::kNoItem ? idle() : warps_[warp]).push_back(std::move(taken));
  }
}

// Until those of the warp that have not ended wait for the block.
std::string block::run_warp(uint32_t warp) {
  strands& lanes = warps_[warp];
  const size_t all = std::min(kSimtWarp, items() - warp * kSimtWarp);
  for (;;) {
    size_t kept = 0, coming = 0;
    for (auto& lane : lanes) {
      if (lane->waits == state::kNoItem) {
        idle().push_back(std::move(lane));
        continue;
      }
      coming += lane->waits == state::kAtWarp;
      if (&lane != &lanes[kept]) lanes[kept] = std::move(lane);
      ++kept;
    }
    lanes.resize(kept);
    if (coming == 0) return "";
    if (coming != all)
      return std::to_string(coming) + " of the " + std::to_string(all) + " items of warp " + std::to_string(warp) +
             " shuffle, or multiply matrices, where the others never come";
    for (const auto& lane : lanes) resume(lane.get());
  }
}

void block::resume(strand* s) {
  current_ = s;
  s->on.resume();
}

// On a strand's stack, for ever.
void block::work() {
  for (strand* self = running->current_;;) {
    for (block* b = running; b->next_ < b->end_;) {
      self->item = b->next_++;
      *b->code_.thread = {self->item % b->size_.x, self->item / b->size_.x % b->size_.y,
                          self->item / b->size_.x / b->size_.y};
      b->kernel_.run(b->parameters_);
      if (b->races_) b->races_->settle();
    }
    self->waits = state::kNoItem;
    self->on.pause();
  }
}

void block::wait(state where) {
  if (races_) races_->settle();
  strand* self = current_;
  const simt_index thread = *code_.thread;
  self->waits = where;
  self->on.pause();
  *code_.thread = thread;
}

void block::access(const void* at, size_t size_bytes, simt_access how, uint32_t since) {
  if (current_->on.has(at)) return;
  const auto* byte = static_cast<const unsigned char*>(at);
  const bool is_static = byte >= code_.begin && byte < code_.end;
  races_->access({number_, *code_.barriers, current_->item}, byte, size_bytes, how, since,
                 is_static ? code_.begin : nullptr);
}

} // namespace plugin::simt
