// Memory as the plugin gives it and takes it back, and how much of it there may be.
#pragma once

#include <condition_variable>
#include <exception>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "csrc/memory/AllocatorState.h"
#include "csrc/memory/BlockCache.h"
#include "csrc/memory/ExpandableSegments.h"
#include "csrc/memory/Recorder.h"

namespace torch_backend {

/// Why a request for a segment was not met.
struct Refusal {
  bool limit_hit = false;
  std::string plugin_text;
};

/// The segments of one device. Calls the plugin, so it drops the mutex.
class Segments {
 public:
  Segments(AllocatorState& state, Recorder& recorder, BlockCache& blocks);

  /// A block that serves the request and is in no free list: of a new segment, or of one that has grown. NULL if the
  /// plugin or the limit refuses; everything else the plugin reports is thrown.
  Block* request(const Request& request, Refusal& refusal, Lock& lock);
  /// The same, of a segment that is no larger than the request needs.
  Block* request_least(const Request& request, Refusal& refusal, Lock& lock) {
    return allocate(request, state_.policy.least_segment_size(request.size), refusal, lock);
  }
  /// Free blocks that `select` accepts, and that are segments or have whole pages of one that grows.
  template <typename Select>
  std::vector<Block*> free_segments(Select select) {
    return blocks_.free_blocks([&](const Block& block) {
      return (block.reservation ? ExpandableSegments::has_pages(block) : !block.is_split()) && select(block);
    });
  }
  /// Give back these, when the streams that used them are done. Throws what the plugin reports.
  void release(const std::vector<Block*>& blocks, Lock& lock);
  /// All that are free, of the default pool and of private pools nobody holds; none while that may not be waited for.
  void release_cached(Lock& lock);
  /// The largest oversize ones that make room for the request. False if there are none.
  bool release_oversize(const Request& request, Lock& lock);
  /// Over the threshold, those that were not used for longest.
  void collect_garbage(Lock& lock);
  /// Whether other threads were giving segments back: waits until they have, for some time.
  bool wait_for_releases(Lock& lock);

  /// Not under the mutex. See CachingAllocator; a total of 0 is unknown.
  std::pair<std::size_t, std::size_t> memory_info() const;
  void set_memory_fraction(double fraction);

  // ---- under the mutex ----

  double memory_fraction() const {
    return fraction_;
  }
  std::optional<std::size_t> limit() const {
    return limit_;
  }
  /// The last segment that starts at or before `ptr`; NULL if there is none.
  const Segment* find(const void* ptr) const;
  const std::map<const void*, Segment>& all() const {
    return segments_;
  }

 private:
  /// Memory that is given back: a plugin allocation, or pages of an expandable segment.
  struct Departure {
    const StreamRef stream;
    Segment segment{};
    ExpandableSegments::Move pages{};
    std::size_t decommitted = 0;
    bool stays = false; // its stream could not be waited for
  };

  bool would_exceed_limit(std::size_t size) const;
  Block* allocate(const Request& request, std::size_t segment_size, Refusal& refusal, Lock& lock);
  Block* grow(const ExpandableSegments::Move& claim, const Request& request, Refusal& refusal, Lock& lock);
  Departure depart(Block* block);
  std::exception_ptr wait_for_streams(std::vector<Departure>& departures);
  void give_back(Departure& departure) noexcept;
  void finish(Departure& departure);

  AllocatorState& state_;
  Recorder& recorder_;
  BlockCache& blocks_;
  const bool stream_ordered_; // TB_CAP_STREAM_ALLOC
  std::map<const void*, Segment> segments_;
  ExpandableSegments expandable_;
  std::size_t requesting_bytes_ = 0;         // the plugin is being asked for
  int releasing_ = 0;                        // calls that give segments back just now
  std::condition_variable_any all_released_; // when releasing_ becomes 0
  std::optional<std::size_t> limit_;
  double fraction_ = 1.0;
};

} // namespace torch_backend
