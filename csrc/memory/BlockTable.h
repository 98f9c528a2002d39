// From the address of a block to the block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "csrc/memory/Block.h"

namespace torch_backend {

/// Open addressing with linear probing; at most half full. Guarded by the allocator's mutex.
class BlockTable {
 public:
  BlockTable() : slots_(kInitialSlots) {}

  Block* find(const void* ptr) const {
    for (std::size_t i = home(ptr);; i = next(i)) {
      if (slots_[i].ptr == ptr) {
        return slots_[i].block;
      }
      if (!slots_[i].ptr) {
        return nullptr;
      }
    }
  }

  void insert(Block* block) {
    if (2 * (size_ + 1) > slots_.size()) {
      grow();
    }
    place(block);
    ++size_;
  }

  void erase(const void* ptr) {
    std::size_t hole = home(ptr);
    while (slots_[hole].ptr != ptr) {
      hole = next(hole);
    }
    // Move later entries of the same run back, so that no probe ends early at the hole.
    for (std::size_t i = next(hole); slots_[i].ptr; i = next(i)) {
      const std::size_t distance = (i - home(slots_[i].ptr)) & (slots_.size() - 1);
      if (distance >= ((i - hole) & (slots_.size() - 1))) {
        slots_[hole] = slots_[i];
        hole = i;
      }
    }
    slots_[hole] = Slot{};
    --size_;
  }

 private:
  struct Slot {
    const void* ptr = nullptr;
    Block* block = nullptr;
  };
  static constexpr std::size_t kInitialSlots = 256;

  std::size_t home(const void* ptr) const {
    // Fibonacci hashing; blocks are far apart, so their low bits say nothing.
    return static_cast<std::size_t>(((reinterpret_cast<uintptr_t>(ptr) >> 6) * 0x9E3779B97F4A7C15ull) >> shift_);
  }
  std::size_t next(std::size_t i) const {
    return (i + 1) & (slots_.size() - 1);
  }
  void place(Block* block) {
    std::size_t i = home(block->ptr);
    while (slots_[i].ptr) {
      i = next(i);
    }
    slots_[i] = {block->ptr, block};
  }
  void grow() {
    std::vector<Slot> old(2 * slots_.size());
    old.swap(slots_);
    --shift_;
    for (const auto& slot : old) {
      if (slot.ptr) {
        place(slot.block);
      }
    }
  }

  std::vector<Slot> slots_;
  std::size_t size_ = 0;
  int shift_ = 56; // 64 - log2(slots)
};

} // namespace torch_backend
