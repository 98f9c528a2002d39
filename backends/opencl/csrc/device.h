// The devices, opened by initialize, and what they are.
//
// Each has a context of its own, so that memory and failures of one are none of another's. Nothing here is ever destroyed:
// at process exit work may be pending, and drivers end before us.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "cl.h"
#include "find.h"
#include "result.h"

namespace ocl {

class queue;

struct device {
  device(int32_t index, const found_device& found) : index(index), found(found) {}

  const int32_t index;
  const found_device found;
  // Constant once initialize has opened the device.
  cl_context context = nullptr;
  bool svm = false;                   // memory is shared virtual memory, and addresses are pointers; else buffers
  cl_command_queue service = nullptr; // for calls that wait, which so do not wait for the user's work
  tb_device_properties properties{};

  std::atomic<uint64_t> allocated_bytes{0};
  std::mutex mutex; // guards all below
  std::shared_ptr<queue> default_queue;
  std::vector<std::weak_ptr<queue>> queues; // device_synchronize waits for them
};

// Pre: initialize has succeeded, and the index is below device_count.
device& device_at(int32_t index);

} // namespace ocl
