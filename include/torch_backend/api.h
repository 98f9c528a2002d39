// torch_backend for C++ programs that use libtorch: what libtorch itself has no function for. No Python is needed in the
// process.
//
// After activate() the device is one of PyTorch's, and PyTorch's own API serves it:
//
//   a device           at::Device("acme:0"), at::accelerator (ATen/DeviceAccelerator.h), c10::DeviceGuard
//   streams            at::accelerator::getCurrentStream, c10::StreamGuard; new ones from
//                      c10::impl::VirtualGuardImpl(at::kPrivateUse1).getNewStream(device, priority)
//   events             c10::Event(at::kPrivateUse1, c10::EventFlag::BACKEND_DEFAULT); without a flag they take no time
//   allocator          at::accelerator::getDeviceStats, resetPeakStats, getMemoryInfo, emptyCache
//   random numbers     torch::manual_seed, at::globalContext().defaultGenerator(device)
//   kernels            TORCH_LIBRARY and TORCH_LIBRARY_IMPL(aten, PrivateUse1, m): one that is registered before
//                      activate() takes the place of ours without a warning
//   pinned memory      at::TensorOptions().pinned_memory(true)
//   packages           torch::inductor::AOTIModelPackageLoader, where the host can access the device's memory
//
// What is Python's stays there: torch.compile, devices that are written in Python, operators that a package declares in
// YAML or reroutes, and finding a vendor's installed package by the name of its device.
//
// Include torch/torch.h (or ATen's headers) of the torch that torch_backend was built for.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <c10/core/Allocator.h>
#include <c10/core/Device.h>
#include <c10/core/Stream.h>

namespace torch_backend {

// ---- devices ----

/// Settings that a device library reads while it loads, by key: {{"devices", "4"}}. They replace the environment's
/// TORCH_BACKEND_<NAME>_<KEY>.
using Options = std::map<std::string, std::string>;

/// Make `device` the one out-of-tree device of this process, and return it without an index.
///
/// `device` is the path of a device library if it has a "/", else a name: libtorch_backend_<name>.so is looked for in what
/// the environment's TORCH_BACKEND_PATH lists (files and folders, separated by ":"), then beside the library of
/// torch_backend, where the reference devices are. Loads the library, and does not start the driver: the first use does.
///
/// The active device again is a no-op. Backward passes of the calling thread run in that thread from now on if the device
/// is synchronous (c10::AutogradState::set_multithreading_enabled).
///
/// Throws c10::Error, with what was asked, what is so, and what to do, if there is no such library, it is none or finds no
/// devices, another device is active, or `options` are given for a library that is loaded already. Threads: any; the first
/// call decides. Call it in main, not while static objects are made.
c10::Device activate(const std::string& device, const Options& options = {});

/// The names that activate() takes, sorted: of libraries that are there, whether or not they work. Loads none. Threads: any.
std::vector<std::string> available_devices();

// ---- streams ----

/// A stream that the vendor's own API made, for c10::StreamGuard and c10::Event. `handle` is what the device library takes
/// for a tb_stream*, NULL the default stream; -1 is the current device. Its owner keeps it alive while it is current or work
/// on it is unfinished. Throws c10::Error for an odd number, or where no device is active. Threads: any.
c10::Stream stream_from_external(void* handle, c10::DeviceIndex device = -1);

// ---- memory ----

/// Device memory that nobody else gets: what is allocated in it is cached in it, and goes back to the device when it is
/// destroyed; tensors that are still in use then keep theirs until they are freed. -1 is the current device.
class MemPool {
 public:
  explicit MemPool(c10::DeviceIndex device = -1);
  ~MemPool();
  MemPool(const MemPool&) = delete;
  MemPool& operator=(const MemPool&) = delete;

  c10::MempoolId_t id() const {
    return id_;
  }
  c10::DeviceIndex device() const {
    return device_;
  }
  /// How many hold it: this object, and every MemPoolGuard.
  int use_count() const;

 private:
  c10::DeviceIndex device_;
  c10::MempoolId_t id_;
};

/// While it lives, the calling thread allocates in the pool, on the pool's device. Destroy it in the same thread.
class MemPoolGuard {
 public:
  explicit MemPoolGuard(const MemPool& pool);
  ~MemPoolGuard();
  MemPoolGuard(const MemPoolGuard&) = delete;
  MemPoolGuard& operator=(const MemPoolGuard&) = delete;

 private:
  c10::DeviceIndex device_;
  c10::MempoolId_t id_;
};

/// Let the process have at most this part of the device's memory, above 0 and at most 1: an allocation beyond it throws
/// c10::OutOfMemoryError. -1 is the current device. Threads: any.
void set_memory_fraction(double fraction, c10::DeviceIndex device = -1);

} // namespace torch_backend
