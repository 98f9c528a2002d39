// The slots of graph.1, and what other slots do while streams are captured.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "fault.h"
#include "queue.h"
#include "result.h"

namespace xcpu {

result capture_begin(int32_t device, tb_stream* stream, uint32_t mode);
result capture_end(int32_t device, tb_stream* stream, tb_graph** out_graph);
result stream_is_capturing(int32_t device, tb_stream* stream, int32_t* out_is_capturing);
result graph_instantiate(int32_t device, tb_graph* graph);
result graph_launch(int32_t device, tb_graph* graph, tb_stream* stream);
result graph_destroy(int32_t device, tb_graph* graph);

// ---- for the other slots: a queue is captured if its stream is ----

// A record of an event in a capture: a place in what is recorded.
struct captured_record {
  std::weak_ptr<struct capture> in;
  size_t point;
};

bool is_captured(const queue& on);

// In place of a push: takes `work` and is true if the queue is captured.
bool capture_work(const queue& on, queue::work& work);
// In place of a record: null if the queue is not captured.
std::shared_ptr<const captured_record> capture_record(const queue& on);
// In place of a wait, which lets the queue join the capture of `waited`. That is null for an event that was recorded
// outside of captures, which a captured queue cannot wait for. False if neither is captured.
result capture_wait(const std::shared_ptr<queue>& on, int32_t device, const captured_record* waited,
                    bool* out_captured);

// For calls that a capture does not allow: they fail, and the capture has failed. Ok if nothing is captured that they are
// about: the queue; the event whose last record this is; by TB_CAPTURE_*, any stream of the device.
result refuse_captured(slot s, const queue& on);
result refuse_captured(slot s, const captured_record& last);
result refuse_unsafe(slot s, int32_t device);

} // namespace xcpu
