// A collective of the device's tensors, as whoever called it sees it: what both backends' works share.
#pragma once

#include <atomic>
#include <exception>
#include <mutex>
#include <optional>

#include <ATen/core/ivalue.h>
#include <c10/core/Device.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

namespace torch_backend {

/// Has a name, a number and one end: what comes first of success, failure and abort stays.
class DeviceWork : public c10d::Work {
 public:
  /// `what` names the collective in errors and outlives the work. `device` is that of its tensors.
  DeviceWork(int rank, int size, c10d::OpType type, const char* what, std::optional<c10::Device> device);

  /// The collective's number in its group, from 1 on; 0 for a send or receive.
  uint64_t getSequencenumber() const override {
    return sequence_number_;
  }
  /// Before anyone else has the work.
  void set_sequence_number(uint64_t number) {
    sequence_number_ = number;
  }
  /// Fails with "aborted" unless it is complete.
  void abort() override;
  /// End it with an error, described as that of this collective, unless it has ended. Whether it has ended by this.
  bool fail(const std::exception_ptr& cause);

  const char* what() const {
    return what_;
  }
  /// Has ended, well or not. Unlike isCompleted, asks no device.
  bool has_ended() const;

 protected:
  /// True once: for whoever may end it, or complete its future.
  bool end_once();
  bool complete_future_once() {
    return !future_completed_.exchange(true);
  }

  c10::intrusive_ptr<c10::ivalue::Future> future_; // its value is the tensors that are written

 private:
  const char* what_;
  int size_;
  mutable std::mutex end_mutex_; // guards ended_
  bool ended_ = false;
  std::atomic<bool> future_completed_{false};
  uint64_t sequence_number_ = 0;
};

} // namespace torch_backend
