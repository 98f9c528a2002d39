#include "csrc/memory/MemoryPool.h"

#include <algorithm>
#include <atomic>

#include <c10/util/Exception.h>

namespace torch_backend {

void MemoryPools::retain(c10::MempoolId_t id) {
  auto& pool = private_[id];
  if (!pool) {
    pool = std::make_unique<MemoryPool>(id);
  }
  ++pool->use_count;
}

void MemoryPools::release(c10::MempoolId_t id) {
  const auto found = private_.find(id);
  TORCH_CHECK(found != private_.end() && found->second->use_count > 0, "Memory pool (", id.first, ", ", id.second,
              ") is not in use on ", state_.name, ": it was released more often than it was retained.");
  --found->second->use_count;
  erase_if_unused(id);
}

int MemoryPools::use_count(c10::MempoolId_t id) const {
  const auto found = private_.find(id);
  return found == private_.end() ? 0 : found->second->use_count;
}

void MemoryPools::drop_segment(MemoryPool& pool) {
  --pool.num_segments;
  erase_if_unused(pool.id);
}

void MemoryPools::erase_if_unused(c10::MempoolId_t id) {
  const auto found = private_.find(id);
  if (found != private_.end() && found->second->use_count == 0 && found->second->num_segments == 0) {
    private_.erase(found);
  }
}

void MemoryPools::begin_route(PoolRoute route) {
  retain(route.pool);
  captures_ += route.capturing;
  auto routes = std::make_shared<Routes>(*routes_);
  routes->push_back(std::move(route));
  routes_ = std::move(routes);
  state_.set_attention(AllocatorState::kRoutes, true);
}

void MemoryPools::end_route(c10::MempoolId_t id) {
  auto routes = std::make_shared<Routes>(*routes_);
  const auto last = std::find_if(routes->rbegin(), routes->rend(), [&](const auto& route) { return route.pool == id; });
  TORCH_CHECK(last != routes->rend(), "Nothing is being allocated to memory pool (", id.first, ", ", id.second, ") on ",
              state_.name, ".");
  captures_ -= last->capturing;
  routes->erase(std::next(last).base());
  state_.set_attention(AllocatorState::kRoutes, !routes->empty());
  routes_ = std::move(routes);
}

c10::MempoolId_t generate_mempool_id(bool user_created) {
  static std::atomic<c10::CaptureId_t> next_user{1};
  static std::atomic<c10::CaptureId_t> next_capture{1};
  if (user_created) {
    return {0, next_user.fetch_add(1, std::memory_order_relaxed)};
  }
  return {next_capture.fetch_add(1, std::memory_order_relaxed), 0};
}

} // namespace torch_backend
