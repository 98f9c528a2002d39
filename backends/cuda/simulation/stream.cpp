// Streams, each with a thread; events; host functions; waits for a word.
#include <unistd.h>

#include <algorithm>

#include "driver.h"

namespace sim {

std::atomic<tracer*> the_tracer{nullptr};

namespace {

thread_local uint32_t call_of_work = 0; // that has enqueued what runs

uint64_t now_ns() {
  return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}

} // namespace

int run_traced(command& c, CUstream stream) {
  const uint64_t start = now_ns();
  const int error = c.run();
  tracer* const to = the_tracer;
  // What was enqueued before there was a tracer has no call.
  if (to && call_of_work && c.work.kind != traced_work::kNothing)
    to->done(c.work, stream, call_of_work, start, now_ns());
  return error;
}

namespace {

// What waits behind a command that is late is late as well: delays are for commands that would be on time, and some.
constexpr uint64_t kCommandsPerDelay = 8;

void push(CUstream s, command c, uint32_t call = 0) {
  bool is_late = false;
  {
    const std::lock_guard<std::mutex> lock(s->mutex);
    is_late = s->pending++ == 0 || ++s->commands % kCommandsPerDelay == 0;
  }
  s->worker->push([s, is_late, call, c = std::move(c)]() mutable {
    call_of_work = call;
    if (is_late) delay();
    int error = s->context->error;
    if (!error) {
      error = c.always ? 0 : injected_fault("task");
      if (error) refuse(error, "a command fails because CUDA_SIM_FAIL says so");
      if (error) s->context->fail(error);
    }
    if (!error || c.always)
      if ((error = run_traced(c, s))) s->context->fail(error);
    c.run = nullptr; // before anybody learns that it is done
    const std::lock_guard<std::mutex> lock(s->mutex);
    --s->pending;
    s->changed.notify_all();
  });
}

// What follows on `behind` waits for what is on `ahead`.
void order(CUstream ahead, CUstream behind) {
  auto reached = std::make_shared<completion>();
  push(ahead, {[reached] { return reached->finish(), 0; }, true});
  push(behind, {[reached] { return reached->wait(), 0; }, true});
}

// The default stream and blocking ones wait for each other.
int order_with_default(const char* name, CUstream s) {
  std::vector<CUstream> blocking;
  {
    const std::lock_guard<std::mutex> lock(s->context->mutex);
    for (CUstream each : s->context->streams)
      if (each->blocking && registry<CUstream_st>::all().has(each)) blocking.push_back(each);
    if (s->blocking) blocking = {s->context->streams.front()};
    if (!s->blocking && s != s->context->streams.front()) blocking.clear();
  }
  for (CUstream each : blocking) {
    const std::lock_guard<std::mutex> lock(capture_mutex());
    if (!each->capturing) continue;
    each->capturing->invalid = true;
    return refuse(kImplicit, "%s on the default stream while a blocking stream is captured", name);
  }
  for (CUstream each : blocking) order(each, s);
  return 0;
}

} // namespace

int find_stream(const char* name, CUstream handle, CUcontext context, CUstream* out_stream) {
  *out_stream = handle;
  if (!handle) {
    const std::lock_guard<std::mutex> lock(context->mutex);
    *out_stream = context->streams.front();
  } else if (!registry<CUstream_st>::all().has(handle)) {
    return refuse(kCUDA_ERROR_INVALID_HANDLE, "%s: not a stream", name);
  }
  const int error = (*out_stream)->context->error;
  return error ? refuse(error, "%s: the stream's context is lost", name) : 0;
}

int enter(const char* name, CUstream handle, CUstream* out_stream) {
  CUcontext context = nullptr;
  const int error = enter(name, &context);
  return error ? error : find_stream(name, handle, context, out_stream);
}

int enqueue(const char* name, CUstream s, command c) {
  {
    const std::lock_guard<std::mutex> lock(capture_mutex());
    if (const auto capturing = s->capturing) {
      if (capturing->invalid) return refuse(kInvalidated, "%s: the capture has failed", name);
      capturing->commands.push_back(std::move(c));
      ++capturing->members[s][s];
      return 0;
    }
  }
  if (const int error = order_with_default(name, s)) return error;
  tracer* const to = the_tracer;
  push(s, std::move(c), to ? to->called(name) : 0);
  return 0;
}

uint32_t number_of(CUstream s) {
  constexpr uint32_t kFirst = 7;
  const std::lock_guard<std::mutex> lock(s->context->mutex);
  const auto& all = s->context->streams;
  return kFirst + static_cast<uint32_t>(std::find(all.begin(), all.end(), s) - all.begin());
}

int wait_for(CUstream s) {
  std::unique_lock<std::mutex> lock(s->mutex);
  s->changed.wait(lock, [s] { return s->pending == 0; });
  return s->context->error;
}

namespace {

// For calls that wait for a stream or ask for it.
int find_idle_stream(const char* name, CUstream handle, CUstream* out_stream) {
  if (const int error = enter(name, handle, out_stream)) return error;
  const std::lock_guard<std::mutex> lock(capture_mutex());
  if (!(*out_stream)->capturing) return 0;
  (*out_stream)->capturing->invalid = true;
  return refuse(kCUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "%s of a stream that is captured", name);
}

int find_event(const char* name, CUevent event) {
  return registry<CUevent_st>::all().has(event) ? 0 : refuse(kCUDA_ERROR_INVALID_HANDLE, "%s: not an event", name);
}

// For calls that wait for an event or ask for it; *out_last is null if it was never recorded.
int find_record(const char* name, CUevent event, std::shared_ptr<completion>* out_last) {
  CUcontext context = nullptr;
  if (const int error = enter(name, &context)) return error;
  if (const int error = find_event(name, event)) return error;
  const std::scoped_lock lock(capture_mutex(), event->mutex);
  *out_last = event->last;
  if (!event->captured) return 0;
  event->captured->invalid = true;
  return refuse(kCapturedEvent, "%s of an event that was recorded in a capture", name);
}

} // namespace
} // namespace sim

using namespace sim;

CU_API cuStreamCreateWithPriority(CUstream* stream, unsigned flags, int) {
  CUcontext context = nullptr;
  if (const int error = enter("cuStreamCreateWithPriority", &context)) return error;
  if (flags > 1) return refuse(kCUDA_ERROR_INVALID_VALUE, "cuStreamCreateWithPriority(flags %u)", flags);
  auto* made = make<CUstream_st>();
  made->context = context;
  made->blocking = flags == 0;
  const std::lock_guard<std::mutex> lock(context->mutex);
  context->streams.push_back(made);
  *stream = made;
  return 0;
}

// What is on it is still done.
CU_API cuStreamDestroy_v2(CUstream handle) {
  CUstream stream = nullptr;
  if (!handle) return refuse(kCUDA_ERROR_INVALID_HANDLE, "cuStreamDestroy of the default stream");
  if (const int error = find_idle_stream("cuStreamDestroy", handle, &stream)) return error;
  registry<CUstream_st>::all().remove(stream);
  stream->worker.reset();
  return 0;
}

CU_API cuStreamSynchronize(CUstream handle) {
  CUstream stream = nullptr;
  if (const int error = find_idle_stream("cuStreamSynchronize", handle, &stream)) return error;
  const int error = wait_for(stream);
  trim_pool(stream->context);
  return error;
}

CU_API cuStreamQuery(CUstream handle) {
  CUstream stream = nullptr;
  if (const int error = find_idle_stream("cuStreamQuery", handle, &stream)) return error;
  const std::lock_guard<std::mutex> lock(stream->mutex);
  return stream->context->error ? stream->context->error.load() : stream->pending ? kCUDA_ERROR_NOT_READY : 0;
}

CU_API cuLaunchHostFunc(CUstream handle, CUhostFn function, void* argument) {
  CUstream stream = nullptr;
  if (const int error = enter("cuLaunchHostFunc", handle, &stream)) return error;
  return enqueue("cuLaunchHostFunc", stream, {[=] {
                   in_host_function = true;
                   function(argument);
                   in_host_function = false;
                   return 0;
                 }});
}

CU_API cuStreamWaitValue32_v2(CUstream handle, CUdeviceptr address, unsigned value, unsigned flags) {
  CUstream stream = nullptr;
  if (const int error = enter("cuStreamWaitValue32", handle, &stream)) return error;
  if (flags > 1 || address % 4)
    return refuse(kCUDA_ERROR_INVALID_VALUE, "cuStreamWaitValue32: flags %u, or not aligned", flags);
  auto use = std::make_shared<awaited_word>(address);
  return enqueue("cuStreamWaitValue32", stream, {[=] {
                   const auto* word =
                       reinterpret_cast<std::atomic<unsigned>*>(resolve(address, sizeof value, stream->context));
                   if (!word)
                     return refuse(kCUDA_ERROR_ILLEGAL_ADDRESS, "cuStreamWaitValue32 outside of an allocation");
                   const auto reached = [&] {
                     return flags == 0 ? static_cast<int>(word->load() - value) >= 0 : word->load() == value;
                   };
                   while (!reached() && !stream->context->error) usleep(20);
                   (void)use;
                   return 0;
                 }});
}

// ---- events ----

CU_API cuEventCreate(CUevent* event, unsigned flags) {
  CUcontext context = nullptr;
  if (const int error = enter("cuEventCreate", &context)) return error;
  if (flags & ~7u || (flags & 4u && !(flags & 2u)))
    return refuse(kCUDA_ERROR_INVALID_VALUE, "cuEventCreate(flags %u)", flags);
  *event = make<CUevent_st>();
  (*event)->context = context;
  (*event)->flags = flags;
  return 0;
}

CU_API cuEventDestroy_v2(CUevent event) {
  CUcontext context = nullptr;
  if (const int error = enter("cuEventDestroy", &context)) return error;
  return registry<CUevent_st>::all().retire(event) ? 0
                                                   : refuse(kCUDA_ERROR_INVALID_HANDLE, "cuEventDestroy: not an event");
}

CU_API cuEventRecord(CUevent event, CUstream handle) {
  CUstream stream = nullptr;
  if (const int error = enter("cuEventRecord", handle, &stream)) return error;
  if (const int error = find_event("cuEventRecord", event)) return error;
  if (event->context != stream->context)
    return refuse(kCUDA_ERROR_INVALID_HANDLE, "cuEventRecord: event and stream are of two contexts");
  auto reached = std::make_shared<completion>();
  {
    const std::scoped_lock lock(capture_mutex(), event->mutex);
    event->captured = stream->capturing;
    if (const auto& capturing = stream->capturing) {
      if (capturing->invalid) return refuse(kInvalidated, "cuEventRecord: the capture has failed");
      event->at = capturing->members[stream];
      return 0;
    }
    event->last = reached;
  }
  return enqueue("cuEventRecord", stream, {[reached] { return reached->finish(), 0; }, true});
}

CU_API cuStreamWaitEvent(CUstream handle, CUevent event, unsigned flags) {
  CUstream stream = nullptr;
  if (const int error = enter("cuStreamWaitEvent", handle, &stream)) return error;
  if (const int error = find_event("cuStreamWaitEvent", event)) return error;
  if (flags) return refuse(kCUDA_ERROR_INVALID_VALUE, "cuStreamWaitEvent(flags %u)", flags);
  std::shared_ptr<completion> last;
  {
    const std::scoped_lock lock(capture_mutex(), event->mutex);
    const auto& there = event->captured;
    auto& here = stream->capturing;
    if (here && here->invalid) return refuse(kInvalidated, "cuStreamWaitEvent: the capture has failed");
    if (here && here != there) {
      here->invalid = true;
      return refuse(there ? kMerge : kIsolation, "cuStreamWaitEvent: the event was recorded outside of the capture");
    }
    if (there) {
      bool active = false;
      for (const auto& each : captures()) active |= each == there;
      if (!active) return refuse(kCapturedEvent, "cuStreamWaitEvent: the capture of the event has ended");
      if (handle == nullptr)
        return refuse(kCUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "cuStreamWaitEvent: the default stream joins a capture");
      here = there;
      for (const auto& [other, number] : event->at) {
        size_t& known = there->members[stream][other];
        known = std::max(known, number);
      }
      return 0;
    }
    last = event->last;
  }
  if (!last) return 0;
  return enqueue("cuStreamWaitEvent", stream, {[last] { return last->wait(), 0; }, true});
}

CU_API cuEventQuery(CUevent event) {
  std::shared_ptr<completion> last;
  if (const int error = find_record("cuEventQuery", event, &last)) return error;
  if (last && !last->is_done()) return kCUDA_ERROR_NOT_READY;
  return event->context->error;
}

CU_API cuEventSynchronize(CUevent event) {
  std::shared_ptr<completion> last;
  if (const int error = find_record("cuEventSynchronize", event, &last)) return error;
  if (last) last->wait();
  trim_pool(event->context);
  return event->context->error;
}

CU_API cuEventElapsedTime(float* milliseconds, CUevent start, CUevent end) {
  std::shared_ptr<completion> from, to;
  if (const int error = find_record("cuEventElapsedTime", start, &from)) return error;
  if (const int error = find_record("cuEventElapsedTime", end, &to)) return error;
  if (!from || !to || (start->flags | end->flags) & kCU_EVENT_DISABLE_TIMING || start->context != end->context)
    return refuse(kCUDA_ERROR_INVALID_HANDLE,
                  "cuEventElapsedTime: both have to be recorded, with times, in one context");
  if (!from->is_done() || !to->is_done()) return kCUDA_ERROR_NOT_READY;
  *milliseconds = std::chrono::duration<float, std::milli>(to->time - from->time).count();
  return 0;
}
