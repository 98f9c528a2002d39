// What the caching allocator keeps track of: streams, the plugin's segments, and the blocks they are cut into.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include <c10/core/Allocator.h>
#include <c10/core/Stream.h>

#include "torch_backend/device.h"

namespace torch_backend {

/// A stream as the allocator needs it. `device` -1 is the allocator's own device.
struct StreamRef {
  c10::StreamId id = 0;
  tb_stream* handle = nullptr;
  c10::DeviceIndex device = -1;

  bool operator==(const StreamRef& other) const {
    return id == other.id && device == other.device;
  }
};

/// Where an allocation came from, as a profiler or a debugger wants to see it. May be NULL.
using ContextPtr = std::shared_ptr<c10::GatheredContext>;
using CreateContextFn = ContextPtr (*)();

struct BlockPool;
struct Block;

/// Addresses of one pool, of which parts have memory; see Note [Expandable segments].
struct Reservation {
  char* base = nullptr;
  std::size_t size = 0; // a multiple of page_size
  std::size_t page_size = 0;
  BlockPool* pool = nullptr;
  std::map<const char*, Block*> last; // the last block of what has memory without a gap, by where that ends
};

/// A range of device memory: in use, waiting for the streams that used it, or free. Blocks of one segment form a list
/// in address order. The allocator's mutex guards every field.
struct Block {
  enum class State : uint8_t {
    kFree, // in one of its pool's lists (or just leaving it)
    kAllocated,
    kPending, // freed, but another stream may still use it
    kMoving   // on its way from or to the plugin
  };

  bool is_active() const {
    return state == State::kAllocated || state == State::kPending;
  }
  char* begin() const {
    return static_cast<char*>(ptr);
  }
  char* end() const {
    return begin() + size;
  }

  /// Whether it is in its pool's free list, and so merged with each neighbour that is.
  bool is_merged_free() const {
    return state == State::kFree && !loose;
  }
  bool is_split() const {
    return prev != nullptr || next != nullptr;
  }

  void* ptr = nullptr;
  std::size_t size = 0;
  std::size_t requested = 0;
  BlockPool* pool = nullptr;
  Reservation* reservation = nullptr; // of an expandable segment; NULL in others
  Block* prev = nullptr;              // neighbours in the segment
  Block* next = nullptr;
  Block* free_prev = nullptr; // neighbours in the free list
  Block* free_next = nullptr;

  State state = State::kFree;
  bool loose = false;    // free, but not merged with its neighbours; see BlockPool
  bool oversize = false; // counted as such when it was handed out
  bool lent = false;     // to other processes; ipc::LoanBook knows whether still
  uint32_t num_pending_events = 0;
  uint64_t freed_at = 0;       // the pool's number of searches when the block became free
  std::vector<StreamRef> uses; // streams other than the pool's that record_stream named
  ContextPtr context;          // of the allocation
};

/// One plugin allocation, or memory without a gap in a reservation.
struct Segment {
  void* base = nullptr;
  std::size_t size = 0;
  BlockPool* pool = nullptr;
  Block* first = nullptr;
  bool oversize = false; // counted as such when it was requested
  ContextPtr context;
  Reservation* reservation = nullptr;
  mutable std::shared_ptr<const tb_ipc_handle> handle{}; // once something in it was lent to another process
};

/// Block objects, recycled so that splitting and merging need no heap.
class BlockArena {
 public:
  Block* acquire() {
    if (!spare_) {
      grow();
    }
    Block* block = spare_;
    spare_ = block->free_next;
    block->free_next = nullptr;
    return block;
  }

  /// `block` has no context and no uses any more.
  void recycle(Block* block) {
    block->state = Block::State::kFree;
    block->reservation = nullptr;
    block->prev = block->next = block->free_prev = nullptr;
    block->free_next = spare_;
    spare_ = block;
  }

 private:
  static constexpr std::size_t kChunk = 128;

  void grow() {
    chunks_.push_back(std::make_unique<Block[]>(kChunk));
    for (std::size_t i = kChunk; i-- > 0;) {
      recycle(&chunks_.back()[i]);
    }
  }

  std::vector<std::unique_ptr<Block[]>> chunks_;
  Block* spare_ = nullptr;
};

} // namespace torch_backend
