// A plugin's core table as C++ calls: failures become exceptions, unset slots get their defaults.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "csrc/core/Limits.h"
#include "torch_backend/device.h"

namespace torch_backend {

/// A plugin's core table as calls of C++, and the way into its other tables.
///
/// Note [Slot calls]
/// A slot that names a device, of whichever table, is called by `call`, `check_call` or `clean_up`, never directly: they
/// see to what the header promises of every call. The device is not lost and its driver started; the calling thread is
/// bound to the device, right before the slot, whatever was called since it was last bound; a device that answers
/// DEVICE_LOST is lost from then on.
///
/// Takes any table, so tests drive it (and all that stands on it) on a table of captureless lambdas. All calls may be
/// made from any thread and take no lock, except that the first one initializes the plugin. A device that reported
/// DEVICE_LOST, and every device in a forked child, refuses each further call with torch.AcceleratorError.
///
/// Methods that return tb_status return only the values they name; everything else throws (see Status.h).
class DeviceApi {
 public:
  /// `table` is copied up to its struct_size. Throws ValueError, naming every fault found, if a required slot is unset
  /// or slots that belong together are half set. Calls no slot.
  DeviceApi(std::string name, const tb_core_table& table);

  const std::string& name() const {
    return name_;
  }

  /// Calls device_count the first time; does not initialize. Throws if the plugin fails or reports over kMaxDevices.
  int device_count();

  /// Start the driver and read every device's properties, once. Every other call does this by itself.
  void initialize();
  bool initialized() const {
    return initialized_.load(std::memory_order_acquire);
  }

  const tb_device_properties& properties(int device);

  /// TB_CAP_ASYNC. Known before the driver starts: initialize refuses a device whose capabilities and slots disagree.
  bool async() const noexcept {
    return table_.stream_create != nullptr;
  }
  /// Flags equal on all devices; false before there is a device. They initialize.
  bool host_access();
  bool host_coherent();
  bool has_capability(int device, uint64_t capability);

  /// Called in a forked child, which then refuses every call: no driver survives a fork.
  void after_fork_in_child() noexcept;
  bool in_bad_fork() const noexcept {
    return bad_fork_.load(std::memory_order_relaxed);
  }
  bool is_lost(int device) const noexcept {
    return device_state_[static_cast<std::size_t>(device)].load(std::memory_order_relaxed) == kLost;
  }

  /// What every call checks first, for work on the device that calls no slot. `what` names it in the error.
  void check_usable(int device, const char* what) {
    enter(device, what);
  }

  // ---- slots of every table: Note [Slot calls] ----

  /// What `slot`, which is called `name` in errors, answers for these arguments. Throws if it cannot be called.
  template <typename Slot, typename... Arguments>
  tb_status call(int device, const char* name, Slot slot, Arguments... arguments) {
    enter(device, name);
    return invoke(device, slot, arguments...);
  }
  /// Throws unless it answers OK.
  template <typename Slot, typename... Arguments>
  void check_call(int device, const char* name, Slot slot, Arguments... arguments) {
    check(call(device, name, slot, arguments...), name, device);
  }
  /// For destructors: what fails is logged, and nothing is called for a device that cannot be used.
  template <typename Slot, typename... Arguments>
  void clean_up(int device, const char* name, Slot slot, Arguments... arguments) noexcept {
    if (usable_for_cleanup(device) && bind_for_cleanup(device)) {
      log_failure(leave(slot(arguments...), device), name, device);
    }
  }
  /// The calling thread's device is `device` again, after calls that a slot has made of the core. OK, or what thread_bind
  /// answers.
  tb_status bind_again(int device) noexcept;
  /// Throws torch.AcceleratorError if a slot has answered OK and left an out-parameter NULL.
  void check_given(const void* value, const char* name, const char* out_parameter, int device) {
    if (__builtin_expect(value == nullptr, 0)) {
      throw_not_given(name, out_parameter, device);
    }
  }

  // ---- memory ----

  /// OK, OUT_OF_MEMORY or UNSUPPORTED (then *out_ptr is untouched and the plugin's text is kept for take_error_text).
  tb_status memory_allocate(int device, uint32_t kind, uint64_t size_bytes, tb_stream* stream, void** out_ptr);
  /// Frees are called from destructors: a failure is logged, not thrown. Nothing is called for a lost device.
  void memory_free(int device, uint32_t kind, void* ptr, uint64_t size_bytes, tb_stream* stream) noexcept;
  /// Both OK, OUT_OF_MEMORY or UNSUPPORTED (then the plugin's text is kept for take_error_text). Only with
  /// TB_CAP_VIRTUAL_MEMORY, as what undoes them.
  tb_status address_reserve(int device, uint64_t size_bytes, void** out_ptr);
  tb_status memory_commit(int device, void* ptr, uint64_t size_bytes);
  void address_release(int device, void* ptr, uint64_t size_bytes) noexcept;
  /// False if the memory stays where it is: the plugin has failed, which is logged. Nothing is called for a lost device.
  bool memory_decommit(int device, void* ptr, uint64_t size_bytes) noexcept;
  void memory_copy(int dst_device, void* dst, int src_device, const void* src, uint64_t size_bytes, uint32_t kind,
                   tb_stream* stream);
  /// Default: a filled host buffer is copied in pieces and the stream waited for.
  void memory_fill(int device, void* dst, const void* pattern, uint32_t pattern_bytes, uint64_t size_bytes,
                   tb_stream* stream);
  /// Default: row by row through memory_copy.
  void memory_copy_2d(int device, void* dst, uint64_t dst_pitch_bytes, const void* src, uint64_t src_pitch_bytes,
                      uint64_t width_bytes, uint64_t height, uint32_t kind, tb_stream* stream);
  bool has_memory_copy_2d() const {
    return table_.memory_copy_2d != nullptr;
  }
  /// OK or UNSUPPORTED (no such slot: the caller asks its own allocators, which know what they hold).
  tb_status memory_info(int device, uint64_t* out_free_bytes, uint64_t* out_total_bytes);
  tb_status memory_query(const void* ptr, tb_pointer_info* out_info);
  /// No-ops on host-coherent devices; throw on devices without host access.
  void memory_map(int device, void* ptr, uint64_t size_bytes, uint32_t access);
  void memory_unmap(int device, void* ptr, uint64_t size_bytes, uint32_t access);
  /// No default: throws NotImplementedError if the plugin does not offer it.
  void host_register(void* ptr, uint64_t size_bytes);
  void host_unregister(void* ptr);

  // ---- streams and events; on a synchronous device streams and events are NULL and always complete ----

  tb_stream* stream_create(int device, int priority);
  void stream_destroy(int device, tb_stream* stream) noexcept;
  void stream_synchronize(int device, tb_stream* stream);
  void stream_wait_event(int device, tb_stream* stream, tb_event* event);
  /// True if everything enqueued is complete. Default: a fresh event is recorded and queried.
  bool stream_query(int device, tb_stream* stream);
  /// `fn(arg)` runs after what is on the stream. Default: the stream is synchronized and fn called here.
  void stream_host_function(int device, tb_stream* stream, tb_host_function fn, void* arg);
  bool has_stream_host_function() const {
    return table_.stream_host_function != nullptr;
  }

  tb_event* event_create(int device, uint32_t flags);
  void event_destroy(int device, tb_event* event) noexcept;
  void event_record(int device, tb_event* event, tb_stream* stream);
  bool event_query(int device, tb_event* event);
  /// Default: event_query is polled.
  void event_synchronize(int device, tb_event* event);
  /// Nanoseconds, between events that are complete. Only with TB_CAP_EVENT_TIMING.
  int64_t event_elapsed(int device, tb_event* start, tb_event* end);

  // ---- device ----

  /// OK or UNSUPPORTED (no such slot: the caller synchronizes its streams).
  tb_status device_synchronize(int device);
  bool peer_can_access(int device, int peer);

  void ipc_export(int device, void* ptr, tb_ipc_handle* out_handle);
  void* ipc_import(int device, const tb_ipc_handle& handle);
  void ipc_close(int device, void* ptr) noexcept;

 private:
  enum DeviceState : uint8_t { kReady = 0, kUninitialized = 1, kLost = 2, kForked = 3 };

  /// First step of every call that names a device: its index is right, the plugin initialized, the device usable.
  void enter(int device, const char* slot) {
    if (__builtin_expect(static_cast<unsigned>(device) >= static_cast<unsigned>(kMaxDevices), 0) ||
        __builtin_expect(device_state_[static_cast<std::size_t>(device)].load(std::memory_order_acquire) != kReady,
                         0)) {
      enter_slow(device, slot);
    }
  }
  void enter_slow(int device, const char* slot);
  /// The other steps, after enter.
  template <typename Slot, typename... Arguments>
  tb_status invoke(int device, Slot slot, Arguments... arguments) {
    if (__builtin_expect(table_.thread_bind != nullptr, 0)) {
      check(bind_thread(device), "thread_bind", device);
    }
    return leave(slot(arguments...), device);
  }
  /// OK, or what thread_bind answers.
  tb_status bind_thread(int device) noexcept;
  bool usable_for_cleanup(int device) const noexcept;
  bool bind_for_cleanup(int device) noexcept;
  /// Marks the device on DEVICE_LOST. Last step of every call.
  tb_status leave(tb_status status, int device) noexcept {
    if (__builtin_expect(status == TB_STATUS_DEVICE_LOST, 0) && device >= 0) {
      device_state_[static_cast<std::size_t>(device)].store(kLost, std::memory_order_release);
    }
    return status;
  }
  void check(tb_status status, const char* slot, int device) {
    if (__builtin_expect(status != TB_STATUS_OK, 0)) {
      throw_failure(status, slot, device);
    }
  }
  [[noreturn]] void throw_failure(tb_status status, const char* slot, int device) const;
  [[noreturn]] void throw_not_given(const char* slot, const char* out_parameter, int device) const;
  void log_failure(tb_status status, const char* slot, int device) const noexcept;
  void check_aligned(int device, uint32_t kind, void* ptr, uint64_t size_bytes, tb_stream* stream);

  const std::string name_;
  tb_core_table table_{};
  std::once_flag initialize_once_;
  std::atomic<bool> initialized_{false};
  std::atomic<bool> bad_fork_{false};
  std::atomic<int> device_count_{-1};
  uint64_t common_capabilities_ = 0;
  std::vector<tb_device_properties> properties_;
  std::array<std::atomic<uint8_t>, kMaxDevices> device_state_;
  bool started_ = false; // initialize succeeded, whatever came after; under initialize_once_
};

} // namespace torch_backend
