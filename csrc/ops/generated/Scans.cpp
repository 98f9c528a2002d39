// Sums, products and extrema so far, along one dimension.

#include <algorithm>
#include <string>

#include <c10/util/StringUtil.h>

#include "csrc/ops/generated/Families.h"
#include "csrc/ops/generated/Modules.h"
#include "csrc/ops/generated/Part.h"
#include "csrc/ops/generated/Reduce.h"

namespace torch_backend::generated {
namespace {

tb_status scan(const tb_kernel_context& context, const ReductionEntry& entry, c10::ArrayRef<View> outputs,
               const View& input, int64_t dim, ValueType compute) {
  const int num_outputs = static_cast<int>(outputs.size());
  const int num_operands = num_outputs + 1;
  std::array<View, 3> operands;
  for (int n = 0; n < num_operands; ++n) {
    operands[static_cast<std::size_t>(n)] = n < num_outputs ? outputs[static_cast<std::size_t>(n)] : input;
    if (operands[static_cast<std::size_t>(n)].type() == ValueType::none) {
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
        strides[operand] = operands[operand].strides[at];
      } else {
        kept.strides[operand].push_back(operands[operand].strides[at]);
      }
    }
  }
  const std::array<int, 3> order{num_outputs, 0, 1}; // the input first
  if (!computes(context.device, compute) ||
      !kept.collapse(num_operands, {order.data(), static_cast<std::size_t>(num_operands)})) {
    return TB_STATUS_UNSUPPORTED;
  }
  bool fits_32 = true;
  KernelKey key{&entry};
  for (int n = 0; n < num_operands; ++n) {
    const auto operand = static_cast<std::size_t>(n);
    fits_32 = fits_32 && kept.reach(n) + (count - 1) * std::llabs(strides[operand]) < Geometry::kLimit32;
    key.words[0] = key.words[0] << 4 | static_cast<uint64_t>(operands[operand].type());
  }
  const int64_t lines = kept.geometry.count;
  const bool columns =
      runs_in_stretches(context.device) && kept.inner_size() >= 8 &&
      std::llabs(kept.inner_stride(num_outputs)) < std::llabs(strides[static_cast<std::size_t>(num_outputs)]);
  key.words[1] = static_cast<uint64_t>(compute) << 8 | static_cast<uint64_t>(kept.geometry.rank_class()) << 4 |
                 static_cast<uint64_t>(fits_32) << 1 | static_cast<uint64_t>(columns);
  const auto& function = find_function(context.device, key, "scan", "scan", [&](SourceText& text) {
    text.compute_in(compute);
    text.index_of(fits_32);
    define_limits(text, compute, fits_32);
    text.define("OUTPUTS", num_outputs);
    text.define("INPUTS", 1);
    text.define("KEPT", kept.geometry.rank_class());
    if (columns) {
      text.define("COLUMNS", 1);
    }
    std::string finish, stores;
    for (int n = 0; n < num_outputs; ++n) {
      finish += c10::str(", &r", n);
      stores += c10::str(" TB_STORE_", name_of(operands[static_cast<std::size_t>(n)].type()), "(p", n, ", K(", n,
                         "), r", n, ");");
    }
    text.define("VALUES(K)",
                c10::str("(T)TB_LOAD_", name_of(input.type()), "(p", num_outputs, ", K(", num_outputs, "))"));
    text.define("NUMBERS", "");
    text.define("STORE(V, K)", c10::str("{ FINISHED tb_finish(V, n", finish, ");", stores, " }"));
    text.line(entry.text);
    text.parameters(num_operands);
  });
  ArgsStruct args;
  args.add(lines);
  args.add(count);
  args.add_dims(kept.geometry);
  for (int n = 0; n < num_operands; ++n) {
    args.add(strides[static_cast<std::size_t>(n)]);
  }
  for (int i = 0; i < 4; ++i) {
    args.add(0);
  }
  Launch launch(context);
  for (int n = 0; n < num_operands; ++n) {
    launch.pointer(operands[static_cast<std::size_t>(n)].data);
  }
  args.pass(launch);
  launch.run(function, columns ? lines / kept.inner_size() * ((kept.inner_size() + 63) / 64) : lines,
             columns ? count * 64 : count * 2);
  return TB_STATUS_OK;
}

int64_t dim_of(const tb_arg& argument, int64_t num_dims) {
  return argument.v.i < 0 ? argument.v.i + std::max<int64_t>(num_dims, 1) : argument.v.i;
}

/// (self, dim, dtype or nothing, out)
tb_status run_scan(const void* data, const tb_kernel_context& context, const tb_arg* args, int32_t num_args) {
  View self, out;
  if (!view_of(args[0], &self) || !view_of(args[num_args - 1], &out) ||
      (out.type() == ValueType::b8 && self.type() != ValueType::b8)) {
    return TB_STATUS_UNSUPPORTED;
  }
  return scan(context, reduction(static_cast<const char*>(data)), out, self, dim_of(args[1], self.dim()),
              compute_type(out.type()));
}

/// (self, values, indices, dim)
tb_status run_extrema(const void* data, const tb_kernel_context& context, const tb_arg* args, int32_t) {
  View self, outputs[2];
  if (!view_of(args[0], &self) || !view_of(args[1], &outputs[0]) || !view_of(args[2], &outputs[1])) {
    return TB_STATUS_UNSUPPORTED;
  }
  return scan(context, reduction(static_cast<const char*>(data)), outputs, self, dim_of(args[3], self.dim()),
              compute_type(self.type()));
}

} // namespace

void add_scans(Kernels& kernels) {
  kernels.add("aten::cumsum.out", run_scan, 0, "cumsum");
  kernels.add("aten::cumprod.out", run_scan, 0, "cumprod");
  kernels.add("aten::_logcumsumexp", run_scan, 0, "logcumsumexp");
  kernels.add("aten::_cummax_helper", run_extrema, 0, "cummax");
  kernels.add("aten::_cummin_helper", run_extrema, 0, "cummin");
}

} // namespace torch_backend::generated
