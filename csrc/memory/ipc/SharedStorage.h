// Storages whose memory several processes use. See Note [Lending memory to other processes].
#pragma once

#include <cstddef>
#include <cstdint>

#include <c10/core/Storage.h>

#include "csrc/memory/ipc/LoanBook.h"
#include "torch_backend/device.h"

namespace torch_backend::ipc {

/// What a message says of a storage. The bytes are those that ipc_export gave for the segment it lies in.
struct StorageMessage {
  c10::DeviceIndex device = 0;
  tb_ipc_handle segment{};
  uint64_t offset = 0; // in the segment
  std::size_t size_bytes = 0;
  uint64_t address = 0; // in the process that lends
  LoanTicket loan;
};

/// Lend the storage's memory to whoever receives the message. Waits for the device, so that they see the values; what
/// is enqueued later is for both sides to order. Throws if the memory is not of the device's allocator: foreign memory,
/// and memory that was received, whose owner alone can lend it. Pre: it is on the device, and not empty.
StorageMessage lend(const c10::Storage& storage);

/// The memory that a message lends, as a storage that cannot be resized. It is given back, after a wait for the device,
/// when the storage goes. Throws if it is not there any more. In the process that lends it is the same memory.
c10::Storage borrow(const StorageMessage& message);

/// The message has arrived, and this process has the memory by an earlier one.
void acknowledge(const StorageMessage& message);

} // namespace torch_backend::ipc
