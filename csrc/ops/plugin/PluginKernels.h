// The active plugin's table "kernels.1": its kernels by operator overload, and those that we write for it.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include "csrc/core/Limits.h"
#include "csrc/ops/dispatch/OperatorTable.h"
#include "torch_backend/device.h"

namespace torch_backend {

class Plugin;

/// A kernel of ours in the form of a plugin's: `entry` is what it was registered with. May throw.
using GeneratedFunction = tb_status (*)(const void* entry, const tb_kernel_context& context, const tb_arg* args,
                                        int32_t num_args);

/// Flags of kernels of ours beside TB_KERNEL_*. The output may be the first argument itself (same memory, shape and strides),
/// and then it need not be copied first.
constexpr uint32_t kUpdatesFirst = 1u << 30;
/// Tensors among the inputs, and those that are written in place, may be without elements, and then have no address.
constexpr uint32_t kTakesEmpty = 1u << 31;

/// One entry of the table. Lives until the process ends.
class PluginKernel {
 public:
  /// `kernel` has been checked and is read up to its struct_size.
  explicit PluginKernel(const tb_kernel& kernel);
  /// One of ours; `dtype_mask` is of static storage, and the device's own narrows it.
  PluginKernel(const char* op, GeneratedFunction function, const void* entry, uint32_t flags,
               const uint64_t* dtype_mask);

  /// As the plugin spells it: "aten::add.out".
  const std::string& op() const {
    return op_;
  }
  tb_kernel_function function() const {
    return function_;
  }
  /// NULL: the plugin's.
  GeneratedFunction generated() const {
    return generated_;
  }
  const void* entry() const {
    return entry_;
  }
  Source source() const {
    return generated_ ? Source::kGenerated : Source::kPlugin;
  }
  /// The kernel for the same operator that is asked if this one does not take a call; NULL if there is none.
  const PluginKernel* next() const {
    return next_.get();
  }
  void set_next(std::unique_ptr<const PluginKernel> next) {
    next_ = std::move(next);
  }
  bool needs_contiguous() const {
    return (flags_ & TB_KERNEL_NEEDS_CONTIGUOUS) != 0;
  }
  bool allocates_output() const {
    return (flags_ & TB_KERNEL_ALLOCATES_OUTPUT) != 0;
  }
  bool takes_mixed_dtypes() const {
    return (flags_ & TB_KERNEL_MIXED_DTYPES) != 0;
  }
  bool takes_numbers() const {
    return (flags_ & TB_KERNEL_NUMBERS) != 0;
  }
  bool takes_math_flags() const {
    return (flags_ & TB_KERNEL_MATH_FLAGS) != 0;
  }
  bool limits_inputs_only() const {
    return (flags_ & TB_KERNEL_INPUT_DTYPES) != 0;
  }

  /// Scalars that PyTorch converts to the dtype that it computes in, and of which it raises if they do not fit; a bit per
  /// argument.
  struct ConvertedNumbers {
    uint64_t all = 0;
    uint64_t floating = 0;                           // where that dtype is a floating one too
    uint64_t widened = 0;                            // of them, those that are converted to float32 beside halves
    uint64_t saturate_below = 0, saturate_above = 0; // of which it takes the nearest that fits
    bool wrap = true;                                // below 0 where the dtype is unsigned
  };
  const ConvertedNumbers& converted_numbers() const {
    return converted_numbers_;
  }

  bool updates_first() const {
    return (flags_ & kUpdatesFirst) != 0;
  }
  bool takes_empty() const {
    return (flags_ & kTakesEmpty) != 0;
  }

  /// A bit per c10::ScalarType: the kernel's own dtypes, or the device's if it names none. The first call for a device
  /// starts the driver.
  uint64_t accepted_dtypes(c10::DeviceIndex device) const {
    const uint64_t types = accepted_[static_cast<std::size_t>(device)].load(std::memory_order_relaxed);
    return C10_LIKELY(types != 0) ? types : read_accepted_dtypes(device);
  }
  bool accepts(c10::ScalarType type, c10::DeviceIndex device) const {
    return (accepted_dtypes(device) >> static_cast<unsigned>(type) & 1) != 0;
  }

 private:
  uint64_t read_accepted_dtypes(c10::DeviceIndex device) const;

  std::string op_;
  tb_kernel_function function_ = nullptr;
  GeneratedFunction generated_ = nullptr;
  const void* entry_ = nullptr;
  std::unique_ptr<const PluginKernel> next_;
  uint32_t flags_;
  ConvertedNumbers converted_numbers_;
  const uint64_t* dtype_mask_;
  mutable std::array<std::atomic<uint64_t>, kMaxDevices> accepted_{}; // 0: not known yet
};

/// Read and check the table of `plugin`, which is about to become active. Throws ValueError naming every malformed entry.
/// Once, from activate; nothing is registered yet.
void load_plugin_kernels(const Plugin& plugin);

/// The table as it was read: its slots, and zero where the plugin has none.
const tb_kernel_table& plugin_kernel_table();

/// Kernels of ours, after load_plugin_kernels: each serves its overload where the plugin has none, else it is the next of
/// the plugin's.
void add_kernels(std::vector<std::unique_ptr<PluginKernel>> kernels);

/// The overloads that add_kernels named.
std::vector<std::string> added_kernels();

/// The kernel offered for an overload ("aten::add.out", "aten::relu"); NULL if there is none. The plugin is asked once
/// per overload and the answer remembered. Throws ValueError if it answers with a malformed entry. Threads: any.
const PluginKernel* find_plugin_kernel(const std::string& overload);

/// The overloads that the table lists, in its order. What only its kernel_find knows is not among them.
std::vector<std::string> listed_plugin_kernels();

/// Whether the plugin answers for overloads that it does not list.
bool has_kernel_find();

} // namespace torch_backend
