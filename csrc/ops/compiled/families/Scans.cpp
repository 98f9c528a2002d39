// Sums, products and extrema so far, along one dimension.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

#include <c10/util/StringUtil.h>

#include "csrc/core/KernelHost.h"
#include "csrc/core/Runtime.h"
#include "csrc/ops/compiled/engine/Kernels.h"
#include "csrc/ops/compiled/engine/Launch.h"
#include "csrc/ops/compiled/engine/Modules.h"
#include "csrc/ops/compiled/engine/Overloads.h"
#include "csrc/ops/compiled/engine/Part.h"
#include "csrc/ops/compiled/engine/Support.h"
#include "csrc/ops/compiled/loops/Reduce.h"

namespace torch_backend::compiled::scans {
namespace {

constexpr int64_t kWorthTogether = 32; // elements of a line, or lines side by side

/// How the work is divided; see the skeleton.
struct Division {
  bool columns = false;
  uint32_t group = 0;
  int64_t each = 0;
  bool in_turn = false;
  int64_t parts = 1;
  int64_t part_size;
};

/// `side_by_side`: lines whose first elements are neighbours; `most`: elements that an item may have at once.
Division divide(int device, int64_t lines, int64_t count, int64_t side_by_side, int64_t most, bool may_wait) {
  Division division;
  division.part_size = count;
  if (runs_in_stretches(device)) {
    division.columns = side_by_side >= 8;
    return division;
  }
  const uint32_t items = std::min<uint32_t>(block_items(device), 256);                          // local memory
  const int64_t blocks = 8 * std::max(device_api().properties(device).multiprocessor_count, 1); // at once
  int64_t whole = 1; // a part is a multiple of it
  if (side_by_side < kWorthTogether && count >= kWorthTogether && items > 1) {
    constexpr int64_t kLeast = 4, kWarp = 32;
    division.each = most;
    while (division.each > kLeast && count < division.each * kWarp) {
      division.each /= 2;
    }
    const auto enough = static_cast<uint64_t>((count + division.each - 1) / division.each);
    division.group = static_cast<uint32_t>(std::min<uint64_t>(std::bit_ceil(std::max<uint64_t>(enough, 32)), items));
    whole = division.group * division.each;
    const int64_t tiles = (count + whole - 1) / whole;
    division.in_turn = may_wait && blocks_take_turns(device) && lines < blocks && tiles > 1;
    division.parts =
        division.in_turn ? tiles : std::clamp<int64_t>(blocks / lines, 1, std::max<int64_t>(count / whole, 1));
  } else {
    // An item adds up the parts before its own: not more of them than a part has elements.
    const auto most_parts = static_cast<int64_t>(std::sqrt(static_cast<double>(count)));
    division.parts = std::clamp<int64_t>(blocks * items / lines, 1, std::max<int64_t>(most_parts / 2, 1));
  }
  division.part_size = ((count + division.parts - 1) / division.parts + whole - 1) / whole * whole;
  division.parts = (count + division.part_size - 1) / division.part_size;
  return division;
}

void derive_scan(const Specialization& facts, SourceText& text) {
  const auto num_outputs = static_cast<int>(facts.number_of("OUTPUTS"));
  define_limits(facts, text);
  std::string finish, stores, takes;
  for (int n = 0; n < num_outputs; ++n) {
    const char* type = name_of(facts.type_of("TYPE", n));
    finish += c10::str(", &r", n);
    stores += c10::str(" TB_STORE_", type, "(p", n, ", K(", n, "), r", n, ");");
    takes += c10::str(" TB_STORE_", type, "(p", n, ", K(", n, "), ", n == 0 ? "tile" : "(i64)tile_places", "[at]);");
  }
  text.define("VALUES(K)", load_text(facts.type_of("TYPE", num_outputs), facts.computes_in(), num_outputs));
  text.define("NUMBERS", "");
  text.define("STORE(V, K)", c10::str("{ FINISHED tb_finish(V, n", finish, ");", stores, " }"));
  text.define("PUT(V, at)", c10::str("{ FINISHED tb_finish(V, n", finish, "); tile[at] = r0;",
                                     num_outputs == 2 ? " tile_places[at] = (Index)r1;" : "", " }"));
  text.define("TAKE(at, K)", c10::str("{", takes, " }"));
  text.define("WORKSPACE", c10::str("p", num_outputs + 1));
  text.line(facts.entry<ReductionEntry>().text);
  if (facts.number_of("VECTOR") != 0) {
    std::vector<WideOperand> operands;
    for (int n = 0; n <= num_outputs; ++n) {
      operands.push_back({n, facts.type_of("TYPE", n), n == num_outputs, n < num_outputs});
    }
    const int64_t vector = facts.number_of("VECTOR");
    define_wide(text, "p", operands, vector, facts.number_of("EACH") / vector);
  }
}
constexpr Skeleton kScan{"vectors scan", "scan", derive_scan};

tb_status scan(const tb_kernel_context& context, const ReductionEntry& entry, c10::ArrayRef<View> outputs,
               const View& input, int64_t dim, ValueType compute) {
  const std::string_view how = is_complex(input.type()) && entry.complex ? entry.complex : "";
  if (!how.empty() && !is_complex(outputs[0].type())) { // PyTorch converts them first
    return scan(context, entry, outputs, input.half(0), dim, compute);
  }
  if (is_complex(compute) && how.empty()) {
    return TB_STATUS_UNSUPPORTED;
  }
  if (how == "parts") {
    View to = outputs[0], from = input;
    if (from.dim() == 0) {
      to.add_dim(1, 1);
      from.add_dim(1, 1);
    }
    return scan(context, entry, to.in_halves(), from.in_halves(), dim, compute_type(part_type(compute)));
  }
  if (!how.empty() && how != entry.name) {
    return scan(context, reduction(how), outputs, input, dim, compute);
  }
  const int num_outputs = static_cast<int>(outputs.size());
  const int num_operands = num_outputs + 1;
  std::array<const View*, 3> operands{};
  for (int n = 0; n < num_operands; ++n) {
    operands[static_cast<std::size_t>(n)] = n < num_outputs ? &outputs[static_cast<std::size_t>(n)] : &input;
    if (operands[static_cast<std::size_t>(n)]->type() == ValueType::none) {
      return TB_STATUS_UNSUPPORTED;
    }
  }
  Part kept;
  std::array<int64_t, 3> strides{};
  int64_t count = 1;
  for (int64_t d = 0; d < input.dim(); ++d) {
    const auto at = static_cast<std::size_t>(d);
    if (d == dim) {
      count = input.sizes[at];
    } else {
      kept.sizes.push_back(input.sizes[at]);
    }
    for (int n = 0; n < num_operands; ++n) {
      const auto operand = static_cast<std::size_t>(n);
      if (d == dim) {
        strides[operand] = operands[operand]->strides[at];
      } else {
        kept.strides[operand].push_back(operands[operand]->strides[at]);
      }
    }
  }
  const std::array<int, 3> order{num_outputs, 0, 1}; // the input first
  if (!computes(context.device, compute) ||
      !kept.collapse(num_operands, {order.data(), static_cast<std::size_t>(num_operands)})) {
    return TB_STATUS_UNSUPPORTED;
  }
  bool fits_32 = true;
  for (int n = 0; n < num_operands; ++n) {
    const auto operand = static_cast<std::size_t>(n);
    fits_32 = fits_32 && kept.reach(n) + (count - 1) * std::llabs(strides[operand]) < Geometry::kLimit32;
  }
  const int64_t lines = kept.geometry.count;
  if (lines == 0 || count == 0) {
    return TB_STATUS_OK;
  }
  const bool neighbours_are_kept =
      std::llabs(kept.inner_stride(num_outputs)) < std::llabs(strides[static_cast<std::size_t>(num_outputs)]);
  const int64_t most = num_outputs == 2 ? 8 : std::max<int64_t>(64 / static_cast<int64_t>(size_of(compute)), 4);
  const auto division =
      divide(context.device, lines, count, neighbours_are_kept ? kept.inner_size() : 1, most, !is_complex(compute));
  const auto are_vectors = [&](int64_t elements) {
    bool are = count % elements == 0;
    for (int n = 0; n < num_operands && are; ++n) {
      const auto operand = static_cast<std::size_t>(n);
      const View& view = *operands[operand];
      are = strides[operand] == 1 &&
            is_of_vectors(view.data, size_of(view.type()), elements, kept.strides[operand], kept.sizes);
    }
    return are;
  };
  std::size_t least = kWideBytes;
  for (int n = 0; n < num_operands; ++n) {
    least = std::min(least, size_of(operands[static_cast<std::size_t>(n)]->type()));
  }
  int64_t vector = std::min<int64_t>(kWideBytes / static_cast<int64_t>(least), division.each);
  vector = vector > 1 && vector * static_cast<int64_t>(least) >= 4 && are_vectors(vector) ? vector : 0;
  const auto specialize = [&](bool totals) {
    Specialization wanted(kScan);
    wanted.entry(&entry)
        .called(entry.name)
        .compute_in(compute)
        .index_of(fits_32)
        .number("OUTPUTS", num_outputs)
        .number("INPUTS", 1)
        .number("KEPT", kept.geometry.rank_class())
        .flag("COLUMNS", division.columns)
        .number("GROUP", division.group)
        .number("EACH", division.each)
        .number("VECTOR", vector)
        .flag("PARTS", division.parts > 1)
        .flag("TOTALS", totals)
        .flag("IN_TURN", division.in_turn)
        .parameters(num_operands + (division.parts > 1 ? 1 : 0));
    for (int n = 0; n < num_operands; ++n) {
      wanted.type("TYPE", n, operands[static_cast<std::size_t>(n)]->type());
    }
    return wanted;
  };
  const int64_t units = lines * division.parts;
  const int64_t states = units + (division.in_turn ? lines * (division.parts / division.group) : 0);
  const int64_t turns = division.in_turn ? (states + 3) / 2 * 8 : 0; // bytes: of a count, and a word for each state
  ArgsStruct args;
  args.add({lines, count, division.parts, division.part_size, turns, turns + 8 * states});
  args.add_dims(kept.geometry);
  for (int n = 0; n < num_operands; ++n) {
    args.add(strides[static_cast<std::size_t>(n)]);
  }
  for (int i = 0; i < 4; ++i) {
    args.add(0);
  }
  void* workspace = nullptr;
  if (division.parts > 1) {
    const auto status = context.host->alloc_workspace(static_cast<uint64_t>(turns + states * 8 * 2), &workspace);
    if (status != TB_STATUS_OK) {
      return status;
    }
    fill_bytes(context, workspace, 0, turns);
  }
  for (const bool totals : {true, false}) {
    if (totals && (division.parts == 1 || division.in_turn)) {
      continue;
    }
    const auto& function = find_function(context.device, specialize(totals));
    Launch launch(context);
    for (int n = 0; n < num_operands; ++n) {
      launch.pointer(operands[static_cast<std::size_t>(n)]->data);
    }
    if (division.parts > 1) {
      launch.pointer(workspace);
    }
    args.pass(launch);
    if (division.group) {
      launch.run_blocks(function, units, division.group);
    } else if (runs_in_stretches(context.device)) {
      launch.run(function, division.columns ? lines / kept.inner_size() * ((kept.inner_size() + 63) / 64) : lines,
                 division.columns ? count * 64 : count * 2);
    } else {
      const uint32_t items = block_items(context.device);
      launch.run_blocks(function, (units + items - 1) / items, items);
    }
  }
  return TB_STATUS_OK;
}

int64_t dim_of(const tb_arg& argument, int64_t num_dims) {
  return argument.v.i < 0 ? argument.v.i + std::max<int64_t>(num_dims, 1) : argument.v.i;
}

template <class Op, int32_t kOut>
tb_status run_scan(const void* data, const tb_kernel_context& context, const tb_arg* args, int32_t) {
  View self, out;
  if (!view_of(args[Op::self], &self) || !view_of(args[kOut], &out) ||
      (out.type() == ValueType::b8 && self.type() != ValueType::b8)) {
    return TB_STATUS_UNSUPPORTED;
  }
  return scan(context, *static_cast<const ReductionEntry*>(data), out, self, dim_of(args[Op::dim], self.dim()),
              compute_type(out.type()));
}

tb_status run_extrema(const void* data, const tb_kernel_context& context, const tb_arg* args, int32_t) {
  using Op = op::_cummax_helper;
  static_assert(agree<Op, op::_cummin_helper>());
  View self, outputs[2];
  if (!view_of(args[Op::self], &self) || !view_of(args[Op::values], &outputs[0]) ||
      !view_of(args[Op::indices], &outputs[1])) {
    return TB_STATUS_UNSUPPORTED;
  }
  return scan(context, *static_cast<const ReductionEntry*>(data), outputs, self, dim_of(args[Op::dim], self.dim()),
              compute_type(self.type()));
}

} // namespace

void add(Kernels& kernels) {
  using Sum = op::cumsum_out;
  using Product = op::cumprod_out;
  using LogSumExp = op::_logcumsumexp;
  kernels.add(Sum::kName, run_scan<Sum, Sum::out>, 0, &reduction("cumsum"), kAllTypes);
  kernels.add(Product::kName, run_scan<Product, Product::out>, 0, &reduction("cumprod"), kAllTypes);
  kernels.add(LogSumExp::kName, run_scan<LogSumExp, LogSumExp::result>, 0, &reduction("logcumsumexp"));
  kernels.add(op::_cummax_helper::kName, run_extrema, 0, &reduction("cummax"));
  kernels.add(op::_cummin_helper::kName, run_extrema, 0, &reduction("cummin"));
}

} // namespace torch_backend::compiled::scans
