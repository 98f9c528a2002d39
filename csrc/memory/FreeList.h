// Free blocks by size: best fit without walking a tree.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "csrc/memory/Block.h"

namespace torch_backend {

/// Blocks in bins of similar size, with a bit per bin that is not empty. Sizes are multiples of kGrain. Up to 128
/// grains every size has its own bin; above, a power of two has 64 bins, which are searched for the best fit. Inside a
/// bin the block freed last comes first. Guarded by the allocator's mutex.
class FreeList {
 public:
  static constexpr std::size_t kGrain = 512;

  void insert(Block* block) {
    const unsigned bin = bin_of(block->size);
    Block*& head = heads_[bin];
    block->free_prev = nullptr;
    block->free_next = head;
    if (head) {
      head->free_prev = block;
    } else {
      occupied_[bin / 64] |= uint64_t{1} << (bin % 64);
      summary_ |= uint64_t{1} << (bin / 64);
    }
    head = block;
  }

  void remove(Block* block) {
    if (block->free_next) {
      block->free_next->free_prev = block->free_prev;
    }
    if (block->free_prev) {
      block->free_prev->free_next = block->free_next;
    } else {
      const unsigned bin = bin_of(block->size);
      heads_[bin] = block->free_next;
      if (!block->free_next) {
        occupied_[bin / 64] &= ~(uint64_t{1} << (bin % 64));
        if (!occupied_[bin / 64]) {
          summary_ &= ~(uint64_t{1} << (bin / 64));
        }
      }
    }
    block->free_prev = block->free_next = nullptr;
  }

  /// The smallest block of at least `size`; it stays in the list. NULL if there is none.
  Block* best_fit(std::size_t size) const {
    const unsigned bin = bin_of(size);
    if (Block* block = smallest(heads_[bin], size)) {
      return block;
    }
    const int larger = next_occupied(bin + 1);
    return larger < 0 ? nullptr : smallest(heads_[static_cast<std::size_t>(larger)], size);
  }

  /// The one of `size` that was freed last; it stays in the list. NULL if there is none.
  Block* exact(std::size_t size) const {
    Block* block = heads_[bin_of(size)];
    while (block && block->size != size) {
      block = block->free_next;
    }
    return block;
  }
  /// Any; it stays in the list. NULL if there is none.
  Block* any() const {
    const int bin = summary_ ? next_occupied(0) : -1;
    return bin < 0 ? nullptr : heads_[static_cast<std::size_t>(bin)];
  }

  bool empty() const {
    return summary_ == 0;
  }

  /// `visit` may remove the block it is given.
  template <typename Visit>
  void for_each(Visit visit) const {
    for (int bin = next_occupied(0); bin >= 0; bin = next_occupied(static_cast<unsigned>(bin) + 1)) {
      for (Block* block = heads_[static_cast<std::size_t>(bin)]; block;) {
        Block* next = block->free_next;
        visit(block);
        block = next;
      }
    }
  }

 private:
  static constexpr unsigned kWords = 30; // sizes up to 16 TiB have their own bins, larger ones share the last
  static constexpr unsigned kBins = kWords * 64;

  static unsigned bin_of(std::size_t size) {
    const uint64_t grains = size / kGrain;
    if (grains < 64) {
      return static_cast<unsigned>(grains);
    }
    const unsigned octave = static_cast<unsigned>(std::bit_width(grains)) - 7;
    if (octave >= kWords - 1) {
      return kBins - 1;
    }
    return octave * 64 + static_cast<unsigned>(grains >> octave);
  }

  static Block* smallest(Block* block, std::size_t size) {
    Block* best = nullptr;
    for (; block; block = block->free_next) {
      if (block->size == size) {
        return block;
      }
      if (block->size > size && (!best || block->size < best->size)) {
        best = block;
      }
    }
    return best;
  }

  int next_occupied(unsigned bin) const {
    if (bin >= kBins) {
      return -1;
    }
    const unsigned word = bin / 64;
    if (const uint64_t rest = occupied_[word] & (~uint64_t{0} << (bin % 64))) {
      return static_cast<int>(word * 64) + std::countr_zero(rest);
    }
    const uint64_t words = word + 1 < 64 ? summary_ & (~uint64_t{0} << (word + 1)) : 0;
    if (!words) {
      return -1;
    }
    const auto found = static_cast<unsigned>(std::countr_zero(words));
    return static_cast<int>(found * 64) + std::countr_zero(occupied_[found]);
  }

  std::array<Block*, kBins> heads_{};
  std::array<uint64_t, kWords> occupied_{};
  uint64_t summary_ = 0;
};

} // namespace torch_backend
