// Errors that kernels of ours find on the device: where they write them, and when the host looks.
#pragma once

#include <cstdint>

#include "torch_backend/device.h"

namespace torch_backend {

/// What tb_report of codegen/kernels/preludes writes: 32 bytes of device memory. `claimed` is won by compare-exchange, so
/// that the first error stays until the host has read it; `code` is written last.
struct ErrorCell {
  int32_t claimed;
  int32_t code;  // one of those below, or 0
  int64_t op;    // what fallible_operator returned
  int64_t index; // as the user passed it
  int64_t size;

  static constexpr int32_t kIndexOutOfRange = 1;
  static constexpr int32_t kTooFewElements = 2; // index: the element that is wanted; size: how many there are
  static constexpr int32_t kInvalidValue = 3;   // `op` says of what, and what it must be
};

/// The device's cell, allocated and zeroed the first time; lives as long as the process. Throws if there is no memory.
void* error_cell(int device);

/// A number for `op`, which must be of static storage, as launches pass it to their kernel.
int64_t fallible_operator(const char* op);

/// A kernel that may write the cell was enqueued on `stream`: the next wait for it reads the cell. A synchronous device's
/// cell is read here. Of a stream that captures, the replays are what may fail. Throws what raise_device_error does.
void fallible_launch(int device, tb_stream* stream);

/// A graph was launched on `stream`. Nothing unless kernels that may fail were ever captured on the device.
void fallible_replay(int device, tb_stream* stream);

/// The host has waited for `stream`, or, NULL as `waited_for`, for all of them. Reads the cell if a launch that may fail was
/// outstanding; clears the cell and throws IndexError or RuntimeError, as the CPU would, naming the operator, if one has
/// failed. Else it costs one load.
void raise_device_error(int device, tb_stream* const* waited_for);

} // namespace torch_backend
