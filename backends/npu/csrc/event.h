// Events.
#pragma once

#include <cstdint>

#include "result.h"

namespace npu {

result stream_wait_event(int32_t device, tb_stream* stream, tb_event* event);
result event_create(int32_t device, uint32_t flags, tb_event** out_event);
result event_destroy(int32_t device, tb_event* event);
result event_record(int32_t device, tb_event* event, tb_stream* stream);
result event_query(int32_t device, tb_event* event);
result event_synchronize(int32_t device, tb_event* event);
result event_elapsed(int32_t device, tb_event* start, tb_event* end, int64_t* out_elapsed_ns);

} // namespace npu
