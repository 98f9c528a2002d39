#include "csrc/ops/compiled/loops/Compaction.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "csrc/core/ErrorCell.h"
#include "csrc/core/Runtime.h"
#include "csrc/ops/compiled/engine/Geometry.h"
#include "csrc/ops/compiled/engine/Launch.h"
#include "csrc/ops/compiled/engine/Modules.h"
#include "csrc/ops/compiled/engine/Part.h"
#include "csrc/ops/compiled/engine/Support.h"

namespace torch_backend::compiled {
namespace {

constexpr int64_t kOfItem = 16; // at most, in one step: bits of a chunk are whole bytes of its own

/// Elements of one: enough chunks for every processor to have work, and few counts for each to add up.
int64_t chunk_for(int device, int64_t count) {
  const bool in_stretches = runs_in_stretches(device);
  const int64_t processors = std::max(device_api().properties(device).multiprocessor_count, 1);
  const int64_t tile = block_items(device) * kOfItem;
  const int64_t chunks = in_stretches ? std::clamp<int64_t>(count / 32768, 1, processors) : 8 * processors;
  return std::max<int64_t>(((count + chunks - 1) / chunks + tile - 1) / tile, 1) * tile;
}

void derive_compaction(const Specialization& facts, SourceText& text) {
  if (const auto vector = facts.number_of("VECTOR"); vector != 0) {
    define_wide(text, "p", {{0, facts.type_of("MASK"), true, false}}, vector);
  }
}

} // namespace

Compaction::Compaction(const tb_kernel_context& context, const char* op, const View& elements, const char* chosen)
    : context_(context),
      op_(op),
      elements_(elements),
      chosen_(chosen),
      chunk_(chunk_for(context.device, elements.numel())),
      chunks_((elements.numel() + chunk_ - 1) / chunk_),
      counts_(workspace(context, chunks_ * 8)),
      bits_(workspace(context, (elements.numel() + kOfItem - 1) / kOfItem * kOfItem / 8)) {
  run({"ACTION_count"}, {elements.data, bits_, counts_});
}

int64_t Compaction::count() {
  std::vector<int64_t> counts(static_cast<std::size_t>(chunks_));
  read_back(context_, op_, counts_, counts.data(), chunks_);
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

void Compaction::write_places(char* out, int64_t stride_row, int64_t stride_dim, int ndim, const int64_t* shape) {
  run({"ACTION_places", 8, {stride_row, stride_dim}, {shape, static_cast<std::size_t>(ndim)}}, {bits_, counts_, out});
}

void Compaction::select(char* out, const char* elements, int element_bytes) {
  run({"ACTION_select", element_bytes}, {bits_, counts_, out, elements});
}

void Compaction::scatter(char* elements, const char* source, int element_bytes, int64_t source_count) {
  // No elements may be no memory, or the end of some.
  run({"ACTION_scatter", element_bytes, {source_count}},
      {bits_, counts_, elements, source_count > 0 ? source : counts_, error_cell(context_.device)});
  fallible_launch(context_.device, context_.stream);
}

void Compaction::unique(char* out, const char* elements, int element_bytes, const char* order, char* inverse,
                        char* starts) {
  run({"ACTION_unique", element_bytes, {inverse != nullptr, starts != nullptr}},
      {bits_, counts_, out, elements, order, inverse ? inverse : out, starts ? starts : out});
}

void Compaction::run(const Action& action, std::initializer_list<const void*> pointers) {
  static constexpr Skeleton kCompaction{"adding compaction", "compaction", derive_compaction};
  const bool counts = std::strcmp(action.name, "ACTION_count") == 0;
  const auto type = value_type(elements_.dtype);
  const auto bytes = static_cast<int64_t>(size_of(type));
  int64_t vector = 0;
  if (counts && !chosen_ && !runs_in_stretches(context_.device)) {
    vector = bytes == 1 ? 16 : 8;
    vector = is_of_vectors(elements_.data, bytes, vector) ? vector : 0;
  }
  const uint32_t items = block_items(context_.device);
  Specialization wanted(kCompaction);
  wanted.index_of(elements_.numel() < Geometry::kLimit32)
      .flag(action.name, true)
      .called(action.name + std::strlen("ACTION_"))
      .number("RANK", static_cast<int64_t>(action.shape.size()))
      .number("GROUP", items)
      .type("MASK", counts ? type : ValueType::none)
      .text("CHOSEN", counts ? chosen_ : nullptr)
      .number("VECTOR", vector)
      .type("WORD", word_type(action.element_bytes))
      .parameters(static_cast<int>(pointers.size()));
  const auto& function = find_function(context_.device, wanted);
  ArgsStruct args;
  args.add({elements_.numel(), chunks_, chunk_, fallible_operator(op_)});
  args.add(action.numbers);
  args.add(action.shape);
  Launch launch(context_);
  for (const auto* pointer : pointers) {
    launch.pointer(pointer);
  }
  args.pass(launch);
  launch.run_blocks(function, chunks_, items);
}

} // namespace torch_backend::compiled
