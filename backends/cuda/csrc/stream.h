// Streams.
#pragma once

#include <memory>

#include "cu.h"
#include "result.h"

namespace xcuda {
struct device;
class host_lane;
} // namespace xcuda

struct tb_stream {
  const int32_t device;
  const xcuda::CUstream handle;
  const std::shared_ptr<xcuda::host_lane> lane;
};

namespace xcuda {

inline CUstream handle_of(const tb_stream* stream) {
  return stream ? stream->handle : nullptr;
}

// A collective is about to be aborted that the stream may have: if it is busy, the next wait for it tells.
// Pre: the device's context is the thread's.
void note_abort(device& d, CUstream stream);
// Fails, once, if there was an abort on *stream; null: on any.
result tell_aborts(device& d, const CUstream* stream);

// For wait_for_streams: a stream's end as it is now, before it is destroyed or becomes part of a capture.
// Pre: the device's context is the thread's, which holds d.mutex.
result leave_mark(device& d, CUstream stream);

// Waits for what is on the device's streams, on those too that were destroyed, and for what is captured now for what was
// on them before. To wait for the context instead would end all captures.
result wait_for_streams(int32_t device, const char* what);

} // namespace xcuda
