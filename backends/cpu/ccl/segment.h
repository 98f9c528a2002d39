// The memory that the ranks of a communicator share: who has joined, how each is, and the channels between them.
//
// Whoever comes first makes it, and whoever completes the ranks takes its name away, so that nothing is left when the
// processes are gone, however they end.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>

#include "../result.h"
#include "channel.h"
#include "doorbell.h"

namespace xcpu::ccl {

constexpr size_t kUniqueIdBytes = 64;

// What the ranks of a communicator are told so that they find each other: the name of their memory. Random, so that it is
// not guessed and not given twice.
result unique_id_create(void* out_unique_id);

enum class rank_state : int32_t {
  absent,
  joining,
  present,
  left,   // has done all its calls
  failed, // will do no more; failure_text says why
};

constexpr size_t kFailureTextBytes = 384;

// In shared memory; zero is its first state.
struct shared_rank {
  doorbell bell; // rung when something that this rank may wait for has changed
  std::atomic<rank_state> state;
  pid_t process;
  uint64_t process_namespace;
  char failure_text[kFailureTextBytes];
};

class segment {
 public:
  // Opens or makes the memory that `unique_id` names. INVALID_ARGUMENT if unique_id_create did not write it, or if other
  // ranks opened it for another number of ranks.
  static result open(const void* unique_id, int32_t num_ranks, std::unique_ptr<segment>* out_segment);
  ~segment();
  segment(const segment&) = delete;
  segment& operator=(const segment&) = delete;

  // Takes the place of `rank`, or says that it is taken.
  result join(int32_t rank);
  bool is_complete() const;
  // Nobody else will find the memory any more.
  void unlink();

  shared_rank& rank(int32_t number) const;
  channel between(int32_t from, int32_t to) const;
  void ring_all() const;

 private:
  segment(std::string name, int32_t num_ranks) : name_(std::move(name)), num_ranks_(num_ranks) {}
  result map(int descriptor);

  const std::string name_;
  const int32_t num_ranks_;
  unsigned char* memory_ = nullptr;
};

} // namespace xcpu::ccl
