#include "stream.h"

#include "device.h"
#include "graph.h"
#include "host_lane.h"

namespace xcuda {

result stream_create(int32_t device, int32_t priority, tb_stream** out_stream) {
  CUstream handle = nullptr;
  xcuda::device& d = device_at(device);
  result r = call_on(d, "stream_create",
                     [&] { return cu.StreamCreateWithPriority(&handle, kCU_STREAM_NON_BLOCKING, priority); });
  if (r.ok()) *out_stream = new tb_stream{device, handle, std::make_shared<host_lane>(d)};
  return r;
}

result stream_destroy(int32_t device, tb_stream* stream) {
  result r = refuse_if_captured(device, stream, "stream_destroy");
  if (!r.ok()) return r;
  r = call_on(device_at(device), "stream_destroy", [&] { return cu.StreamDestroy(stream->handle); });
  delete stream;
  return r;
}

result stream_synchronize(int32_t device, tb_stream* stream) {
  return call_on(device_at(device), "stream_synchronize", [&] { return cu.StreamSynchronize(handle_of(stream)); });
}

result stream_query(int32_t device, tb_stream* stream) {
  return call_on(device_at(device), "stream_query", [&] { return cu.StreamQuery(handle_of(stream)); });
}

result stream_host_function(int32_t device, tb_stream* stream, tb_host_function fn, void* arg) {
  xcuda::device& d = device_at(device);
  const context_scope scope(d);
  if (!scope.failure().ok()) return scope.failure();
  if (is_captured(stream)) return check(cu.LaunchHostFunc(handle_of(stream), fn, arg), "stream_host_function");
  return (stream ? *stream->lane : default_lane_of(d)).enqueue(handle_of(stream), fn, arg);
}

} // namespace xcuda
