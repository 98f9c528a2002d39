#include "csrc/distributed/DeviceBackend.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include <c10/util/StringUtil.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "csrc/core/Capture.h"
#include "csrc/core/InterpreterLock.h"
#include "csrc/core/Runtime.h"
#include "csrc/distributed/Arguments.h"
#include "csrc/distributed/Reduction.h"
#include "csrc/distributed/StepTimer.h"
#include "csrc/distributed/WorkGroup.h"
#include "csrc/distributed/gloo/GlooCommunicator.h"

namespace torch_backend {
namespace {

using c10d::OpType;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;
using Tensors = std::vector<at::Tensor>;

/// Where values are reduced in place: `tensor` itself where its memory will do. Inputs that a reduction multiplies are
/// changed, and must be nobody else's.
at::Tensor private_copy(const at::Tensor& staged, const at::Tensor& original) {
  return staged.is_alias_of(original) ? staged.clone() : staged;
}

/// How many elements of a tensor each rank has, by rows; all as many if nothing is said.
std::vector<int64_t> counts_of(const char* what, const at::Tensor& tensor, const std::vector<int64_t>& rows, int size) {
  if (rows.empty()) {
    TORCH_CHECK_VALUE(tensor.dim() > 0 && tensor.size(0) % size == 0, what, ": a tensor with sizes ", tensor.sizes(),
                      " cannot be divided evenly among ", size, " ranks.");
    return std::vector<int64_t>(static_cast<std::size_t>(size), tensor.numel() / size);
  }
  TORCH_CHECK_VALUE(rows.size() == static_cast<std::size_t>(size), what, " takes a number of rows for each of ", size,
                    " ranks, got ", rows.size(), ".");
  const auto sum = std::accumulate(rows.begin(), rows.end(), int64_t{0});
  TORCH_CHECK_VALUE(tensor.dim() > 0 && sum == tensor.size(0), what, ": the ranks have ", sum,
                    " rows together, and the tensor has sizes ", tensor.sizes(), ".");
  const int64_t row = tensor.size(0) == 0 ? 0 : tensor.numel() / tensor.size(0);
  std::vector<int64_t> counts;
  for (const auto number : rows) {
    TORCH_CHECK_VALUE(number >= 0, what, " got ", number, " rows for a rank.");
    counts.push_back(number * row);
  }
  return counts;
}

/// The device whose current stream a barrier waits for.
c10::Device device_of(const c10d::BarrierOptions& options) {
  const auto index = options.device && options.device->has_index() ? options.device->index()
                     : options.device_ids.empty() ? current_device()
                                                  : static_cast<c10::DeviceIndex>(options.device_ids.front());
  return c10::Device(c10::DeviceType::PrivateUse1, resolve_device(index));
}

void check_rank(const char* what, int rank, int size) {
  TORCH_CHECK_VALUE(rank >= 0 && rank < size, what, ": there is no rank ", rank, " in a group of ", size, ".");
}

/// What a thread issues while it coalesces, per group.
struct Coalescing {
  const c10d::Backend* group = nullptr;
  std::vector<WorkPtr> works;
};
thread_local Coalescing coalescing;

} // namespace

DeviceBackend::DeviceBackend(std::string name, const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                             std::chrono::milliseconds timeout, MakeGloo make_gloo)
    : Backend(rank, size),
      name_(std::move(name)),
      options_(c10::make_intrusive<Options>(name_, timeout)),
      make_gloo_(std::move(make_gloo)),
      group_(
          std::make_shared<Group>(store, rank, size, make_gloo_ ? make_gloo_(store, rank, size, timeout) : nullptr)) {
  init();
  register_step_timer();
}

DeviceBackend::~DeviceBackend() {
  DeviceBackend::shutdown();
}

// ---- the group ----

void DeviceBackend::setTimeout(std::chrono::milliseconds timeout) {
  const WithoutInterpreterLock unlocked;
  group_->set_timeout(timeout);
  const std::lock_guard<std::mutex> lock(mutex_);
  options_->timeout = timeout;
}

std::chrono::milliseconds DeviceBackend::timeout() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return options_->timeout;
}

void DeviceBackend::eagerConnectSingleDevice(at::Device device) {
  group_->connect(resolve_device(device.index()), timeout());
}

c10d::ErrorType DeviceBackend::getError() {
  return group_->has_failed() ? c10d::ErrorType::COMM_ERROR : c10d::ErrorType::SUCCESS;
}

void DeviceBackend::abort() {
  const WithoutInterpreterLock unlocked;
  group_->abort();
}

void DeviceBackend::shutdown() {
  const WithoutInterpreterLock unlocked;
  group_->close();
}

uint64_t DeviceBackend::getSequenceNumberForGroup() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return num_collectives_;
}

c10::intrusive_ptr<c10d::Backend> DeviceBackend::split(const c10::intrusive_ptr<c10d::Store>& store,
                                                       const std::vector<int>& ranks,
                                                       const c10::intrusive_ptr<c10d::Backend::Options>& options) {
  const auto place = std::find(ranks.begin(), ranks.end(), rank_);
  if (place == ranks.end()) {
    return nullptr;
  }
  // The store is that of all parts.
  const auto own = c10::make_intrusive<c10d::PrefixStore>(
      c10::str(options ? options->group_name : "", "/", c10::Join(",", ranks), "/"), store);
  auto part = c10::make_intrusive<DeviceBackend>(name_, own, static_cast<int>(place - ranks.begin()),
                                                 static_cast<int>(ranks.size()), options ? options->timeout : timeout(),
                                                 make_gloo_);
  if (options) {
    part->options_->group_name = options->group_name;
  }
  for (const int rank : ranks) {
    const auto index = static_cast<std::size_t>(rank);
    const auto& global = options_->global_ranks_in_group;
    part->options_->global_ranks_in_group.push_back(index < global.size() ? global[index]
                                                                          : static_cast<uint64_t>(rank));
  }
  return part;
}

void DeviceBackend::startCoalescing() {
  TORCH_CHECK(!coalescing.group, "Coalescing was started already in this thread.");
  coalescing.group = this;
}

WorkPtr DeviceBackend::endCoalescing() {
  TORCH_CHECK(coalescing.group == this, "Coalescing was not started for this group in this thread.");
  coalescing.group = nullptr;
  return c10::make_intrusive<WorkGroup>(rank_, std::exchange(coalescing.works, {}));
}

// ---- how a collective runs ----

std::chrono::milliseconds DeviceBackend::limit(std::chrono::milliseconds asked) const {
  return asked == c10d::kUnsetTimeout ? timeout() : asked;
}

c10::Device DeviceBackend::checked_device(const Call& call) const {
  std::optional<c10::Device> device;
  for (const auto* tensors : {&call.reads, &call.writes}) {
    for (const auto& tensor : *tensors) {
      check_tensor(call.what, tensor, device);
    }
  }
  TORCH_CHECK_VALUE(device, call.what, " needs a tensor.");
  return *device;
}

c10::intrusive_ptr<DeviceWork> DeviceBackend::make_work(Call& call, c10::Device device) {
  device_api().check_usable(device.index(), call.what);
  graph::refuse_in_capture(current_stream(device.index()), call.what);
  auto all = std::move(call.reads);
  all.insert(all.end(), call.writes.begin(), call.writes.end());
  return c10::make_intrusive<DeviceWork>(rank_, size_, call.type, call.what, device, std::move(all),
                                         std::move(call.writes), call.timeout,
                                         group_->is_over_gloo() && gloo::uses_device_memory());
}

WorkPtr DeviceBackend::started(const c10::intrusive_ptr<DeviceWork>& work) {
  if (coalescing.group == this) {
    coalescing.works.push_back(work);
  }
  return work;
}

WorkPtr DeviceBackend::run(Call call, Body body, std::optional<c10::Device> device) {
  const auto on = device ? *device : checked_device(call);
  auto work = make_work(call, on);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    work->set_sequence_number(++num_collectives_);
  }
  group_->start(work, on.index(), timeout(), std::move(body));
  return started(work);
}

WorkPtr DeviceBackend::run_peer(Call call, int peer, int tag) {
  const auto device = checked_device(call);
  if (peer != kAnyRank) {
    check_rank(call.what, peer, size_);
  }
  TORCH_CHECK_VALUE(peer != rank_, call.what, ": rank ", peer, " is this rank; a rank does not send to itself.");
  const bool sends = call.writes.empty();
  const auto tensor = sends ? call.reads.front() : call.writes.front();
  auto work = make_work(call, device);
  group_->start_peer(work, tensor, timeout(), peer, tag, sends);
  return started(work);
}

// ---- collectives ----

WorkPtr DeviceBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  constexpr auto kWhat = "broadcast";
  const auto tensor = only(kWhat, tensors);
  const int root = static_cast<int>(options.rootRank);
  check_rank(kWhat, root, size_);
  const bool is_root = root == rank_;
  return run({OpType::BROADCAST, kWhat, {}, {tensor}, limit(options.timeout)},
             [tensor, root, is_root](Collectives& collectives, Staging& staging) {
               collectives.broadcast(is_root ? staging.read(tensor) : staging.write(tensor), root);
             });
}

WorkPtr DeviceBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  constexpr auto kWhat = "all_reduce";
  only(kWhat, tensors);
  c10d::AllreduceCoalescedOptions one;
  one.reduceOp = options.reduceOp;
  one.timeout = options.timeout;
  return reduce_all(OpType::ALLREDUCE, kWhat, tensors, one);
}

WorkPtr DeviceBackend::allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) {
  constexpr auto kWhat = "all_reduce_coalesced";
  check_same_dtype(kWhat, tensors, first(kWhat, tensors));
  return reduce_all(OpType::ALLREDUCE_COALESCED, kWhat, tensors, options);
}

WorkPtr DeviceBackend::reduce_all(OpType type, const char* what, const Tensors& tensors,
                                  const c10d::AllreduceCoalescedOptions& options) {
  const Reduction reduction(what, options.reduceOp, tensors.front().scalar_type(), size_);
  return run({type, what, {}, tensors, limit(options.timeout)},
             [tensors, reduction](Collectives& collectives, Staging& staging) {
               for (const auto& tensor : tensors) {
                 const auto values = staging.update(tensor);
                 collectives.all_reduce(as_reduced(values), reduction);
               }
             });
}

WorkPtr DeviceBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  constexpr auto kWhat = "reduce";
  const auto tensor = only(kWhat, tensors);
  const Reduction reduction(kWhat, options.reduceOp, tensor.scalar_type(), size_);
  const int root = static_cast<int>(options.rootRank);
  check_rank(kWhat, root, size_);
  const bool is_root = root == rank_;
  return run({OpType::REDUCE, kWhat, {}, {tensor}, limit(options.timeout)},
             [tensor, reduction, root, is_root](Collectives& collectives, Staging& staging) {
               auto values = is_root ? staging.update(tensor) : staging.read(tensor);
               if (!is_root && reduction.multiplies()) {
                 values = private_copy(values, tensor);
               }
               collectives.reduce(as_reduced(values), reduction, root);
             });
}

WorkPtr DeviceBackend::allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                                 const c10d::AllgatherOptions& options) {
  constexpr auto kWhat = "all_gather";
  const auto input = only(kWhat, inputs);
  const auto& list = only_list(kWhat, outputs);
  check_parts(kWhat, list, input, size_);
  return run({OpType::ALLGATHER, kWhat, {input}, list, limit(options.timeout)},
             [input, list](Collectives& collectives, Staging& staging) {
               collectives.all_gather(staging.read(input), staging.write_joined(list));
             });
}

WorkPtr DeviceBackend::_allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) {
  constexpr auto kWhat = "all_gather_into_tensor";
  check_same_dtype(kWhat, {output}, input);
  check_numel(kWhat, output, input, size_);
  return run({OpType::_ALLGATHER_BASE, kWhat, {input}, {output}, limit(options.timeout)},
             [input, output](Collectives& collectives, Staging& staging) {
               collectives.all_gather(staging.read(input), staging.write(output));
             });
}

WorkPtr DeviceBackend::allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                                           const c10d::AllgatherOptions& options) {
  constexpr auto kWhat = "all_gather_coalesced";
  // outputs[rank][i] is that rank's inputs[i].
  TORCH_CHECK_VALUE(outputs.size() == static_cast<std::size_t>(size_), kWhat, " takes a list for each of ", size_,
                    " ranks, got ", outputs.size(), ".");
  std::vector<Tensors> by_input(inputs.size());
  for (const auto& list : outputs) {
    check_as_many(kWhat, list, inputs);
    for (std::size_t i = 0; i < list.size(); ++i) {
      check_same_dtype(kWhat, {list[i]}, inputs[i]);
      check_numel(kWhat, list[i], inputs[i], 1);
      by_input[i].push_back(list[i]);
    }
  }
  return run({OpType::ALLGATHER_COALESCED, kWhat, inputs, flatten(outputs), limit(options.timeout)},
             [inputs, by_input](Collectives& collectives, Staging& staging) {
               for (std::size_t i = 0; i < inputs.size(); ++i) {
                 collectives.all_gather(staging.read(inputs[i]), staging.write_joined(by_input[i]));
               }
             });
}

WorkPtr DeviceBackend::gather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& options) {
  constexpr auto kWhat = "gather";
  const auto input = only(kWhat, inputs);
  const int root = static_cast<int>(options.rootRank);
  check_rank(kWhat, root, size_);
  const auto list = root == rank_ ? only_list(kWhat, outputs) : Tensors{};
  if (root == rank_) {
    check_parts(kWhat, list, input, size_);
  }
  return run({OpType::GATHER, kWhat, {input}, list, limit(options.timeout)},
             [input, list, root](Collectives& collectives, Staging& staging) {
               collectives.gather(staging.read(input), staging.write(list), root);
             });
}

WorkPtr DeviceBackend::scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ScatterOptions& options) {
  constexpr auto kWhat = "scatter";
  const auto output = only(kWhat, outputs);
  const int root = static_cast<int>(options.rootRank);
  check_rank(kWhat, root, size_);
  const auto list = root == rank_ ? only_list(kWhat, inputs) : Tensors{};
  if (root == rank_) {
    check_parts(kWhat, list, output, size_);
  }
  return run({OpType::SCATTER, kWhat, list, {output}, limit(options.timeout)},
             [list, output, root](Collectives& collectives, Staging& staging) {
               collectives.scatter(staging.read(list), staging.write(output), root);
             });
}

WorkPtr DeviceBackend::scatter_reduced(OpType type, const char* what, const at::Tensor& output, const Tensors& inputs,
                                       const c10d::ReduceScatterOptions& options) {
  const Reduction reduction(what, options.reduceOp, output.scalar_type(), size_);
  return run({type, what, inputs, {output}, limit(options.timeout)},
             [output, inputs, reduction](Collectives& collectives, Staging& staging) {
               auto values = staging.read_joined(inputs);
               if (reduction.multiplies()) {
                 values = private_copy(values, inputs.front());
               }
               collectives.reduce_scatter(as_reduced(values), as_reduced(staging.write(output)), reduction);
             });
}

WorkPtr DeviceBackend::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                      const c10d::ReduceScatterOptions& options) {
  constexpr auto kWhat = "reduce_scatter";
  const auto& output = only(kWhat, outputs);
  const auto& list = only_list(kWhat, inputs);
  check_parts(kWhat, list, output, size_);
  return scatter_reduced(OpType::REDUCE_SCATTER, kWhat, output, list, options);
}

WorkPtr DeviceBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                            const c10d::ReduceScatterOptions& options) {
  constexpr auto kWhat = "reduce_scatter_tensor";
  check_same_dtype(kWhat, {input}, output);
  check_numel(kWhat, input, output, size_);
  return scatter_reduced(OpType::_REDUCE_SCATTER_BASE, kWhat, output, {input}, options);
}

WorkPtr DeviceBackend::alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                                     std::vector<int64_t>& input_splits, const c10d::AllToAllOptions& options) {
  constexpr auto kWhat = "all_to_all_single";
  check_same_dtype(kWhat, {output}, input);
  const auto sent = counts_of(kWhat, input, input_splits, size_);
  const auto received = counts_of(kWhat, output, output_splits, size_);
  return run({OpType::ALLTOALL_BASE, kWhat, {input}, {output}, limit(options.timeout)},
             [input, output, sent, received](Collectives& collectives, Staging& staging) {
               collectives.all_to_all(staging.read(input), sent, staging.write(output), received);
             });
}

WorkPtr DeviceBackend::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) {
  constexpr auto kWhat = "all_to_all";
  check_one_per_rank(kWhat, inputs, size_);
  check_one_per_rank(kWhat, outputs, size_);
  check_same_dtype(kWhat, inputs, inputs.front());
  check_same_dtype(kWhat, outputs, inputs.front());
  // From where the tensors lie: a slot would want them joined.
  return run({OpType::ALLTOALL, kWhat, inputs, outputs, limit(options.timeout)},
             [inputs, outputs](Collectives& collectives, Staging& staging) {
               collectives.exchange(staging.read(inputs), staging.write(outputs));
             });
}

WorkPtr DeviceBackend::send(Tensors& tensors, int rank, int tag) {
  return run_peer({OpType::SEND, "send", {only("send", tensors)}, {}, timeout()}, rank, tag);
}

WorkPtr DeviceBackend::recv(Tensors& tensors, int rank, int tag) {
  return run_peer({OpType::RECV, "recv", {}, {only("recv", tensors)}, timeout()}, rank, tag);
}

WorkPtr DeviceBackend::recvAnysource(Tensors& tensors, int tag) {
  constexpr auto kWhat = "recv from any rank";
  TORCH_CHECK_NOT_IMPLEMENTED(group_->is_over_gloo(), kWhat, ": the collective library of ", device_api().name(),
                              " receives from a rank that is named, as NCCL does. Name the source.");
  return run_peer({OpType::RECVANYSOURCE, kWhat, {}, {only(kWhat, tensors)}, timeout()}, kAnyRank, tag);
}

WorkPtr DeviceBackend::barrier(const c10d::BarrierOptions& options) {
  const auto device = device_of(options);
  return run(
      {OpType::BARRIER, "barrier", {}, {}, limit(options.timeout)},
      [device](Collectives& collectives, Staging&) { collectives.barrier(at::TensorOptions(device)); }, device);
}

void DeviceBackend::monitoredBarrier(const c10d::BarrierOptions& options, bool /*wait_all_ranks*/) {
  const WithoutInterpreterLock unlocked;
  synchronize_device(device_of(options).index());
  group_->rendezvous_on_store(limit(options.timeout));
}

// ---- collectives that are several others ----

WorkPtr DeviceBackend::allgather_into_tensor_coalesced(std::vector<at::Tensor>& outputs,
                                                       std::vector<at::Tensor>& inputs,
                                                       const c10d::AllgatherOptions& options) {
  check_as_many("all_gather_into_tensor_coalesced", outputs, inputs);
  std::vector<WorkPtr> works;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    works.push_back(_allgather_base(outputs[i], inputs[i], options));
  }
  return c10::make_intrusive<WorkGroup>(rank_, std::move(works));
}

WorkPtr DeviceBackend::reduce_scatter_tensor_coalesced(std::vector<at::Tensor>& outputs,
                                                       std::vector<at::Tensor>& inputs,
                                                       const c10d::ReduceScatterOptions& options) {
  check_as_many("reduce_scatter_tensor_coalesced", outputs, inputs);
  std::vector<WorkPtr> works;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    works.push_back(_reduce_scatter_base(outputs[i], inputs[i], options));
  }
  return c10::make_intrusive<WorkGroup>(rank_, std::move(works));
}

} // namespace torch_backend
