#include "csrc/memory/Loans.h"

#include <algorithm>

#include <c10/util/Exception.h>

#include "csrc/memory/ipc/LoanBook.h"

namespace torch_backend {

void Loans::export_memory(void* ptr, tb_ipc_handle* out_segment, uint64_t* out_offset) {
  Lock lock(state_.mutex);
  Block* const block = blocks_.find_allocated(ptr);
  TORCH_CHECK(block, "Memory at ", ptr, " is not in use on ", state_.name,
              ", so it cannot be lent to another process.");
  const Segment& segment = *segments_.find(ptr); // stays, because the caller uses the block
  TORCH_CHECK(
      !segment.reservation, "Memory of ", state_.name,
      " in an expandable segment (PYTORCH_ALLOC_CONF=expandable_segments:True) cannot be lent to another process. "
      "Send tensor.cpu(), or allocate what is sent without expandable_segments.");
  block->lent = true;
  *out_offset = static_cast<uint64_t>(static_cast<const char*>(ptr) - static_cast<const char*>(segment.base));
  if (!segment.handle) {
    lock.unlock();
    tb_ipc_handle fresh{};
    state_.api.ipc_export(state_.device, segment.base, &fresh);
    lock.lock();
    segment.handle = segment.handle ? segment.handle : std::make_shared<const tb_ipc_handle>(fresh);
  }
  *out_segment = *segment.handle;
}

void Loans::hold(Block* block) {
  {
    const Lock lock(state_.mutex);
    held_.push_back(block);
  }
  collect();
}

void Loans::collect() {
  if (state_.api.in_bad_fork()) {
    return; // the blocks are those of the parent process
  }
  std::vector<Block*> waiting;
  {
    const Lock lock(state_.mutex);
    waiting.swap(held_);
  }
  if (waiting.empty()) {
    return;
  }
  const auto back = std::partition(waiting.begin(), waiting.end(),
                                   [](const Block* block) { return ipc::LoanBook::own().is_lent(block->ptr); });
  const Lock lock(state_.mutex);
  std::for_each(back, waiting.end(), [this](Block* block) {
    block->lent = false;
    blocks_.finish_use(block);
  });
  held_.insert(held_.end(), waiting.begin(), back);
}

} // namespace torch_backend
