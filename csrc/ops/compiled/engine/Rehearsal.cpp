#include "csrc/ops/compiled/engine/Rehearsal.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <thread>

#include "csrc/core/InterpreterLock.h"
#include "csrc/core/Status.h"

namespace torch_backend::compiled {

bool Rehearsal::note(const Specialization& wanted) {
  if (!current_ || current_->state_ == State::kRuns) {
    return false;
  }
  if (current_->state_ == State::kMayStartAnew) {
    throw StartsAnew();
  }
  auto& noted = current_->noted_;
  if (std::find(noted.begin(), noted.end(), wanted) == noted.end()) {
    noted.push_back(wanted);
  }
  return true;
}

void Rehearsal::compile_all() {
  state_ = State::kRuns;
  take_error_text();
  if (noted_.empty()) {
    return;
  }
  const WithoutInterpreterLock unlocked;
  std::vector<std::exception_ptr> failures(noted_.size());
  std::atomic<std::size_t> next{0};
  const auto compile = [&] {
    for (std::size_t i = next++; i < noted_.size(); i = next++) {
      try {
        find_function(device_, noted_[i]);
      } catch (...) {
        failures[i] = std::current_exception();
      }
    }
  };
  std::vector<std::thread> others;
  const std::size_t at_once = std::max(std::thread::hardware_concurrency(), 2U);
  while (others.size() + 1 < std::min(noted_.size(), at_once)) {
    others.emplace_back(compile);
  }
  compile();
  for (auto& thread : others) {
    thread.join();
  }
  for (const auto& failure : failures) {
    if (failure) {
      std::rethrow_exception(failure);
    }
  }
}

} // namespace torch_backend::compiled
