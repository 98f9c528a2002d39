// Captures, and what they make. A graph runs in the order in which it was captured.
#include <algorithm>

#include "driver.h"

namespace sim {
namespace {
thread_local int capture_mode = 0; // global
} // namespace

std::mutex& capture_mutex() {
  static auto& mutex = *new std::mutex;
  return mutex;
}

std::vector<std::shared_ptr<capture>>& captures() {
  static auto& all = *new std::vector<std::shared_ptr<capture>>;
  return all;
}

// 0 is global, 1 of the thread, 2 relaxed.
int refuse_unsafe(const char* name) {
  if (capture_mode == kCU_STREAM_CAPTURE_MODE_RELAXED) return 0;
  const std::lock_guard<std::mutex> lock(capture_mutex());
  int error = 0;
  for (const auto& each : captures()) {
    const bool is_mine = each->thread == std::this_thread::get_id() && each->mode != kCU_STREAM_CAPTURE_MODE_RELAXED;
    if (!is_mine && !(capture_mode == 0 && each->mode == 0)) continue;
    each->invalid = true;
    error = kCUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  return error ? refuse(error, "%s while a capture forbids it", name) : 0;
}

namespace {

// On the thread of a stream.
int run_all(std::vector<command>& commands, CUstream stream) {
  CUcontext context = stream->context;
  for (command& each : commands) {
    if (context->error && !each.always) continue;
    if (const int error = run_traced(each, stream)) context->fail(error);
  }
  return context->error;
}

bool is_joined(const capture& c) {
  const reach& known = c.members.at(c.origin);
  for (const auto& [stream, all] : c.members) {
    const auto own = all.find(stream);
    const auto seen = known.find(stream);
    if (stream == c.origin || own == all.end()) continue;
    if (seen == known.end() || seen->second < own->second) return false;
  }
  return true;
}

int find_graph(const char* name, CUgraph graph) {
  return registry<CUgraph_st>::all().has(graph) ? 0 : refuse(kCUDA_ERROR_INVALID_HANDLE, "%s: not a graph", name);
}

int find_exec(const char* name, CUgraphExec exec) {
  return registry<CUgraphExec_st>::all().has(exec)
             ? 0
             : refuse(kCUDA_ERROR_INVALID_HANDLE, "%s: not an instantiated graph", name);
}

} // namespace
} // namespace sim

using namespace sim;

CU_API cuThreadExchangeStreamCaptureMode(int* mode) {
  if (*mode < 0 || *mode > 2) return refuse(kCUDA_ERROR_INVALID_VALUE, "cuThreadExchangeStreamCaptureMode(%d)", *mode);
  std::swap(*mode, capture_mode);
  return 0;
}

CU_API cuStreamIsCapturing(CUstream handle, int* status) {
  CUstream stream = nullptr;
  if (const int error = enter("cuStreamIsCapturing", handle, &stream)) return error;
  const std::lock_guard<std::mutex> lock(capture_mutex());
  *status = !stream->capturing ? 0 : stream->capturing->invalid ? 2 : 1;
  return 0;
}

CU_API cuStreamBeginCapture_v2(CUstream handle, int mode) {
  CUstream stream = nullptr;
  if (const int error = enter("cuStreamBeginCapture", handle, &stream)) return error;
  if (!handle) return refuse(kCUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "cuStreamBeginCapture on the default stream");
  if (mode < 0 || mode > 2) return refuse(kCUDA_ERROR_INVALID_VALUE, "cuStreamBeginCapture: mode %d", mode);
  const std::lock_guard<std::mutex> lock(capture_mutex());
  if (stream->capturing) return refuse(kIllegalState, "cuStreamBeginCapture: the stream is captured");
  auto made = std::make_shared<capture>();
  made->origin = stream;
  made->mode = mode;
  made->thread = std::this_thread::get_id();
  made->members[stream] = {};
  stream->capturing = made;
  captures().push_back(std::move(made));
  return 0;
}

CU_API cuStreamEndCapture(CUstream handle, CUgraph* graph) {
  CUstream stream = nullptr;
  if (const int error = enter("cuStreamEndCapture", handle, &stream)) return error;
  *graph = nullptr;
  const std::lock_guard<std::mutex> lock(capture_mutex());
  const auto ended = stream->capturing;
  if (!ended) return refuse(kIllegalState, "cuStreamEndCapture: the stream is not captured");
  if (ended->origin != stream) return refuse(kUnmatched, "cuStreamEndCapture on another stream than it began on");
  if (ended->mode != kCU_STREAM_CAPTURE_MODE_RELAXED && ended->thread != std::this_thread::get_id())
    return refuse(kCUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, "cuStreamEndCapture on another thread than it began on");
  for (const auto& [member, known] : ended->members) member->capturing = nullptr;
  captures().erase(std::find(captures().begin(), captures().end(), ended));
  if (ended->invalid) return refuse(kInvalidated, "cuStreamEndCapture: the capture has failed");
  if (!is_joined(*ended)) return refuse(kUnjoined, "cuStreamEndCapture: work of another stream is not waited for");
  *graph = make<CUgraph_st>();
  (*graph)->commands = std::make_shared<std::vector<command>>(std::move(ended->commands));
  return 0;
}

CU_API cuGraphInstantiateWithFlags(CUgraphExec* exec, CUgraph graph, unsigned long long flags) {
  CUcontext context = nullptr;
  if (const int error = enter("cuGraphInstantiateWithFlags", &context)) return error;
  if (const int error = find_graph("cuGraphInstantiateWithFlags", graph)) return error;
  if (flags) return refuse(kCUDA_ERROR_INVALID_VALUE, "cuGraphInstantiateWithFlags(flags %llu)", flags);
  *exec = make<CUgraphExec_st>();
  (*exec)->commands = graph->commands;
  return 0;
}

// Launches of one graph run one after the other, in this order.
CU_API cuGraphLaunch(CUgraphExec exec, CUstream handle) {
  CUstream stream = nullptr;
  if (const int error = enter("cuGraphLaunch", handle, &stream)) return error;
  if (const int error = find_exec("cuGraphLaunch", exec)) return error;
  auto before = std::make_shared<completion>(), done = before;
  {
    const std::lock_guard<std::mutex> lock(exec->mutex);
    before = exec->last;
    exec->last = done;
  }
  return enqueue("cuGraphLaunch", stream,
                 {[=, commands = exec->commands] {
                    if (before) before->wait();
                    if (!stream->context->error) run_all(*commands, stream);
                    done->finish();
                    return 0;
                  },
                  true});
}

CU_API cuGraphDestroy(CUgraph graph) {
  if (const int error = enter_free("cuGraphDestroy")) return error;
  if (const int error = find_graph("cuGraphDestroy", graph)) return error;
  graph->commands = nullptr;
  registry<CUgraph_st>::all().retire(graph);
  return 0;
}

CU_API cuGraphExecDestroy(CUgraphExec exec) {
  if (const int error = enter_free("cuGraphExecDestroy")) return error;
  if (const int error = find_exec("cuGraphExecDestroy", exec)) return error;
  exec->commands = nullptr; // launches that are pending have theirs
  registry<CUgraphExec_st>::all().retire(exec);
  return 0;
}
