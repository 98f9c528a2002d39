#include "csrc/core/DeviceApi.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include <c10/util/Exception.h>
#include <c10/util/Logging.h>
#include <c10/util/StringUtil.h>

#include "csrc/core/CallSpan.h"
#include "csrc/core/Capture.h"
#include "csrc/core/DeviceProperties.h"
#include "csrc/core/FailedWait.h"
#include "csrc/core/InterpreterLock.h"
#include "csrc/core/Status.h"
#include "csrc/core/TableCheck.h"
#include "csrc/core/Tape.h"
#include "slots.h"

namespace torch_backend {
namespace {

/// Tells apart those that lie at the same address one after the other.
std::atomic<uint64_t> num_apis{0};

/// Whether a call was made, by a slot that has a default: UNSUPPORTED is no. Throws for what else is not OK.
bool is_made(const DeviceApi& api, tb_status status, const char* slot, int device) {
  if (__builtin_expect(status == TB_STATUS_OK, 1)) {
    return true;
  }
  if (status != TB_STATUS_UNSUPPORTED) {
    throw_status(status, api.name(), slot, device);
  }
  take_error_text();
  return false;
}

// After enter(device): calls a slot for the device, and checks what it answers; TB_OFFERED one that has a default.
#define TB_INVOKE(slot, ...) check(invoke(device, table_.slot, __VA_ARGS__), #slot, device)
#define TB_OFFERED(slot, ...) \
  is_made(*this, table_.slot ? invoke(device, table_.slot, __VA_ARGS__) : TB_STATUS_UNSUPPORTED, #slot, device)

} // namespace

DeviceApi::DeviceApi(std::string name, const tb_core_table& offered) : name_(std::move(name)) {
  num_apis.fetch_add(1, std::memory_order_relaxed);
  for (auto& state : device_state_) {
    state.store(kUninitialized, std::memory_order_relaxed);
  }
  TableCheck check;
  const auto table = check.read<tb_core_table>(&offered);
  check.are_code({TB_CORE_SLOTS(TB_LIST_SLOT)});
  check.require({TB_CORE_REQUIRED_SLOTS(TB_LIST_SLOT)});
  check.all_or_none({TB_CORE_ASYNCHRONOUS_SLOTS(TB_LIST_SLOT)},
                    "an asynchronous device needs all eight stream and event slots and a synchronous one none");
  check.all_or_none({TB_SLOT(table, memory_map), TB_SLOT(table, memory_unmap)},
                    "memory_map and memory_unmap belong together");
  check.all_or_none({TB_SLOT(table, host_register), TB_SLOT(table, host_unregister)},
                    "host_register and host_unregister belong together");
  check.all_or_none({TB_SLOT(table, ipc_export), TB_SLOT(table, ipc_import), TB_SLOT(table, ipc_close)},
                    "the three ipc slots belong together");
  check.all_or_none({TB_SLOT(table, address_reserve), TB_SLOT(table, address_release), TB_SLOT(table, memory_commit),
                     TB_SLOT(table, memory_decommit)},
                    "address_reserve, address_release, memory_commit and memory_decommit belong together");
  check.raise(c10::str("The core table of plugin '", name_, "'"));
  table_ = table;
}

int DeviceApi::device_count() {
  int count = device_count_.load(std::memory_order_acquire);
  if (count >= 0) {
    return count;
  }
  TORCH_CHECK(!in_bad_fork(), "Cannot use ", name_, " in a forked process.");
  int32_t reported = 0;
  check(table_.device_count(&reported), "device_count", -1);
  TORCH_CHECK(reported >= 0 && reported <= kMaxDevices, "Plugin '", name_, "' reports ", reported, " devices; 0 to ",
              kMaxDevices, " are possible.");
  device_count_.store(reported, std::memory_order_release);
  return reported;
}

void DeviceApi::initialize() {
  if (initialized()) {
    return;
  }
  // device_count first, outside call_once: it has its own error for a fork.
  const int count = device_count();
  const WithoutInterpreterLock unlocked;
  std::call_once(initialize_once_, [&] {
    if (table_.initialize && !started_) {
      const tb_status status = table_.initialize();
      if (status != TB_STATUS_OK && status != TB_STATUS_UNSUPPORTED) {
        throw_status(status, name_, "initialize", -1);
      }
      take_error_text();
      started_ = true;
    }
    std::vector<tb_device_properties> all;
    for (int device = 0; device < count; ++device) {
      all.push_back(read_properties(table_, name_, device));
      TORCH_CHECK(((all.back().capabilities ^ all[0].capabilities) & kCommonCapabilities) == 0, name_, ":", device,
                  ": TB_CAP_ASYNC, HOST_ACCESS and HOST_COHERENT must be the same on all devices.");
    }
    properties_ = std::move(all);
    common_capabilities_ = count > 0 ? properties_[0].capabilities : 0;
    for (int device = 0; device < count; ++device) {
      device_state_[static_cast<std::size_t>(device)].store(kReady, std::memory_order_release);
    }
    initialized_.store(true, std::memory_order_release);
  });
}

void DeviceApi::enter_slow(int device, const char* slot) {
  TORCH_CHECK(!in_bad_fork(), "Cannot use ", name_, " in a forked process: the driver does not survive a fork. To use ",
              name_, " with multiprocessing, use the 'spawn' start method.");
  initialize();
  const int count = device_count();
  TORCH_CHECK_INDEX(device >= 0 && device < count, "Device index ", device, " is out of range: ", name_, " has ", count,
                    count == 1 ? " device" : " devices", count > 0 ? c10::str(", 0 to ", count - 1) : "", ".");
  const auto state = device_state_[static_cast<std::size_t>(device)].load(std::memory_order_acquire);
  if (state == kLost) {
    set_error_text("an earlier call reported that the device is lost; it cannot be used again in this process");
    throw_status(TB_STATUS_DEVICE_LOST, name_, slot, device);
  }
}

bool DeviceApi::usable_for_cleanup(int device) const noexcept {
  return static_cast<unsigned>(device) < static_cast<unsigned>(kMaxDevices) &&
         device_state_[static_cast<std::size_t>(device)].load(std::memory_order_relaxed) == kReady;
}

bool DeviceApi::bind_for_cleanup(int device) noexcept {
  const tb_status status = table_.thread_bind ? bind_thread(device) : TB_STATUS_OK;
  log_failure(status, "thread_bind", device);
  return status == TB_STATUS_OK;
}

tb_status DeviceApi::bind_thread(int device) noexcept {
  thread_local const DeviceApi* bound_api = nullptr;
  thread_local uint64_t bound_among = 0;
  thread_local int bound_device = -1;
  const uint64_t among = num_apis.load(std::memory_order_relaxed);
  if (bound_api == this && bound_among == among && bound_device == device) {
    return TB_STATUS_OK;
  }
  const tb_status status = leave(table_.thread_bind(device), device);
  if (status == TB_STATUS_UNSUPPORTED) {
    take_error_text();
  } else if (status != TB_STATUS_OK) {
    bound_api = nullptr; // which device it is bound to now, only the plugin knows
    return status;
  }
  bound_api = this;
  bound_among = among;
  bound_device = device;
  return TB_STATUS_OK;
}

tb_status DeviceApi::bind_again(int device) noexcept {
  return table_.thread_bind ? bind_thread(device) : TB_STATUS_OK;
}

void DeviceApi::throw_failure(tb_status status, const char* slot, int device) const {
  throw_status(status, name_, slot, device);
}

void DeviceApi::throw_not_given(const char* slot, const char* out_parameter, int device) const {
  set_error_text(
      c10::str("it returned TB_STATUS_OK and left ", out_parameter, " NULL; see ", slot, " in torch_backend/device.h"));
  throw_status(TB_STATUS_INTERNAL, name_, slot, device);
}

void DeviceApi::log_failure(tb_status status, const char* slot, int device) const noexcept {
  if (status != TB_STATUS_OK) {
    LOG(WARNING) << describe_failure(status, name_, slot, device);
  }
}

void DeviceApi::after_fork_in_child() noexcept {
  if (!initialized()) {
    return;
  }
  bad_fork_.store(true, std::memory_order_relaxed);
  for (auto& state : device_state_) {
    if (state.load(std::memory_order_relaxed) == kReady) {
      state.store(kForked, std::memory_order_relaxed);
    }
  }
}

const tb_device_properties& DeviceApi::properties(int device) {
  enter(device, "device_properties");
  initialize(); // done, but what another thread's call has written is to be seen here
  return properties_[static_cast<std::size_t>(device)];
}

bool DeviceApi::host_access() {
  initialize();
  return (common_capabilities_ & TB_CAP_HOST_ACCESS) != 0;
}

bool DeviceApi::host_coherent() {
  initialize();
  return (common_capabilities_ & TB_CAP_HOST_COHERENT) != 0;
}

bool DeviceApi::has_capability(int device, uint64_t capability) {
  return (properties(device).capabilities & capability) == capability;
}

// ---- memory ----

tb_status DeviceApi::memory_allocate(int device, uint32_t kind, uint64_t size_bytes, tb_stream* stream,
                                     void** out_ptr) {
  enter(device, "memory_allocate");
  const CallSpan span("memory_allocate", device);
  void* ptr = nullptr;
  const tb_status status = invoke(device, table_.memory_allocate, device, kind, size_bytes, stream, &ptr);
  if (status == TB_STATUS_OUT_OF_MEMORY || status == TB_STATUS_UNSUPPORTED) {
    return status;
  }
  check(status, "memory_allocate", device);
  check_given(ptr, "memory_allocate", "*out_ptr", device);
  check_aligned(device, kind, ptr, size_bytes, stream);
  *out_ptr = ptr;
  return TB_STATUS_OK;
}

void DeviceApi::check_aligned(int device, uint32_t kind, void* ptr, uint64_t size_bytes, tb_stream* stream) {
  const uint64_t alignment = properties_[static_cast<std::size_t>(device)].allocation_alignment_bytes;
  if (reinterpret_cast<uintptr_t>(ptr) % alignment != 0) {
    memory_free(device, kind, ptr, size_bytes, stream);
    set_error_text(
        c10::str("it gave ", ptr, ", which is not aligned to the ", alignment, " bytes of allocation_alignment_bytes"));
    throw_status(TB_STATUS_INTERNAL, name_, "memory_allocate", device);
  }
}

void DeviceApi::memory_free(int device, uint32_t kind, void* ptr, uint64_t size_bytes, tb_stream* stream) noexcept {
  if (usable_for_cleanup(device)) {
    const CallSpan span("memory_free", device);
    clean_up(device, "memory_free", table_.memory_free, device, kind, ptr, size_bytes, stream);
  }
}

tb_status DeviceApi::address_reserve(int device, uint64_t size_bytes, void** out_ptr) {
  enter(device, "address_reserve");
  const CallSpan span("address_reserve", device);
  void* ptr = nullptr;
  const tb_status status = invoke(device, table_.address_reserve, device, size_bytes, &ptr);
  if (status == TB_STATUS_OUT_OF_MEMORY || status == TB_STATUS_UNSUPPORTED) {
    return status;
  }
  check(status, "address_reserve", device);
  check_given(ptr, "address_reserve", "*out_ptr", device);
  const uint64_t alignment = properties_[static_cast<std::size_t>(device)].commit_granularity_bytes;
  if (reinterpret_cast<uintptr_t>(ptr) % alignment != 0) {
    address_release(device, ptr, size_bytes);
    set_error_text(
        c10::str("it gave ", ptr, ", which is not aligned to the ", alignment, " bytes of commit_granularity_bytes"));
    throw_status(TB_STATUS_INTERNAL, name_, "address_reserve", device);
  }
  *out_ptr = ptr;
  return TB_STATUS_OK;
}

void DeviceApi::address_release(int device, void* ptr, uint64_t size_bytes) noexcept {
  clean_up(device, "address_release", table_.address_release, device, ptr, size_bytes);
}

tb_status DeviceApi::memory_commit(int device, void* ptr, uint64_t size_bytes) {
  enter(device, "memory_commit");
  const CallSpan span("memory_commit", device);
  const tb_status status = invoke(device, table_.memory_commit, device, ptr, size_bytes);
  if (status != TB_STATUS_OUT_OF_MEMORY && status != TB_STATUS_UNSUPPORTED) {
    check(status, "memory_commit", device);
  }
  return status;
}

bool DeviceApi::memory_decommit(int device, void* ptr, uint64_t size_bytes) noexcept {
  if (!usable_for_cleanup(device)) {
    return true;
  }
  if (!bind_for_cleanup(device)) {
    return false;
  }
  const CallSpan span("memory_decommit", device);
  const tb_status status = leave(table_.memory_decommit(device, ptr, size_bytes), device);
  log_failure(status, "memory_decommit", device);
  return status == TB_STATUS_OK || status == TB_STATUS_DEVICE_LOST;
}

void DeviceApi::memory_copy(int dst_device, void* dst, int src_device, const void* src, uint64_t size_bytes,
                            uint32_t kind, tb_stream* stream) {
  const int device = kind == TB_COPY_DEVICE_TO_HOST || kind == TB_COPY_PEER ? src_device : dst_device;
  enter(device, "memory_copy");
  if (kind == TB_COPY_PEER) {
    enter(dst_device, "memory_copy");
  }
  if (graph::write(device, stream,
                   [=, this](tb_stream* on) { memory_copy(dst_device, dst, src_device, src, size_bytes, kind, on); })) {
    graph::add_step(device, stream, "memory_copy");
    return;
  }
  const WithoutInterpreterLock unlocked; // it may wait for the stream
  CallSpan span("memory_copy", device);
  span.copy(stream, kind, dst, src, size_bytes);
  check(invoke(device, table_.memory_copy, dst_device, dst, src_device, src, size_bytes, kind, stream), "memory_copy",
        device);
  graph::add_step(device, stream, "memory_copy");
  span.enqueued();
}

void DeviceApi::memory_fill(int device, void* dst, const void* pattern, uint32_t pattern_bytes, uint64_t size_bytes,
                            tb_stream* stream) {
  enter(device, "memory_fill");
  if (table_.memory_fill && graph::any_tape()) {
    const std::vector<char> kept(static_cast<const char*>(pattern), static_cast<const char*>(pattern) + pattern_bytes);
    if (graph::write(device, stream, [=, this](tb_stream* on) {
          memory_fill(device, dst, kept.data(), pattern_bytes, size_bytes, on);
        })) {
      graph::add_step(device, stream, "memory_fill");
      return;
    }
  }
  if (table_.memory_fill) {
    CallSpan span("memory_fill", device);
    span.fill(stream, size_bytes);
    if (TB_OFFERED(memory_fill, device, dst, pattern, pattern_bytes, size_bytes, stream)) {
      graph::add_step(device, stream, "memory_fill");
      span.enqueued();
      return;
    }
  }
  graph::refuse_in_capture(device, stream, "A fill without the device's own memory_fill");
  constexpr uint64_t kPieceBytes = 1 << 20;
  const uint64_t piece_bytes = std::min(size_bytes, kPieceBytes);
  const std::shared_ptr<char[]> piece(new char[piece_bytes]);
  for (uint64_t offset = 0; offset + pattern_bytes <= piece_bytes; offset += pattern_bytes) {
    std::memcpy(piece.get() + offset, pattern, pattern_bytes);
  }
  try {
    for (uint64_t done = 0; done < size_bytes; done += piece_bytes) {
      const uint64_t now = std::min(size_bytes - done, piece_bytes);
      memory_copy(device, static_cast<char*>(dst) + done, -1, piece.get(), now, TB_COPY_HOST_TO_DEVICE, stream);
    }
    stream_synchronize(device, stream);
  } catch (...) {
    release_when_over(*this, device, stream, piece); // copies may still read it
    throw;
  }
}

void DeviceApi::memory_copy_2d(int device, void* dst, uint64_t dst_pitch_bytes, const void* src,
                               uint64_t src_pitch_bytes, uint64_t width_bytes, uint64_t height, uint32_t kind,
                               tb_stream* stream) {
  enter(device, "memory_copy_2d");
  if (graph::write(device, stream, [=, this](tb_stream* on) {
        memory_copy_2d(device, dst, dst_pitch_bytes, src, src_pitch_bytes, width_bytes, height, kind, on);
      })) {
    graph::add_step(device, stream, "memory_copy_2d");
    return;
  }
  if (table_.memory_copy_2d) {
    const WithoutInterpreterLock unlocked; // it may wait for the stream
    CallSpan span("memory_copy_2d", device);
    span.copy(stream, kind, dst, src, width_bytes * height);
    if (TB_OFFERED(memory_copy_2d, device, dst, dst_pitch_bytes, src, src_pitch_bytes, width_bytes, height, kind,
                   stream)) {
      graph::add_step(device, stream, "memory_copy_2d");
      span.enqueued();
      return;
    }
  }
  const int dst_device = kind == TB_COPY_DEVICE_TO_HOST ? -1 : device;
  const int src_device = kind == TB_COPY_HOST_TO_DEVICE ? -1 : device;
  for (uint64_t row = 0; row < height; ++row) {
    memory_copy(dst_device, static_cast<char*>(dst) + row * dst_pitch_bytes, src_device,
                static_cast<const char*>(src) + row * src_pitch_bytes, width_bytes, kind, stream);
  }
}

tb_status DeviceApi::memory_info(int device, uint64_t* out_free_bytes, uint64_t* out_total_bytes) {
  enter(device, "memory_info");
  uint64_t free_bytes = 0;
  uint64_t total_bytes = 0;
  if (!TB_OFFERED(memory_info, device, &free_bytes, &total_bytes)) {
    return TB_STATUS_UNSUPPORTED;
  }
  if (free_bytes > total_bytes) {
    set_error_text(c10::str("it says that ", free_bytes, " of ", total_bytes, " bytes are free"));
    throw_status(TB_STATUS_INTERNAL, name_, "memory_info", device);
  }
  *out_free_bytes = free_bytes;
  *out_total_bytes = total_bytes;
  return TB_STATUS_OK;
}

tb_status DeviceApi::memory_query(const void* ptr, tb_pointer_info* out_info) {
  initialize();
  out_info->struct_size = sizeof(*out_info);
  const tb_status status = table_.memory_query ? table_.memory_query(ptr, out_info) : TB_STATUS_UNSUPPORTED;
  if (status == TB_STATUS_UNSUPPORTED) {
    take_error_text();
    return status;
  }
  check(status, "memory_query", -1);
  if (out_info->kind > TB_MEMORY_UNKNOWN || out_info->device < -1 || out_info->device >= device_count()) {
    set_error_text(c10::str("it says that ", ptr, " is memory of the kind ", out_info->kind, " of device ",
                            out_info->device, "; there are ", device_count(), " devices"));
    throw_status(TB_STATUS_INTERNAL, name_, "memory_query", -1);
  }
  return TB_STATUS_OK;
}

void DeviceApi::memory_map(int device, void* ptr, uint64_t size_bytes, uint32_t access) {
  enter(device, "memory_map");
  if (common_capabilities_ & TB_CAP_HOST_COHERENT) {
    return;
  }
  TORCH_CHECK_NOT_IMPLEMENTED(common_capabilities_ & TB_CAP_HOST_ACCESS, name_, ":", device,
                              ": the host cannot access this device's memory.");
  TB_INVOKE(memory_map, device, ptr, size_bytes, access);
}

void DeviceApi::memory_unmap(int device, void* ptr, uint64_t size_bytes, uint32_t access) {
  enter(device, "memory_unmap");
  if (!(common_capabilities_ & TB_CAP_HOST_COHERENT)) {
    TB_INVOKE(memory_unmap, device, ptr, size_bytes, access);
  }
}

void DeviceApi::host_register(void* ptr, uint64_t size_bytes) {
  initialize();
  TORCH_CHECK_NOT_IMPLEMENTED(table_.host_register, name_, " cannot page-lock existing host memory; allocate it with ",
                              "torch.empty(..., pin_memory=True) or Tensor.pin_memory().");
  check(table_.host_register(ptr, size_bytes), "host_register", -1);
}

void DeviceApi::host_unregister(void* ptr) {
  initialize();
  TORCH_CHECK_NOT_IMPLEMENTED(table_.host_unregister, name_, " cannot page-lock existing host memory.");
  check(table_.host_unregister(ptr), "host_unregister", -1);
}

// ---- streams and events ----

tb_stream* DeviceApi::stream_create(int device, int priority) {
  enter(device, "stream_create");
  tb_stream* stream = nullptr;
  if (table_.stream_create) {
    TB_INVOKE(stream_create, device, priority, &stream);
    check_given(stream, "stream_create", "*out_stream", device);
  }
  return stream;
}

void DeviceApi::stream_destroy(int device, tb_stream* stream) noexcept {
  if (table_.stream_destroy) {
    clean_up(device, "stream_destroy", table_.stream_destroy, device, stream);
  }
}

void DeviceApi::stream_synchronize(int device, tb_stream* stream) {
  enter(device, "stream_synchronize");
  if (table_.stream_synchronize) {
    const WithoutInterpreterLock unlocked;
    const CallSpan span("stream_synchronize", device);
    TB_INVOKE(stream_synchronize, device, stream);
  }
}

void DeviceApi::stream_wait_event(int device, tb_stream* stream, tb_event* event) {
  enter(device, "stream_wait_event");
  if (table_.stream_wait_event && !graph::write_wait(device, stream, event)) {
    const CallSpan span("stream_wait_event", device);
    TB_INVOKE(stream_wait_event, device, stream, event);
  }
}

bool DeviceApi::stream_query(int device, tb_stream* stream) {
  enter(device, "stream_query");
  if (!table_.stream_create) {
    return true;
  }
  if (table_.stream_query) {
    const tb_status status = invoke(device, table_.stream_query, device, stream);
    if (status == TB_STATUS_NOT_READY) {
      return false;
    }
    if (status != TB_STATUS_UNSUPPORTED) {
      check(status, "stream_query", device);
      return true;
    }
    take_error_text();
  }
  const auto destroy = [&](tb_event* event) { event_destroy(device, event); };
  const std::unique_ptr<tb_event, decltype(destroy)> event(event_create(device, 0), destroy);
  event_record(device, event.get(), stream);
  // An idle device needs a moment for the record, and who asks again and again would always ask for the newest one.
  constexpr int kTries = 64;
  for (int i = 0; i < kTries; ++i) {
    if (event_query(device, event.get())) {
      return true;
    }
    std::this_thread::yield();
  }
  return false;
}

void DeviceApi::stream_host_function(int device, tb_stream* stream, tb_host_function fn, void* arg) {
  enter(device, "stream_host_function");
  if (table_.stream_host_function &&
      graph::write(device, stream, [=, this](tb_stream* on) { stream_host_function(device, on, fn, arg); })) {
    return;
  }
  if (table_.stream_host_function) {
    CallSpan span("stream_host_function", device);
    span.host_function(stream);
    if (TB_OFFERED(stream_host_function, device, stream, fn, arg)) {
      span.enqueued();
      return;
    }
  }
  graph::refuse_in_capture(device, stream, "A host function without the device's own stream_host_function");
  stream_synchronize(device, stream);
  CallSpan span("stream_host_function", device);
  span.host_function(stream);
  fn(arg);
  span.enqueued();
}

tb_event* DeviceApi::event_create(int device, uint32_t flags) {
  enter(device, "event_create");
  tb_event* event = nullptr;
  if (table_.event_create) {
    TB_INVOKE(event_create, device, flags, &event);
    check_given(event, "event_create", "*out_event", device);
  }
  return event;
}

void DeviceApi::event_destroy(int device, tb_event* event) noexcept {
  if (table_.event_destroy && event) {
    clean_up(device, "event_destroy", table_.event_destroy, device, event);
  }
}

void DeviceApi::event_record(int device, tb_event* event, tb_stream* stream) {
  enter(device, "event_record");
  if (table_.event_record && !graph::write_record(device, stream, event)) {
    const CallSpan span("event_record", device);
    TB_INVOKE(event_record, device, event, stream);
  }
}

bool DeviceApi::event_query(int device, tb_event* event) {
  enter(device, "event_query");
  if (!table_.event_query) {
    return true;
  }
  const tb_status status = invoke(device, table_.event_query, device, event);
  if (status == TB_STATUS_NOT_READY) {
    return false;
  }
  check(status, "event_query", device);
  return true;
}

void DeviceApi::event_synchronize(int device, tb_event* event) {
  enter(device, "event_synchronize");
  const WithoutInterpreterLock unlocked;
  const CallSpan span("event_synchronize", device);
  if (TB_OFFERED(event_synchronize, device, event)) {
    return;
  }
  // Short waits spin, long ones yield the core for at most 100 us at a time.
  for (int attempt = 0; !event_query(device, event); ++attempt) {
    if (attempt < 64) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }
}

int64_t DeviceApi::event_elapsed(int device, tb_event* start, tb_event* end) {
  enter(device, "event_elapsed");
  TORCH_CHECK_NOT_IMPLEMENTED(table_.event_elapsed, name_, ":", device, ": the device does not time events.");
  int64_t elapsed_ns = 0;
  TB_INVOKE(event_elapsed, device, start, end, &elapsed_ns);
  return elapsed_ns;
}

// ---- device ----

tb_status DeviceApi::device_synchronize(int device) {
  enter(device, "device_synchronize");
  if (!table_.stream_create) {
    return TB_STATUS_OK;
  }
  const WithoutInterpreterLock unlocked;
  const CallSpan span("device_synchronize", device);
  return TB_OFFERED(device_synchronize, device) ? TB_STATUS_OK : TB_STATUS_UNSUPPORTED;
}

bool DeviceApi::peer_can_access(int device, int peer) {
  enter(device, "peer_can_access");
  enter(peer, "peer_can_access");
  int32_t can_access = 0;
  return device != peer && TB_OFFERED(peer_can_access, device, peer, &can_access) && can_access != 0;
}

void DeviceApi::ipc_export(int device, void* ptr, tb_ipc_handle* out_handle) {
  enter(device, "ipc_export");
  TORCH_CHECK_NOT_IMPLEMENTED(table_.ipc_export, name_, " cannot share device memory between processes.");
  TB_INVOKE(ipc_export, device, ptr, out_handle);
}

void* DeviceApi::ipc_import(int device, const tb_ipc_handle& handle) {
  enter(device, "ipc_import");
  TORCH_CHECK_NOT_IMPLEMENTED(table_.ipc_import, name_, " cannot share device memory between processes.");
  void* ptr = nullptr;
  TB_INVOKE(ipc_import, device, &handle, &ptr);
  check_given(ptr, "ipc_import", "*out_ptr", device);
  return ptr;
}

void DeviceApi::ipc_close(int device, void* ptr) noexcept {
  if (table_.ipc_close) {
    clean_up(device, "ipc_close", table_.ipc_close, device, ptr);
  }
}

} // namespace torch_backend
