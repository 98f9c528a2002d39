// A communicator of the device library, over its table "ccl.1".
#pragma once

#include <memory>
#include <vector>

#include "csrc/core/Stream.h"
#include "csrc/distributed/Communicator.h"
#include "torch_backend/device.h"

namespace torch_backend::ccl {

/// The active plugin's table, with NULL for every optional slot that it does not have; NULL if it offers none.
const tb_ccl_table* table();

/// What rank 0 makes and the others need.
std::vector<uint8_t> create_unique_id();

/// Owns a tb_comm. Enqueues on the stream it was made with. What a library only moves goes as bytes where it does not know
/// the dtype; tags are not looked at. Failures throw what throw_status does.
class CclCommunicator final : public Communicator {
 public:
  /// Returns when all ranks have come.
  CclCommunicator(Stream stream, int rank, int size, const std::vector<uint8_t>& unique_id,
                  std::shared_ptr<CallCounts> counts);
  /// What was enqueued must be complete, or aborted. Failures are logged.
  ~CclCommunicator() override;

  void send(const at::Tensor& tensor, int peer, int tag) override;
  int recv(const at::Tensor& tensor, int peer, int tag) override;
  bool broadcast(const at::Tensor& tensor, int root) override;
  bool all_gather(const at::Tensor& in, const at::Tensor& out) override;
  bool all_reduce(const at::Tensor& tensor, c10d::ReduceOp::RedOpType op) override;
  bool reduce(const at::Tensor& tensor, c10d::ReduceOp::RedOpType op, int root) override;
  bool reduce_scatter(const at::Tensor& in, const at::Tensor& out, c10d::ReduceOp::RedOpType op) override;
  bool all_to_all(const at::Tensor& in, const std::vector<int64_t>& in_counts, const at::Tensor& out,
                  const std::vector<int64_t>& out_counts) override;
  bool group_begin() override;
  void group_end() override;
  bool abort() noexcept override;
  std::exception_ptr error() noexcept override;

 private:
  template <typename Slot, typename... Arguments>
  bool call(const char* name, Slot slot, Arguments... arguments);
  template <typename Call>
  bool move(const at::Tensor& tensor, Call call);
  template <typename Call>
  bool reduce_with(const at::Tensor& tensor, c10d::ReduceOp::RedOpType op, Call call);

  const Stream stream_;
  tb_comm* comm_ = nullptr;
};

} // namespace torch_backend::ccl
