#include "csrc/distributed/host/HostTensors.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/view_as_real.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>

#include "csrc/core/Runtime.h"
#include "csrc/core/allocator/DeviceAllocator.h"
#include "csrc/distributed/Arguments.h"
#include "csrc/distributed/Reduction.h"
#include "csrc/ops/native/Copy.h"
#include "csrc/ops/tensor/Alias.h"

namespace torch_backend {
namespace {

bool host_uses_device_memory() {
  auto& api = device_api();
  return api.host_access() && api.host_coherent();
}

/// A dtype of the same size that every transport moves; values are not looked at.
c10::ScalarType moved_as(c10::ScalarType type) {
  switch (c10::elementSize(type)) {
    case 1:
      return c10::kByte;
    case 2:
      return c10::kHalf;
    case 4:
      return c10::kInt;
    default:
      return c10::kLong;
  }
}

/// The dtype in which the transport reduces `type`, or `type` if it does not.
c10::ScalarType reduced_as(c10::ScalarType type) {
  return type == c10::kShort ? c10::kInt : computed_as(type);
}

bool is_reduced(c10::ScalarType type) {
  switch (type) {
    case c10::kFloat:
    case c10::kDouble:
    case c10::kHalf:
    case c10::kBFloat16:
    case c10::kChar:
    case c10::kByte:
    case c10::kInt:
    case c10::kLong:
      return true;
    default:
      return false;
  }
}

/// What `stand_in` makes of each value, which is of the same type.
template <typename T, typename StandIn>
std::vector<T> for_each_of(const std::vector<T>& values, const StandIn& stand_in) {
  std::vector<T> stand_ins;
  stand_ins.reserve(values.size());
  for (const auto& value : values) {
    stand_ins.push_back(stand_in(value));
  }
  return stand_ins;
}

} // namespace

at::Tensor HostTensors::add(const at::Tensor& tensor, bool reads, bool writes, bool keep_apart) {
  check_tensor(what_, tensor, device_);
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  device_api().check_usable(tensor.device().index(), what_);
  Entry entry{tensor, {}, {}, reads, writes};
  const auto on_host = at::TensorOptions(c10::kCPU).dtype(tensor.scalar_type());
  const bool zero_copy = host_uses_device_memory();
  entry.host = zero_copy ? make_cpu_alias(tensor) : at::empty(tensor.sizes(), on_host.pinned_memory(true));
  entry.stand_in = entry.host;
  const auto type = tensor.scalar_type();
  const auto wider = use_ == Use::kReduce ? reduced_as(type) : type;
  const bool resolved = !entry.host.is_conj() && !entry.host.is_neg();
  if (wider != type || !entry.host.is_contiguous() || !resolved || (keep_apart && zero_copy)) {
    entry.stand_in = at::empty(tensor.sizes(), on_host.dtype(wider));
  }
  entries_.push_back(entry);
  if (writes) {
    written_.push_back(tensor);
  }
  if (c10::isComplexType(wider)) {
    return at::view_as_real(entry.stand_in);
  }
  if (wider == c10::kBool) {
    return entry.stand_in.view(c10::kByte);
  }
  if (!is_reduced(wider)) {
    TORCH_CHECK_TYPE(use_ == Use::kMove, what_, " cannot reduce tensors of dtype ", type,
                     " on the host. Convert them to another dtype first.");
    return entry.stand_in.view(moved_as(wider));
  }
  return entry.stand_in;
}

at::Tensor HostTensors::read(const at::Tensor& tensor) {
  return add(tensor, true, false);
}

at::Tensor HostTensors::write(const at::Tensor& tensor) {
  return add(tensor, false, true);
}

at::Tensor HostTensors::update(const at::Tensor& tensor) {
  return add(tensor, true, true);
}

at::Tensor HostTensors::read_private(const at::Tensor& tensor) {
  return add(tensor, true, false, /*keep_apart=*/true);
}

std::vector<at::Tensor> HostTensors::read(const std::vector<at::Tensor>& tensors) {
  return for_each_of(tensors, [this](const at::Tensor& tensor) { return read(tensor); });
}

std::vector<at::Tensor> HostTensors::write(const std::vector<at::Tensor>& tensors) {
  return for_each_of(tensors, [this](const at::Tensor& tensor) { return write(tensor); });
}

std::vector<at::Tensor> HostTensors::update(const std::vector<at::Tensor>& tensors) {
  return for_each_of(tensors, [this](const at::Tensor& tensor) { return update(tensor); });
}

std::vector<std::vector<at::Tensor>> HostTensors::read(const std::vector<std::vector<at::Tensor>>& lists) {
  return for_each_of(lists, [this](const std::vector<at::Tensor>& list) { return read(list); });
}

std::vector<std::vector<at::Tensor>> HostTensors::write(const std::vector<std::vector<at::Tensor>>& lists) {
  return for_each_of(lists, [this](const std::vector<at::Tensor>& list) { return write(list); });
}

bool HostTensors::is_zero_copy() const {
  return host_uses_device_memory();
}

const Stream& HostTensors::transfer_stream() {
  if (!transfer_stream_) {
    transfer_stream_ = stream_from_pool(/*priority=*/0, device_->index());
  }
  return *transfer_stream_;
}

void HostTensors::copy(bool to_host) {
  for (const auto& entry : entries_) {
    if (entry.device.numel() == 0 || !(to_host ? entry.reads : entry.writes)) {
      continue;
    }
    if (to_host) {
      copy_tensor(entry.host, entry.device, /*non_blocking=*/true);
    } else {
      copy_tensor(entry.device, entry.host, /*non_blocking=*/true);
      device_allocator().recordStream(entry.device.storage().data_ptr(), transfer_stream());
    }
  }
}

void HostTensors::take() {
  auto& api = device_api();
  if (!device_ || (!api.async() && is_zero_copy())) {
    return;
  }
  const c10::DeviceGuard device(*device_);
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  if (!api.async()) {
    copy(/*to_host=*/true);
    return;
  }
  Event ready(/*enable_timing=*/false);
  ready.record(current_stream(device_->index()));
  if (is_zero_copy()) {
    taken_ = std::move(ready);
    return;
  }
  ready.block(transfer_stream());
  const c10::StreamGuard stream(transfer_stream());
  copy(/*to_host=*/true);
  taken_.emplace(/*enable_timing=*/false);
  taken_->record(transfer_stream());
}

void HostTensors::await() {
  if (taken_) {
    taken_->synchronize();
    taken_.reset();
  }
}

void HostTensors::prepare() {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  for (const auto& entry : entries_) {
    if (entry.reads && !entry.stand_in.is_same(entry.host)) {
      entry.stand_in.copy_(entry.host);
    }
  }
  if (before_) {
    before_();
  }
}

void HostTensors::deliver() {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  if (after_) {
    after_();
  }
  for (const auto& entry : entries_) {
    if (entry.writes && !entry.stand_in.is_same(entry.host)) {
      entry.host.copy_(entry.stand_in);
    }
  }
  if (device_ && !is_zero_copy()) {
    copy(/*to_host=*/false);
  }
}

} // namespace torch_backend
