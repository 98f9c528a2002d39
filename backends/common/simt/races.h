// Items of a launch that use the same memory at the same time, one of them to write.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "kernel_abi.h"

namespace plugin::simt {

// Who does something.
struct actor {
  uint32_t block, barriers; // that the block has passed
  uint32_t item;
};

// What a launch has done to each part of its memory. Two accesses race if they are of two items, one writes, not both are
// atomic (or volatile, of a word), and nothing orders them: a barrier does for items of a block; nothing does for two blocks,
// and a shuffle orders no memory. Items that write what is there already, as where each sets the same flag, do not race with
// each other: of a GPU's writes to one address one is done.
class races {
 public:
  explicit races(const char* kernel) : kernel_(kernel) {}

  // Of whatever memory is not an item's own. That of a block (`shared`) lies from `shared_at` on.
  void access(const actor& who, const unsigned char* at, size_t size_bytes, simt_access how, uint32_t since,
              const unsigned char* shared_at);
  // An item's fence, by which blocks order what they leave for others: what came before it is taken to be ordered.
  void fence();
  // An item has written when it does something else, or nothing any more.
  void settle();

  // Of the first race; "" if there is none.
  const std::string& found() const {
    return found_;
  }

 private:
  static constexpr uint32_t kNone = ~0u;
  // The last who have read, or have written: one or two items of a block since a barrier, and one of an earlier block.
  struct record {
    uint32_t block = kNone, barriers = 0, item = 0, other = kNone;
    uint32_t earlier_block = kNone, earlier_item = 0;
  };
  struct cell {
    record reads, writes;
    bool is_atomic = false; // the last write
  };
  // Memory by words, until something smaller is used, and then by bytes.
  struct page {
    uint32_t unit = 4;
    std::vector<cell> cells = std::vector<cell>(kPageBytes / 4);
  };
  // A write that would race if it changed what is there.
  struct suspect {
    const unsigned char* at;
    size_t size_bytes;
    std::array<unsigned char, 16> before;
    std::string text;
  };
  static constexpr uintptr_t kPageBytes = 4096;

  page& page_of(uintptr_t number);
  static void split(page* p);
  static void add(record* to, const actor& who);
  static bool conflicts(const record& with, const actor& who, uint32_t since, actor* out_other);
  void report(const actor& who, const actor& other, const unsigned char* at, size_t size_bytes, simt_access how,
              bool other_writes, const unsigned char* shared_at);

  const std::string kernel_;
  std::unordered_map<uintptr_t, std::unique_ptr<page>> pages_;
  std::array<std::pair<uintptr_t, page*>, 64> recent_{};
  std::unique_ptr<suspect> suspect_;
  std::string found_;
};

} // namespace plugin::simt
