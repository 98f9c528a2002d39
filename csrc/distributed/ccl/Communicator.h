// A communicator of the device library.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "csrc/core/Stream.h"
#include "csrc/distributed/ccl/SlotCalls.h"
#include "torch_backend/device.h"

namespace torch_backend::ccl {

/// What rank 0 makes and the others need.
std::vector<uint8_t> create_unique_id();

/// Owns a tb_comm. Tensors are contiguous and of its device; calls enqueue on the stream it was made with.
///
/// Functions that return bool answer false, with nothing done, where the slot is unset or UNSUPPORTED; what a library
/// only moves goes as bytes where it does not know the dtype. Other failures throw what throw_status does.
///
/// Threads: one at a time, except abort and error.
class Communicator {
 public:
  /// Returns when all ranks have come.
  Communicator(Stream stream, int size, int rank, const std::vector<uint8_t>& unique_id,
               std::shared_ptr<SlotCalls> calls);
  /// What was enqueued must be complete, or aborted. Failures are logged.
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const {
    return rank_;
  }
  int size() const {
    return size_;
  }

  void send(const at::Tensor& tensor, int peer);
  void recv(const at::Tensor& tensor, int peer);
  bool broadcast(const at::Tensor& tensor, int root);
  bool all_gather(const at::Tensor& in, const at::Tensor& out);
  bool all_reduce(const at::Tensor& tensor, int32_t reduction);
  bool reduce(const at::Tensor& tensor, int32_t reduction, int root);
  bool reduce_scatter(const at::Tensor& in, const at::Tensor& out, int32_t reduction);
  /// Parts lie one after the other, with counts[rank] elements each.
  bool all_to_all(const at::Tensor& in, const std::vector<int64_t>& in_counts, const at::Tensor& out,
                  const std::vector<int64_t>& out_counts);

  /// Sends and receives within one run together, where the library groups calls; elsewhere each is a call of its own.
  class Group {
   public:
    explicit Group(Communicator& comm);
    /// Without end(): an error is on its way, and the group ends whatever it answers.
    ~Group();
    Group(const Group&) = delete;
    Group& operator=(const Group&) = delete;
    void end();

   private:
    Communicator& comm_;
    bool open_ = false;
  };

  /// False if the library cannot. What is pending fails. Any thread, also while calls are being made.
  bool abort() noexcept;
  /// What the library says of it, NULL while it is well.
  std::exception_ptr error() noexcept;

 private:
  template <typename Slot, typename... Arguments>
  bool call(const char* name, Slot slot, Arguments... arguments);
  template <typename Call>
  bool move(const at::Tensor& tensor, Call call);

  const Stream stream_;
  const int size_;
  const int rank_;
  const std::shared_ptr<SlotCalls> calls_;
  tb_comm* comm_ = nullptr;
};

} // namespace torch_backend::ccl
