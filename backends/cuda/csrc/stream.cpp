#include "stream.h"

#include <algorithm>
#include <mutex>
#include <vector>

#include "device.h"
#include "graph.h"
#include "host_lane.h"
#include "mark.h"
#include "trace.h"

namespace xcuda {

result stream_create(int32_t device, int32_t priority, tb_stream** out_stream) {
  CUstream handle = nullptr;
  xcuda::device& d = device_at(device);
  result r = call_on(d, "stream_create",
                     [&] { return cu.StreamCreateWithPriority(&handle, kCU_STREAM_NON_BLOCKING, priority); });
  if (!r.ok()) return r;
  *out_stream = new tb_stream{device, handle, std::make_shared<host_lane>(d)};
  const std::lock_guard<std::mutex> lock(d.mutex);
  d.streams.push_back(*out_stream);
  return r;
}

result stream_destroy(int32_t device, tb_stream* stream) {
  result r = refuse_if_captured(device, stream, "stream_destroy");
  if (!r.ok()) return r;
  xcuda::device& d = device_at(device);
  const context_scope scope(d);
  if (scope.failure().ok()) {
    note_stream(d, stream);
    const std::lock_guard<std::mutex> lock(d.mutex);
    if (leave_mark(d, stream->handle).ok()) stream->lane->outlast(d.marks.back());
    d.streams.erase(std::remove(d.streams.begin(), d.streams.end(), stream), d.streams.end());
    d.aborted.erase(std::remove(d.aborted.begin(), d.aborted.end(), stream->handle), d.aborted.end());
  }
  r = scope.failure().ok() ? check(cu.StreamDestroy(stream->handle), "stream_destroy") : scope.failure();
  delete stream;
  return r;
}

result stream_synchronize(int32_t device, tb_stream* stream) {
  xcuda::device& d = device_at(device);
  const CUstream handle = handle_of(stream);
  result r = call_on(d, "stream_synchronize", [&] { return cu.StreamSynchronize(handle); });
  return r.ok() ? tell_aborts(d, &handle) : r;
}

result stream_query(int32_t device, tb_stream* stream) {
  return call_on(device_at(device), "stream_query", [&] { return cu.StreamQuery(handle_of(stream)); });
}

result stream_host_function(int32_t device, tb_stream* stream, tb_host_function fn, void* arg) {
  xcuda::device& d = device_at(device);
  const context_scope scope(d);
  if (!scope.failure().ok()) return scope.failure();
  if (is_captured(handle_of(stream)))
    return check(cu.LaunchHostFunc(handle_of(stream), fn, arg), "stream_host_function");
  return (stream ? *stream->lane : default_lane_of(d)).enqueue(handle_of(stream), fn, arg);
}

void note_abort(device& d, CUstream stream) {
  const outside_captures outside;
  const std::lock_guard<std::mutex> lock(d.mutex);
  const auto is_it = [stream](const tb_stream* each) { return handle_of(each) == stream; };
  const bool is_there = std::any_of(d.streams.begin(), d.streams.end(), is_it);
  if (is_there && !is_captured(stream) && cu.StreamQuery(stream) == kCUDA_ERROR_NOT_READY) d.aborted.push_back(stream);
}

result tell_aborts(device& d, const CUstream* stream) {
  const std::lock_guard<std::mutex> lock(d.mutex);
  const auto is_meant = [stream](CUstream each) { return !stream || each == *stream; };
  const auto told = std::remove_if(d.aborted.begin(), d.aborted.end(), is_meant);
  if (told == d.aborted.end()) return {};
  d.aborted.erase(told, d.aborted.end());
  return failure(TB_STATUS_INTERNAL, "a collective that was on the stream was aborted: its results are not valid");
}

result leave_mark(device& d, CUstream stream) {
  const outside_captures outside;
  const auto is_reached = [](const auto& mark) { return mark->is_reached(); };
  d.marks.erase(std::remove_if(d.marks.begin(), d.marks.end(), is_reached), d.marks.end());
  auto mark = std::make_shared<stream_mark>(d);
  result r = mark->record(stream);
  if (r.ok()) d.marks.push_back(std::move(mark));
  return r;
}

result wait_for_streams(int32_t device, const char* what) {
  xcuda::device& d = device_at(device);
  const outside_captures outside;
  const context_scope scope(d);
  result r = scope.failure();
  std::vector<std::shared_ptr<stream_mark>> reached;
  if (r.ok()) {
    const std::unique_lock<std::mutex> none_begins = hold_captures();
    const std::lock_guard<std::mutex> lock(d.mutex);
    reached = d.marks;
    for (auto stream = d.streams.begin(); r.ok() && stream != d.streams.end(); ++stream)
      if (!is_captured(handle_of(*stream)))
        r = reached.emplace_back(std::make_shared<stream_mark>(d))->record(handle_of(*stream));
  }
  for (const auto& mark : reached)
    if (r.ok()) r = check(mark->wait(), what);
  return r;
}

} // namespace xcuda
