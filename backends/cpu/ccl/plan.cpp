#include "plan.h"

#include <cstring>

namespace xcpu::ccl {

plan::plan(std::shared_ptr<communicator> comm)
    : comm_(std::move(comm)),
      outgoing_(static_cast<size_t>(comm_->num_ranks())),
      incoming_(static_cast<size_t>(comm_->num_ranks())) {}

void plan::send(int32_t peer, const signature& call, const void* data, uint64_t size_bytes) {
  auto* source = static_cast<unsigned char*>(const_cast<void*>(data));
  outgoing_[static_cast<size_t>(peer)].push_back({call, source, size_bytes});
  ++num_open_;
}

void plan::receive(int32_t peer, const signature& call, void* data, uint64_t size_bytes) {
  incoming_[static_cast<size_t>(peer)].push_back({call, static_cast<unsigned char*>(data), size_bytes});
  ++num_open_;
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
    if (!same(out[i].call, in[i].call)) return unexpected(comm_->rank(), out[i].call, in[i].call);
  return {};
}

void plan::start() {
  for (const local_copy& c : copies_) std::memcpy(c.dst, c.src, c.size_bytes);
  copy_to_self();
}

void plan::copy_to_self() {
  const auto self = static_cast<size_t>(comm_->rank());
  while (!outgoing_[self].empty()) {
    const step &from = outgoing_[self].front(), &to = incoming_[self].front();
    if (from.size_bytes > 0) std::memmove(to.data, from.data, from.size_bytes);
    end_front(&outgoing_[self]);
    end_front(&incoming_[self]);
  }
}

void plan::end_front(steps* which) {
  which->pop_front();
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
  if (out.empty()) return false;
  step& next = out.front();
  if (!comm_->writer_to(peer).write(next.call, next.data, next.size_bytes, &next.done_bytes)) return false;
  comm_->wake(peer);
  if (next.done_bytes == next.size_bytes) end_front(&out);
  return true;
}

result plan::advance_receive(int32_t peer, bool* out_moved) {
  steps& in = incoming_[static_cast<size_t>(peer)];
  if (in.empty()) return {};
  channel_reader& reader = comm_->reader_from(peer);
  const record* record = reader.front();
  if (!record) return {};
  step& next = in.front();
  if (!same(record->call, next.call)) return unexpected(peer, record->call, next.call);
  const uint64_t size = reader.data_bytes();
  if (size > 0) std::memcpy(next.data + next.done_bytes, reader.data(), size);
  next.done_bytes += size;
  reader.take(size);
  comm_->wake(peer);
  *out_moved = true;
  if (next.done_bytes == next.size_bytes) end_front(&in);
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
