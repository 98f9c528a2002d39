#include "csrc/ops/compiled/loops/Compaction.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "csrc/core/ErrorCell.h"
#include "csrc/core/Runtime.h"
#include "csrc/ops/compiled/engine/Geometry.h"
#include "csrc/ops/compiled/engine/Launch.h"
#include "csrc/ops/compiled/engine/Modules.h"
#include "csrc/ops/compiled/engine/Support.h"

namespace torch_backend::compiled {
namespace {

constexpr int kMaxDims = 64;

constexpr int64_t kEach = 8; // as EACH in compaction.c

/// Elements of one: enough chunks for every processor to have work, and few for the one block that adds up.
int64_t chunk_for(int device, int64_t count) {
  const bool in_stretches = runs_in_stretches(device);
  const int64_t processors = std::max(device_api().properties(device).multiprocessor_count, 1);
  const int64_t tile = in_stretches ? 1 : block_items(device) * kEach;
  const int64_t chunks = in_stretches ? std::clamp<int64_t>(count / 32768, 1, processors) : 8 * processors;
  return std::max<int64_t>(((count + chunks - 1) / chunks + tile - 1) / tile * tile, 1);
}

} // namespace

Compaction::Compaction(const tb_kernel_context& context, const char* op, const View& mask)
    : context_(context),
      op_(op),
      mask_(mask),
      chunk_(chunk_for(context.device, mask.numel())),
      chunks_(std::max<int64_t>((mask.numel() + chunk_ - 1) / chunk_, 1)),
      counts_(workspace(context, (chunks_ + 1) * 8)) {
  const int64_t none[4] = {};
  run("ACTION_count", nullptr, nullptr, 0, none);
  run("ACTION_scan", nullptr, nullptr, 0, none);
}

int64_t Compaction::count() {
  int64_t total = 0;
  read_back(context_, op_, counts_ + chunks_ * 8, &total, 1);
  return total;
}

void Compaction::write_places(char* out, int64_t stride_row, int64_t stride_dim, int ndim, const int64_t* shape,
                              int64_t limit) {
  const int64_t numbers[] = {stride_row, stride_dim, limit, ndim, 0};
  std::array<int64_t, 5 + kMaxDims> all{};
  std::copy(std::begin(numbers), std::end(numbers), all.begin());
  std::copy(shape, shape + ndim, all.begin() + 4);
  run("ACTION_places", out, nullptr, 0, all.data());
}

void Compaction::select(char* out, const char* elements, int element_bytes) {
  const int64_t none[4] = {};
  run("ACTION_select", out, elements, element_bytes, none);
}

void Compaction::scatter(char* elements, const char* source, int element_bytes, int64_t source_count) {
  const int64_t numbers[4] = {source_count};
  // No elements may be no memory, or the end of some.
  run("ACTION_scatter", elements, source_count > 0 ? source : nullptr, element_bytes, numbers);
  fallible_launch(context_.device, context_.stream);
}

void Compaction::run(const char* action, const char* first, const char* second, int element_bytes,
                     const int64_t* numbers) {
  const auto type = value_type(mask_.dtype);
  const int rank = std::strcmp(action, "ACTION_places") == 0 ? std::max<int>(static_cast<int>(numbers[3]), 1) : 1;
  const bool fits = mask_.numel() < Geometry::kLimit32;
  const uint32_t items = block_items(context_.device);
  static constexpr Skeleton kCompaction{"compaction", "compaction"};
  Specialization wanted(kCompaction);
  wanted.index_of(fits)
      .flag(action, true)
      .called(action + std::strlen("ACTION_"))
      .number("RANK", rank)
      .number("GROUP", items)
      .type("MASK", type)
      .number("BYTES", element_bytes)
      .number("PACKED", size_of(type) == 1 && reinterpret_cast<uintptr_t>(mask_.data) % kEach == 0)
      .parameters(5);
  const auto& function = find_function(context_.device, wanted);
  std::array<int64_t, 8 + kMaxDims> args{};
  args[0] = mask_.numel();
  args[1] = chunks_;
  args[2] = chunk_;
  args[3] = fallible_operator(op_);
  std::copy(numbers, numbers + 4, args.begin() + 4);
  if (std::strcmp(action, "ACTION_places") == 0) {
    std::copy(numbers + 4, numbers + 4 + rank, args.begin() + 8);
    args[7] = 0;
  }
  Launch launch(context_);
  launch.pointer(mask_.data);
  launch.pointer(counts_);
  launch.pointer(first ? first : counts_);
  launch.pointer(second ? second : counts_);
  launch.pointer(error_cell(context_.device));
  launch.value(args.data(), static_cast<std::size_t>(8 + rank) * sizeof(int64_t));
  launch.run_blocks(function, std::strcmp(action, "ACTION_scan") == 0 ? 1 : chunks_, items);
}

} // namespace torch_backend::compiled
