#include "csrc/distributed/ccl/CclCommunicator.h"

#include <optional>

#include <c10/util/Exception.h>
#include <c10/util/Logging.h>

#include "csrc/core/DType.h"
#include "csrc/core/Runtime.h"
#include "csrc/core/Status.h"
#include "csrc/distributed/Failure.h"

namespace torch_backend::ccl {
namespace {

using c10d::ReduceOp;

constexpr tb_dtype kByte = {TB_DTYPE_UINT, 8, 1};

uint64_t numel_of(const at::Tensor& tensor) {
  return static_cast<uint64_t>(tensor.numel());
}

void* data(const at::Tensor& tensor) {
  return tensor.data_ptr();
}

std::vector<uint64_t> times(const std::vector<int64_t>& counts, uint64_t factor) {
  std::vector<uint64_t> result;
  for (const auto count : counts) {
    result.push_back(static_cast<uint64_t>(count) * factor);
  }
  return result;
}

std::vector<uint64_t> offsets_of(const std::vector<uint64_t>& counts) {
  std::vector<uint64_t> offsets;
  uint64_t offset = 0;
  for (const auto count : counts) {
    offsets.push_back(offset);
    offset += count;
  }
  return offsets;
}

std::optional<int32_t> slot_reduction(ReduceOp::RedOpType op) {
  switch (op) {
    case ReduceOp::SUM:
      return TB_REDUCE_SUM;
    case ReduceOp::AVG:
      return TB_REDUCE_AVERAGE;
    case ReduceOp::PRODUCT:
      return TB_REDUCE_PRODUCT;
    case ReduceOp::MIN:
      return TB_REDUCE_MIN;
    case ReduceOp::MAX:
      return TB_REDUCE_MAX;
    default:
      return std::nullopt;
  }
}

} // namespace

const tb_ccl_table* table() {
  auto* plugin = active_plugin();
  return plugin && plugin->tables().ccl ? &*plugin->tables().ccl : nullptr;
}

std::vector<uint8_t> create_unique_id() {
  const auto* slots = table();
  std::vector<uint8_t> id(slots->unique_id_bytes);
  const tb_status status = slots->unique_id_create(id.data());
  if (status != TB_STATUS_OK) {
    throw_status(status, device_api().name(), "unique_id_create", -1);
  }
  return id;
}

CclCommunicator::CclCommunicator(Stream stream, int rank, int size, const std::vector<uint8_t>& unique_id,
                                 std::shared_ptr<CallCounts> counts)
    : Communicator(rank, size, std::move(counts)), stream_(stream) {
  const auto* slots = table();
  TORCH_CHECK(unique_id.size() == slots->unique_id_bytes, "Rank 0 has made a unique id of ", unique_id.size(),
              " bytes, and the device library of rank ", rank, " has ids of ", slots->unique_id_bytes,
              " bytes: the ranks use different device libraries.");
  const auto device = stream.device_index();
  auto& api = device_api();
  api.check_call(device, "comm_create", slots->comm_create, device, size, rank, unique_id.data(), &comm_);
  api.check_given(comm_, "comm_create", "*out_comm", device);
  count("comm_create");
}

CclCommunicator::~CclCommunicator() {
  if (comm_) {
    device_api().clean_up(stream_.device_index(), "comm_destroy", table()->comm_destroy, comm_);
  }
}

template <typename Slot, typename... Arguments>
bool CclCommunicator::call(const char* name, Slot slot, Arguments... arguments) {
  if (!slot) {
    return false;
  }
  const auto device = stream_.device_index();
  const tb_status status = device_api().call(device, name, slot, arguments...);
  if (status == TB_STATUS_UNSUPPORTED) {
    take_error_text();
    return false;
  }
  if (status != TB_STATUS_OK) {
    throw_status(status, device_api().name(), name, device);
  }
  count(name);
  return true;
}

template <typename Call>
bool CclCommunicator::move(const at::Tensor& tensor, Call call) {
  const auto dtype = to_tb_dtype(tensor.scalar_type());
  return (dtype && call(*dtype, uint64_t{1})) || call(kByte, static_cast<uint64_t>(tensor.element_size()));
}

void CclCommunicator::send(const at::Tensor& tensor, int peer, int /*tag*/) {
  const bool sent = move(tensor, [&](tb_dtype dtype, uint64_t factor) {
    return call("send", table()->send, data(tensor), numel_of(tensor) * factor, dtype, peer, comm_, stream_.handle());
  });
  TORCH_CHECK_NOT_IMPLEMENTED(sent, device_api().name(), " sends neither ", tensor.scalar_type(), " nor bytes.");
}

int CclCommunicator::recv(const at::Tensor& tensor, int peer, int /*tag*/) {
  const bool received = move(tensor, [&](tb_dtype dtype, uint64_t factor) {
    return call("recv", table()->recv, data(tensor), numel_of(tensor) * factor, dtype, peer, comm_, stream_.handle());
  });
  TORCH_CHECK_NOT_IMPLEMENTED(received, device_api().name(), " receives neither ", tensor.scalar_type(), " nor bytes.");
  return peer;
}

bool CclCommunicator::broadcast(const at::Tensor& tensor, int root) {
  return move(tensor, [&](tb_dtype dtype, uint64_t factor) {
    return call("broadcast", table()->broadcast, data(tensor), data(tensor), numel_of(tensor) * factor, dtype, root,
                comm_, stream_.handle());
  });
}

bool CclCommunicator::all_gather(const at::Tensor& in, const at::Tensor& out) {
  return move(in, [&](tb_dtype dtype, uint64_t factor) {
    return call("all_gather", table()->all_gather, data(in), data(out), numel_of(in) * factor, dtype, comm_,
                stream_.handle());
  });
}

template <typename Call>
bool CclCommunicator::reduce_with(const at::Tensor& tensor, ReduceOp::RedOpType op, Call call) {
  const auto dtype = to_tb_dtype(tensor.scalar_type());
  const auto reduction = slot_reduction(op);
  return dtype && reduction && call(*dtype, *reduction);
}

bool CclCommunicator::all_reduce(const at::Tensor& tensor, ReduceOp::RedOpType op) {
  return reduce_with(tensor, op, [&](tb_dtype dtype, int32_t reduction) {
    return call("all_reduce", table()->all_reduce, data(tensor), data(tensor), numel_of(tensor), dtype, reduction,
                comm_, stream_.handle());
  });
}

bool CclCommunicator::reduce(const at::Tensor& tensor, ReduceOp::RedOpType op, int root) {
  return reduce_with(tensor, op, [&](tb_dtype dtype, int32_t reduction) {
    return call("reduce", table()->reduce, data(tensor), data(tensor), numel_of(tensor), dtype, reduction, root, comm_,
                stream_.handle());
  });
}

bool CclCommunicator::reduce_scatter(const at::Tensor& in, const at::Tensor& out, ReduceOp::RedOpType op) {
  return reduce_with(in, op, [&](tb_dtype dtype, int32_t reduction) {
    return call("reduce_scatter", table()->reduce_scatter, data(in), data(out), numel_of(out), dtype, reduction, comm_,
                stream_.handle());
  });
}

bool CclCommunicator::all_to_all(const at::Tensor& in, const std::vector<int64_t>& in_counts, const at::Tensor& out,
                                 const std::vector<int64_t>& out_counts) {
  return move(in, [&](tb_dtype dtype, uint64_t factor) {
    const auto sent = times(in_counts, factor);
    const auto received = times(out_counts, factor);
    return call("all_to_all", table()->all_to_all, data(in), sent.data(), offsets_of(sent).data(), data(out),
                received.data(), offsets_of(received).data(), dtype, comm_, stream_.handle());
  });
}

bool CclCommunicator::group_begin() {
  return call("group_begin", table()->group_begin);
}

void CclCommunicator::group_end() {
  call("group_end", table()->group_end);
}

bool CclCommunicator::abort() noexcept {
  if (!table()->comm_abort) {
    return false;
  }
  try {
    device_api().check_call(stream_.device_index(), "comm_abort", table()->comm_abort, comm_);
    return true;
  } catch (...) {
    LOG(WARNING) << text_of(std::current_exception());
    return false;
  }
}

std::exception_ptr CclCommunicator::error() noexcept {
  const auto device = stream_.device_index();
  if (!table()->comm_query_error || device_api().is_lost(device)) {
    return nullptr;
  }
  try {
    const tb_status status = device_api().call(device, "comm_query_error", table()->comm_query_error, comm_);
    if (status == TB_STATUS_OK || status == TB_STATUS_UNSUPPORTED || status == TB_STATUS_NOT_READY) {
      take_error_text();
      return nullptr;
    }
    throw_status(status, device_api().name(), "comm_query_error", device);
  } catch (...) {
    return std::current_exception();
  }
}

} // namespace torch_backend::ccl
