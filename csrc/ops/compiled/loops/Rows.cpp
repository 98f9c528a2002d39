#include "csrc/ops/compiled/loops/Rows.h"

#include <algorithm>
#include <bit>
#include <string>
#include <string_view>
#include <vector>

#include <c10/util/StringUtil.h>

#include "csrc/core/Runtime.h"
#include "csrc/ops/compiled/engine/Modules.h"
#include "csrc/ops/compiled/engine/Part.h"
#include "csrc/ops/compiled/engine/Support.h"

namespace torch_backend::compiled {
namespace {

/// Longer ones are divided among processors, and do not stay in their caches.
constexpr int64_t kLongestRow = 65536;
/// What an item keeps of a row: elements of each operand, and most of them, where so many bytes do for all operands.
constexpr int64_t kKept = 8;
constexpr int64_t kMostKept = 32;
constexpr uint64_t kMostKeptBytes = 128;
constexpr uint32_t kBlockOfManyKept = 128; // items that have many registers: small blocks fill a processor better
/// What it moves at least where it does not keep the row.
constexpr int64_t kAheadElements = 16;

/// Of input `input`: else the last step alone has its elements.
bool is_in_sums(const RowEntry& entry, int input) {
  const auto name = c10::str("x", input);
  return std::string_view(entry.term_a).find(name) != std::string_view::npos ||
         std::string_view(entry.term_b).find(name) != std::string_view::npos || (input == 0 && entry.sums_a == 0);
}

struct RowPlan {
  const RowEntry* entry;
  ValueType compute;
  int num_outputs;
  int num_operands = 0;
  std::array<const View*, Part::kMaxOperands> operands{};
  Part kept;
  Part row;
  bool fits_32 = true;
  uint32_t items = 1; // of a block; `width` of them do a row together
  uint32_t width = 1;
  uint32_t each = 0; // most elements that an item keeps; 0: there are more
  int vector = 0;    // elements that it moves at once; 0: one by one

  const View& operand(int n) const {
    return *operands[static_cast<std::size_t>(n)];
  }
  bool is_there(int n) const {
    return operand(n).data != nullptr;
  }
  bool repeats(int n) const {
    return row.inner_stride(n) == 0;
  }

  bool is_side_by_side(int n) const {
    return is_there(n) && !repeats(n);
  }
  bool are_vectors(int64_t elements) const {
    bool are = row.geometry.count % elements == 0;
    for (int n = 0; n < num_operands && are; ++n) {
      are = !is_side_by_side(n) || is_of_vectors(operand(n).data, size_of(operand(n).type()), elements,
                                                 kept.strides[static_cast<std::size_t>(n)], kept.sizes);
    }
    return are;
  }

  bool lay_out(uint64_t dims) {
    const auto& first = operand(num_outputs);
    for (int64_t d = 0; d < first.dim(); ++d) {
      const auto at = static_cast<std::size_t>(d);
      const bool in_row = (dims >> d & 1) != 0;
      auto& part = in_row ? row : kept;
      part.sizes.push_back(first.sizes[at]);
      for (int n = 0; n < num_operands; ++n) {
        const bool repeated = !is_there(n) || (in_row && n > 0 && n < num_outputs);
        part.strides[static_cast<std::size_t>(n)].push_back(repeated ? 0 : operand(n).strides[at]);
      }
    }
    if (!kept.collapse(num_operands, {}) || !row.collapse(num_operands, {}) || row.geometry.rank != 1 ||
        row.geometry.count > kLongestRow || row.geometry.count < 2) {
      return false;
    }
    for (int n = 0; n < num_operands; ++n) {
      if (row.inner_stride(n) != 1 && !repeats(n)) {
        return false;
      }
      fits_32 = fits_32 && kept.reach(n) + row.reach(n) < Geometry::kLimit32;
    }
    return row.inner_stride(0) == 1;
  }

  /// Elements that an item moves at once; 0: rows are not aligned, or not of whole vectors.
  int vector_of() const {
    std::size_t least = kWideBytes;
    for (int n = 0; n < num_operands; ++n) {
      least = is_side_by_side(n) ? std::min(least, size_of(operand(n).type())) : least;
    }
    int vector = kWideBytes / static_cast<int>(least);
    while (vector > 1 && !are_vectors(vector)) {
      vector /= 2;
    }
    return vector > 1 && static_cast<std::size_t>(vector) * least >= 4 ? vector : 0;
  }

  void divide(int device) {
    items = block_items(device);
    if (items == 1) {
      return;
    }
    const int64_t count = row.geometry.count;
    vector = vector_of();
    uint64_t bytes = 0; // kept of each element
    for (int n = num_outputs; n < num_operands; ++n) {
      bytes += is_side_by_side(n) && is_in_sums(*entry, n - num_outputs) ? size_of(compute) : 0;
    }
    const auto fit = static_cast<int64_t>(std::bit_floor(kMostKeptBytes / std::max<uint64_t>(bytes, 1)));
    const int64_t most = std::clamp(fit, kKept, kMostKept);
    // A warp needs no barriers; where there are few rows, all processors are to have some.
    const bool few = kept.geometry.count < 8 * std::max(device_api().properties(device).multiprocessor_count, 1);
    width = vector != 0 ? std::bit_ceil(static_cast<uint32_t>(std::min<int64_t>(count / vector, 8))) : 8;
    while (width < items && static_cast<int64_t>(width) * (few || width < 32 ? kKept : most) < count) {
      width *= width < 32 ? 4 : 2;
    }
    width = std::min(width, items);
    const auto wanted = static_cast<uint32_t>((count + width - 1) / width);
    each = std::bit_ceil(std::max({wanted, static_cast<uint32_t>(vector), 2U}));
    each = each > most ? 0 : each;
    items = each > kKept ? std::max(width, std::min(items, kBlockOfManyKept)) : items;
  }
  int64_t ahead() const {
    const int64_t per = std::max(vector, 1);
    return each != 0 ? each / per : kAheadElements / per;
  }

  Specialization specialize(c10::ArrayRef<const char*> absent) const;
};

void derive_rows(const Specialization& facts, SourceText& text) {
  const auto& entry = facts.entry<RowEntry>();
  const auto num_outputs = static_cast<int>(facts.number_of("OUTPUTS"));
  const auto num_inputs = static_cast<int>(facts.number_of("INPUTS"));
  std::string constants, loads, late_loads, row_stores, kept_elements, keep, kept_element;
  std::vector<WideOperand> wide = {{0, facts.operand_type(0), false, true}};
  for (int input = 0; input < num_inputs; ++input) {
    const int n = num_outputs + input;
    const auto type = facts.operand_type(n);
    if (type == ValueType::none) {
      constants += c10::str("const T x", input, " = (T)(", facts.text_of("ABSENT", input), "); ");
    } else if (facts.operand_step(n) == StrideKind::kZero) {
      constants += c10::str("const T x", input, " = (T)TB_LOAD_", name_of(type), "(p", n, ", base[", n, "]); ");
    } else {
      const auto load = c10::str("const T x", input, " = (T)TB_LOAD_", name_of(type), "(p", n, ", K(", n, ")); ");
      wide.push_back({n, type, true, false});
      if (!is_in_sums(entry, input)) {
        late_loads += load;
        continue;
      }
      loads += load;
      kept_elements += c10::str("T kept", input, "[EACH]; ");
      keep += c10::str("KEPT_AT(kept", input, ") = x", input, "; ");
      kept_element += c10::str("const T x", input, " = KEPT_AT(kept", input, "); ");
    }
  }
  for (int n = 1; n < num_outputs; ++n) {
    const auto type = facts.operand_type(n);
    row_stores += type == ValueType::none ? std::string()
                                          : c10::str("TB_STORE_", name_of(type), "(p", n, ", base[", n, "], ",
                                                     entry.row_results[n - 1], "); ");
  }
  text.define("STASHES", entry.stashes && facts.operand_type(0) == facts.computes_in());
  text.define("CONSTANTS", constants);
  text.define("LOADS(K)", loads);
  text.define("LATE_LOADS(K)", late_loads);
  text.define("KEPT_ELEMENTS", kept_elements);
  text.define("KEEP_ELEMENT", keep);
  text.define("KEPT_ELEMENT", kept_element);
  text.define("A_SUMS", entry.sums_a);
  text.define("A_VALUE", "x0");
  text.define("TERM_A", entry.term_a);
  text.define("DERIVE_A", entry.derive_a);
  text.define("B_SUMS", entry.sums_b);
  text.define("TERM_B", entry.term_b);
  text.define("DERIVE_B", entry.derive_b);
  text.define("MAP", entry.map);
  text.define("STORE_ROW", row_stores);
  if (facts.number_of("VECTOR") != 0) {
    define_wide(text, "p", wide, facts.number_of("VECTOR"), facts.number_of("AHEAD"));
  }
}
constexpr Skeleton kRows{"vectors rows", "rows", derive_rows};

Specialization RowPlan::specialize(c10::ArrayRef<const char*> absent) const {
  Specialization wanted(kRows);
  wanted.entry(entry)
      .called(entry->name)
      .compute_in(compute)
      .index_of(fits_32)
      .number("OUTPUTS", num_outputs)
      .number("INPUTS", num_operands - num_outputs)
      .number("KEPT", kept.geometry.rank_class())
      .number("GROUP", items)
      .number("WIDTH", width)
      .number("EACH", each)
      .number("VECTOR", vector)
      .number("AHEAD", ahead())
      .parameters(num_operands);
  for (int n = 0; n < num_operands; ++n) {
    wanted.operand(n, is_there(n) ? operand(n).type() : ValueType::none, row.inner_stride(n));
    if (n >= num_outputs && !is_there(n)) {
      const int input = n - num_outputs;
      wanted.text("ABSENT", input, absent[static_cast<std::size_t>(input)]);
    }
  }
  return wanted;
}

} // namespace

tb_status run_rows(const tb_kernel_context& context, const RowEntry& entry, c10::ArrayRef<View> outputs,
                   c10::ArrayRef<View> inputs, c10::ArrayRef<const char*> absent, uint64_t dims, ValueType compute,
                   double number) {
  RowPlan plan;
  plan.entry = &entry;
  plan.compute = compute;
  plan.num_outputs = static_cast<int>(outputs.size());
  for (const auto& list : {outputs, inputs}) {
    for (const auto& view : list) {
      plan.operands[static_cast<std::size_t>(plan.num_operands++)] = &view;
    }
  }
  if (!is_floating(compute) || !computes(context.device, compute) || !plan.lay_out(dims)) {
    return TB_STATUS_UNSUPPORTED;
  }
  plan.divide(context.device);
  const auto& function = find_function(context.device, plan.specialize(absent));
  const int64_t rows = plan.kept.geometry.count;
  const int64_t count = plan.row.geometry.count;
  ArgsStruct args;
  args.add(rows);
  args.add(count);
  args.add_dims(plan.kept.geometry);
  args.add(scalar_of(number, compute));
  args.add(scalar_of(0, compute));
  Launch launch(context);
  for (int n = 0; n < plan.num_operands; ++n) {
    launch.pointer(plan.operand(n).data);
  }
  args.pass(launch);
  if (runs_in_stretches(context.device)) {
    launch.run(function, rows, count * 4);
  } else {
    const int64_t at_once = plan.items / plan.width;
    launch.run_blocks(function, (rows + at_once - 1) / at_once, plan.items);
  }
  return TB_STATUS_OK;
}

} // namespace torch_backend::compiled
