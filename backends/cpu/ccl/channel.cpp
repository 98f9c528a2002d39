#include "channel.h"

#include <algorithm>
#include <cstring>

namespace xcpu::ccl {
namespace {

// A message that is longer than a record travels in several, so that both sides work at once.
constexpr uint64_t kRecordsInRing = 4;

uint64_t whole_lines(uint64_t bytes) {
  return (bytes + kChannelLine - 1) / kChannelLine * kChannelLine;
}

} // namespace

static_assert(std::atomic<uint64_t>::is_always_lock_free);

channel_writer::channel_writer(const channel& where)
    : where_(where), max_chunk_bytes_(whole_lines(where.ring_bytes / kRecordsInRing) - kChannelLine) {}

bool channel_writer::has_room(uint64_t bytes) {
  if (where_.ring_bytes - (written_ - known_read_) >= bytes) return true;
  known_read_ = where_.control->read.load(std::memory_order_acquire);
  return where_.ring_bytes - (written_ - known_read_) >= bytes;
}

bool channel_writer::write(const signature& call, const void* data, uint64_t size_bytes, uint64_t* done_bytes) {
  const uint64_t at = written_ % where_.ring_bytes;
  // No record goes around the ring's end. Where only a header fits, the record has no data.
  const uint64_t straight = where_.ring_bytes - at - kChannelLine;
  const uint64_t chunk = std::min({size_bytes - *done_bytes, max_chunk_bytes_, straight});
  const uint64_t length = kChannelLine + whole_lines(chunk);
  if (!has_room(length)) return false;
  auto* header = reinterpret_cast<record*>(where_.ring + at);
  header->call = call;
  header->message_bytes = size_bytes;
  header->chunk_bytes = chunk;
  if (chunk > 0)
    std::memcpy(where_.ring + at + kChannelLine, static_cast<const unsigned char*>(data) + *done_bytes, chunk);
  *done_bytes += chunk;
  written_ += length;
  where_.control->written.store(written_, std::memory_order_release);
  return true;
}

const record* channel_reader::at_front() const {
  return reinterpret_cast<const record*>(where_.ring + read_ % where_.ring_bytes);
}

const record* channel_reader::front() {
  if (read_ == known_written_) known_written_ = where_.control->written.load(std::memory_order_acquire);
  return read_ == known_written_ ? nullptr : at_front();
}

const unsigned char* channel_reader::data() const {
  return reinterpret_cast<const unsigned char*>(at_front()) + kChannelLine + taken_bytes_;
}

uint64_t channel_reader::data_bytes() const {
  return at_front()->chunk_bytes - taken_bytes_;
}

void channel_reader::take(uint64_t bytes) {
  taken_bytes_ += bytes;
  const uint64_t chunk = at_front()->chunk_bytes;
  if (taken_bytes_ < chunk) return;
  taken_bytes_ = 0;
  read_ += kChannelLine + whole_lines(chunk);
  where_.control->read.store(read_, std::memory_order_release);
}

} // namespace xcpu::ccl
