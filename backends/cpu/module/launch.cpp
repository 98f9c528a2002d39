#include "launch.h"

#include <algorithm>
#include <cstring>
#include <deque>

#include "../region.h"
#include "../scoped_access.h"
#include "crew.h"

namespace xcpu::modules {
namespace {

struct alignas(kAlignment) cache_line {
  unsigned char bytes[kAlignment];
};

// Of the blocks that the thread runs, which come one after the other.
unsigned char* local_memory(size_t size_bytes) {
  static thread_local std::vector<cache_line> lines;
  const size_t needed = round_up(size_bytes, sizeof(cache_line)) / sizeof(cache_line);
  if (lines.size() < needed) lines.resize(needed);
  return lines.data()->bytes;
}

} // namespace

result launch::check() const {
  const auto is_zero = [](uint32_t number) { return number == 0; };
  if (std::any_of(grid_.begin(), grid_.end(), is_zero))
    return failure(TB_STATUS_INVALID_ARGUMENT, "module_launch: a grid of %u x %u x %u blocks", grid_[0], grid_[1],
                   grid_[2]);
  if (std::any_of(block_.begin(), block_.end(), [](uint32_t items) { return items != kBlockItems; }))
    return failure(TB_STATUS_INVALID_ARGUMENT,
                   "module_launch: a block of %u x %u x %u items; a block has one, see max_block_items", block_[0],
                   block_[1], block_[2]);
  return {};
}

result launch::set_arguments(const tb_launch_param* params, uint32_t num_params) {
  size_t units = 0;
  for (uint32_t i = 0; i < num_params; ++i)
    if (params[i].kind == TB_PARAM_VALUE) units += round_up(params[i].size_bytes, sizeof(unit)) / sizeof(unit);
  arguments_.assign(num_params, nullptr);
  values_.resize(units);
  pointers_.clear();
  locals_.clear();
  local_bytes_ = 0;
  unit* next = values_.data();
  for (uint32_t i = 0; i < num_params; ++i) {
    const tb_launch_param& param = params[i];
    switch (param.kind) {
      case TB_PARAM_VALUE:
        std::memcpy(next, param.data, param.size_bytes);
        arguments_[i] = next;
        next += round_up(param.size_bytes, sizeof(unit)) / sizeof(unit);
        break;
      case TB_PARAM_POINTER:
        arguments_[i] = const_cast<void*>(param.data);
        if (param.data) pointers_.push_back(param.data);
        break;
      case TB_PARAM_LOCAL:
        locals_.push_back({i, local_bytes_});
        local_bytes_ += round_up(param.size_bytes, kAlignment);
        break;
      default:
        return failure(TB_STATUS_INVALID_ARGUMENT, "module_launch: parameter %u has kind %u, which is no TB_PARAM_*", i,
                       param.kind);
    }
  }
  if (local_bytes_ <= kLocalMemoryBytes) return {};
  return failure(TB_STATUS_INVALID_ARGUMENT, "module_launch: %llu bytes of local memory; a block has %u",
                 static_cast<unsigned long long>(local_bytes_), kLocalMemoryBytes);
}

result launch::set(block_function code, const uint32_t* grid, const uint32_t* block, const tb_launch_param* params,
                   uint32_t num_params) {
  code_ = code;
  std::copy_n(grid, 3, grid_.begin());
  std::copy_n(block, 3, block_.begin());
  result r = check();
  return r.ok() ? set_arguments(params, num_params) : r;
}

uint64_t launch::num_blocks() const {
  return uint64_t{grid_[0]} * grid_[1] * grid_[2];
}

// In the order of their numbers, the first dimension being the fastest.
void launch::run_blocks(uint64_t first, uint64_t end, void* const* arguments) const {
  const uint64_t row = first / grid_[0];
  uint32_t at[3] = {static_cast<uint32_t>(first % grid_[0]), static_cast<uint32_t>(row % grid_[1]),
                    static_cast<uint32_t>(row / grid_[1])};
  for (uint64_t i = first; i < end; ++i) {
    const uint32_t block[3] = {at[0], at[1], at[2]}; // the function's own
    code_(block, grid_.data(), block_.data(), arguments);
    if (++at[0] == grid_[0]) {
      at[0] = 0;
      if (++at[1] == grid_[1]) at[1] = 0, ++at[2];
    }
  }
}

void launch::run_range(uint64_t first, uint64_t end) const {
  if (locals_.empty()) return run_blocks(first, end, arguments_.data());
  std::vector<void*> arguments = arguments_;
  unsigned char* memory = local_memory(local_bytes_);
  for (const local& each : locals_) arguments[each.argument] = memory + each.offset_bytes;
  run_blocks(first, end, arguments.data());
}

void launch::run_accessible() const {
  const auto run = [](const void* self, uint64_t first, uint64_t end) {
    static_cast<const launch*>(self)->run_range(first, end);
  };
  share_out(num_blocks(), run, this);
}

// Opens all of an allocation: how much of it the function uses is not known.
result launch::run_protected() const {
  std::deque<scoped_access> accesses;
  for (const void* pointer : pointers_) {
    allocation found;
    if (!allocation_find(pointer, &found) || found.kind != TB_MEMORY_DEVICE)
      return failure(TB_STATUS_INVALID_ARGUMENT, "module_launch: %p is not in device memory", pointer);
    accesses.emplace_back(found.device, found.base, found.size_bytes, TB_MAP_READ | TB_MAP_WRITE);
    if (!accesses.back().opened().ok()) return accesses.back().opened();
  }
  run_accessible();
  return {};
}

result launch::run() const {
  if (settings().protect) return run_protected();
  run_accessible();
  return {};
}

} // namespace xcpu::modules
