// What is enqueued on streams that capture, written down to be enqueued again: graphs without the library's graph.1.
#pragma once

#include <atomic>
#include <functional>
#include <utility>

#include "torch_backend/device.h"

namespace torch_backend::graph {

/// Note [Graphs without graph.1]
/// Where a library does not capture, the core does: whoever enqueues work hands it to the tape of its stream instead, if
/// there is one, and a launch does all of that again, on the stream of the launch in place of the first, and on streams of
/// the graph's own in place of the others. Operators, their shapes and their memory are settled then; what is paid at each
/// launch are the library's own calls. tape_table() is graph.1 to the rest of the core.
///
/// A kernel of the library's own table enqueues by itself, so that no tape has its work: what else serves its operator is
/// taken while a tape runs.

namespace detail {
extern std::atomic<int> num_tapes;
bool is_taped(int device, tb_stream* stream);
bool write(int device, tb_stream* stream, std::function<void(tb_stream*)> step);
bool write_record(int device, tb_stream* stream, tb_event* event);
bool write_wait(int device, tb_stream* stream, tb_event* event);
} // namespace detail

/// Whether any tape runs: all that most calls have to know.
inline bool any_tape() noexcept {
  return __builtin_expect(detail::num_tapes.load(std::memory_order_relaxed) != 0, 0);
}
inline bool is_taped(int device, tb_stream* stream) {
  return any_tape() && detail::is_taped(device, stream);
}

/// In place of work: false if `stream` has no tape. `step` does it on the stream that it is given.
template <class Step>
bool write(int device, tb_stream* stream, Step&& step) {
  return any_tape() && detail::write(device, stream, std::forward<Step>(step));
}
/// In place of a record of `event` on `stream`, and of a wait for one that was recorded on a tape, which `stream` joins.
inline bool write_record(int device, tb_stream* stream, tb_event* event) {
  return any_tape() && detail::write_record(device, stream, event);
}
inline bool write_wait(int device, tb_stream* stream, tb_event* event) {
  return any_tape() && detail::write_wait(device, stream, event);
}

/// As the header says of graph.1; its slots throw what the library's calls report.
const tb_graph_table& tape_table();

} // namespace torch_backend::graph
