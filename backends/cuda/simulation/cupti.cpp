// The simulated libcupti: records of what the simulated driver does, in buffers that the program lends, and the rules of
// both. Its clock is not the host's. A part of it is NVTX's ranges.
#include "../csrc/cupti.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "driver.h"

#define CUPTI_API extern "C" __attribute__((visibility("default"))) int

struct CUpti_Subscriber_st {};

namespace sim {
namespace {

constexpr int kInvalidParameter = 1, kMaxLimitReached = 12, kNotInitialized = 15, kQueueEmpty = 18, kInvalidKind = 21,
              kInvalidStream = 20, kInvalidOperation = 7;
constexpr uint64_t kAlignment = 8, kSmallestBuffer = 1024;
constexpr int64_t kClockOffset = 3'000'000'000'000; // of CUPTI's clock, in nanoseconds
constexpr size_t kLater = 40;                       // bytes behind what all versions of a record have
constexpr unsigned char kRubbish = 0xEE;

constexpr int kKinds[] = {kCUPTI_ACTIVITY_KIND_MEMCPY,
                          kCUPTI_ACTIVITY_KIND_MEMSET,
                          kCUPTI_ACTIVITY_KIND_DRIVER,
                          kCUPTI_ACTIVITY_KIND_RUNTIME,
                          kCUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
                          kCUPTI_ACTIVITY_KIND_MEMCPY2,
                          kCUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION};

// What is recorded of a call. Nobody but CUPTI's own functions looks into it here.
struct api_record {
  int kind;
  uint32_t id;
  uint64_t start, end;
  uint32_t process, thread, correlation, result;
};

size_t size_of(int kind) {
  switch (kind) {
    case kCUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
      return sizeof(cupti_kernel) + kLater;
    case kCUPTI_ACTIVITY_KIND_MEMCPY2:
      return sizeof(cupti_peer_copy) + kLater;
    case kCUPTI_ACTIVITY_KIND_MEMCPY:
    case kCUPTI_ACTIVITY_KIND_MEMSET:
      return sizeof(cupti_memory) + kLater;
    case kCUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION:
      return sizeof(CUpti_ActivityExternalCorrelation);
    default:
      return sizeof(api_record);
  }
}

struct buffer {
  uint8_t* data = nullptr;
  size_t size = 0, valid = 0;
};

struct session {
  std::recursive_mutex mutex; // guards all below
  CUpti_SubscriberHandle subscriber = nullptr;
  CUpti_BuffersCallbackRequestFunc requested = nullptr;
  CUpti_BuffersCallbackCompleteFunc completed = nullptr;
  std::set<int> enabled;
  std::vector<buffer> buffers; // that are CUPTI's
  uint32_t calls = 0;
};

session& the_session() {
  static auto& one = *new session;
  return one;
}

thread_local std::map<int, std::vector<uint64_t>> pushed;
thread_local bool in_callback = false;
thread_local int depth = 0; // of NVTX's ranges

int enter_cupti(const char* name) {
  if (const int fault = injected_fault(name)) return refuse(fault, "%s fails because CUDA_SIM_FAIL says so", name);
  return in_callback ? refuse(kInvalidOperation, "%s in a callback", name) : 0;
}

bool is_ours(const session& s, const uint8_t* data) {
  return std::any_of(s.buffers.begin(), s.buffers.end(), [data](const buffer& b) { return b.data == data; });
}

// The last buffer, if it has room, else a new one; null if there is none.
buffer* room_for(session& s, size_t bytes) {
  if (!s.buffers.empty() && s.buffers.back().size - s.buffers.back().valid >= bytes) return &s.buffers.back();
  buffer b;
  size_t most = 0;
  in_callback = true;
  s.requested(&b.data, &b.size, &most);
  in_callback = false;
  if (!b.data) return nullptr;
  if (reinterpret_cast<uintptr_t>(b.data) % kAlignment || b.size < kSmallestBuffer || is_ours(s, b.data)) {
    refuse(kInvalidParameter, "a buffer of %zu bytes at %p: too small, not aligned to 8, or CUPTI's already", b.size,
           static_cast<void*>(b.data));
    return nullptr;
  }
  std::memset(b.data, kRubbish, b.size);
  s.buffers.push_back(b);
  return &s.buffers.back();
}

template <typename Record>
void write(session& s, const Record& record) {
  const int kind = reinterpret_cast<const CUpti_Activity&>(record).kind;
  if (!s.enabled.count(kind) || !s.requested) return;
  const size_t bytes = size_of(kind);
  buffer* to = room_for(s, bytes);
  if (!to) return;
  std::memcpy(to->data + to->valid, &record, sizeof record);
  to->valid += bytes;
}

void give_back(session& s) {
  for (const buffer& b : std::exchange(s.buffers, {})) {
    in_callback = true;
    s.completed(nullptr, 0, b.data, b.size, b.valid);
    in_callback = false;
  }
}

uint64_t on_clock(uint64_t ns) {
  return ns + static_cast<uint64_t>(kClockOffset);
}

class recorder final : public tracer {
  uint32_t called(const char* name) override {
    session& s = the_session();
    const std::lock_guard<std::recursive_mutex> lock(s.mutex);
    const bool is_driver = name[0] == 'c' && name[1] == 'u' && name[2] < 'a';
    const int kind = is_driver ? kCUPTI_ACTIVITY_KIND_DRIVER : kCUPTI_ACTIVITY_KIND_RUNTIME;
    const uint32_t number = ++s.calls;
    if (!s.enabled.count(kind)) return number;
    for (const auto& [of, ids] : pushed)
      if (!ids.empty())
        write(s,
              CUpti_ActivityExternalCorrelation{kCUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION, of, ids.back(), number, 0});
    write(s, api_record{kind, 0, 0, 0, 0, 0, number, 0});
    return number;
  }

  void done(const traced_work& work, CUstream stream, uint32_t call, uint64_t start, uint64_t end) override {
    session& s = the_session();
    const auto device = static_cast<uint32_t>(stream->context->device);
    const uint32_t number = number_of(stream);
    const std::lock_guard<std::recursive_mutex> lock(s.mutex);
    start = on_clock(start), end = on_clock(end);
    if (work.kind == traced_work::kKernel) {
      cupti_kernel r{};
      r.kind = kCUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
      r.start = start, r.end = r.completed = end;
      r.deviceId = device, r.contextId = device + 1, r.streamId = number, r.correlationId = call;
      static auto& names = *new std::set<std::string>; // the strings are CUPTI's
      r.name = names.insert(work.name).first->c_str();
      return write(s, r);
    }
    cupti_peer_copy whole{};
    cupti_memory& r = whole.copy;
    r.kind = work.kind == traced_work::kFill ? kCUPTI_ACTIVITY_KIND_MEMSET
             : work.to_peer                  ? kCUPTI_ACTIVITY_KIND_MEMCPY2
                                             : kCUPTI_ACTIVITY_KIND_MEMCPY;
    r.copyKind = work.to_peer     ? kCUPTI_ACTIVITY_MEMCPY_KIND_PTOP
                 : work.from != 3 ? kCUPTI_ACTIVITY_MEMCPY_KIND_HTOD
                 : work.to != 3   ? kCUPTI_ACTIVITY_MEMCPY_KIND_DTOH
                                  : 8;
    r.srcKind = static_cast<uint8_t>(work.from), r.dstKind = static_cast<uint8_t>(work.to);
    r.bytes = work.bytes, r.start = start, r.end = end;
    r.deviceId = device, r.contextId = device + 1, r.streamId = number;
    r.correlationId = work.to_peer ? device : call; // srcDeviceId of a peer copy
    whole.correlationId = call;
    if (work.to_peer) return write(s, whole);
    write(s, r);
  }
};

} // namespace
} // namespace sim

using namespace sim;

CUPTI_API cuptiSubscribe(CUpti_SubscriberHandle* subscriber, CUpti_CallbackFunc callback, void*) {
  session& s = the_session();
  if (const int error = enter_cupti("cuptiSubscribe")) return error;
  if (!subscriber || !callback) return refuse(kInvalidParameter, "cuptiSubscribe without a callback");
  const std::lock_guard<std::recursive_mutex> lock(s.mutex);
  if (s.subscriber) return kCUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED; // how programs ask
  *subscriber = s.subscriber = make<CUpti_Subscriber_st>();
  return 0;
}

CUPTI_API cuptiUnsubscribe(CUpti_SubscriberHandle subscriber) {
  session& s = the_session();
  if (const int error = enter_cupti("cuptiUnsubscribe")) return error;
  const std::lock_guard<std::recursive_mutex> lock(s.mutex);
  if (!subscriber || subscriber != s.subscriber)
    return refuse(kInvalidParameter, "cuptiUnsubscribe: not the subscriber");
  if (!s.enabled.empty()) refuse(kInvalidOperation, "cuptiUnsubscribe leaves kinds of records enabled");
  s.subscriber = nullptr;
  return 0;
}

CUPTI_API cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc requested,
                                         CUpti_BuffersCallbackCompleteFunc completed) {
  session& s = the_session();
  if (const int error = enter_cupti("cuptiActivityRegisterCallbacks")) return error;
  if (!requested || !completed) return refuse(kInvalidParameter, "cuptiActivityRegisterCallbacks: one is missing");
  const std::lock_guard<std::recursive_mutex> lock(s.mutex);
  if (!s.subscriber) refuse(kInvalidOperation, "cuptiActivityRegisterCallbacks by who has not subscribed");
  s.requested = requested;
  s.completed = completed;
  return 0;
}

namespace {

int set_enabled(const char* name, int kind, bool enabled) {
  static auto& the_recorder = *new recorder;
  session& s = the_session();
  if (const int error = enter_cupti(name)) return error;
  const std::lock_guard<std::recursive_mutex> lock(s.mutex);
  if (std::find(std::begin(kKinds), std::end(kKinds), kind) == std::end(kKinds))
    return refuse(kInvalidKind, "%s: kind %d is not simulated", name, kind);
  if (enabled)
    s.enabled.insert(kind);
  else
    s.enabled.erase(kind);
  the_tracer = s.enabled.empty() ? nullptr : &the_recorder;
  return 0;
}

} // namespace

CUPTI_API cuptiActivityEnable(int kind) {
  return set_enabled("cuptiActivityEnable", kind, true);
}
CUPTI_API cuptiActivityDisable(int kind) {
  return set_enabled("cuptiActivityDisable", kind, false);
}

CUPTI_API cuptiActivityFlushAll(uint32_t flag) {
  session& s = the_session();
  if (const int error = enter_cupti("cuptiActivityFlushAll")) return error;
  if (flag > kCUPTI_ACTIVITY_FLAG_FLUSH_FORCED) return refuse(kInvalidParameter, "cuptiActivityFlushAll(%u)", flag);
  const std::lock_guard<std::recursive_mutex> lock(s.mutex);
  if (!s.completed) return refuse(kInvalidOperation, "cuptiActivityFlushAll before cuptiActivityRegisterCallbacks");
  give_back(s);
  return 0;
}

CUPTI_API cuptiActivityGetNextRecord(uint8_t* data, size_t valid, CUpti_Activity** record) {
  session& s = the_session();
  if (!data || !record) return refuse(kInvalidParameter, "cuptiActivityGetNextRecord without a buffer");
  {
    const std::lock_guard<std::recursive_mutex> lock(s.mutex);
    if (is_ours(s, data)) return refuse(kInvalidParameter, "cuptiActivityGetNextRecord of a buffer that is CUPTI's");
  }
  auto* const last = reinterpret_cast<uint8_t*>(*record);
  uint8_t* const next = last ? last + size_of((*record)->kind) : data;
  if (next >= data + valid) return kMaxLimitReached; // how programs end
  *record = reinterpret_cast<CUpti_Activity*>(next);
  return 0;
}

CUPTI_API cuptiActivityPushExternalCorrelationId(int kind, uint64_t id) {
  if (const int error = enter_cupti("cuptiActivityPushExternalCorrelationId")) return error;
  if (kind < 1 || kind > kCUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM2)
    return refuse(kInvalidParameter, "cuptiActivityPushExternalCorrelationId: kind %d", kind);
  pushed[kind].push_back(id);
  return 0;
}

CUPTI_API cuptiActivityPopExternalCorrelationId(int kind, uint64_t* last) {
  if (const int error = enter_cupti("cuptiActivityPopExternalCorrelationId")) return error;
  auto& ids = pushed[kind];
  if (ids.empty()) return refuse(kQueueEmpty, "cuptiActivityPopExternalCorrelationId: nothing was pushed");
  if (last) *last = ids.back();
  ids.pop_back();
  return 0;
}

CUPTI_API cuptiGetTimestamp(uint64_t* timestamp) {
  if (const int error = enter_cupti("cuptiGetTimestamp")) return error;
  *timestamp = on_clock(static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count()));
  return 0;
}

CUPTI_API cuptiGetStreamIdEx(CUcontext given, CUstream handle, uint8_t per_thread, uint32_t* id) {
  CUcontext context = nullptr;
  CUstream stream = nullptr;
  if (enter("cuptiGetStreamIdEx", &context)) return kNotInitialized;
  // As on an H200 with CUDA 13.0, which does not take null for the current context.
  if (!given || find_stream("cuptiGetStreamIdEx", handle, given, &stream) || per_thread || stream->context != given)
    return refuse(kInvalidStream, "cuptiGetStreamIdEx: not a stream of the context");
  *id = number_of(stream);
  return 0;
}

CUPTI_API cuptiGetResultString(int, const char** text) {
  *text = refusal().c_str();
  return 0;
}

// ---- NVTX ----

CUPTI_API nvtxRangePushA(const char* name) {
  if (!name) return refuse(-1, "nvtxRangePush without a name");
  return depth++;
}

CUPTI_API nvtxRangePop() {
  if (depth == 0) return refuse(-1, "nvtxRangePop: no range was pushed");
  return --depth;
}
