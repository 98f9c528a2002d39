#include "csrc/ops/compiled/loops/Rows.h"

#include <algorithm>
#include <string>

#include <c10/util/StringUtil.h>

#include "csrc/ops/compiled/engine/Modules.h"
#include "csrc/ops/compiled/engine/Part.h"
#include "csrc/ops/compiled/engine/Support.h"

namespace torch_backend::compiled {
namespace {

/// Longer ones are divided among processors, and do not stay in their caches.
constexpr int64_t kLongestRow = 65536;

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

  const View& operand(int n) const {
    return *operands[static_cast<std::size_t>(n)];
  }
  bool is_there(int n) const {
    return operand(n).data != nullptr;
  }
  bool repeats(int n) const {
    return row.inner_stride(n) == 0;
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

  void divide(int device) {
    items = block_items(device);
    const int64_t count = row.geometry.count;
    each = count <= 16 ? 2 : 8;
    width = 8; // side by side they read whole sectors of memory
    while (width < items && static_cast<int64_t>(width) * each < count) {
      width *= width < 32 ? 4 : 2;
    }
    width = std::min(width, items);
    each = static_cast<int64_t>(width) * each < count ? 0 : each;
  }

  Specialization specialize(c10::ArrayRef<const char*> absent) const;
};

void derive_rows(const Specialization& facts, SourceText& text) {
  const auto& entry = facts.entry<RowEntry>();
  const auto num_outputs = static_cast<int>(facts.number_of("OUTPUTS"));
  const auto num_inputs = static_cast<int>(facts.number_of("INPUTS"));
  std::string constants, loads, row_stores, kept_elements, keep, kept_element;
  for (int input = 0; input < num_inputs; ++input) {
    const int n = num_outputs + input;
    const auto type = facts.operand_type(n);
    if (type == ValueType::none) {
      constants += c10::str("const T x", input, " = (T)(", facts.text_of("ABSENT", input), "); ");
    } else if (facts.operand_step(n) == StrideKind::kZero) {
      constants += c10::str("const T x", input, " = (T)TB_LOAD_", name_of(type), "(p", n, ", base[", n, "]); ");
    } else {
      loads += c10::str("const T x", input, " = (T)TB_LOAD_", name_of(type), "(p", n, ", base[", n, "] + k); ");
      kept_elements += c10::str("T kept", input, "[EACH]; ");
      keep += c10::str("kept", input, "[j] = x", input, "; ");
      kept_element += c10::str("const T x", input, " = kept", input, "[j]; ");
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
  text.define("LOADS", loads);
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
}
constexpr Skeleton kRows{"rows", "rows", derive_rows};

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
