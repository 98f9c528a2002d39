#include "launch.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <exception>
#include <mutex>

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

const launch_limits& limits() {
  static constexpr launch_limits one_item{{1, 1, 1}, 1, 256 << 10}, many{{1024, 1024, 64}, kSimtItems, 48 << 10};
  return settings().modules == modules_mode::side_by_side ? many : one_item;
}

result launch::check() const {
  const auto is_zero = [](uint32_t number) { return number == 0; };
  if (std::any_of(grid_.begin(), grid_.end(), is_zero))
    return failure(TB_STATUS_INVALID_ARGUMENT, "module_launch: a grid of %u x %u x %u blocks", grid_[0], grid_[1],
                   grid_[2]);
  const launch_limits& most = limits();
  bool fits =
      !std::any_of(block_.begin(), block_.end(), is_zero) && uint64_t{block_[0]} * block_[1] * block_[2] <= most.items;
  for (size_t i = 0; i < block_.size(); ++i) fits = fits && block_[i] <= most.block[i];
  if (fits) return {};
  return failure(
      TB_STATUS_INVALID_ARGUMENT,
      "module_launch: a block of %u x %u x %u items; it has at most %u x %u x %u and %u in all, see max_block "
      "and max_block_items",
      block_[0], block_[1], block_[2], most.block[0], most.block[1], most.block[2], most.items);
}

// What the function was compiled for is known side by side.
result launch::check_parameters(const tb_launch_param* params, uint32_t num_params) const {
  if (!code_.side_by_side) return {};
  const simt_parameter* wanted = code_.side_by_side->parameters;
  for (uint32_t i = 0; i < num_params; ++i, ++wanted) {
    if (wanted->size == 0) break;
    const uint32_t given = params[i].kind == TB_PARAM_VALUE     ? params[i].size_bytes
                           : params[i].kind == TB_PARAM_POINTER ? sizeof(void*)
                                                                : sizeof(uint32_t);
    if (given != wanted->size)
      return failure(TB_STATUS_INVALID_ARGUMENT, "module_launch: parameter %u of %s has %u bytes, and is given %u", i,
                     code_.side_by_side->name, wanted->size, given);
  }
  if (wanted == code_.side_by_side->parameters + num_params && wanted->size == 0) return {};
  return failure(TB_STATUS_INVALID_ARGUMENT, "module_launch: %s is given %u parameters, which is not how many it has",
                 code_.side_by_side->name, num_params);
}

result launch::set_arguments(const tb_launch_param* params, uint32_t num_params) {
  // A function in order takes addresses, one side by side what points at them, as at all values.
  const bool by_value = code_.side_by_side;
  const auto units_of = [by_value](const tb_launch_param& param) {
    return param.kind == TB_PARAM_VALUE ? round_up(param.size_bytes, sizeof(unit)) / sizeof(unit) : size_t{by_value};
  };
  size_t units = 0;
  for (uint32_t i = 0; i < num_params; ++i) units += units_of(params[i]);
  arguments_.assign(num_params, nullptr);
  values_.resize(units);
  pointers_.clear();
  locals_.clear();
  local_bytes_ = 0;
  unit* next = values_.data();
  for (uint32_t i = 0; i < num_params; ++i) {
    const tb_launch_param& param = params[i];
    arguments_[i] = next;
    switch (param.kind) {
      case TB_PARAM_VALUE:
        std::memcpy(next, param.data, param.size_bytes);
        break;
      case TB_PARAM_POINTER:
        if (by_value)
          std::memcpy(next, &param.data, sizeof param.data);
        else
          arguments_[i] = const_cast<void*>(param.data);
        if (param.data) pointers_.push_back(param.data);
        break;
      case TB_PARAM_LOCAL:
        if (by_value)
          *reinterpret_cast<uint32_t*>(next) = static_cast<uint32_t>(local_bytes_);
        else
          locals_.push_back({i, local_bytes_});
        local_bytes_ += round_up(param.size_bytes, by_value ? sizeof(unit) : kAlignment);
        break;
      default:
        return failure(TB_STATUS_INVALID_ARGUMENT, "module_launch: parameter %u has kind %u, which is no TB_PARAM_*", i,
                       param.kind);
    }
    next += units_of(param);
  }
  if (local_bytes_ <= limits().local_bytes) return {};
  return failure(TB_STATUS_INVALID_ARGUMENT, "module_launch: %llu bytes of local memory; a block has %u",
                 static_cast<unsigned long long>(local_bytes_), limits().local_bytes);
}

result launch::set(const function_code& code, const uint32_t* grid, const uint32_t* block,
                   const tb_launch_param* params, uint32_t num_params) {
  code_ = code;
  std::copy_n(grid, 3, grid_.begin());
  std::copy_n(block, 3, block_.begin());
  result r = check();
  if (r.ok()) r = check_parameters(params, num_params);
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
    code_.in_order(block, grid_.data(), block_.data(), arguments);
    if (++at[0] == grid_[0]) {
      at[0] = 0;
      if (++at[1] == grid_[1]) at[1] = 0, ++at[2];
    }
  }
}

void launch::run_in_order(uint64_t first, uint64_t end) const {
  if (locals_.empty()) return run_blocks(first, end, arguments_.data());
  std::vector<void*> arguments = arguments_;
  unsigned char* memory = local_memory(local_bytes_);
  for (const local& each : locals_) arguments[each.argument] = memory + each.offset_bytes;
  run_blocks(first, end, arguments.data());
}

result launch::run_side_by_side(uint64_t first, uint64_t end, simt::races* looked_for) const {
  const auto as_index = [](const index& of) { return simt_index{of[0], of[1], of[2]}; };
  try {
    return code_.program->run(*code_.side_by_side,
                              {as_index(grid_), as_index(block_), static_cast<uint32_t>(local_bytes_)},
                              arguments_.data(), first, end, looked_for);
  } catch (const std::exception& e) {
    return failure(TB_STATUS_INTERNAL, "module_launch: %s", e.what());
  }
}

result launch::run_accessible() const {
  if (code_.in_order) {
    const auto run = [](const void* self, uint64_t first, uint64_t end) {
      static_cast<const launch*>(self)->run_in_order(first, end);
    };
    share_out(num_blocks(), run, this);
    return {};
  }
  if (settings().races) { // between blocks too: they are not shared out
    simt::races all(code_.side_by_side->name);
    return run_side_by_side(0, num_blocks(), &all);
  }
  struct shared {
    const launch* of;
    mutable std::mutex mutex; // guards failed
    mutable result failed;
  };
  const shared all{this, {}, {}};
  const auto run = [](const void* self, uint64_t first, uint64_t end) {
    const auto& s = *static_cast<const shared*>(self);
    result r = s.of->run_side_by_side(first, end, nullptr);
    const std::lock_guard<std::mutex> lock(s.mutex);
    if (s.failed.ok()) s.failed = std::move(r);
  };
  share_out(num_blocks(), run, &all);
  return all.failed;
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
  return run_accessible();
}

result launch::run() const {
  return settings().protect ? run_protected() : run_accessible();
}

} // namespace xcpu::modules
