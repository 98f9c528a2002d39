// Free memory grouped by who may reuse it: by stream, by size class, by private pool.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "csrc/memory/AllocatorState.h"
#include "csrc/memory/Block.h"
#include "csrc/memory/FreeList.h"

namespace torch_backend {

class MemoryPool;

/// Free blocks that work on `stream` may use at once.
///
/// Note [Loose blocks]
/// What programs free, they mostly ask for again, in the same size. So blocks of the small pool are not merged with their
/// neighbours when they are freed, to be cut out again, but kept as they are, for requests of their size only. They are
/// merged when no other block has room, before the plugin is asked for more or given memory back, and before anybody is
/// told what is free.
struct BlockPool {
  BlockPool(MemoryPool& owner, const StreamRef& stream, bool small) : owner(owner), stream(stream), small(small) {}

  FreeList free;
  FreeList loose; // Note [Loose blocks]
  MemoryPool& owner;
  const StreamRef stream;
  const bool small;
  uint64_t searches = 0; // the clock by which a free block ages
};

/// The default pool {0, 0}, or a private one whose memory nobody else gets. Guarded by the allocator's mutex.
class MemoryPool {
 public:
  explicit MemoryPool(c10::MempoolId_t id) : id(id) {}
  MemoryPool(const MemoryPool&) = delete;
  MemoryPool& operator=(const MemoryPool&) = delete;

  BlockPool& of(const StreamRef& stream, bool small) {
    Pair*& recent = recent_[slot(stream)];
    if (__builtin_expect(!recent || !(recent->small.stream == stream), 0)) {
      recent = &find(stream);
    }
    return small ? recent->small : recent->large;
  }

  bool is_private() const {
    return id.first != 0 || id.second != 0;
  }

  template <typename Visit>
  void for_each(Visit visit) {
    for (auto& [stream, pair] : pairs_) {
      visit(pair->small);
      visit(pair->large);
    }
  }

  const c10::MempoolId_t id;
  int use_count = 0;            // private pools: who holds it
  std::size_t num_segments = 0; // including those being requested or given back

 private:
  struct Pair {
    Pair(MemoryPool& owner, const StreamRef& stream) : small(owner, stream, true), large(owner, stream, false) {}
    BlockPool small;
    BlockPool large;
  };
  static constexpr std::size_t kRecent = 16;

  static std::size_t slot(const StreamRef& stream) {
    const auto id = static_cast<uint64_t>(stream.id);
    return (id >> 1 ^ id >> 4) % kRecent; // external ids are pointers, pool ids small odd numbers
  }

  Pair& find(const StreamRef& stream) {
    auto& pair = pairs_[stream.id];
    if (!pair) {
      pair = std::make_unique<Pair>(*this, stream);
    }
    return *pair;
  }

  std::array<Pair*, kRecent> recent_{}; // saves the hash on the way to a hit
  std::unordered_map<c10::StreamId, std::unique_ptr<Pair>> pairs_;
};

/// Sends allocations whose stream (or thread) it accepts to a private pool.
struct PoolRoute {
  using Filter = std::function<bool(const StreamRef&)>;

  c10::MempoolId_t pool;
  Filter filter;
  bool capturing; // a graph capture: until it ends nothing may be recorded, queried or waited for
};

/// The pools of one device, and the routes to the private ones. Guarded by the allocator's mutex.
class MemoryPools {
 public:
  using Routes = std::vector<PoolRoute>;

  explicit MemoryPools(AllocatorState& state) : state_(state) {}

  /// The default pool if there is none with this id: it may have been released since the request was routed.
  MemoryPool& of(c10::MempoolId_t id) {
    if (__builtin_expect(id.first != 0 || id.second != 0, 0)) {
      const auto found = private_.find(id);
      if (found != private_.end()) {
        return *found->second;
      }
    }
    return default_;
  }
  template <typename Visit>
  void for_each(Visit visit) {
    visit(default_);
    for (auto& [id, pool] : private_) {
      visit(*pool);
    }
  }

  void retain(c10::MempoolId_t id);
  void release(c10::MempoolId_t id);
  int use_count(c10::MempoolId_t id) const;
  /// One segment less. The pool is gone if that was the last and nobody holds it.
  void drop_segment(MemoryPool& pool);

  void begin_route(PoolRoute route);
  void end_route(c10::MempoolId_t id);
  std::shared_ptr<const Routes> routes() const {
    return routes_;
  }
  /// While a graph is captured nothing may be recorded, queried or waited for.
  bool capturing() const {
    return captures_ > 0;
  }

 private:
  void erase_if_unused(c10::MempoolId_t id);

  AllocatorState& state_;
  MemoryPool default_{{0, 0}};
  std::map<c10::MempoolId_t, std::unique_ptr<MemoryPool>> private_;
  std::shared_ptr<const Routes> routes_ = std::make_shared<const Routes>(); // never changed: read without the mutex
  int captures_ = 0;                                                        // routes that capture
};

/// An id no other pool has. As in PyTorch, {0, n} is for pools a user makes and {n, 0} for those of a capture.
c10::MempoolId_t generate_mempool_id(bool user_created);

} // namespace torch_backend
