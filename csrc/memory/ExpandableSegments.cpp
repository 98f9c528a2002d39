#include "csrc/memory/ExpandableSegments.h"

#include <algorithm>

#include "csrc/core/Status.h"

namespace torch_backend {
namespace {

/// Addresses of a device that does not say how much memory it has; what is larger is no segment that grows.
constexpr std::size_t kReservedIfUnknown = std::size_t{512} << 30;

std::size_t distance(const char* from, const char* to) {
  return static_cast<std::size_t>(to - from);
}

/// Page sizes are no powers of two.
std::size_t round_up(std::size_t size, std::size_t page_size) {
  return (size + page_size - 1) / page_size * page_size;
}

std::size_t free_size(const Block* block) {
  return block && block->state == Block::State::kFree ? block->size : 0;
}

} // namespace

// ---- growing ----

ExpandableSegments::Move ExpandableSegments::claim(const Request& request, Lock& lock) {
  BlockPool& pool = blocks_.pool_for(request);
  Gap gap = find_gap(pool, request.size);
  if (!gap.reservation) {
    gap = reserve(pool, request.size, lock);
  }
  if (!gap.reservation) {
    return {};
  }
  Reservation& reservation = *gap.reservation;
  const std::size_t missing = request.size - std::min(free_size(gap.before), request.size - 1);
  const std::size_t size = std::min(round_up(missing, reservation.page_size), gap.size);
  const bool closes = size == gap.size && gap.after;
  reservation.last.erase(gap.begin);
  Block* block = blocks_.add_between(gap.before, closes ? gap.after->first : nullptr, gap.begin, size, reservation);
  int64_t more_segments = 1;
  Segment* segment = nullptr;
  if (gap.before) {
    segment = &std::prev(segments_.lower_bound(gap.begin))->second;
    segment->size += size;
    --more_segments;
  } else {
    segment = &segments_[gap.begin];
    *segment = {gap.begin, size, &pool, block, false, request.context, &reservation};
  }
  if (closes) {
    segment->size += gap.after->size;
    segments_.erase(gap.after->base);
    --more_segments;
  } else {
    reservation.last[gap.begin + size] = block;
  }
  state_.stats.change(Metric::kSegments, pool.small, more_segments);
  return {block, gap.begin, size};
}

/// The lowest that has room for a block of `size`, with what is free on both sides.
ExpandableSegments::Gap ExpandableSegments::find_gap(const BlockPool& pool, std::size_t size) {
  for (const auto& each : reservations_) {
    Reservation& reservation = *each;
    if (reservation.pool != &pool) {
      continue;
    }
    Gap gap{&reservation, reservation.base};
    auto next = segments_.lower_bound(reservation.base);
    for (const auto& [end, last] : reservation.last) { // one for every segment
      gap.after = &(next++)->second;
      gap.size = distance(gap.begin, static_cast<char*>(gap.after->base));
      if (gap.size > 0 && free_size(gap.before) + gap.size + free_size(gap.after->first) >= size) {
        return gap;
      }
      gap.begin = last->end();
      gap.before = last;
    }
    gap.after = nullptr;
    gap.size = reservation.size - distance(reservation.base, gap.begin);
    if (gap.size > 0 && free_size(gap.before) + gap.size >= size) {
      return gap;
    }
  }
  return {};
}

/// More than the device has, so that gaps too small for a request do not use it up.
std::size_t ExpandableSegments::reserved_size() const {
  const std::size_t total = state_.total_memory();
  return total ? total + total / 8 : kReservedIfUnknown;
}

ExpandableSegments::Gap ExpandableSegments::reserve(BlockPool& pool, std::size_t size, Lock& lock) {
  auto reservation = std::make_unique<Reservation>();
  reservation->page_size = state_.policy.page_size(pool.small);
  reservation->pool = &pool;
  ++pool.owner.num_segments; // keeps the pool alive
  lock.unlock();
  void* base = nullptr;
  std::exception_ptr error;
  try {
    reservation->size = round_up(reserved_size(), reservation->page_size);
    if (size <= reservation->size &&
        state_.api.address_reserve(state_.device, reservation->size, &base) != TB_STATUS_OK) {
      take_error_text();
    }
  } catch (...) {
    error = std::current_exception();
  }
  lock.lock();
  if (!base) {
    blocks_.pools.drop_segment(pool.owner);
    if (error) {
      std::rethrow_exception(error);
    }
    return {};
  }
  reservation->base = static_cast<char*>(base);
  reservations_.push_back(std::move(reservation));
  Reservation& made = *reservations_.back();
  return {&made, made.base, made.size};
}

void ExpandableSegments::commit(const Move& move, std::size_t* out_committed, std::string* out_plugin_text) {
  const std::size_t page_size = move.block->reservation->page_size;
  std::size_t& done = *out_committed;
  try {
    for (done = 0; done < move.size; done += page_size) {
      if (state_.api.memory_commit(state_.device, move.begin + done, page_size) != TB_STATUS_OK) {
        *out_plugin_text = take_error_text();
        done = decommit_back(move, done);
        return;
      }
    }
  } catch (...) {
    done = decommit_back(move, done);
    throw;
  }
}

/// Of a move that has memory up to `committed` and cannot get the rest: up to where it still has.
std::size_t ExpandableSegments::decommit_back(const Move& move, std::size_t committed) noexcept {
  const std::size_t page_size = move.block->reservation->page_size;
  while (committed > 0 && state_.api.memory_decommit(state_.device, move.begin + committed - page_size, page_size)) {
    committed -= page_size;
  }
  return committed;
}

Block* ExpandableSegments::finish_claim(const Move& move, std::size_t committed, const Request& request) {
  const BlockPool& pool = *move.block->pool;
  auto& stats = state_.stats;
  if (committed > 0) {
    ++stats.num_device_alloc;
    stats.increase(Metric::kReservedBytes, pool.small, committed);
    if (pool.owner.is_private()) {
      stats.increase_pool_reserved(pool.owner.id, pool.small, committed);
    }
    recorder_.record(TraceAction::kSegmentMap, move.begin, committed, pool, request.context);
  }
  if (committed == move.size) {
    return blocks_.settle(move.block);
  }
  Block* missing = move.block;
  Block* before = nullptr;
  char* const begin = move.begin + committed;
  char* const end = move.begin + move.size;
  if (missing->begin() < begin) {
    before = missing;
    missing = blocks_.cut(missing, distance(missing->begin(), begin));
  }
  Block* const after = end < missing->end() ? blocks_.cut(missing, distance(begin, end)) : nullptr;
  remove(missing);
  for (Block* block : {before, after}) {
    if (block) {
      blocks_.settle_as_free(block);
    }
  }
  return nullptr;
}

// ---- giving back ----

char* ExpandableSegments::first_page(const Block& block) {
  const Reservation& reservation = *block.reservation;
  return reservation.base + round_up(distance(reservation.base, block.begin()), reservation.page_size);
}

/// Where it ends.
char* ExpandableSegments::last_page(const Block& block) {
  const Reservation& reservation = *block.reservation;
  return reservation.base + distance(reservation.base, block.end()) / reservation.page_size * reservation.page_size;
}

ExpandableSegments::Move ExpandableSegments::take_pages(Block* block) {
  char* const begin = first_page(*block);
  char* const end = last_page(*block);
  return {blocks_.take_part(block, begin, end), begin, distance(begin, end)};
}

std::size_t ExpandableSegments::decommit(const Move& move) noexcept {
  const std::size_t page_size = move.block->reservation->page_size;
  std::size_t done = 0;
  while (done < move.size && state_.api.memory_decommit(state_.device, move.begin + done, page_size)) {
    done += page_size;
  }
  return done;
}

void ExpandableSegments::finish_release(const Move& move, std::size_t decommitted) {
  if (decommitted == 0) {
    return blocks_.settle_as_free(move.block);
  }
  const BlockPool& pool = *move.block->pool;
  auto& stats = state_.stats;
  ++stats.num_device_free;
  stats.decrease(Metric::kReservedBytes, pool.small, decommitted);
  if (pool.owner.is_private()) {
    stats.decrease_pool_reserved(pool.owner.id, pool.small, decommitted);
  }
  recorder_.record(TraceAction::kSegmentUnmap, move.begin, decommitted, pool, nullptr);
  Block* const rest = decommitted < move.size ? blocks_.cut(move.block, decommitted) : nullptr;
  remove(move.block);
  if (rest) {
    blocks_.settle_as_free(rest);
  }
}

/// `block` has no memory: a gap is where it was.
void ExpandableSegments::remove(Block* block) {
  Reservation& reservation = *block->reservation;
  BlockPool& pool = *block->pool;
  char* const begin = block->begin();
  char* const end = block->end();
  Block* const before = block->prev;
  Block* const after = block->next;
  blocks_.remove_between(block);

  const auto found = std::prev(segments_.upper_bound(begin));
  Segment& segment = found->second;
  char* const segment_end = static_cast<char*>(segment.base) + segment.size;
  int64_t more_segments = -1;
  if (after) {
    segments_[end] = {end, distance(end, segment_end), &pool, after, false, segment.context, &reservation};
    ++more_segments;
  } else {
    reservation.last.erase(end);
  }
  if (before) {
    reservation.last[begin] = before;
    segment.size = distance(static_cast<char*>(segment.base), begin);
    ++more_segments;
  } else {
    segments_.erase(found);
  }
  state_.stats.change(Metric::kSegments, pool.small, more_segments);
  if (!reservation.last.empty()) {
    return;
  }
  const auto is_this = [&](const auto& each) { return each.get() == &reservation; };
  const auto place = std::find_if(reservations_.begin(), reservations_.end(), is_this);
  empty_.push_back(std::move(*place));
  reservations_.erase(place);
}

void ExpandableSegments::release_addresses(Lock& lock) {
  std::vector<std::unique_ptr<Reservation>> empty;
  empty.swap(empty_);
  if (empty.empty()) {
    return;
  }
  for (const auto& reservation : empty) {
    blocks_.pools.drop_segment(reservation->pool->owner);
  }
  lock.unlock();
  for (const auto& reservation : empty) {
    state_.api.address_release(state_.device, reservation->base, reservation->size);
  }
  lock.lock();
}

} // namespace torch_backend
