// The texts of one operator, found out before the first of them is compiled.
#pragma once

#include <vector>

#include "csrc/ops/compiled/engine/Modules.h"
#include "csrc/ops/compiled/engine/Specialization.h"

namespace torch_backend::compiled {

/// Note [Rehearsals]
/// Compilers take long, and an operator may launch several texts. Where a kernel of ours comes to one that is not compiled,
/// and has enqueued nothing so far, its host part starts anew: first as a rehearsal, in which nothing is enqueued and
/// find_function only notes what is wanted; then, when all that was noted is compiled, side by side, for good. So a host
/// part calls no operators, and before its first launch does nothing that may not be done twice.
///
/// Where some texts have no image (Note [Images compiled ahead]) each call is rehearsed, so that one whose second text is
/// missing has not launched its first.
class Rehearsal {
 public:
  /// Thrown by find_function, for rehearsed() alone, where the kernel can start anew.
  struct StartsAnew {};

  /// As long as this lives, calls of the thread are those of a kernel on `device`.
  explicit Rehearsal(int device) : device_(device), outer_(current_) {
    current_ = this;
  }
  Rehearsal(const Rehearsal&) = delete;
  Rehearsal& operator=(const Rehearsal&) = delete;
  ~Rehearsal() {
    current_ = outer_;
  }

  /// Before the thread enqueues, reads back or draws a random number: false in a rehearsal, where it must not. From here on
  /// the kernel does not start anew.
  static bool goes_ahead() {
    if (!current_) {
      return true;
    }
    if (current_->state_ == State::kRehearses) {
      return false;
    }
    current_->state_ = State::kRuns;
    return true;
  }
  /// `wanted` is not compiled. True: it is noted, and not called. False: it is to be compiled now. Throws StartsAnew.
  static bool note(const Specialization& wanted);

  void begin() {
    state_ = State::kRehearses;
  }
  /// Returns when they are compiled. Throws what the first that failed did.
  void compile_all();

 private:
  enum class State { kMayStartAnew, kRehearses, kRuns };

  static inline constinit thread_local Rehearsal* current_ = nullptr;

  const int device_;
  Rehearsal* const outer_;
  State state_ = State::kMayStartAnew;
  std::vector<Specialization> noted_;
};

/// What `body` returns, the host's part of a kernel: Note [Rehearsals].
template <class Body>
auto rehearsed(int device, Body body) {
  Rehearsal rehearsal(device);
  if (!lacks_images(device)) {
    try {
      return body();
    } catch (const Rehearsal::StartsAnew&) {}
  }
  rehearsal.begin();
  try {
    body();
  } catch (...) { // it throws again where it is in earnest
  }
  rehearsal.compile_all();
  return body();
}

} // namespace torch_backend::compiled
