#include "csrc/ops/compiled/engine/Launch.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "csrc/core/Runtime.h"
#include "csrc/core/Tape.h"
#include "csrc/ops/compiled/engine/Rehearsal.h"
#include "csrc/ops/plugin/PluginKernels.h"

namespace torch_backend::compiled {
namespace {

/// Work that is worth another processor, as ATen's GRAIN_SIZE.
constexpr int64_t kStretch = 32768;
/// Elements for each item where neighbours work side by side: few enough that all processors have work.
constexpr int64_t kElementsPerItem = 4;
constexpr uint32_t kUsualBlock = 256;
constexpr uint32_t kBlockOfLongItems = 64; // so that few of them are on many processors

using Parameters = std::vector<tb_launch_param>;

/// Parameters whose values live as long.
std::shared_ptr<const Parameters> keep(Parameters parameters) {
  struct Kept {
    Parameters parameters;
    std::vector<std::unique_ptr<std::max_align_t[]>> values;
  };
  const auto kept = std::make_shared<Kept>();
  for (auto& parameter : parameters) {
    if (parameter.kind == TB_PARAM_VALUE) {
      kept->values.emplace_back(new std::max_align_t[parameter.size_bytes / sizeof(std::max_align_t) + 1]);
      std::memcpy(kept->values.back().get(), parameter.data, parameter.size_bytes);
      parameter.data = kept->values.back().get();
    }
  }
  kept->parameters = std::move(parameters);
  return {kept, &kept->parameters};
}

} // namespace

bool computes(int device, ValueType type) {
  const auto& mask = device_api().properties(device).compute_dtype_mask;
  return part_type(type) != ValueType::f64 || (mask[0] | mask[1] | mask[2] | mask[3]) == 0 ||
         (mask[TB_DTYPE_MASK_WORD(TB_DTYPE_FLOAT, 64u)] & TB_DTYPE_MASK_FLAG(TB_DTYPE_FLOAT, 64u)) != 0;
}

uint32_t block_items(int device) {
  if (runs_in_stretches(device)) {
    return 1;
  }
  const auto& properties = device_api().properties(device);
  uint32_t items = properties.preferred_block_items ? properties.preferred_block_items : kUsualBlock;
  for (const uint32_t most : {properties.max_block_items, properties.max_block[0]}) {
    items = most ? std::min(items, most) : items;
  }
  return std::bit_floor(std::max<uint32_t>(items, 1));
}

void Launch::run(const Function& function, int64_t count, int64_t cost) {
  if (count <= 0) {
    return;
  }
  if (runs_in_stretches(device_)) {
    const int64_t processors = std::max(device_api().properties(device_).multiprocessor_count, 1);
    run_blocks(function, std::min(std::clamp<int64_t>(count * cost / kStretch, 1, processors), count), 1);
    return;
  }
  const uint32_t items = block_items(device_);
  run_blocks(function, (count + items * kElementsPerItem - 1) / (items * kElementsPerItem), items);
}

void Launch::run_each(const Function& function, int64_t count, int64_t cost) {
  if (runs_in_stretches(device_)) {
    run(function, count, cost);
    return;
  }
  const uint32_t items = std::min(block_items(device_), kBlockOfLongItems);
  run_blocks(function, (count + items - 1) / items, items);
}

void Launch::run_blocks(const Function& function, int64_t blocks, uint32_t items) {
  if (!Rehearsal::goes_ahead()) {
    return;
  }
  auto& api = device_api();
  const uint32_t most = api.properties(device_).max_grid[0];
  const std::array<uint32_t, 3> grid{static_cast<uint32_t>(std::min<int64_t>(blocks, most ? most : INT32_MAX)), 1, 1};
  const std::array<uint32_t, 3> block{items, 1, 1};
  const auto launch = [device = device_, handle = function.handle, grid, block](const tb_launch_param* parameters,
                                                                                std::size_t count, tb_stream* stream) {
    device_api().check_call(device, "module_launch", plugin_kernel_table().module_launch, static_cast<int32_t>(device),
                            handle, grid.data(), block.data(), parameters, static_cast<uint32_t>(count), stream);
  };
  if (graph::any_tape()) {
    const auto kept = keep({parameters_.begin(), parameters_.begin() + count_});
    if (graph::write(device_, stream_,
                     [launch, kept](tb_stream* stream) { launch(kept->data(), kept->size(), stream); })) {
      return;
    }
  }
  launch(parameters_.data(), static_cast<std::size_t>(count_), stream_);
}

} // namespace torch_backend::compiled
