#include "arena.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace sim {
namespace {
constexpr int kFresh = 0xD5, kFreed = 0xA5; // what memory holds that nobody has written, and that was given back
constexpr uint64_t kPatternBytes = 4096;
} // namespace

arena::arena(uint64_t size, uint64_t alignment) : size_(size), alignment_(alignment) {
  file_ = memfd_create("simulated-device", MFD_CLOEXEC);
  if (file_ < 0 || ftruncate(file_, static_cast<off_t>(size + kNoteBytes)) != 0) std::abort();
  base_ = static_cast<char*>(mmap(nullptr, size, PROT_NONE, MAP_SHARED, file_, 0));
  alias_ = static_cast<char*>(mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0));
  if (base_ == MAP_FAILED || alias_ == MAP_FAILED) std::abort();
}

// The first gap that is large enough.
char* arena::allocate(uint64_t size) {
  uint64_t at = alignment_;
  for (const auto& [offset, length] : allocations_) {
    if (offset >= at && offset - at >= size) break;
    at = (offset + length + 2 * alignment_ - 1) / (2 * alignment_) * (2 * alignment_) + alignment_;
  }
  if (size > size_ - used_ || at > size_ - size) return nullptr;
  allocations_[at] = size;
  used_ += size;
  std::memset(alias_ + at, kFresh, std::min(size, kPatternBytes));
  return base_ + at;
}

bool arena::free(char* address) {
  const auto found = allocations_.find(static_cast<uint64_t>(address - base_));
  if (!has(address) || found == allocations_.end()) return false;
  std::memset(alias_ + found->first, kFreed, std::min(found->second, kPatternBytes));
  used_ -= found->second;
  allocations_.erase(found);
  return true;
}

char* arena::resolve(const void* address, uint64_t size, uint64_t* out_offset) const {
  if (!has(address)) return nullptr;
  const auto at = static_cast<uint64_t>(static_cast<const char*>(address) - base_);
  auto next = allocations_.upper_bound(at);
  if (next == allocations_.begin()) return nullptr;
  --next;
  if (at + size > next->first + next->second) return nullptr;
  if (out_offset) *out_offset = next->first;
  return alias_ + at;
}

} // namespace sim
