// How often each slot of ccl.1 did what a group asked of it.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>

namespace torch_backend::ccl {

/// Of one group, all its communicators together. Threads: any.
class SlotCalls {
 public:
  void count(const char* slot) {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++calls_[slot];
  }
  std::map<std::string, uint64_t> all() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return calls_;
  }

 private:
  mutable std::mutex mutex_; // guards calls_
  std::map<std::string, uint64_t> calls_;
};

} // namespace torch_backend::ccl
