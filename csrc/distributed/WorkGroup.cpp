#include "csrc/distributed/WorkGroup.h"

#include <algorithm>
#include <utility>

#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>

namespace torch_backend {

WorkGroup::WorkGroup(int rank, std::vector<c10::intrusive_ptr<c10d::Work>> parts)
    : Work(rank, c10d::OpType::COALESCED), parts_(std::move(parts)) {}

bool WorkGroup::isCompleted() {
  return std::all_of(parts_.begin(), parts_.end(), [](const auto& part) { return part->isCompleted(); });
}

bool WorkGroup::isSuccess() const {
  return std::all_of(parts_.begin(), parts_.end(), [](const auto& part) { return part->isSuccess(); });
}

std::exception_ptr WorkGroup::exception() const {
  for (const auto& part : parts_) {
    if (const auto error = part->exception()) {
      return error;
    }
  }
  return nullptr;
}

std::vector<at::Tensor> WorkGroup::result() {
  std::vector<at::Tensor> all;
  for (const auto& part : parts_) {
    const auto some = part->result();
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

void WorkGroup::synchronize() {
  for (const auto& part : parts_) {
    part->synchronize();
  }
}

bool WorkGroup::wait(std::chrono::milliseconds timeout) {
  for (const auto& part : parts_) {
    part->wait(timeout);
  }
  return true;
}

void WorkGroup::blockCurrentStream() {
  for (const auto& part : parts_) {
    part->blockCurrentStream();
  }
}

void WorkGroup::abort() {
  for (const auto& part : parts_) {
    part->abort();
  }
}

c10::intrusive_ptr<c10::ivalue::Future> WorkGroup::getFuture() {
  c10::List<c10::intrusive_ptr<c10::ivalue::Future>> futures(
      c10::FutureType::create(c10::ListType::create(c10::TensorType::get())));
  for (const auto& part : parts_) {
    futures.push_back(part->getFuture());
  }
  return c10::collectAll(futures);
}

} // namespace torch_backend
