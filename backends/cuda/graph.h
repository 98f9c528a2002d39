// The slots of graph.1, and what other slots do while streams are captured.
#pragma once

#include "result.h"

namespace xcuda {

result capture_begin(int32_t device, tb_stream* stream, uint32_t mode);
result capture_end(int32_t device, tb_stream* stream, tb_graph** out_graph);
result stream_is_capturing(int32_t device, tb_stream* stream, int32_t* out_is_capturing);
result graph_instantiate(int32_t device, tb_graph* graph);
result graph_launch(int32_t device, tb_graph* graph, tb_stream* stream);
result graph_destroy(int32_t device, tb_graph* graph);

// The default stream never is. Pre: the device's context is the thread's.
bool is_captured(const tb_stream* stream);

// For calls that the driver lets pass: fails, and the capture with it, if the stream is captured.
result refuse_if_captured(int32_t device, tb_stream* stream, const char* what);

// For device_synchronize: fails, and the captures of the device that mind it with it.
result refuse_while_captured(int32_t device);

} // namespace xcuda
