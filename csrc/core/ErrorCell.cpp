#include "csrc/core/ErrorCell.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <string_view>
#include <vector>

#include <c10/util/Exception.h>

#include "csrc/core/Capture.h"
#include "csrc/core/FailedWait.h"
#include "csrc/core/Runtime.h"

namespace torch_backend {
namespace {

struct DeviceErrors {
  std::atomic<bool> any_outstanding{false};
  std::atomic<bool> any_captured{false};
  std::mutex mutex;                    // guards what follows
  std::vector<tb_stream*> outstanding; // streams with launches that nobody has waited for
  void* cell = nullptr;
  bool is_cleared = false; // the cell has been, since it was allocated
};

DeviceErrors& errors_of(int device) {
  static auto* all = new std::array<DeviceErrors, kMaxDevices>;
  return (*all)[static_cast<std::size_t>(device)];
}

struct Operators {
  std::mutex mutex; // guards names
  std::vector<const char*> names;
};

Operators& operators() {
  static auto* all = new Operators;
  return *all;
}

/// `claimed` last: what the next kernel to win it writes must not be cleared.
void clear(int device, void* cell, tb_stream* stream) {
  auto& api = device_api();
  const uint8_t zero = 0;
  constexpr std::size_t kClaimed = sizeof(ErrorCell::claimed);
  api.memory_fill(device, static_cast<char*>(cell) + kClaimed, &zero, 1, sizeof(ErrorCell) - kClaimed, stream);
  api.memory_fill(device, cell, &zero, 1, kClaimed, stream);
  api.stream_synchronize(device, stream);
}

void add_outstanding(DeviceErrors& errors, tb_stream* stream) {
  const std::lock_guard<std::mutex> lock(errors.mutex);
  if (std::find(errors.outstanding.begin(), errors.outstanding.end(), stream) == errors.outstanding.end()) {
    errors.outstanding.push_back(stream);
  }
  errors.any_outstanding.store(true, std::memory_order_release);
}

/// Of the operators that check indices, these raise RuntimeError on the CPU.
bool raises_index_error(std::string_view op) {
  return op.find("gather") == op.npos && op.find("scatter") == op.npos;
}

void read(int device, void* cell, tb_stream* stream) {
  auto& api = device_api();
  ErrorCell found{};
  try {
    read_memory(api, device, &found, cell, sizeof found, stream);
    if (found.code != 0) { // a kernel of another stream may be writing it: what came before the code is there now
      read_memory(api, device, &found, cell, sizeof found, stream);
    }
  } catch (...) {
    add_outstanding(errors_of(device), stream); // who waits next looks again
    throw;
  }
  if (found.code == 0) {
    return;
  }
  clear(device, cell, stream);
  const char* name = "an operator";
  {
    auto& all = operators();
    const std::lock_guard<std::mutex> lock(all.mutex);
    if (found.op >= 0 && static_cast<std::size_t>(found.op) < all.names.size()) {
      name = all.names[static_cast<std::size_t>(found.op)];
    }
  }
  const std::string late = api.async() ? " It ran on the device after the call had returned" : "";
  TORCH_CHECK(found.code != ErrorCell::kInvalidValue, name, " on device ", api.name(), ":", device, ".", late,
              late.empty() ? "" : ".");
  const auto when = late.empty() ? late : late + "; elements that the index names were neither read nor written.";
  TORCH_CHECK(found.code == ErrorCell::kIndexOutOfRange, name, ": element ", found.index,
              " of a source is wanted, which has ", found.size, ".", when);
  const auto text = c10::str(name, ": index ", found.index, " is out of range for a dimension of size ", found.size,
                             " on device ", api.name(), ":", device, ".", when);
  TORCH_CHECK_INDEX(!raises_index_error(name), text);
  TORCH_CHECK(false, text);
}

} // namespace

void* error_cell(int device) {
  auto& errors = errors_of(device);
  const std::lock_guard<std::mutex> lock(errors.mutex);
  if (!errors.cell) {
    auto& api = device_api();
    void* cell = nullptr;
    const auto status = api.memory_allocate(device, TB_MEMORY_DEVICE, sizeof(ErrorCell), nullptr, &cell);
    TORCH_CHECK_WITH(OutOfMemoryError, status == TB_STATUS_OK, api.name(), ": no memory for the device's error cell.");
    errors.cell = cell;
  }
  if (!errors.is_cleared) {
    clear(device, errors.cell, nullptr);
    errors.is_cleared = true;
  }
  return errors.cell;
}

int64_t fallible_operator(const char* op) {
  auto& all = operators();
  const std::lock_guard<std::mutex> lock(all.mutex);
  const auto found = std::find(all.names.begin(), all.names.end(), op);
  if (found != all.names.end()) {
    return found - all.names.begin();
  }
  all.names.push_back(op);
  return static_cast<int64_t>(all.names.size()) - 1;
}

void fallible_launch(int device, tb_stream* stream) {
  auto& errors = errors_of(device);
  if (!device_api().async()) {
    read(device, error_cell(device), nullptr);
  } else if (graph::any_capture() && graph::detail::find(device, stream)) {
    errors.any_captured.store(true, std::memory_order_release);
  } else {
    add_outstanding(errors, stream);
  }
}

void fallible_replay(int device, tb_stream* stream) {
  auto& errors = errors_of(device);
  if (errors.any_captured.load(std::memory_order_acquire)) {
    add_outstanding(errors, stream);
  }
}

void raise_device_error(int device, tb_stream* const* waited_for) {
  if (static_cast<unsigned>(device) >= static_cast<unsigned>(kMaxDevices)) {
    return; // a wait has been refused for that reason
  }
  auto& errors = errors_of(device);
  if (__builtin_expect(!errors.any_outstanding.load(std::memory_order_acquire), 1)) {
    return;
  }
  void* cell = nullptr;
  {
    const std::lock_guard<std::mutex> lock(errors.mutex);
    auto& streams = errors.outstanding;
    const auto end = waited_for ? std::remove(streams.begin(), streams.end(), *waited_for) : streams.begin();
    cell = end != streams.end() ? errors.cell : nullptr;
    streams.erase(end, streams.end());
    errors.any_outstanding.store(!streams.empty(), std::memory_order_release);
  }
  if (cell) {
    read(device, cell, waited_for ? *waited_for : nullptr);
  }
}

} // namespace torch_backend
