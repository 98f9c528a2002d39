// A device's memory. It has two addresses: one that the program is given and that nobody can load from or store to, and
// one that the simulation uses.
#pragma once

#include <cstdint>
#include <map>

namespace sim {

class arena {
 public:
  // Behind the memory, in its file: for what the simulation tells other processes.
  static constexpr uint64_t kNoteBytes = 4096;

  // Of `size` bytes, in which allocations lie at odd multiples of `alignment`: no better aligned than is promised.
  arena(uint64_t size, uint64_t alignment);

  // The caller locks. Null if nothing is free; what is new and what was given back hold a pattern.
  char* allocate(uint64_t size);
  // False if no allocation begins there.
  bool free(char* address);

  // Memory that lies elsewhere, of the same size; false if there is none left.
  bool take(uint64_t size) {
    if (size > size_ - used_) return false;
    used_ += size;
    return true;
  }
  void give(uint64_t size) {
    used_ -= size;
  }

  // The range's other address; null unless it lies in one allocation.
  char* resolve(const void* address, uint64_t size, uint64_t* out_offset = nullptr) const;
  bool has(const void* address) const {
    return address >= base_ && address < base_ + size_;
  }
  uint64_t size() const {
    return size_;
  }
  uint64_t used() const {
    return used_;
  }
  int file() const {
    return file_;
  }
  // By offset.
  const std::map<uint64_t, uint64_t>& allocations() const {
    return allocations_;
  }
  char* base() const {
    return base_;
  }

 private:
  const uint64_t size_, alignment_;
  int file_ = -1;
  char *base_ = nullptr, *alias_ = nullptr;
  std::map<uint64_t, uint64_t> allocations_; // size by offset
  uint64_t used_ = 0;
};

} // namespace sim
