// The memory that the ranks of a communicator share: how each of them is, and the channels between them.
//
// Whoever comes first makes it, and whoever completes the ranks takes its name away, so that nothing is left when the
// processes are gone, however they end.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>

#include "../result.h"
#include "channel.h"

namespace xcpu::ccl {

constexpr size_t kUniqueIdBytes = 64;

// What the ranks of a communicator are told so that they find each other: the name of their memory. Random, so that it is
// not guessed and not given twice.
result unique_id_create(void* out_unique_id);

enum class rank_state : int32_t {
  absent,
  present,
  left,   // has done all its calls
  failed, // will do no more; failure_text says why
};

constexpr size_t kFailureTextBytes = 384;

// In shared memory; zero is its first state.
struct alignas(kCacheLine) shared_rank {
  std::atomic<rank_state> state;
  pid_t process;
  char failure_text[kFailureTextBytes];
};

class segment {
 public:
  // Opens or makes the memory that `unique_id` names, and takes the place of `rank` in it. INVALID_ARGUMENT if
  // unique_id_create did not write it, if other ranks opened it for another number of ranks, or if the place is taken.
  static result join(const void* unique_id, int32_t num_ranks, int32_t rank, std::unique_ptr<segment>* out_segment);
  ~segment();
  segment(const segment&) = delete;
  segment& operator=(const segment&) = delete;

  bool is_complete() const;
  // Nobody else will find the memory any more.
  void unlink();

  shared_rank& rank(int32_t number) const;
  // Whether the process of another rank, which has joined, is gone, in whatever way.
  bool has_ended(int32_t number) const;
  channel between(int32_t from, int32_t to) const;

 private:
  segment(std::string name, int32_t num_ranks) : name_(std::move(name)), num_ranks_(num_ranks) {}
  result open();
  result agree_on_shape();
  result take_place(int32_t number);

  const std::string name_;
  const int32_t num_ranks_;
  int descriptor_ = -1;
  unsigned char* memory_ = nullptr;
};

} // namespace xcpu::ccl
