// The driver captures in relaxed mode, in which any thread may end a capture: the one call of this plugin that other
// modes are about, device_synchronize, looks at the list of captures here.
#include "graph.h"

#include <algorithm>
#include <mutex>
#include <thread>
#include <vector>

#include "device.h"
#include "stream.h"

struct tb_graph {
  const int32_t device;
  const xcuda::CUgraph graph;
  xcuda::CUgraphExec exec = nullptr;
};

namespace xcuda {
namespace {

struct capture {
  int32_t device;
  CUstream stream;
  uint32_t mode;
  std::thread::id thread;

  bool minds_here() const {
    return mode == TB_CAPTURE_GLOBAL || (mode == TB_CAPTURE_THREAD_LOCAL && thread == std::this_thread::get_id());
  }
};

struct capture_list {
  std::mutex mutex; // guards active
  std::vector<capture> active;
};

capture_list& captures() {
  static auto& list = *new capture_list;
  return list;
}

// A query is what no capture survives.
void invalidate(CUstream stream) {
  cu.StreamQuery(stream);
}

result refused(const char* what) {
  return failure(TB_STATUS_INVALID_ARGUMENT, "%s: not while a stream is captured in a graph", what);
}

// Before the stream may become a part of a capture.
result mark_uncaptured(device& d, CUstream stream) {
  if (!stream || is_captured(stream)) return {};
  const std::lock_guard<std::mutex> lock(d.mutex);
  return leave_mark(d, stream);
}

} // namespace

bool is_captured(CUstream stream) {
  int status = kCU_STREAM_CAPTURE_STATUS_NONE;
  return stream && cu.StreamIsCapturing(stream, &status) == kCUDA_SUCCESS && status != kCU_STREAM_CAPTURE_STATUS_NONE;
}

std::unique_lock<std::mutex> hold_captures() {
  return std::unique_lock<std::mutex>(captures().mutex);
}

result wait_for_event(device& d, CUstream stream, CUevent event) {
  const context_scope scope(d);
  if (!scope.failure().ok()) return scope.failure();
  const std::lock_guard<std::mutex> lock(captures().mutex);
  result r = captures().active.empty() ? result() : mark_uncaptured(d, stream);
  return r.ok() ? check(cu.StreamWaitEvent(stream, event, 0), "stream_wait_event") : r;
}

result refuse_if_captured(int32_t device, tb_stream* stream, const char* what) {
  const context_scope scope(device_at(device));
  if (!scope.failure().ok()) return scope.failure();
  if (!is_captured(handle_of(stream))) return {};
  invalidate(stream->handle);
  return refused(what);
}

result refuse_while_captured(int32_t device) {
  const context_scope scope(device_at(device));
  if (!scope.failure().ok()) return scope.failure();
  const std::lock_guard<std::mutex> lock(captures().mutex);
  result r;
  for (const capture& c : captures().active)
    if (c.device == device && c.minds_here()) {
      invalidate(c.stream);
      r = refused("device_synchronize");
    }
  return r;
}

result capture_begin(int32_t device, tb_stream* stream, uint32_t mode) {
  if (!stream) return failure(TB_STATUS_INVALID_ARGUMENT, "capture_begin: the default stream cannot be captured");
  if (mode > TB_CAPTURE_RELAXED)
    return failure(TB_STATUS_INVALID_ARGUMENT, "capture_begin: mode %u is no TB_CAPTURE_*", mode);
  if (result r = refuse_if_captured(device, stream, "capture_begin"); !r.ok()) return r;
  xcuda::device& d = device_at(device);
  const context_scope scope(d);
  const std::lock_guard<std::mutex> lock(captures().mutex);
  result r = scope.failure().ok() ? mark_uncaptured(d, stream->handle) : scope.failure();
  if (r.ok()) r = check(cu.StreamBeginCapture(stream->handle, kCU_STREAM_CAPTURE_MODE_RELAXED), "capture_begin");
  if (r.ok()) captures().active.push_back({device, stream->handle, mode, std::this_thread::get_id()});
  return r;
}

result capture_end(int32_t device, tb_stream* stream, tb_graph** out_graph) {
  CUgraph graph = nullptr;
  {
    const std::lock_guard<std::mutex> lock(captures().mutex);
    auto& active = captures().active;
    const auto ended = std::find_if(active.begin(), active.end(),
                                    [&](const capture& c) { return stream && c.stream == stream->handle; });
    if (ended == active.end())
      return failure(TB_STATUS_INVALID_ARGUMENT, "capture_end: no capture has begun on this stream");
    active.erase(ended);
  }
  result r = call_on(device_at(device), "capture_end", [&] { return cu.StreamEndCapture(stream->handle, &graph); });
  if (r.ok()) *out_graph = new tb_graph{device, graph};
  return r;
}

result stream_is_capturing(int32_t device, tb_stream* stream, int32_t* out_is_capturing) {
  const context_scope scope(device_at(device));
  if (scope.failure().ok()) *out_is_capturing = is_captured(handle_of(stream));
  return scope.failure();
}

result graph_instantiate(int32_t device, tb_graph* graph) {
  if (graph->exec) return {};
  const outside_captures outside;
  return call_on(device_at(device), "graph_instantiate",
                 [&] { return cu.GraphInstantiateWithFlags(&graph->exec, graph->graph, 0); });
}

// Into a stream that is captured the driver would put the graph as a part of that one.
result graph_launch(int32_t device, tb_graph* graph, tb_stream* stream) {
  if (!graph->exec)
    return failure(TB_STATUS_INVALID_ARGUMENT, "graph_launch: graph_instantiate has to be called before");
  if (result r = refuse_if_captured(device, stream, "graph_launch"); !r.ok()) return r;
  return call_on(device_at(device), "graph_launch", [&] { return cu.GraphLaunch(graph->exec, handle_of(stream)); });
}

result graph_destroy(int32_t device, tb_graph* graph) {
  const outside_captures outside;
  result r = call_on(device_at(device), "graph_destroy", [&] {
    const CUresult error = graph->exec ? cu.GraphExecDestroy(graph->exec) : kCUDA_SUCCESS;
    const CUresult other = cu.GraphDestroy(graph->graph);
    return error == kCUDA_SUCCESS ? other : error;
  });
  delete graph;
  return r;
}

} // namespace xcuda
