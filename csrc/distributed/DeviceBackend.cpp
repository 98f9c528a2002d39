#include "csrc/distributed/DeviceBackend.h"

#include <algorithm>
#include <utility>

#include <c10/util/StringUtil.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "csrc/core/Runtime.h"
#include "csrc/distributed/Arguments.h"
#include "csrc/distributed/StepTimer.h"
#include "csrc/distributed/WorkGroup.h"

namespace torch_backend {
namespace {

using WorkPtr = c10::intrusive_ptr<c10d::Work>;

/// What a thread issues while it coalesces, per group.
struct Coalescing {
  const c10d::Backend* group = nullptr;
  std::vector<WorkPtr> works;
};
thread_local Coalescing coalescing;

} // namespace

DeviceBackend::DeviceBackend(std::string name, int rank, int size, std::chrono::milliseconds timeout)
    : Backend(rank, size), name_(std::move(name)), options_(c10::make_intrusive<Options>(name_, timeout)) {
  init();
  register_step_timer();
}

void DeviceBackend::setTimeout(std::chrono::milliseconds timeout) {
  const std::lock_guard<std::mutex> lock(mutex_);
  options_->timeout = timeout;
}

std::chrono::milliseconds DeviceBackend::timeout() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return options_->timeout;
}

// ---- what runs ----

void DeviceBackend::remember(const c10::intrusive_ptr<DeviceWork>& work) {
  const std::lock_guard<std::mutex> lock(mutex_);
  TORCH_CHECK(!aborted_, work->what(), ": the process group '", name_, "' was aborted and does no more work. ",
              "Destroy it and make a new one.");
  running_.erase(std::remove_if(running_.begin(), running_.end(), [](const auto& weak) { return weak.expired(); }),
                 running_.end());
  running_.emplace_back(work);
}

WorkPtr DeviceBackend::started(const c10::intrusive_ptr<DeviceWork>& work) {
  if (coalescing.group == this) {
    coalescing.works.push_back(work);
  }
  return work;
}

std::vector<c10::intrusive_ptr<DeviceWork>> DeviceBackend::running() {
  std::vector<c10::intrusive_ptr<DeviceWork>> works;
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& weak : running_) {
    if (auto work = weak.lock()) {
      works.push_back(std::move(work));
    }
  }
  return works;
}

c10d::ErrorType DeviceBackend::getError() {
  for (const auto& work : running()) {
    if (work->isCompleted() && !work->isSuccess()) {
      const std::lock_guard<std::mutex> lock(mutex_);
      failed_ = true;
    }
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  return failed_ ? c10d::ErrorType::COMM_ERROR : c10d::ErrorType::SUCCESS;
}

void DeviceBackend::refuse_more() {
  const std::lock_guard<std::mutex> lock(mutex_);
  aborted_ = true;
}

void DeviceBackend::abort() {
  refuse_more();
  for (const auto& work : running()) {
    work->abort();
  }
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

// ---- the group ----

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
  auto part = make_part(own, static_cast<int>(place - ranks.begin()), static_cast<int>(ranks.size()),
                        options ? options->timeout : timeout());
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

uint64_t DeviceBackend::getSequenceNumberForGroup() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return num_collectives_;
}

uint64_t DeviceBackend::next_sequence_number() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return ++num_collectives_;
}

c10::Device DeviceBackend::device_of(const c10d::BarrierOptions& options) {
  const auto index = options.device && options.device->has_index() ? options.device->index()
                     : options.device_ids.empty() ? current_device()
                                                  : static_cast<c10::DeviceIndex>(options.device_ids.front());
  return c10::Device(c10::DeviceType::PrivateUse1, resolve_device(index));
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
