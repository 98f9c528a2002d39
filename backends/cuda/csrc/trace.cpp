#include "trace.h"

#include <ctime>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "common/boundary.h"
#include "cupti.h"
#include "stream.h"

namespace xcuda {
namespace {

constexpr size_t kBufferBytes = 1 << 20;

struct kept_record {
  uint32_t kind, stream, correlation;
  int32_t device;
  uint64_t start, end, bytes;
  std::string name;
};

struct trace {
  std::mutex mutex; // guards what follows
  CUpti_SubscriberHandle subscriber = nullptr;
  std::vector<int> enabled;
  std::map<std::pair<int32_t, uint32_t>, tb_stream*> streams; // by CUPTI's numbers, which it does not use again
  std::mutex kept;                                            // guards what follows
  std::map<uint32_t, uint64_t> pushed;                        // what was on top, by CUPTI's correlation
  std::vector<kept_record> records;
};

trace& the_trace() {
  static auto& one = *new trace; // CUPTI's threads outlive static objects
  return one;
}

// ---- records ----

std::string name_of(const cupti_memory& copy) {
  const auto place = [](uint8_t kind) {
    if (kind == kCUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE) return "Pageable";
    return kind == kCUPTI_ACTIVITY_MEMORY_KIND_PINNED ? "Pinned" : "Device";
  };
  const char* direction = "DtoD";
  if (copy.copyKind == kCUPTI_ACTIVITY_MEMCPY_KIND_HTOD) direction = "HtoD";
  if (copy.copyKind == kCUPTI_ACTIVITY_MEMCPY_KIND_DTOH) direction = "DtoH";
  if (copy.copyKind == kCUPTI_ACTIVITY_MEMCPY_KIND_PTOP) direction = "PtoP";
  return std::string("Memcpy ") + direction + " (" + place(copy.srcKind) + " -> " + place(copy.dstKind) + ")";
}

template <typename Record>
kept_record kept(uint32_t kind, const Record& r, uint32_t correlation, uint64_t bytes, std::string name) {
  return {kind, r.streamId, correlation, static_cast<int32_t>(r.deviceId), r.start, r.end, bytes, std::move(name)};
}

void keep(trace& t, const CUpti_Activity* record) {
  const auto& memory = *reinterpret_cast<const cupti_memory*>(record);
  switch (record->kind) {
    case kCUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION: {
      const auto& r = *reinterpret_cast<const CUpti_ActivityExternalCorrelation*>(record);
      if (r.externalKind == kCUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM2) t.pushed[r.correlationId] = r.externalId;
      return;
    }
    case kCUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: {
      const auto& r = *reinterpret_cast<const cupti_kernel*>(record);
      return t.records.push_back(kept(TB_TRACE_KERNEL, r, r.correlationId, 0, r.name ? r.name : "kernel"));
    }
    case kCUPTI_ACTIVITY_KIND_MEMCPY:
      return t.records.push_back(kept(TB_TRACE_COPY, memory, memory.correlationId, memory.bytes, name_of(memory)));
    case kCUPTI_ACTIVITY_KIND_MEMCPY2: {
      const auto& r = *reinterpret_cast<const cupti_peer_copy*>(record);
      return t.records.push_back(kept(TB_TRACE_COPY, r.copy, r.correlationId, r.copy.bytes, name_of(r.copy)));
    }
    case kCUPTI_ACTIVITY_KIND_MEMSET:
      return t.records.push_back(kept(TB_TRACE_FILL, memory, memory.correlationId, memory.bytes, "Memset (Device)"));
  }
}

// On threads of CUPTI, and on those that it is called by.
void give_buffer(uint8_t** buffer, size_t* size, size_t* max_records) {
  *buffer = new (std::nothrow) uint8_t[kBufferBytes];
  *size = *buffer ? kBufferBytes : 0;
  *max_records = 0;
}

void take_buffer(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t valid) {
  const std::unique_ptr<uint8_t[]> owned(buffer);
  trace& t = the_trace();
  const std::lock_guard<std::mutex> lock(t.kept);
  CUpti_Activity* record = nullptr;
  while (cupti.ActivityGetNextRecord(buffer, valid, &record) == kCUPTI_SUCCESS) keep(t, record);
}

std::vector<int> kinds_of(uint64_t asked) {
  // Correlations come with what is recorded of calls: the driver's, and those that libraries make to the runtime.
  std::vector<int> kinds{kCUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION, kCUPTI_ACTIVITY_KIND_DRIVER,
                         kCUPTI_ACTIVITY_KIND_RUNTIME};
  if (asked & TB_TRACE_KERNEL) kinds.push_back(kCUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
  if (asked & TB_TRACE_COPY) kinds.insert(kinds.end(), {kCUPTI_ACTIVITY_KIND_MEMCPY, kCUPTI_ACTIVITY_KIND_MEMCPY2});
  if (asked & TB_TRACE_FILL) kinds.push_back(kCUPTI_ACTIVITY_KIND_MEMSET);
  return kinds;
}

int64_t monotonic_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

void note_streams(device& d) {
  if (!d.context) return;
  const context_scope scope(d);
  const std::lock_guard<std::mutex> none_goes(d.mutex);
  for (tb_stream* stream : d.streams) note_stream(d, stream);
}

// Nobody else's session is disturbed: whoever has CUPTI is its one subscriber.
result begin(trace& t, uint64_t kinds) {
  result r =
      check_cupti(cupti.Subscribe(&t.subscriber, [](void*, int, uint32_t, const void*) {}, nullptr), "cuptiSubscribe");
  if (r.status == TB_STATUS_UNSUPPORTED) host().log(TB_LOG_WARNING, ("xcuda: " + r.text).c_str());
  if (r.ok())
    r = check_cupti(cupti.ActivityRegisterCallbacks(give_buffer, take_buffer), "cuptiActivityRegisterCallbacks");
  for (int kind : kinds_of(kinds)) {
    if (r.ok()) r = check_cupti(cupti.ActivityEnable(kind), "cuptiActivityEnable");
    if (r.ok()) t.enabled.push_back(kind);
  }
  return r;
}

// The first failure. The last buffers come while it flushes.
result end(trace& t) {
  result r;
  const auto note = [&r](CUptiResult error, const char* what) {
    if (r.ok()) r = check_cupti(error, what);
  };
  const bool has_recorded = !t.enabled.empty();
  for (int kind : std::exchange(t.enabled, {})) note(cupti.ActivityDisable(kind), "cuptiActivityDisable");
  if (has_recorded) note(cupti.ActivityFlushAll(kCUPTI_ACTIVITY_FLAG_FLUSH_FORCED), "cuptiActivityFlushAll");
  note(cupti.Unsubscribe(std::exchange(t.subscriber, nullptr)), "cuptiUnsubscribe");
  return r;
}

// ---- slots ----

result trace_start(uint64_t kinds) {
  trace& t = the_trace();
  const std::lock_guard<std::mutex> lock(t.mutex);
  if (t.subscriber) return failure(TB_STATUS_INVALID_ARGUMENT, "trace_start: a trace runs");
  t.streams.clear();
  result r = begin(t, kinds);
  if (!r.ok() && t.subscriber) end(t);
  return r;
}

result trace_stop() {
  trace& t = the_trace();
  for_each_device(note_streams);
  const std::lock_guard<std::mutex> lock(t.mutex);
  return t.subscriber ? end(t) : failure(TB_STATUS_INVALID_ARGUMENT, "trace_stop: no trace runs");
}

result trace_collect(tb_trace_callback callback, void* arg) {
  trace& t = the_trace();
  std::vector<kept_record> records;
  std::map<uint32_t, uint64_t> pushed;
  {
    const std::lock_guard<std::mutex> lock(t.kept);
    records.swap(t.records);
    pushed.swap(t.pushed);
  }
  std::unique_lock<std::mutex> lock(t.mutex);
  const auto streams = t.streams;
  lock.unlock();
  for (const kept_record& r : records) {
    if (!r.end) continue; // it could not be timed, or has not run
    const auto stream = streams.find({r.device, r.stream});
    const auto id = pushed.find(r.correlation);
    const tb_trace_record record{sizeof record,
                                 r.kind,
                                 r.device,
                                 stream == streams.end() ? r.stream : reinterpret_cast<uint64_t>(stream->second),
                                 id == pushed.end() ? 0 : id->second,
                                 static_cast<int64_t>(r.start),
                                 static_cast<int64_t>(r.end),
                                 r.name.c_str(),
                                 r.bytes};
    callback(arg, &record);
  }
  return {};
}

result correlation_push(uint64_t id) {
  return check_cupti(cupti.ActivityPushExternalCorrelationId(kCUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM2, id),
                     "correlation_push");
}

result correlation_pop() {
  uint64_t last = 0;
  return check_cupti(cupti.ActivityPopExternalCorrelationId(kCUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM2, &last),
                     "correlation_pop");
}

// CUPTI gives the times of all devices on one clock.
result clock_pair(int32_t, int64_t* out_device_ns, int64_t* out_host_ns) {
  uint64_t now = 0;
  const int64_t before = monotonic_ns();
  result r = check_cupti(cupti.GetTimestamp(&now), "cuptiGetTimestamp");
  if (!r.ok()) return r;
  *out_host_ns = before + (monotonic_ns() - before) / 2;
  *out_device_ns = static_cast<int64_t>(now);
  return r;
}

// What they answer is the depth, or that no tool listens.
result range_push(const char* name) {
  nvtx.RangePushA(name);
  return {};
}

result range_pop() {
  nvtx.RangePop();
  return {};
}

tb_profiler_table make_table() {
  tb_profiler_table table = PLUGIN_TABLE(tb_profiler_table, trace_start, trace_stop, trace_collect, correlation_push,
                                         correlation_pop, clock_pair);
  if (!nvtx.RangePop) return table;
  PLUGIN_SET(table, range_push, range_pop);
  return table;
}

} // namespace

const tb_profiler_table* profiler() {
  static const bool offered = load_cupti();
  static const tb_profiler_table table = make_table();
  return offered ? &table : nullptr;
}

void note_stream(device& d, tb_stream* stream) {
  trace& t = the_trace();
  const std::lock_guard<std::mutex> lock(t.mutex);
  if (!t.subscriber) return;
  uint32_t id = 0;
  if (cupti.GetStreamIdEx(d.context, handle_of(stream), 0, &id) == kCUPTI_SUCCESS) t.streams[{d.index, id}] = stream;
}

} // namespace xcuda
