// Messages from one rank to another: a ring of bytes in shared memory, with one writer and one reader.
//
// A message is one or more records, each a header and a piece of the data. Every record says what the whole message is,
// so that the reader notices one that it does not expect before it takes a byte of it.
#pragma once

#include <atomic>
#include <cstdint>

#include "signature.h"

namespace xcpu::ccl {

constexpr uint64_t kChannelLine = 64;

struct record {
  alignas(kChannelLine) signature call;
  uint64_t message_bytes;
  uint64_t chunk_bytes; // of the data that follow, which are padded to whole lines
};
static_assert(sizeof(record) == kChannelLine);

// In shared memory; zero is its first state. Both positions only grow: bytes written, bytes read.
struct channel_control {
  alignas(kChannelLine) std::atomic<uint64_t> written;
  alignas(kChannelLine) std::atomic<uint64_t> read;
};

// Where a channel lies. `ring_bytes` is a multiple of the line and at least eight of them; the ring starts on a line.
struct channel {
  channel_control* control;
  unsigned char* ring;
  uint64_t ring_bytes;
};

// The writing end. One at a time, for the life of the channel.
class channel_writer {
 public:
  explicit channel_writer(const channel& where);

  // Writes the next record of a message of `size_bytes` at `data`, of which *done_bytes are written: false if there is
  // no room for it yet. The message is complete with the record that makes *done_bytes its size.
  bool write(const signature& call, const void* data, uint64_t size_bytes, uint64_t* done_bytes);

 private:
  bool has_room(uint64_t bytes);
  channel where_;
  uint64_t max_chunk_bytes_;
  uint64_t written_ = 0, known_read_ = 0;
};

// The reading end. One at a time, for the life of the channel.
class channel_reader {
 public:
  explicit channel_reader(const channel& where) : where_(where) {}

  // The record to be read, or null if there is none yet. Valid until all of it was taken.
  const record* front();
  // What is left of that record's data.
  const unsigned char* data() const;
  uint64_t data_bytes() const;
  // Takes so many of the data, at most what is left. With the last, 0 of 0 included, the record goes.
  void take(uint64_t bytes);

 private:
  const record* at_front() const;
  channel where_;
  uint64_t read_ = 0, known_written_ = 0;
  uint64_t taken_bytes_ = 0; // of the data of the front record
};

} // namespace xcpu::ccl
