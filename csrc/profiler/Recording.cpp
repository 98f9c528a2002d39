#include "csrc/profiler/Recording.h"

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>

#include <c10/util/Exception.h>

#include "csrc/core/AsyncError.h"
#include "csrc/core/Capture.h"
#include "csrc/core/Runtime.h"
#include "csrc/memory/HostAllocator.h"
#include "csrc/profiler/PluginTrace.h"
#include "csrc/profiler/StreamClock.h"

namespace torch_backend::profiler {
namespace {

/// Tells a kernel from the operator that calls it.
constexpr const char* kCpuKernel = " [CPU kernel]";

/// Work whose times are known when it is complete.
struct PendingWork {
  WorkRecord record;
  std::unique_ptr<Mark> begin;
  std::unique_ptr<Mark> end;
  std::shared_ptr<HostTimes> host_times;
};

/// The one recording. The mutex guards all but the atomics.
struct State {
  std::mutex control; // one start or stop at a time
  std::mutex mutex;
  bool running = false;
  uint64_t kinds = 0;
  PluginTrace plugin;
  Recording result;
  std::vector<PendingWork> pending;
  std::map<std::string, uint64_t> lost; // why work has no times, how often
  std::vector<std::pair<int64_t, int64_t>> pauses;
  std::atomic<uint64_t> epoch{0};
  std::atomic<uint64_t> next_id{1};
  std::atomic<const tb_profiler_table*> table{nullptr};
};

State& state() {
  static auto* instance = new State;
  return *instance;
}

struct HostKernel {
  const void* owner;
  RuntimeRecord runtime;
  std::optional<WorkRecord> work;
};

/// What a thread knows of where it is.
struct ThreadState {
  uint64_t epoch = 0;
  std::vector<uint64_t> operators;
  std::vector<uint64_t> ranges;
  std::vector<HostKernel> host_kernels;
  std::shared_ptr<HostTimes> expected_times; // of the next host function
  std::string expected_name;
  bool quiet = false; // calls that the recording itself makes, and calls inside one that enqueues
  const int32_t system_thread = static_cast<int32_t>(::syscall(SYS_gettid));
  const int32_t thread = static_cast<int32_t>(reinterpret_cast<uintptr_t>(::pthread_self()));
};

ThreadState& this_thread() {
  thread_local ThreadState instance;
  const uint64_t epoch = state().epoch.load(std::memory_order_relaxed);
  if (instance.epoch != epoch) {
    instance.epoch = epoch;
    instance.operators.clear();
    instance.ranges.clear();
    instance.host_kernels.clear();
  }
  return instance;
}

uint64_t top(const std::vector<uint64_t>& stack) {
  return stack.empty() ? 0 : stack.back();
}

RuntimeRecord runtime_record(const ThreadState& thread, const char* name, int device, int64_t start_ns) {
  const uint64_t id = state().next_id.fetch_add(1, std::memory_order_relaxed);
  return {name, device, start_ns, 0, id, top(thread.operators), thread.system_thread, thread.thread};
}

WorkRecord work_record(const ThreadState& thread, const RuntimeRecord& call, WorkKind kind, std::string name,
                       tb_stream* stream, uint64_t size_bytes, Clock clock) {
  return {kind,    std::move(name), call.device, reinterpret_cast<uint64_t>(stream), size_bytes, 0, 0, call.id,
          call.op, thread.ranges,   clock};
}

uint64_t trace_kind(WorkKind kind) {
  constexpr std::array<uint64_t, 3> kKinds = {TB_TRACE_KERNEL, TB_TRACE_COPY, TB_TRACE_FILL};
  return kKinds[static_cast<std::size_t>(kind)];
}

/// Counts it, by its text.
void note_failure(const std::exception_ptr& error) {
  auto& all = state();
  std::string text = "unknown";
  try {
    std::rethrow_exception(error);
  } catch (const c10::Error& e) {
    text = e.what_without_backtrace();
  } catch (const std::exception& e) {
    text = e.what();
  }
  const std::lock_guard<std::mutex> lock(all.mutex);
  ++all.lost[text];
}

/// The recording's own calls are not recorded.
class Quiet {
 public:
  explicit Quiet(ThreadState& thread) : thread_(thread), before_(std::exchange(thread.quiet, true)) {}
  ~Quiet() {
    thread_.quiet = before_;
  }

 private:
  ThreadState& thread_;
  bool before_;
};

} // namespace

int64_t now_ns() noexcept {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// ---- calls ----

namespace {

class Call final : public ObservedCall {
 public:
  Call(ThreadState& thread, const char* slot, int device)
      : runtime_(runtime_record(thread, slot, device, now_ns())), epoch_(thread.epoch) {}
  ~Call() override;

  void kernel(tb_stream* stream, const std::string& name) override {
    begin_work(stream, WorkKind::kKernel, name + " [device kernel]", 0);
  }
  void copy(tb_stream* stream, uint32_t kind, const void* dst, const void* src, uint64_t size_bytes) override {
    begin_work(stream, WorkKind::kCopy, copy_name(kind, dst, src), size_bytes);
  }
  void fill(tb_stream* stream, uint64_t size_bytes) override {
    begin_work(stream, WorkKind::kFill, "Memset (Device)", size_bytes);
  }
  void host_function(tb_stream* stream) override;
  void enqueued() override;

 private:
  static std::string copy_name(uint32_t kind, const void* dst, const void* src);
  void begin_work(tb_stream* stream, WorkKind kind, std::string name, uint64_t size_bytes);

  RuntimeRecord runtime_;
  const uint64_t epoch_;
  // of the work, if there is any
  std::optional<WorkRecord> work_;
  bool enqueued_ = false;
  std::unique_ptr<Mark> begin_;
  std::unique_ptr<Mark> end_;
  std::shared_ptr<HostTimes> host_times_;
  const tb_profiler_table* table_ = nullptr; // where the id was pushed
};

ObservedCall* observe(const char* slot, int device) {
  auto& thread = this_thread();
  return thread.quiet || device < 0 ? nullptr : new Call(thread, slot, device);
}

std::string Call::copy_name(uint32_t kind, const void* dst, const void* src) {
  // As CUDA's, which tools look for.
  const auto host = [](const void* ptr) { return is_pinned_ptr(ptr) ? "Pinned" : "Pageable"; };
  switch (kind) {
    case TB_COPY_HOST_TO_DEVICE:
      return c10::str("Memcpy HtoD (", host(src), " -> Device)");
    case TB_COPY_DEVICE_TO_HOST:
      return c10::str("Memcpy DtoH (Device -> ", host(dst), ")");
    case TB_COPY_PEER:
      return "Memcpy PtoP (Device -> Device)";
    default:
      return "Memcpy DtoD (Device -> Device)";
  }
}

void Call::begin_work(tb_stream* stream, WorkKind kind, std::string name, uint64_t size_bytes) {
  if (graph::any_capture()) {
    return; // what is captured does not run now, and no event may be recorded beside it
  }
  auto& thread = this_thread();
  work_ = work_record(thread, runtime_, kind, std::move(name), stream, size_bytes, Clock::kHost);
  table_ = state().table.load(std::memory_order_acquire);
  if (table_) {
    push_correlation(*table_, runtime_.id);
  } else if (!host_times_ && device_api().async()) {
    const Quiet quiet(thread);
    try {
      begin_ = std::make_unique<Mark>(runtime_.device, stream);
    } catch (...) {
      note_failure(std::current_exception());
    }
  }
  // Not the time that it took to get ready.
  runtime_.start_ns = now_ns();
}

void Call::host_function(tb_stream* stream) {
  auto& thread = this_thread();
  host_times_ = std::move(thread.expected_times);
  if (host_times_) {
    begin_work(stream, WorkKind::kKernel, std::move(thread.expected_name), 0);
  }
}

void Call::enqueued() {
  runtime_.end_ns = now_ns();
  enqueued_ = work_.has_value();
  if (begin_) {
    const Quiet quiet(this_thread());
    try {
      end_ = std::make_unique<Mark>(runtime_.device, reinterpret_cast<tb_stream*>(work_->stream));
    } catch (...) {
      note_failure(std::current_exception());
    }
  }
}

Call::~Call() {
  if (runtime_.end_ns == 0) {
    runtime_.end_ns = now_ns();
  }
  if (table_) {
    pop_correlation(*table_);
  }
  auto& all = state();
  const std::lock_guard<std::mutex> lock(all.mutex);
  if (!all.running || epoch_ != all.epoch.load(std::memory_order_relaxed)) {
    return;
  }
  if (all.kinds & TB_TRACE_RUNTIME) {
    all.result.runtime.push_back(runtime_);
  }
  if (!enqueued_ || !(all.kinds & trace_kind(work_->kind))) {
    return;
  }
  auto& work = *work_;
  if (begin_ && !end_) {
    return; // counted as lost
  }
  if (!begin_ && !host_times_ && !device_api().async()) {
    work.start_ns = runtime_.start_ns;
    work.end_ns = runtime_.end_ns;
  }
  all.pending.push_back({std::move(work), std::move(begin_), std::move(end_), std::move(host_times_)});
}

} // namespace

std::shared_ptr<HostTimes> expect_host_kernel(std::string_view name) {
  if (!recording()) {
    return nullptr;
  }
  auto& thread = this_thread();
  thread.expected_times = std::make_shared<HostTimes>();
  thread.expected_name = c10::str(name, kCpuKernel);
  return thread.expected_times;
}

std::shared_ptr<HostTimes> begin_recorded_kernel(std::string_view name, int device, tb_stream* stream) {
  if (!recording()) {
    return nullptr;
  }
  auto& thread = this_thread();
  const auto call = runtime_record(thread, "graph_launch", device, now_ns());
  auto work = work_record(thread, call, WorkKind::kKernel, c10::str(name, kCpuKernel), stream, 0, Clock::kHost);
  auto& all = state();
  const std::lock_guard<std::mutex> lock(all.mutex);
  if (!all.running || !(all.kinds & TB_TRACE_KERNEL)) {
    return nullptr;
  }
  auto times = std::make_shared<HostTimes>();
  all.pending.push_back({std::move(work), nullptr, nullptr, times});
  return times;
}

// ---- CPU kernels of this thread ----

void begin_host_kernel(const void* owner, const char* name, int device, tb_stream* stream, bool on_device) {
  auto& thread = this_thread();
  if (!thread.host_kernels.empty() && thread.host_kernels.back().owner == owner) {
    thread.host_kernels.pop_back();
  }
  HostKernel kernel{owner, runtime_record(thread, on_device ? "kernel_launch" : "cpu_fallback", device, now_ns()), {}};
  if (on_device) {
    auto full_name = c10::str(std::strstr(name, "::") ? "" : "aten::", name, kCpuKernel);
    kernel.work = work_record(thread, kernel.runtime, WorkKind::kKernel, std::move(full_name), stream, 0, Clock::kHost);
  }
  thread.host_kernels.push_back(std::move(kernel));
}

void end_host_kernel(const void* owner) noexcept {
  auto& thread = this_thread();
  const auto& kernels = thread.host_kernels;
  // What lies above was left by an exception.
  const auto found = std::find_if(kernels.rbegin(), kernels.rend(), [&](const auto& k) { return k.owner == owner; });
  if (found == kernels.rend()) {
    return;
  }
  while (kernels.back().owner != owner) {
    thread.host_kernels.pop_back();
  }
  HostKernel kernel = std::move(thread.host_kernels.back());
  thread.host_kernels.pop_back();
  auto& all = state();
  const std::lock_guard<std::mutex> lock(all.mutex);
  if (!all.running) {
    return;
  }
  kernel.runtime.end_ns = now_ns();
  if (all.kinds & TB_TRACE_RUNTIME) {
    all.result.runtime.push_back(kernel.runtime);
  }
  if (kernel.work && (all.kinds & TB_TRACE_KERNEL)) {
    kernel.work->start_ns = kernel.runtime.start_ns;
    kernel.work->end_ns = kernel.runtime.end_ns;
    all.pending.push_back({std::move(*kernel.work), nullptr, nullptr, nullptr});
  }
}

void forget_host_kernel() noexcept {
  auto& kernels = this_thread().host_kernels;
  if (!kernels.empty()) {
    kernels.pop_back();
  }
}

// ---- where a thread is ----

void push_operator(uint64_t id) {
  this_thread().operators.push_back(id);
}

void pop_operator() noexcept {
  auto& stack = this_thread().operators;
  if (!stack.empty()) {
    stack.pop_back();
  }
}

void push_range(uint64_t id) {
  this_thread().ranges.push_back(id);
}

void pop_range() noexcept {
  auto& stack = this_thread().ranges;
  if (!stack.empty()) {
    stack.pop_back();
  }
}

// ---- start and stop ----

namespace {

/// Work that a device has passed gets its times. What fails on the way is raised by the user's next wait.
void wait_for(const std::vector<PendingWork>& pending) {
  for (const auto& work : pending) {
    const int device = work.record.device;
    if (device_api().is_lost(device)) {
      continue;
    }
    try {
      if (work.end) {
        work.end->wait();
      } else if (work.host_times && work.host_times->end_ns.load(std::memory_order_acquire) == 0) {
        device_api().stream_synchronize(device, reinterpret_cast<tb_stream*>(work.record.stream));
      }
    } catch (...) {
      record_async_error(device, std::current_exception());
    }
  }
}

void read_times(std::vector<PendingWork>& pending) {
  std::map<int, StreamClock> clocks;
  for (auto& work : pending) {
    auto& record = work.record;
    if (work.host_times) {
      record.start_ns = work.host_times->start_ns.load(std::memory_order_acquire);
      record.end_ns = work.host_times->end_ns.load(std::memory_order_acquire);
    } else if (work.begin && work.end) {
      try {
        auto& clock = clocks.try_emplace(record.device, record.device).first->second;
        record.start_ns = clock.read(*work.begin);
        record.end_ns = clock.read(*work.end);
        record.clock = work.begin->clock();
      } catch (...) {
        note_failure(std::current_exception());
        record.end_ns = 0;
      }
    }
  }
}

/// What the plugin traced, joined with the calls it belongs to, in place of what was measured of the same work.
void join_plugin_records(const State& all, std::vector<PluginTrace::Record> traced, std::vector<PendingWork>& pending,
                         Recording& result) {
  std::unordered_map<uint64_t, const WorkRecord*> calls;
  for (const auto& work : pending) {
    calls.emplace(work.record.id, &work.record);
  }
  std::unordered_map<uint64_t, const RuntimeRecord*> hosts;
  for (const auto& call : result.runtime) {
    hosts.emplace(call.id, &call);
  }
  static std::mutex names_mutex;
  static auto* names = new std::map<std::string, int>; // names of runtime records live on
  std::vector<uint64_t> measured;
  for (auto& record : traced) {
    const auto paused = [&](const auto& pause) {
      return record.start_ns >= pause.first && record.start_ns < pause.second;
    };
    if (std::any_of(all.pauses.begin(), all.pauses.end(), paused)) {
      continue;
    }
    const auto call = calls.find(record.id);
    if (record.kind == TB_TRACE_RUNTIME) {
      const auto host = hosts.find(record.id);
      const std::lock_guard<std::mutex> lock(names_mutex);
      const char* name = names->emplace(record.name, 0).first->first.c_str();
      RuntimeRecord driver{name, record.device, record.start_ns, record.end_ns, record.id, 0, 0, 0};
      if (host != hosts.end()) {
        driver.op = host->second->op;
        driver.system_thread = host->second->system_thread;
        driver.thread = host->second->thread;
      }
      result.driver.push_back(driver);
      continue;
    }
    const auto kind = record.kind == TB_TRACE_COPY   ? WorkKind::kCopy
                      : record.kind == TB_TRACE_FILL ? WorkKind::kFill
                                                     : WorkKind::kKernel;
    WorkRecord work{kind,
                    std::move(record.name),
                    record.device,
                    record.stream,
                    record.size_bytes,
                    record.start_ns,
                    record.end_ns,
                    record.id,
                    0,
                    {},
                    Clock::kPlugin};
    if (call != calls.end()) {
      work.op = call->second->op;
      work.ranges = call->second->ranges;
      work.size_bytes = work.size_bytes ? work.size_bytes : call->second->size_bytes;
      // The core knows the direction of a copy, and the plugin how it is done.
      work.name = kind == WorkKind::kKernel && !work.name.empty() ? work.name : call->second->name;
      measured.push_back(record.id);
    }
    result.work.push_back(std::move(work));
  }
  std::sort(measured.begin(), measured.end());
  for (auto& work : pending) {
    if (std::binary_search(measured.begin(), measured.end(), work.record.id)) {
      work = {};
    }
  }
}

/// From now_ns() to nanoseconds since 1970.
int64_t epoch_offset() {
  int64_t best_width = 0;
  int64_t offset = 0;
  for (int i = 0; i < 9; ++i) {
    const int64_t before = now_ns();
    const auto wall =
        std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch())
            .count();
    const int64_t after = now_ns();
    if (i == 0 || after - before < best_width) {
      best_width = after - before;
      offset = wall - (before + (after - before) / 2);
    }
  }
  return offset;
}

} // namespace

void start(const RecordingOptions& options) {
  auto& all = state();
  const std::lock_guard<std::mutex> control(all.control);
  TORCH_CHECK(!all.running, "A profiler records the device already; one can run at a time.");
  // Only a plugin that traces itself is asked for something: else a profiler need not start the driver.
  const bool traced = options.kinds != 0 && profiler_table() != nullptr && all.plugin.start(options.kinds);
  const std::lock_guard<std::mutex> lock(all.mutex);
  all.kinds = options.kinds;
  all.result = {};
  all.pending.clear();
  all.lost.clear();
  all.pauses.clear();
  all.running = true;
  all.table.store(traced ? all.plugin.table() : nullptr, std::memory_order_release);
  all.epoch.fetch_add(1, std::memory_order_relaxed);
  call_observer.store(observe, std::memory_order_release);
}

void pause(bool paused) noexcept {
  auto& all = state();
  const std::lock_guard<std::mutex> lock(all.mutex);
  if (!all.running || paused != recording()) {
    return;
  }
  if (paused) {
    all.pauses.emplace_back(now_ns(), INT64_MAX);
  } else {
    all.pauses.back().second = now_ns();
  }
  call_observer.store(paused ? nullptr : observe, std::memory_order_release);
}

Recording stop() {
  auto& all = state();
  const std::lock_guard<std::mutex> control(all.control);
  call_observer.store(nullptr, std::memory_order_release);
  std::vector<PendingWork> pending;
  Recording result;
  {
    const std::lock_guard<std::mutex> lock(all.mutex);
    if (!all.running) {
      return result;
    }
    all.running = false;
    pending = std::move(all.pending);
    result = std::move(all.result);
  }
  wait_for(pending);
  read_times(pending);
  if (all.plugin.table()) {
    for (int device = 0; device < device_count(); ++device) {
      if (!device_api().is_lost(device)) {
        try {
          synchronize_device(static_cast<c10::DeviceIndex>(device));
        } catch (...) {
          record_async_error(device, std::current_exception());
        }
      }
    }
    join_plugin_records(all, all.plugin.stop(result.errors), pending, result);
    all.table.store(nullptr, std::memory_order_release);
  }
  uint64_t without_times = 0;
  for (auto& work : pending) {
    if (work.record.end_ns > 0 && work.record.start_ns > 0) {
      result.work.push_back(std::move(work.record));
    } else if (work.begin || work.host_times) {
      ++without_times;
    }
  }
  for (const auto& [why, count] : all.lost) {
    result.errors.push_back(c10::str(count, " pieces of work could not be timed: ", why));
  }
  if (without_times > 0) {
    result.errors.push_back(c10::str(without_times, " pieces of work have no times, because they did not run"));
  }
  const int64_t offset = epoch_offset();
  for (auto* records : {&result.runtime, &result.driver}) {
    for (auto& record : *records) {
      record.start_ns += offset;
      record.end_ns += offset;
    }
  }
  for (auto& record : result.work) {
    record.start_ns += offset;
    record.end_ns += offset;
  }
  return result;
}

} // namespace torch_backend::profiler
