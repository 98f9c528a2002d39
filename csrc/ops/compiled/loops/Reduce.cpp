#include "csrc/ops/compiled/loops/Reduce.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <iterator>
#include <string>

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include "csrc/core/KernelHost.h"
#include "csrc/core/Runtime.h"
#include "csrc/ops/compiled/engine/Geometry.h"
#include "csrc/ops/compiled/engine/Launch.h"
#include "csrc/ops/compiled/engine/Modules.h"
#include "csrc/ops/compiled/engine/Part.h"
#include "csrc/ops/compiled/engine/Support.h"

namespace torch_backend::compiled {
namespace {

constexpr int kMaxOperands = Part::kMaxOperands;
constexpr std::size_t kMaxNumbers = 4;
constexpr int64_t kWorthAProcessor = 32768; // elements
constexpr int64_t kTile = 1024;             // as the skeleton has it
constexpr int64_t kWorthAnItem = 64;
constexpr int64_t kWorthTogether = 8; // elements of a row
constexpr int64_t kMaxParts = 4096;
constexpr int64_t kColumnsAtOnce = 8;

struct Plan {
  const ReductionEntry* entry;
  ValueType compute;
  int num_outputs = 0;
  int num_operands = 0;
  std::array<const View*, kMaxOperands> operands{}; // outputs first
  Part kept;
  Part reduced;
  bool fits_32 = true;
  bool columns = false;
  bool dense = false;          // see the skeleton
  uint32_t items = 1;          // of a block
  uint32_t width = 0;          // of them reduce together; 0: each for itself
  uint32_t width_of_parts = 0; // in the second stage
  int64_t parts = 1;
  int64_t part_size = 0;
  int64_t units = 0; // pieces of work of all parts

  bool lay_out(uint64_t dims) {
    const auto& first = *operands[static_cast<std::size_t>(num_outputs)];
    for (int64_t d = 0; d < first.dim(); ++d) {
      const auto at = static_cast<std::size_t>(d);
      const bool is_reduced = (dims >> d & 1) != 0;
      auto& part = is_reduced ? reduced : kept;
      part.sizes.push_back(first.sizes[at]);
      for (int n = 0; n < num_operands; ++n) {
        const auto operand = static_cast<std::size_t>(n);
        part.strides[operand].push_back(is_reduced && n < num_outputs ? 0 : operands[operand]->strides[at]);
      }
    }
    std::array<int, kMaxOperands> order{}; // inputs first: there are more of their elements
    const int num_inputs = num_operands - num_outputs;
    for (int n = 0; n < num_operands; ++n) {
      order[static_cast<std::size_t>(n)] = n < num_inputs ? num_outputs + n : n - num_inputs;
    }
    const c10::ArrayRef<int> inputs_first(order.data(), static_cast<std::size_t>(num_operands));
    if (!kept.collapse(num_operands, inputs_first) ||
        !reduced.collapse(num_operands, entry->counts ? c10::ArrayRef<int>() : inputs_first)) {
      return false;
    }
    fits_32 = kept.geometry.fits_32 && reduced.geometry.fits_32;
    for (int n = 0; n < num_operands; ++n) {
      fits_32 = fits_32 && kept.reach(n) + reduced.reach(n) < Geometry::kLimit32;
    }
    return true;
  }

  /// Whether the inputs' elements of one place in the reduced dimensions are side by side, and after them those of the next.
  bool are_rows_dense() const {
    bool all = kept.geometry.rank == 1 && reduced.geometry.rank == 1;
    for (int n = num_outputs; n < num_operands; ++n) {
      all = all && kept.inner_stride(n) == 1 && reduced.inner_stride(n) == kept.inner_size();
    }
    return all;
  }

  /// How the work is divided.
  void divide(int device) {
    const int64_t outputs = kept.geometry.count;
    const int64_t count = reduced.geometry.count;
    const int64_t processors = std::max(device_api().properties(device).multiprocessor_count, 1);
    int64_t across = 0, along = 0; // strides of the first input that has any
    for (int n = num_outputs; n < num_operands && across == along; ++n) {
      across = std::llabs(kept.inner_stride(n));
      along = std::llabs(reduced.inner_stride(n));
    }
    const bool neighbours_are_kept = outputs > 1 && count > 1 && across != 0 && across < along;
    if (runs_in_stretches(device)) {
      dense = neighbours_are_kept && are_rows_dense() && kept.inner_size() <= kTile / 2;
      columns = neighbours_are_kept && (dense || kept.inner_size() >= kColumnsAtOnce);
      units = columns ? outputs / kept.inner_size() * ((kept.inner_size() + kTile - 1) / kTile) : outputs;
      const int64_t wanted = std::clamp<int64_t>(outputs * count / kWorthAProcessor, 1, processors);
      parts = units >= wanted ? 1 : std::min((wanted + units - 1) / units, std::max<int64_t>(count / 1024, 1));
    } else {
      items = block_items(device);
      if (!neighbours_are_kept && count >= kWorthTogether && items > 1) {
        width = std::min<uint32_t>(count <= 64 ? 8 : count <= 512 ? 32 : count <= 2048 ? 128 : items, items);
      }
      units = outputs;
      const int64_t enough = 8 * processors * (width ? items / width : items); // units, for all to have work
      const int64_t worth = width ? 16 * width : kWorthAnItem;                 // elements of a part
      parts = std::clamp<int64_t>(enough / std::max<int64_t>(units, 1), 1,
                                  std::clamp<int64_t>(count / worth, 1, kMaxParts));
      if (items > 1 && parts >= 8 && outputs < 4096) {
        width_of_parts = std::min<uint32_t>(parts <= 64 ? 8 : items, items);
      }
    }
    part_size = std::max<int64_t>((count + parts - 1) / parts, 1);
    parts = std::max<int64_t>((count + part_size - 1) / part_size, 1);
    units *= parts;
  }

  uint32_t width_in(bool second_stage) const {
    return second_stage ? width_of_parts : width;
  }

  Specialization specialize(bool second_stage) const;
};

void derive_reduction(const Specialization& facts, SourceText& text) {
  const auto& entry = facts.entry<ReductionEntry>();
  const int num_outputs = entry.num_outputs, num_operands = num_outputs + entry.num_inputs;
  const auto compute = facts.computes_in();
  define_limits(facts, text);
  text.define("OUTPUTS", num_outputs);
  text.define("INPUTS", entry.num_inputs);
  std::string values, finish, stores, numbers;
  for (int n = num_outputs; n < num_operands; ++n) {
    // Numbers are bools before they are added as such.
    const bool as_bool = entry.of_output && facts.type_of("TYPE", 0) == ValueType::b8;
    const auto type = facts.type_of("TYPE", n);
    const auto load = c10::str("TB_LOAD_", name_of(type), "(p", n, ", K(", n, "))");
    values += c10::str(values.empty() ? "" : ", ", is_complex(type) || is_complex(compute)
                                                       ? load_text(type, compute, n)
                                                       : c10::str("(T)(", load, as_bool ? " != 0)" : ")"));
  }
  for (int n = 0; n < num_outputs; ++n) {
    finish += c10::str(", &r", n);
    stores += c10::str(" TB_STORE_", name_of(facts.type_of("TYPE", n)), "(p", n, ", K(", n, "), r", n, ");");
  }
  for (int n = 0; n < entry.num_numbers; ++n) {
    numbers += c10::str(", TB_SCALAR(", n, ")");
  }
  text.define("VALUES(K)", values);
  text.define("NUMBERS", numbers);
  text.define("STORE(V, K)", c10::str("{ FINISHED tb_finish(V, n NUMBERS", finish, ");", stores, " }"));
  text.define("WORKSPACE", c10::str("p", num_operands));
  text.line(entry.text);
}
constexpr Skeleton kReduce{"reduce", "reduce", derive_reduction};
constexpr Skeleton kReduceParts{"reduce", "reduce_parts", derive_reduction};

Specialization Plan::specialize(bool second_stage) const {
  const auto together = width_in(second_stage);
  Specialization wanted(second_stage ? kReduceParts : kReduce);
  wanted.entry(entry)
      .called(entry->name)
      .compute_in(compute)
      .index_of(fits_32)
      .number("KEPT", kept.geometry.rank_class())
      .number("REDUCED", reduced.geometry.rank_class())
      .flag("COLUMNS", columns)
      .flag("DENSE", dense)
      .number("GROUP", together ? items : 0)
      .number("WIDTH", together)
      .flag("PARTS", parts > 1)
      .flag("STAGE_2", second_stage)
      .parameters(num_operands + (parts > 1 ? 1 : 0));
  for (int n = 0; n < num_operands; ++n) {
    wanted.type("TYPE", n, operands[static_cast<std::size_t>(n)]->type());
    if (n >= num_outputs) {
      wanted.step("REDUCED_STEP", n, reduced.inner_stride(n)).step("KEPT_STEP", n, kept.inner_stride(n));
    }
  }
  return wanted;
}

} // namespace

void define_limits(const Specialization& facts, SourceText& text) {
  const auto compute = facts.computes_in();
  const bool floating = is_floating(compute);
  const char* most = compute == ValueType::i64   ? "0x7fffffffffffffff"
                     : compute == ValueType::u64 ? "0xffffffffffffffff"
                                                 : "0x7fffffff";
  text.define("HIGHEST", floating ? "INFINITY" : most);
  text.define("LOWEST", floating ? std::string("-INFINITY") : c10::str("(-(T)", most, " - 1)"));
  text.define("LAST_INDEX", facts.fits_32() ? "0x7fffffff" : "0x7fffffffffffffff");
}

const ReductionEntry& reduction(std::string_view name) {
  const auto table = reduction_table();
  const auto* end = table.entries + table.size;
  const auto* found = std::find_if(table.entries, end, [&](const auto& entry) { return name == entry.name; });
  TORCH_INTERNAL_ASSERT(found != end, "no reduction called ", name);
  return *found;
}

tb_status reduce(const tb_kernel_context& context, const ReductionEntry& entry, c10::ArrayRef<View> outputs,
                 c10::ArrayRef<View> inputs, uint64_t dims, ValueType compute, c10::ArrayRef<double> numbers) {
  TORCH_INTERNAL_ASSERT(outputs.size() == entry.num_outputs && inputs.size() == entry.num_inputs &&
                        numbers.size() == entry.num_numbers);
  const auto is_complex_view = [](const View& view) { return is_complex(view.type()); };
  const bool of_complex = std::any_of(inputs.begin(), inputs.end(), is_complex_view);
  const std::string_view how = of_complex && entry.complex ? entry.complex : "";
  const bool into_complex = std::any_of(outputs.begin(), outputs.end(), is_complex_view);
  if (of_complex ? how.empty() || (how == "sizes" && into_complex) : into_complex) {
    return TB_STATUS_UNSUPPORTED;
  }
  if (of_complex && !into_complex && how != "sizes") { // PyTorch converts them first
    return reduce(context, entry, outputs, inputs[0].half(0), dims, compute, numbers);
  }
  if (how == "parts") {
    c10::SmallVector<View, 4> to, from;
    std::transform(outputs.begin(), outputs.end(), std::back_inserter(to),
                   [](const auto& view) { return view.in_halves(); });
    std::transform(inputs.begin(), inputs.end(), std::back_inserter(from),
                   [](const auto& view) { return view.in_halves(); });
    return reduce(context, entry, to, from, dims, compute_type(part_type(compute)), numbers);
  }
  if (how == "sizes") {
    compute = compute_type(part_type(compute));
  } else if (of_complex && how != entry.name) {
    return reduce(context, reduction(how), outputs, inputs, dims, compute, numbers);
  }
  Plan plan;
  plan.entry = &entry;
  plan.compute = compute;
  for (const auto& list : {outputs, inputs}) {
    for (const auto& view : list) {
      if (view.type() == ValueType::none) {
        return TB_STATUS_UNSUPPORTED;
      }
      plan.operands[static_cast<std::size_t>(plan.num_operands++)] = &view;
    }
  }
  plan.num_outputs = entry.num_outputs;
  if (compute == ValueType::none || !computes(context.device, compute) || inputs[0].dim() > 64 || !plan.lay_out(dims)) {
    return TB_STATUS_UNSUPPORTED;
  }
  if (plan.kept.geometry.count == 0) {
    return TB_STATUS_OK;
  }
  plan.divide(context.device);

  void* workspace = nullptr;
  const int64_t values = plan.kept.geometry.count * plan.parts; // of each field
  if (plan.parts > 1) {
    const auto status = context.host->alloc_workspace(static_cast<uint64_t>(values) * 8 * 3, &workspace);
    if (status != TB_STATUS_OK) {
      return status;
    }
  }
  ArgsStruct args;
  args.add(plan.kept.geometry.count);
  args.add(plan.reduced.geometry.count);
  args.add(plan.parts);
  args.add(plan.part_size);
  args.add_dims(plan.kept.geometry);
  args.add_dims(plan.reduced.geometry);
  for (int64_t f = 0; f < 4; ++f) {
    args.add(f * 8 * values);
  }
  for (std::size_t i = 0; i < kMaxNumbers; ++i) {
    args.add(scalar_of(i < numbers.size() ? numbers[i] : 0, compute));
  }
  for (const bool second_stage : {false, true}) {
    if (second_stage && plan.parts == 1) {
      break;
    }
    const auto& function = find_function(context.device, plan.specialize(second_stage));
    Launch launch(context);
    for (int n = 0; n < plan.num_operands; ++n) {
      const void* address = plan.operands[static_cast<std::size_t>(n)]->data;
      launch.pointer(address ? address : plan.operands[0]->data); // none of an empty tensor
    }
    if (plan.parts > 1) {
      launch.pointer(workspace);
    }
    args.pass(launch);
    const int64_t units = second_stage ? plan.kept.geometry.count : plan.units;
    if (const auto width = plan.width_in(second_stage)) {
      const int64_t at_once = plan.items / width;
      launch.run_blocks(function, (units + at_once - 1) / at_once, plan.items);
    } else if (!runs_in_stretches(context.device)) {
      launch.run_blocks(function, (units + plan.items - 1) / plan.items, plan.items);
    } else {
      launch.run(function, units,
                 second_stage ? plan.parts
                              : std::max<int64_t>(plan.kept.geometry.count * plan.reduced.geometry.count / units, 1));
    }
  }
  return TB_STATUS_OK;
}

View with_reduced(View view, int64_t num_dims, uint64_t dims) {
  if (view.dim() == num_dims) {
    return view;
  }
  for (int64_t d = 0; d < num_dims; ++d) {
    if ((dims >> d & 1) != 0) {
      view.repeat(d, 1);
    }
  }
  return view;
}

Dims sizes_without(const View& view, uint64_t dims) {
  Dims sizes = view.sizes;
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    sizes[d] = (dims >> d & 1) != 0 ? 1 : sizes[d];
  }
  return sizes;
}

View repeated_over(const View& view, const View& like, uint64_t dims) {
  View result = view;
  result.sizes = like.sizes;
  for (int64_t d = 0; d < like.dim(); ++d) {
    if ((dims >> d & 1) != 0) {
      result.strides[static_cast<std::size_t>(d)] = 0;
    }
  }
  return result;
}

} // namespace torch_backend::compiled
