#include "plan.h"

#include <algorithm>
#include <cstring>

namespace xcpu::ccl {

plan::plan(std::shared_ptr<communicator> comm)
    : comm_(std::move(comm)),
      outgoing_(static_cast<size_t>(comm_->num_ranks())),
      incoming_(static_cast<size_t>(comm_->num_ranks())),
      sources_(static_cast<size_t>(comm_->num_ranks())) {}

plan::step* plan::add(const signature& call, void* data, uint64_t size_bytes) {
  all_.push_back({call, static_cast<unsigned char*>(data), size_bytes, 0, nullptr, {}, 0, {}});
  ++num_open_;
  return &all_.back();
}

plan::step* plan::send(int32_t peer, const signature& call, const void* data, uint64_t size_bytes) {
  step* added = add(call, const_cast<void*>(data), size_bytes);
  outgoing_[static_cast<size_t>(peer)].push_back(added);
  return added;
}

plan::step* plan::receive(int32_t peer, const signature& call, void* data, uint64_t size_bytes) {
  step* added = add(call, data, size_bytes);
  incoming_[static_cast<size_t>(peer)].push_back(added);
  return added;
}

plan::step* plan::reduce(const signature& call, const void* own, void* out, uint64_t size_bytes,
                         const reduction& with) {
  step* added = add(call, out, size_bytes);
  added->own = static_cast<const unsigned char*>(own);
  added->with = with;
  for (int32_t peer = 0; peer < comm_->num_ranks(); ++peer)
    if (peer != comm_->rank()) incoming_[static_cast<size_t>(peer)].push_back(added);
  return added;
}

void plan::order(step* first, step* second) {
  first->after.push_back(second);
  ++second->num_before;
}

void plan::copy(void* dst, const void* src, uint64_t size_bytes) {
  if (dst != src && size_bytes > 0) copies_.push_back({dst, src, size_bytes});
}

result plan::check() const {
  const auto self = static_cast<size_t>(comm_->rank());
  const steps &out = outgoing_[self], &in = incoming_[self];
  if (out.size() != in.size())
    return failure(TB_STATUS_INVALID_ARGUMENT,
                   "rank %zu sends itself %zu messages and receives %zu of them; both have to be in one group "
                   "(group_begin, group_end)",
                   self, out.size(), in.size());
  for (size_t i = 0; i < out.size(); ++i)
    if (!same(out[i]->call, in[i]->call)) return unexpected(comm_->rank(), out[i]->call, in[i]->call);
  return {};
}

void plan::start() {
  for (const local_copy& c : copies_) std::memcpy(c.dst, c.src, c.size_bytes);
  copy_to_self();
}

void plan::copy_to_self() {
  const auto self = static_cast<size_t>(comm_->rank());
  while (!outgoing_[self].empty()) {
    step *from = outgoing_[self].front(), *to = incoming_[self].front();
    if (from->size_bytes > 0) std::memmove(to->data, from->data, from->size_bytes);
    outgoing_[self].pop_front();
    incoming_[self].pop_front();
    end(from);
    end(to);
  }
}

void plan::end(step* which) {
  for (step* next : which->after) --next->num_before;
  --num_open_;
}

result plan::advance(bool* out_moved) {
  for (int32_t peer = 0; peer < comm_->num_ranks(); ++peer) {
    if (peer == comm_->rank()) continue;
    if (advance_send(peer)) *out_moved = true;
    if (result r = advance_receive(peer, out_moved); !r.ok()) return r;
  }
  return {};
}

bool plan::advance_send(int32_t peer) {
  steps& out = outgoing_[static_cast<size_t>(peer)];
  if (out.empty() || out.front()->num_before > 0) return false;
  step* next = out.front();
  if (!comm_->writer_to(peer).write(next->call, next->data, next->size_bytes, &next->done_bytes)) return false;
  comm_->wake(peer);
  if (next->done_bytes == next->size_bytes) {
    out.pop_front();
    end(next);
  }
  return true;
}

result plan::advance_receive(int32_t peer, bool* out_moved) {
  steps& in = incoming_[static_cast<size_t>(peer)];
  if (in.empty()) return {};
  step* next = in.front();
  if (next->with.function) return advance_reduce(next, out_moved);
  channel_reader& reader = comm_->reader_from(peer);
  const record* record = reader.front();
  if (!record) return {};
  if (!same(record->call, next->call)) return unexpected(peer, record->call, next->call);
  const uint64_t size = reader.data_bytes();
  if (size > 0) std::memcpy(next->data + next->done_bytes, reader.data(), size);
  next->done_bytes += size;
  reader.take(size);
  comm_->wake(peer);
  *out_moved = true;
  if (next->done_bytes == next->size_bytes) {
    in.pop_front();
    end(next);
  }
  return {};
}

// How much all ranks have given of it so far: false if one of them has given nothing, or if they do not agree.
bool plan::find_sources(step* next, uint64_t* out_bytes, bool* out_moved, result* out_failure) {
  uint64_t size = next->size_bytes - next->done_bytes;
  bool complete = true;
  for (int32_t peer = 0; peer < comm_->num_ranks(); ++peer) {
    const auto i = static_cast<size_t>(peer);
    if (peer == comm_->rank()) {
      sources_[i] = next->own + next->done_bytes;
      continue;
    }
    channel_reader& reader = comm_->reader_from(peer);
    const record* record = incoming_[i].front() == next ? reader.front() : nullptr;
    if (record && !same(record->call, next->call)) {
      *out_failure = unexpected(peer, record->call, next->call);
      return false;
    }
    if (record && record->chunk_bytes == 0 && next->size_bytes > 0) {
      reader.take(0);
      *out_moved = true;
      record = reader.front();
    }
    if (!record) {
      complete = false; // the others are looked at all the same: they may not agree
      continue;
    }
    sources_[i] = reader.data();
    size = std::min(size, reader.data_bytes());
  }
  *out_bytes = size;
  return complete && (size > 0 || next->size_bytes == 0);
}

result plan::advance_reduce(step* next, bool* out_moved) {
  uint64_t size = 0;
  result disagreement;
  if (next->num_before > 0 || !find_sources(next, &size, out_moved, &disagreement)) return disagreement;
  next->with.function(sources_.data(), comm_->num_ranks(), next->data + next->done_bytes,
                      size / next->with.number_bytes);
  next->done_bytes += size;
  const bool ended = next->done_bytes == next->size_bytes;
  for (int32_t peer = 0; peer < comm_->num_ranks(); ++peer) {
    if (peer == comm_->rank()) continue;
    comm_->reader_from(peer).take(size);
    comm_->wake(peer);
    if (ended) incoming_[static_cast<size_t>(peer)].pop_front();
  }
  if (ended) end(next);
  *out_moved = true;
  return {};
}

result plan::unexpected(int32_t peer, const signature& theirs, const signature& ours) const {
  return failure(TB_STATUS_INVALID_ARGUMENT, "rank %d calls %s, and rank %d %s: they have to agree", peer,
                 describe(theirs, side::sends).c_str(), comm_->rank(), describe(ours, side::receives).c_str());
}

result plan::lost(bool ask_processes) const {
  for (int32_t peer = 0; peer < comm_->num_ranks(); ++peer) {
    const auto i = static_cast<size_t>(peer);
    if (peer == comm_->rank() || (outgoing_[i].empty() && incoming_[i].empty())) continue;
    if (result r = comm_->lost(peer, ask_processes); !r.ok()) return r;
  }
  return {};
}

} // namespace xcpu::ccl
