// Segments that grow: memory behind addresses that were reserved before.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "csrc/memory/AllocatorState.h"
#include "csrc/memory/BlockCache.h"
#include "csrc/memory/Recorder.h"

namespace torch_backend {

/// Note [Expandable segments]
/// With expandable_segments, a pool of blocks has a reservation: a range of addresses as large as the device's memory,
/// and memory only where it needs some. A miss puts pages behind the lowest addresses that are wide enough, at the end of
/// what there is or in a gap, and what is free next to them is a part of the block that they serve: a request larger than
/// all before it needs no segment of its own. Memory goes back in whole pages, from the middle of blocks too.
///
/// What has memory without a gap is a Segment, as a plugin allocation is one. Pages that are on their way belong to one
/// already, in a block that is kMoving: the plugin is called without the mutex, and nobody else may get them or what
/// touches them. A reservation goes with its last page.
class ExpandableSegments {
 public:
  /// `segments`: those of the device, of both kinds.
  ExpandableSegments(AllocatorState& state, Recorder& recorder, BlockCache& blocks,
                     std::map<const void*, Segment>& segments)
      : state_(state), recorder_(recorder), blocks_(blocks), segments_(segments) {}

  /// Pages on their way, and the block that they belong to.
  struct Move {
    Block* block = nullptr;
    char* begin = nullptr;
    std::size_t size = 0; // a multiple of the page size
  };

  /// Addresses for a request that no free block serves. No block if the plugin has none. Drops and retakes the mutex.
  Move claim(const Request& request, Lock& lock);
  /// The claim has memory up to `committed`. The block that serves the request, in no free list, if that is all of it;
  /// else NULL, and what there is is free.
  Block* finish_claim(const Move& move, std::size_t committed, const Request& request);

  /// Whether pages of this free block could go back.
  static bool has_pages(const Block& block) {
    return first_page(block) < last_page(block);
  }
  /// All that lie whole in this free block, out of circulation.
  Move take_pages(Block* block);
  /// Nothing of what was taken has memory up to `decommitted`; the rest is free again.
  void finish_release(const Move& move, std::size_t decommitted);
  /// Give back the addresses of reservations that have no page any more. Drops and retakes the mutex.
  void release_addresses(Lock& lock);

  // ---- not under the mutex ----

  /// How much has got memory, which is less than the move if the plugin has no more. Throws what else it reports, and has
  /// nothing then, as far as that can be undone: `*out_committed`.
  void commit(const Move& move, std::size_t* out_committed, std::string* out_plugin_text);
  /// How much has no memory any more.
  std::size_t decommit(const Move& move) noexcept;

 private:
  /// Addresses without memory, between what has some.
  struct Gap {
    Reservation* reservation = nullptr;
    char* begin = nullptr;
    std::size_t size = 0;
    Block* before = nullptr;  // that ends where the gap begins
    Segment* after = nullptr; // that begins where the gap ends
  };

  static char* first_page(const Block& block);
  static char* last_page(const Block& block);
  Gap find_gap(const BlockPool& pool, std::size_t size);
  std::size_t reserved_size() const;
  Gap reserve(BlockPool& pool, std::size_t size, Lock& lock);
  void remove(Block* block);
  std::size_t decommit_back(const Move& move, std::size_t committed) noexcept;

  AllocatorState& state_;
  Recorder& recorder_;
  BlockCache& blocks_;
  std::map<const void*, Segment>& segments_;
  std::vector<std::unique_ptr<Reservation>> reservations_;
  std::vector<std::unique_ptr<Reservation>> empty_; // whose addresses are to be released
};

} // namespace torch_backend
