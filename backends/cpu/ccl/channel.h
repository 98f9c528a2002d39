// Messages from one rank to another: a ring of pieces in shared memory, with one writer and one reader.
//
// Every piece says what its whole message is, so that the reader notices one that it does not expect before it takes a
// byte of it.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>

#include "signature.h"

namespace xcpu::ccl {

constexpr uint64_t kCacheLine = 64;

struct alignas(kCacheLine) piece {
  signature call;
  uint64_t size_bytes; // of the data, which follow
};

// In shared memory; zero is its first state.
class channel {
 public:
  channel(void* memory, uint64_t size_bytes)
      : control_(static_cast<control*>(memory)),
        piece_bytes_((size_bytes - sizeof(control)) / kPieces / kCacheLine * kCacheLine) {}

  // What a piece holds. A longer message travels in several, so that both sides work at once.
  uint64_t capacity_bytes() const {
    return piece_bytes_ - sizeof(piece);
  }

  // ---- the writer, if there is room for a piece ----

  bool has_room() const {
    return control_->num_written.load(std::memory_order_relaxed) - control_->num_read.load(std::memory_order_acquire) <
           kPieces;
  }
  void write(const signature& call, const void* data, uint64_t size_bytes) {
    const uint64_t number = control_->num_written.load(std::memory_order_relaxed);
    piece* next = at(number);
    next->call = call;
    next->size_bytes = size_bytes;
    if (size_bytes > 0) std::memcpy(next + 1, data, size_bytes);
    control_->num_written.store(number + 1, std::memory_order_release);
  }

  // ---- the reader ----

  // The next piece, or null if there is none yet. Valid until it is taken.
  const piece* front() const {
    const uint64_t number = control_->num_read.load(std::memory_order_relaxed);
    return number == control_->num_written.load(std::memory_order_acquire) ? nullptr : at(number);
  }
  void take() {
    control_->num_read.fetch_add(1, std::memory_order_release);
  }

 private:
  static constexpr uint64_t kPieces = 8;
  static_assert(std::atomic<uint64_t>::is_always_lock_free);
  struct control { // each side writes a line of its own
    alignas(kCacheLine) std::atomic<uint64_t> num_written;
    alignas(kCacheLine) std::atomic<uint64_t> num_read;
  };
  piece* at(uint64_t number) const {
    return reinterpret_cast<piece*>(reinterpret_cast<unsigned char*>(control_ + 1) + number % kPieces * piece_bytes_);
  }
  control* control_;
  uint64_t piece_bytes_;
};

} // namespace xcpu::ccl
