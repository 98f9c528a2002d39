#include "csrc/ops/plugin/PluginKernels.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include "csrc/core/AddressSpace.h"
#include "csrc/core/DType.h"
#include "csrc/core/Plugin.h"
#include "csrc/core/Runtime.h"
#include "csrc/core/TableCheck.h"
#include "csrc/core/Text.h"
#include "csrc/ops/kernel/KernelTable.h"
#include "slots.h"

namespace torch_backend {
namespace {

constexpr uint32_t kKnownFlags = TB_KERNEL_NEEDS_CONTIGUOUS | TB_KERNEL_ALLOCATES_OUTPUT | TB_KERNEL_MIXED_DTYPES |
                                 TB_KERNEL_NUMBERS | TB_KERNEL_MATH_FLAGS | TB_KERNEL_INPUT_DTYPES;
constexpr uint64_t kMaxKernels = 1 << 20;
constexpr std::size_t kEndOfMask = offsetof(tb_kernel, dtype_mask) + sizeof(tb_kernel::dtype_mask);

tb_kernel_table& stored_table() {
  static tb_kernel_table table{};
  return table;
}

class PluginKernel final : public Kernel {
 public:
  /// `kernel` has been checked and is read up to its struct_size.
  explicit PluginKernel(const tb_kernel& kernel)
      : Kernel(kernel.op, kernel.flags),
        function_(kernel.function),
        dtype_mask_(kernel.struct_size >= kEndOfMask ? kernel.dtype_mask : nullptr) {}

  Source source() const override {
    return Source::kPlugin;
  }
  tb_status run(const tb_kernel_context& context, const tb_arg* args, int32_t num_args) const override {
    return device_api().call(context.device, op().c_str(), function_, &context, args, num_args);
  }

 private:
  uint64_t dtypes_on(uint64_t device_types) const override {
    if (!dtype_mask_) {
      return device_types;
    }
    uint64_t mask[TB_DTYPE_MASK_WORDS];
    std::memcpy(mask, dtype_mask_, sizeof(mask));
    return scalar_types_in(mask);
  }

  tb_kernel_function function_;
  const uint64_t* dtype_mask_; // the plugin's
};

/// What is wrong with an entry; nothing if it can be used.
std::optional<std::string> fault_of(const tb_kernel* kernel, const AddressSpace& memory) {
  constexpr std::size_t kRequired = offsetof(tb_kernel, flags) + sizeof(tb_kernel::flags);
  if (!kernel) {
    return "is NULL";
  }
  if (!memory.is_readable(kernel, sizeof(kernel->struct_size)) ||
      !memory.is_readable(kernel, std::min<std::size_t>(kernel->struct_size, sizeof(*kernel)))) {
    return c10::str("is at ", static_cast<const void*>(kernel), ", where there is no tb_kernel");
  }
  if (kernel->struct_size < kRequired) {
    return c10::str("has struct_size ", kernel->struct_size, ", too small; set struct_size = sizeof(tb_kernel)");
  }
  if (kernel->op && !memory.is_string(kernel->op)) {
    return c10::str("has an op at ", static_cast<const void*>(kernel->op), ", where there is no text");
  }
  if (!kernel->op || !std::strstr(kernel->op, "::")) {
    return c10::str("has the op '", kernel->op ? as_utf8(kernel->op, kMaxTextBytes) : "(null)",
                    "'; an op is an operator with its namespace and overload, as in \"aten::add.out\"");
  }
  if (!kernel->function) {
    return "has no function";
  }
  if (!memory.is_code(reinterpret_cast<const void*>(kernel->function))) {
    return c10::str("has a function at ", reinterpret_cast<const void*>(kernel->function), ", where there is no code");
  }
  if (kernel->flags & ~kKnownFlags) {
    return c10::str("has flags ", kernel->flags, ", of which ", kernel->flags & ~kKnownFlags,
                    " is no TB_KERNEL_ flag of device ABI ", TB_ABI_MAJOR, ".", TB_ABI_MINOR);
  }
  if (kernel->struct_size >= kEndOfMask && kernel->dtype_mask &&
      !memory.is_readable(kernel->dtype_mask, sizeof(uint64_t) * TB_DTYPE_MASK_WORDS)) {
    return c10::str("has a dtype_mask at ", static_cast<const void*>(kernel->dtype_mask), ", where there is no memory");
  }
  return std::nullopt;
}

std::string describe(const tb_kernel* kernel, std::size_t index, const AddressSpace& memory) {
  const bool named = kernel && memory.is_readable(kernel, offsetof(tb_kernel, function)) &&
                     kernel->struct_size >= offsetof(tb_kernel, function) && kernel->op && memory.is_string(kernel->op);
  return named ? c10::str("kernel ", index, " (", as_utf8(kernel->op, kMaxTextBytes), ")") : c10::str("kernel ", index);
}

/// What kernel_find has for an overload.
class AskPlugin {
 public:
  explicit AskPlugin(std::string plugin) : plugin_(std::move(plugin)) {}

  std::unique_ptr<Kernel> operator()(const std::string& overload) {
    const tb_kernel* kernel = stored_table().kernel_find(overload.c_str());
    if (!kernel) {
      return nullptr;
    }
    auto fault = fault_of(kernel, *memory_);
    if (fault) {
      memory_ = std::make_shared<AddressSpace>(); // a kernel may be made when it is asked for
      fault = fault_of(kernel, *memory_);
    }
    if (!fault && overload != kernel->op) {
      fault = c10::str("is for '", kernel->op, "'");
    }
    TORCH_CHECK_VALUE(!fault, "kernel_find(\"", overload, "\") of plugin '", plugin_, "' gave an entry that ", *fault,
                      ". See torch_backend/device.h.");
    return std::make_unique<PluginKernel>(*kernel);
  }

 private:
  std::string plugin_;
  std::shared_ptr<AddressSpace> memory_ = std::make_shared<AddressSpace>(); // as it was at a call before
};

} // namespace

void load_plugin_kernels(const Plugin& plugin) {
  stored_table() = {};
  set_kernels({}, nullptr); // of a plugin whose activation failed
  const auto* offered = static_cast<const tb_kernel_table*>(plugin.table("kernels.1"));
  if (!offered) {
    return;
  }
  TableCheck check;
  auto table = check.read<tb_kernel_table>(
      offered, offsetof(tb_kernel_table, num_kernels) + sizeof(tb_kernel_table::num_kernels));
  const auto& memory = check.memory();
  check.are_code({TB_KERNELS_SLOTS(TB_LIST_SLOT)});
  check.all_or_none({TB_SLOT(table, module_formats), TB_SLOT(table, module_load), TB_SLOT(table, module_unload),
                     TB_SLOT(table, module_function), TB_SLOT(table, module_launch)},
                    "module_formats, module_load, module_unload, module_function and module_launch belong together");
  if (!table.kernels && table.num_kernels > 0) {
    check.add(c10::str("num_kernels is ", table.num_kernels, " but kernels is NULL"));
    table.num_kernels = 0;
  }
  if (table.num_kernels > kMaxKernels ||
      (table.num_kernels > 0 && !memory.is_readable(table.kernels, table.num_kernels * sizeof(*table.kernels)))) {
    check.add(c10::str("num_kernels is ", table.num_kernels, ", and there are not so many at ",
                       static_cast<const void*>(table.kernels)));
    table.num_kernels = 0;
  }
  KernelList listed;
  std::unordered_set<std::string_view> names;
  for (std::size_t i = 0; i < table.num_kernels; ++i) {
    const tb_kernel* kernel = table.kernels[i];
    if (const auto fault = fault_of(kernel, memory)) {
      check.add(describe(kernel, i, memory) + " " + *fault);
    } else if (!names.insert(kernel->op).second) {
      check.add(describe(kernel, i, memory) + " is listed twice");
    } else {
      listed.push_back(std::make_unique<PluginKernel>(*kernel));
    }
  }
  check.raise(c10::str("The table \"kernels.1\" of plugin '", plugin.name(), "'"));
  stored_table() = table;
  set_kernels(std::move(listed), table.kernel_find ? KernelFinder(AskPlugin(plugin.name())) : nullptr);
}

const tb_kernel_table& plugin_kernel_table() {
  return stored_table();
}

} // namespace torch_backend
