// A kernel for one operator overload, whoever wrote it, with the conventions by which it is called.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include "csrc/core/Limits.h"
#include "csrc/ops/dispatch/OperatorTable.h"
#include "torch_backend/device.h"

namespace torch_backend {

/// Beside TB_KERNEL_*, what only the core's own kernels may ask for.
enum KernelFlag : uint32_t {
  /// The output may be the first argument itself (same memory, shape and strides), and then it need not be copied first.
  kUpdatesFirst = 1u << 31,
  /// Tensors among the inputs, and those that are written in place, may be without elements, and then have no address.
  kTakesEmpty = 1u << 30,
  /// An output without elements is TB_ARG_NONE, unless kTakesEmpty.
  kLeavesOutEmptyOutputs = 1u << 29,
  /// Numbers of a uint64 come as its bits.
  kTakesUint64 = 1u << 28,
  /// TB_KERNEL_NUMBERS makes it a pointwise operator: not all are tagged.
  kIsPointwiseOfNumbers = 1u << 27,
  /// Lists of Scalar come as lists of float or int.
  kTakesNumberLists = 1u << 26,
  /// Not called where the host can compute in the device's memory.
  kLeavesHostMemory = 1u << 25,
};

/// Lives until the process ends.
class Kernel {
 public:
  virtual ~Kernel() = default;
  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;

  virtual Source source() const = 0;
  /// As device.h says of tb_kernel_function; may throw.
  virtual tb_status run(const tb_kernel_context& context, const tb_arg* args, int32_t num_args) const = 0;

  /// With its namespace: "aten::add.out".
  const std::string& op() const {
    return op_;
  }
  /// The kernel for the same operator that is asked if this one does not take a call; NULL if there is none.
  const Kernel* next() const {
    return next_.get();
  }
  void set_next(std::unique_ptr<const Kernel> next) {
    next_ = std::move(next);
  }
  /// TB_KERNEL_* or KernelFlag.
  bool has(uint32_t flag) const {
    return (flags_ & flag) != 0;
  }
  bool needs_contiguous() const {
    return has(TB_KERNEL_NEEDS_CONTIGUOUS);
  }
  bool allocates_output() const {
    return has(TB_KERNEL_ALLOCATES_OUTPUT);
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

  /// A bit per c10::ScalarType. The first call for a device starts the driver.
  uint64_t accepted_dtypes(c10::DeviceIndex device) const {
    const uint64_t types = accepted_[static_cast<std::size_t>(device)].load(std::memory_order_relaxed);
    return C10_LIKELY(types != 0) ? types : read_accepted_dtypes(device);
  }
  bool accepts(c10::ScalarType type, c10::DeviceIndex device) const {
    return (accepted_dtypes(device) >> static_cast<unsigned>(type) & 1) != 0;
  }

 protected:
  Kernel(std::string op, uint32_t flags);

  /// The dtypes that it takes on a device that has `device_types`, both a bit per c10::ScalarType.
  virtual uint64_t dtypes_on(uint64_t device_types) const = 0;

 private:
  uint64_t read_accepted_dtypes(c10::DeviceIndex device) const;

  std::string op_;
  uint32_t flags_;
  ConvertedNumbers converted_numbers_;
  std::unique_ptr<const Kernel> next_;
  mutable std::array<std::atomic<uint64_t>, kMaxDevices> accepted_{}; // 0: not known yet
};

} // namespace torch_backend
