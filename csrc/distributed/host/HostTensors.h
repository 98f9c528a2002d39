// CPU tensors that take the places of a device's tensors in a collective that runs on the host.
#pragma once

#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include "csrc/core/Event.h"
#include "csrc/core/Stream.h"

namespace torch_backend {

/// Note [Collectives on the host]
/// Where the host can use the device's memory at any time, a stand-in is an alias and nothing is copied. Elsewhere it is
/// page-locked memory, filled and emptied on a stream of its own. On an asynchronous device a collective goes through:
///   take      in the caller's thread: stand-ins are made, and copies to the host enqueued after the caller's work
///   await     in the group's thread: until the device has come that far
///   prepare   in the group's thread, on the host: conversions that the transport needs
///   (the transport, in threads of its own)
///   deliver   in a thread of the transport: conversions back, copies to the device are enqueued
/// A synchronous device does the first steps in the caller's thread, one after the other.
///
/// Holds the device tensors, and so their memory, until it is destroyed. One thread at a time.
class HostTensors {
 public:
  /// What a stand-in is for.
  enum class Use {
    kMove,  // values are moved as they are: every dtype goes, under another name where the transport does not know it
    kReduce // values are computed with: dtypes that the transport does not reduce become wider ones
  };

  /// `what` names the collective in errors; `device` is that of the first tensor.
  HostTensors(const char* what, Use use) : what_(what), use_(use) {}
  HostTensors(const HostTensors&) = delete;
  HostTensors& operator=(const HostTensors&) = delete;

  /// A contiguous stand-in for a tensor that is read, written, or both. Throws ValueError for a tensor that is not dense
  /// or of another device than the first one, TypeError for a dtype that cannot be reduced.
  at::Tensor read(const at::Tensor& tensor);
  at::Tensor write(const at::Tensor& tensor);
  at::Tensor update(const at::Tensor& tensor);
  std::vector<at::Tensor> read(const std::vector<at::Tensor>& tensors);
  std::vector<at::Tensor> write(const std::vector<at::Tensor>& tensors);
  std::vector<at::Tensor> update(const std::vector<at::Tensor>& tensors);
  std::vector<std::vector<at::Tensor>> read(const std::vector<std::vector<at::Tensor>>& lists);
  std::vector<std::vector<at::Tensor>> write(const std::vector<std::vector<at::Tensor>>& lists);
  /// A stand-in for a tensor that is only read, whose memory may be changed: a copy.
  at::Tensor read_private(const at::Tensor& tensor);

  /// Called with the stand-ins in place, before and after the transport.
  void before(std::function<void()> action) {
    before_ = std::move(action);
  }
  void after(std::function<void()> action) {
    after_ = std::move(action);
  }
  /// What is on the device although no tensor says so: for barriers.
  void set_device(c10::Device device) {
    device_ = device;
  }

  /// The last of what the caller's thread does: order after its current stream, copy to the host.
  void take();
  /// Wait on the host until what take() enqueued, and all before it, is complete.
  void await();
  void prepare();
  /// Returns with copies back enqueued on the stream that `transfer_stream` names, which is the current one then.
  void deliver();

  bool has_device() const {
    return device_.has_value();
  }
  c10::Device device() const {
    return *device_;
  }
  /// Of the device, in the order in which they were named.
  const std::vector<at::Tensor>& written() const {
    return written_;
  }
  /// The stream of this collective's copies.
  const Stream& transfer_stream();
  /// Whether the stand-ins are aliases.
  bool is_zero_copy() const;

 private:
  struct Entry {
    at::Tensor device;
    at::Tensor host;     // of the same dtype: alias or page-locked
    at::Tensor stand_in; // `host`, or a copy of it in the layout or dtype that the transport wants
    bool reads;
    bool writes;
  };

  at::Tensor add(const at::Tensor& tensor, bool reads, bool writes, bool keep_apart = false);
  void copy(bool to_host);

  const char* what_;
  Use use_;
  std::optional<c10::Device> device_;
  std::optional<Stream> transfer_stream_;
  std::vector<Entry> entries_;
  std::vector<at::Tensor> written_;
  std::function<void()> before_;
  std::function<void()> after_;
  std::optional<Event> taken_;
};

} // namespace torch_backend
