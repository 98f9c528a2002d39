// Streams, each with a thread; events; callbacks.
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <set>
#include <thread>

#include "common/simulation/completion.h"
#include "runtime.h"

namespace sim {
namespace {

std::mutex registry_mutex; // guards the sets of live handles
std::set<stream*>& live_streams() {
  static auto& all = *new std::set<stream*>;
  return all;
}

void run(stream* s) {
  std::unique_lock<std::mutex> lock(s->mutex);
  for (;;) {
    s->changed.wait(lock, [&] { return !s->commands.empty(); });
    const command next = std::move(s->commands.front());
    s->commands.pop_front();
    s->busy = true;
    lock.unlock();
    delay();
    int error = injected_fault("task");
    if (error == kLost) s->owner->lost = true;
    if (error) refuse(error, "a command fails because ASCEND_SIM_FAIL says so");
    if (const int own = next()) error = own; // waits and callbacks happen all the same
    lock.lock();
    s->busy = false;
    if (error && !s->error) s->error = error;
    s->changed.notify_all();
  }
}

stream* make_stream(device* d) {
  auto* s = new stream;
  s->owner = d;
  {
    const std::lock_guard<std::mutex> lock(registry_mutex);
    live_streams().insert(s);
  }
  const std::lock_guard<std::mutex> lock(d->mutex);
  d->streams.push_back(s);
  return s;
}

stream* default_stream(device* d) {
  {
    const std::lock_guard<std::mutex> lock(d->mutex);
    if (!d->streams.empty()) return d->streams.front();
  }
  return make_stream(d);
}

struct mark : completion {
  stream* made_on = nullptr;
  std::atomic<int> waiting{0}; // commands that wait for it
};

struct event {
  device* owner;
  uint32_t flags;
  std::mutex mutex; // guards last
  std::shared_ptr<mark> last;

  std::shared_ptr<mark> record() {
    const std::lock_guard<std::mutex> lock(mutex);
    return last;
  }
};

std::set<event*>& live_events() {
  static auto& all = *new std::set<event*>;
  return all;
}

int find_event(const char* name, void* handle, event** out_event) {
  const std::lock_guard<std::mutex> lock(registry_mutex);
  *out_event = static_cast<event*>(handle);
  return live_events().count(*out_event) ? kOk : refuse(kInvalid, "%s: not an event", name);
}

int take_error(stream* s) {
  const std::lock_guard<std::mutex> lock(s->mutex);
  const int error = s->error;
  s->error = 0;
  return error ? refuse(error, "a command on the stream has failed") : kOk;
}

} // namespace

int find_stream(const char* name, void* handle, stream** out_stream) {
  device* d = current_device();
  stream* s = handle ? static_cast<stream*>(handle) : default_stream(d);
  {
    const std::lock_guard<std::mutex> lock(registry_mutex);
    if (!live_streams().count(s)) return refuse(kInvalid, "%s: not a stream", name);
  }
  if (s->owner != d)
    return refuse(kWrongContext, "%s: a stream of device %d on a thread of device %d", name, s->owner->index, d->index);
  *out_stream = s;
  return kOk;
}

void enqueue(stream* s, command c) {
  const std::lock_guard<std::mutex> lock(s->mutex);
  if (!s->started) {
    s->started = true;
    sigset_t every, before;
    sigfillset(&every);
    pthread_sigmask(SIG_SETMASK, &every, &before);
    std::thread(run, s).detach();
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
  s->commands.push_back(std::move(c));
  s->changed.notify_all();
}

int wait_for(stream* s) {
  {
    std::unique_lock<std::mutex> lock(s->mutex);
    s->changed.wait(lock, [s] { return s->commands.empty() && !s->busy; });
  }
  return take_error(s);
}

} // namespace sim

using namespace sim;

SIM_API int aclrtCreateStreamWithConfig(void** out, uint32_t priority, uint32_t flags) {
  if (const int error = enter("aclrtCreateStreamWithConfig")) return error;
  if (priority > 7 || flags & ~3u)
    return refuse(kInvalid, "aclrtCreateStreamWithConfig(priority %u, flags %u)", priority, flags);
  default_stream(current_device()); // comes first
  *out = make_stream(current_device());
  return kOk;
}

SIM_API int aclrtDestroyStream(void* handle) {
  if (const int error = enter("aclrtDestroyStream")) return error;
  stream* s = nullptr;
  if (const int error = find_stream("aclrtDestroyStream", handle, &s)) return error;
  {
    const std::lock_guard<std::mutex> lock(s->mutex);
    if (s->busy || !s->commands.empty()) return refuse(kInvalid, "aclrtDestroyStream: work is pending on the stream");
  }
  const std::lock_guard<std::mutex> lock(registry_mutex);
  live_streams().erase(s);
  return kOk;
}

SIM_API int aclrtSynchronizeStream(void* handle) {
  if (const int error = enter("aclrtSynchronizeStream")) return error;
  stream* s = nullptr;
  if (const int error = find_stream("aclrtSynchronizeStream", handle, &s)) return error;
  return wait_for(s);
}

SIM_API int aclrtStreamQuery(void* handle, int* status) {
  if (const int error = enter("aclrtStreamQuery")) return error;
  stream* s = nullptr;
  if (const int error = find_stream("aclrtStreamQuery", handle, &s)) return error;
  {
    const std::lock_guard<std::mutex> lock(s->mutex);
    *status = s->busy || !s->commands.empty() ? 1 : 0;
  }
  return *status == 0 ? take_error(s) : kOk;
}

SIM_API int aclrtSynchronizeDevice() {
  if (const int error = enter("aclrtSynchronizeDevice")) return error;
  device* d = current_device();
  std::vector<stream*> all;
  {
    const std::lock_guard<std::mutex> lock(d->mutex);
    all = d->streams;
  }
  int first = kOk;
  for (stream* s : all)
    if (const int error = wait_for(s); !first) first = error;
  return first;
}

// ---- events ----

SIM_API int aclrtCreateEventExWithFlag(void** out, uint32_t flags) {
  if (const int error = enter("aclrtCreateEventExWithFlag")) return error;
  if (flags == 0 || flags & ~(1u | 2u | 8u)) return refuse(kInvalid, "aclrtCreateEventExWithFlag(flags %u)", flags);
  auto* e = new event{current_device(), flags, {}, {}};
  const std::lock_guard<std::mutex> lock(registry_mutex);
  live_events().insert(e);
  *out = e;
  return kOk;
}

SIM_API int aclrtDestroyEvent(void* handle) {
  if (const int error = enter("aclrtDestroyEvent")) return error;
  event* e = nullptr;
  if (const int error = find_event("aclrtDestroyEvent", handle, &e)) return error;
  if (const auto last = e->record(); last && (!last->is_done() || last->waiting > 0))
    return refuse(kInvalid, "aclrtDestroyEvent: the event is pending");
  const std::lock_guard<std::mutex> lock(registry_mutex);
  live_events().erase(e);
  return kOk;
}

SIM_API int aclrtRecordEvent(void* event_handle, void* handle) {
  if (const int error = enter("aclrtRecordEvent")) return error;
  event* e = nullptr;
  stream* s = nullptr;
  if (const int error = find_event("aclrtRecordEvent", event_handle, &e)) return error;
  if (const int error = find_stream("aclrtRecordEvent", handle, &s)) return error;
  if (e->owner != s->owner) return refuse(kWrongContext, "aclrtRecordEvent: event and stream are of two devices");
  auto made = std::make_shared<mark>();
  made->made_on = s;
  {
    const std::lock_guard<std::mutex> lock(e->mutex);
    e->last = made;
  }
  enqueue(s, [made] {
    made->finish();
    return kOk;
  });
  return kOk;
}

SIM_API int aclrtStreamWaitEvent(void* handle, void* event_handle) {
  if (const int error = enter("aclrtStreamWaitEvent")) return error;
  event* e = nullptr;
  stream* s = nullptr;
  if (const int error = find_event("aclrtStreamWaitEvent", event_handle, &e)) return error;
  if (const int error = find_stream("aclrtStreamWaitEvent", handle, &s)) return error;
  if (!(e->flags & 1u)) return refuse(kInvalid, "aclrtStreamWaitEvent: the event was made without ACL_EVENT_SYNC");
  const auto last = e->record();
  if (!last) return refuse(kInvalid, "aclrtStreamWaitEvent: the event was never recorded");
  ++last->waiting;
  enqueue(s, [last] {
    last->wait();
    --last->waiting;
    return kOk;
  });
  return kOk;
}

SIM_API int aclrtQueryEventStatus(void* event_handle, int* status) {
  if (const int error = enter("aclrtQueryEventStatus")) return error;
  event* e = nullptr;
  if (const int error = find_event("aclrtQueryEventStatus", event_handle, &e)) return error;
  const auto last = e->record();
  if (!last) return refuse(kInvalid, "aclrtQueryEventStatus: the event was never recorded");
  *status = last->is_done() ? 1 : 0;
  return *status ? take_error(last->made_on) : kOk;
}

SIM_API int aclrtSynchronizeEvent(void* event_handle) {
  if (const int error = enter("aclrtSynchronizeEvent")) return error;
  event* e = nullptr;
  if (const int error = find_event("aclrtSynchronizeEvent", event_handle, &e)) return error;
  const auto last = e->record();
  if (!last) return refuse(kInvalid, "aclrtSynchronizeEvent: the event was never recorded");
  last->wait();
  return take_error(last->made_on);
}

SIM_API int aclrtEventElapsedTime(float* ms, void* start, void* end) {
  if (const int error = enter("aclrtEventElapsedTime")) return error;
  event *first = nullptr, *second = nullptr;
  if (const int error = find_event("aclrtEventElapsedTime", start, &first)) return error;
  if (const int error = find_event("aclrtEventElapsedTime", end, &second)) return error;
  const auto from = first->record(), to = second->record();
  if (!(first->flags & second->flags & 8u) || !from || !to || !from->is_done() || !to->is_done())
    return refuse(kNoTime, "aclrtEventElapsedTime: both events need ACL_EVENT_TIME_LINE and to be complete");
  *ms = std::chrono::duration<float, std::milli>(to->time - from->time).count();
  return kOk;
}

// ---- callbacks ----

namespace {

struct call {
  void (*function)(void*);
  void* argument;
  std::shared_ptr<mark> done;
};

std::mutex calls_mutex;                                                // guards calls
std::condition_variable& calls_changed = *new std::condition_variable; // never destroyed: threads wait at the end
std::map<uint64_t, std::deque<call>>& calls() {
  static auto& all = *new std::map<uint64_t, std::deque<call>>;
  return all;
}

} // namespace

SIM_API int aclrtSubscribeReport(uint64_t thread, void* handle) {
  if (const int error = enter("aclrtSubscribeReport")) return error;
  stream* s = nullptr;
  if (const int error = find_stream("aclrtSubscribeReport", handle, &s)) return error;
  const std::lock_guard<std::mutex> lock(s->mutex);
  if (s->callback_thread) return refuse(kInvalid, "aclrtSubscribeReport: the stream has a thread for callbacks");
  s->callback_thread = thread;
  return kOk;
}

SIM_API int aclrtProcessReport(int32_t timeout_ms) {
  std::unique_lock<std::mutex> lock(calls_mutex);
  auto& mine = calls()[static_cast<uint64_t>(pthread_self())];
  if (!calls_changed.wait_for(lock, std::chrono::milliseconds(timeout_ms), [&] { return !mine.empty(); }))
    return kNoCallback;
  const call next = std::move(mine.front());
  mine.pop_front();
  lock.unlock();
  next.function(next.argument);
  next.done->finish();
  return kOk;
}

SIM_API int aclrtLaunchCallback(void (*function)(void*), void* argument, int block, void* handle) {
  if (const int error = enter("aclrtLaunchCallback")) return error;
  stream* s = nullptr;
  if (const int error = find_stream("aclrtLaunchCallback", handle, &s)) return error;
  uint64_t thread = 0;
  {
    const std::lock_guard<std::mutex> lock(s->mutex);
    thread = s->callback_thread;
  }
  if (!thread) return refuse(kInvalid, "aclrtLaunchCallback: the stream has no thread for callbacks");
  enqueue(s, [=] {
    auto done = std::make_shared<mark>();
    {
      const std::lock_guard<std::mutex> lock(calls_mutex);
      calls()[thread].push_back({function, argument, done});
    }
    calls_changed.notify_all();
    if (block) done->wait();
    return kOk;
  });
  return kOk;
}
