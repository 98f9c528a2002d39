#include "csrc/ops/plugin/PluginKernels.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>
#include <torch/headeronly/version.h>

#include "csrc/core/AddressSpace.h"
#include "csrc/core/DType.h"
#include "csrc/core/InterpreterLock.h"
#include "csrc/core/Plugin.h"
#include "csrc/core/Runtime.h"
#include "csrc/core/TableCheck.h"
#include "csrc/core/Text.h"
#include "csrc/ops/dispatch/OperatorForms.h"
#include "slots.h"

namespace torch_backend {
namespace {

constexpr uint32_t kKnownFlags = TB_KERNEL_NEEDS_CONTIGUOUS | TB_KERNEL_ALLOCATES_OUTPUT | TB_KERNEL_MIXED_DTYPES |
                                 TB_KERNEL_NUMBERS | TB_KERNEL_MATH_FLAGS | TB_KERNEL_INPUT_DTYPES;
constexpr uint64_t kMaxKernels = 1 << 20;
constexpr std::size_t kEndOfMask = offsetof(tb_kernel, dtype_mask) + sizeof(tb_kernel::dtype_mask);

struct Kernels {
  std::mutex mutex;                                                           // guards by_overload
  std::unordered_map<std::string, std::unique_ptr<PluginKernel>> by_overload; // NULL: asked for, not offered
  std::vector<std::string> listed;
  std::vector<std::string> added; // by us
  tb_kernel_table table{};
  std::string plugin;
};

Kernels& kernels() {
  static auto* instance = new Kernels;
  return *instance;
}

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

/// Under the mutex. `memory` is read when it is needed.
const PluginKernel* find(Kernels& all, const std::string& overload, std::optional<AddressSpace>& memory) {
  const auto known = all.by_overload.find(overload);
  if (known != all.by_overload.end()) {
    return known->second.get();
  }
  const tb_kernel* kernel = all.table.kernel_find ? all.table.kernel_find(overload.c_str()) : nullptr;
  std::unique_ptr<PluginKernel> found;
  if (kernel) {
    if (!memory) {
      memory.emplace();
    }
    auto fault = fault_of(kernel, *memory);
    if (fault) {
      memory.emplace(); // a kernel may be made when it is asked for
      fault = fault_of(kernel, *memory);
    }
    if (!fault && overload != kernel->op) {
      fault = c10::str("is for '", kernel->op, "'");
    }
    TORCH_CHECK_VALUE(!fault, "kernel_find(\"", overload, "\") of plugin '", all.plugin, "' gave an entry that ",
                      *fault, ". See torch_backend/device.h.");
    found = std::make_unique<PluginKernel>(*kernel);
  }
  return all.by_overload.emplace(overload, std::move(found)).first->second.get();
}

// Since torch 2.15 a bound that lies outside of the dtype, and so holds for all its values, is as good as none.
#if TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR < 15
constexpr bool kBoundsSaturate = false;
#else
constexpr bool kBoundsSaturate = true;
#endif

/// Whether PyTorch converts the number `name` of the overload to a floating dtype too, and, beside halves, to float32.
std::pair<bool, bool> converts_to_floating(std::string_view overload, std::string_view name) {
  const auto is_of = [&](std::initializer_list<const char*> parts) {
    return std::any_of(parts.begin(), parts.end(),
                       [&](const char* part) { return overload.find(part) != overload.npos; });
  };
  const bool is_arithmetic = is_of({"_foreach_add", "_foreach_sub", "_foreach_mul", "_foreach_div"});
  const bool is_wide =
      is_of({"addcmul", "addcdiv", "addmm", "addbmm", "baddbmm", "lerp", "elu", "softplus", "_backward", "arange"}) ||
      name == "threshold";
  const bool is_order = name == "p" || name == "ord" || name == "maxnorm" || name == "correction";
  return {!is_order && (is_wide || !is_arithmetic), is_wide};
}

/// Of other numbers PyTorch makes tensors, whose values wrap: it calls them as it calls its tensors. What operators that are
/// not PyTorch's do with numbers is not known.
PluginKernel::ConvertedNumbers converted_numbers_of(const std::string& overload) {
  const auto op = overload.starts_with("aten::") ? find_overload(overload) : std::nullopt;
  const auto has = [&](const char* part) { return overload.find(part) != std::string::npos; };
  const bool is_bounded = kBoundsSaturate && (has("clamp") || has("hardtanh") || has("foreach"));
  PluginKernel::ConvertedNumbers found;
  found.wrap = !has("hardtanh");
  for (std::size_t i = 0; op && i < op->schema().arguments().size(); ++i) {
    const auto& argument = op->schema().arguments()[i];
    const auto& name = argument.name();
    const auto optional = argument.type()->cast<c10::OptionalType>();
    const auto& type = optional ? optional->getElementType() : argument.type();
    const bool is_tensor = name == "self" || name == "other" || name.find("element") != std::string::npos;
    if (type->kind() != c10::TypeKind::NumberType || is_tensor) {
      continue;
    }
    const uint64_t bit = uint64_t{1} << i;
    found.all |= bit;
    const auto [is_floating, is_wide] = converts_to_floating(overload, name);
    found.floating |= is_floating ? bit : 0;
    found.widened |= is_wide ? bit : 0;
    if (is_bounded && (name.starts_with("min") || (name == "scalar" && (has("_min") || has("maximum"))))) {
      found.saturate_below |= bit;
    }
    if (is_bounded && (name.starts_with("max") || (name == "scalar" && (has("_max") || has("minimum"))))) {
      found.saturate_above |= bit;
    }
  }
  return found;
}

} // namespace

PluginKernel::PluginKernel(const tb_kernel& kernel)
    : op_(kernel.op),
      function_(kernel.function),
      flags_(kernel.flags),
      converted_numbers_(converted_numbers_of(op_)),
      dtype_mask_(nullptr) {
  if (kernel.struct_size >= kEndOfMask) {
    dtype_mask_ = kernel.dtype_mask;
  }
}

PluginKernel::PluginKernel(const char* op, GeneratedFunction function, const void* entry, uint32_t flags,
                           const uint64_t* dtype_mask)
    : op_(op),
      generated_(function),
      entry_(entry),
      flags_(flags),
      converted_numbers_(converted_numbers_of(op_)),
      dtype_mask_(dtype_mask) {}

uint64_t PluginKernel::read_accepted_dtypes(c10::DeviceIndex device) const {
  const auto& stored = device_api().properties(device).dtype_mask;
  uint64_t mask[TB_DTYPE_MASK_WORDS];
  std::memcpy(mask, dtype_mask_ ? dtype_mask_ : stored, sizeof(mask));
  uint64_t types = scalar_types_in(mask);
  if (generated_) {
    types &= scalar_types_in(stored);
  }
  accepted_[static_cast<std::size_t>(device)].store(types, std::memory_order_relaxed);
  return types;
}

void load_plugin_kernels(const Plugin& plugin) {
  auto& all = kernels();
  const std::lock_guard<std::mutex> lock(all.mutex);
  all.by_overload.clear(); // of a plugin whose activation failed
  all.listed.clear();
  all.added.clear();
  all.table = {};
  all.plugin = plugin.name();
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
  std::unordered_map<std::string, std::unique_ptr<PluginKernel>> by_overload;
  std::vector<std::string> listed;
  for (std::size_t i = 0; i < table.num_kernels; ++i) {
    const tb_kernel* kernel = table.kernels[i];
    if (const auto fault = fault_of(kernel, memory)) {
      check.add(describe(kernel, i, memory) + " " + *fault);
    } else if (!by_overload.emplace(kernel->op, std::make_unique<PluginKernel>(*kernel)).second) {
      check.add(describe(kernel, i, memory) + " is listed twice");
    } else {
      listed.emplace_back(kernel->op);
    }
  }
  check.raise(c10::str("The table \"kernels.1\" of plugin '", plugin.name(), "'"));
  all.by_overload = std::move(by_overload);
  all.listed = std::move(listed);
  all.table = table;
  if (table.kernel_find) {
    std::optional<AddressSpace> memory;
    for (const auto& name : c10::Dispatcher::singleton().getAllOpNames()) {
      find(all, c10::toString(name), memory);
    }
  }
}

const tb_kernel_table& plugin_kernel_table() {
  return kernels().table;
}

void add_kernels(std::vector<std::unique_ptr<PluginKernel>> added) {
  auto& all = kernels();
  const std::lock_guard<std::mutex> lock(all.mutex);
  for (auto& kernel : added) {
    all.added.push_back(kernel->op());
    auto& place = all.by_overload[kernel->op()];
    if (place) {
      place->set_next(std::move(kernel));
    } else {
      place = std::move(kernel);
    }
  }
}

std::vector<std::string> added_kernels() {
  return kernels().added;
}

const PluginKernel* find_plugin_kernel(const std::string& overload) {
  auto& all = kernels();
  const WithoutInterpreterLock unlocked;
  const std::lock_guard<std::mutex> lock(all.mutex);
  std::optional<AddressSpace> memory;
  return find(all, overload, memory);
}

std::vector<std::string> listed_plugin_kernels() {
  return kernels().listed;
}

bool has_kernel_find() {
  return kernels().table.kernel_find != nullptr;
}

} // namespace torch_backend
