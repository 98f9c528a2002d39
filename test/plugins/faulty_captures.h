/* Faults of captures, and of the graphs that they give, for faulty.c. */

static tb_stream* records_on; /* the stream of the last capture, while that lasts */
static pthread_t recording_thread;

/* For faults that know whether something is recorded. */
#define NOTES_CAPTURES(fault)                                                                     \
  THEN(fault, capture_begin, if (!status) records_on = stream, recording_thread = pthread_self()) \
  FIRST(fault, capture_end, records_on = NULL)

/* ---- what a capture forbids ---- */

#define TAKEN_IN_CAPTURES(fault, slot, answer) \
  NOTES_CAPTURES(fault)                        \
  FIRST(fault, slot, if (records_on) return answer)
CAUGHT(recorded_events_are_pending, async,
       "test_graph_table.py::test_a_capture_fails_with_what_it_forbids[event_query-RELAXED]",
       "event_query returned NOT_READY, but must fail")
TAKEN_IN_CAPTURES(recorded_events_are_pending, event_query, TB_STATUS_NOT_READY)
CAUGHT(recording_streams_are_busy, async,
       "test_graph_table.py::test_a_capture_fails_with_what_it_forbids[stream_query-RELAXED]",
       "stream_query returned NOT_READY, but must fail")
TAKEN_IN_CAPTURES(recording_streams_are_busy, stream_query, TB_STATUS_NOT_READY)
CAUGHT(recorded_events_are_waited_for, async,
       "test_graph_table.py::test_a_capture_fails_with_what_it_forbids[event_synchronize-RELAXED]",
       "event_synchronize returned OK, but must fail")
TAKEN_IN_CAPTURES(recorded_events_are_waited_for, event_synchronize, TB_STATUS_OK)
CAUGHT(events_of_before_are_taken, async,
       "test_graph_table.py::test_a_capture_fails_with_what_it_forbids[stream_wait_event-RELAXED]",
       "stream_wait_event returned OK, but must fail")
TAKEN_IN_CAPTURES(events_of_before_are_taken, stream_wait_event, TB_STATUS_OK)
CAUGHT(captures_refuse_memory, async, "test_graph_table.py::test_memory_is_allocated_during_a_capture[GLOBAL]",
       "no memory while a stream records")
TAKEN_IN_CAPTURES(captures_refuse_memory, memory_allocate,
                  host->fail(TB_STATUS_INTERNAL, "no memory while a stream records"))
CAUGHT(captures_refuse_commits, async, "test_graph_table.py::test_memory_is_committed_during_a_capture[GLOBAL]",
       "no pages while a stream records")
TAKEN_IN_CAPTURES(captures_refuse_commits, memory_commit,
                  host->fail(TB_STATUS_INTERNAL, "no pages while a stream records"))
CAUGHT(all_captures_are_for_their_thread, async,
       "test_graph_table.py::test_unsafe_calls_fail_a_capture_by_its_mode[GLOBAL-other]",
       "device_synchronize in the other thread during a GLOBAL capture returned OK")
FIRST(all_captures_are_for_their_thread, capture_begin, if (mode == TB_CAPTURE_GLOBAL) mode = TB_CAPTURE_THREAD_LOCAL)
CAUGHT(all_captures_are_global, async,
       "test_graph_table.py::test_unsafe_calls_fail_a_capture_by_its_mode[THREAD_LOCAL-other]",
       "device_synchronize in the other thread during a THREAD_LOCAL capture: capture_end returned")
FIRST(all_captures_are_global, capture_begin, mode = TB_CAPTURE_GLOBAL)

/* What is not recorded is complete, it seems. */
CAUGHT(captured_streams_are_not_waited_for, async,
       "test_graph_table.py::test_what_a_stream_had_before_a_capture_is_waited_for[device_synchronize-captured]",
       "the call came back before the stream's work of before the capture was complete")
TAKEN_IN_CAPTURES(captured_streams_are_not_waited_for, device_synchronize, TB_STATUS_OK)

CAUGHT(unloading_ends_captures, async modules,
       "test_graph_table.py::test_modules_come_and_go_during_a_capture[RELAXED-same]",
       "module_unload in the same thread during a RELAXED capture: capture_end returned")
NOTES_CAPTURES(unloading_ends_captures)
FIRST(unloading_ends_captures, module_unload, if (records_on) good.core.stream_query(device, records_on))

/* Refused without a word to the capture. */
CAUGHT(refused_calls_leave_captures, async,
       "test_graph_table.py::test_a_capture_fails_with_what_it_forbids[stream_synchronize-RELAXED]",
       "failed, and capture_end returned OK")
TAKEN_IN_CAPTURES(refused_calls_leave_captures, stream_synchronize,
                  host->fail(TB_STATUS_INVALID_ARGUMENT, "the stream records"))

/* ---- threads ---- */

CAUGHT(only_the_first_thread_records, async, "test_graph_table.py::test_any_thread_takes_part_in_a_capture[RELAXED]",
       "a launch of a copy that another thread has enqueued during the capture")
NOTES_CAPTURES(only_the_first_thread_records)
FIRST(only_the_first_thread_records, memory_copy,
      if (records_on && !pthread_equal(recording_thread, pthread_self())) stream = NULL)

CAUGHT(captures_end_where_they_began, async, "test_graph_table.py::test_any_thread_takes_part_in_a_capture[RELAXED]",
       "another thread has begun the capture")
THEN(captures_end_where_they_began, capture_begin, if (!status) recording_thread = pthread_self())
FIRST(captures_end_where_they_began, capture_end,
      if (!pthread_equal(recording_thread, pthread_self())) return host->fail(TB_STATUS_INVALID_ARGUMENT,
                                                                              "another thread has begun the capture"))

/* ---- graphs ---- */

/* The pattern is read at the launch, of which there is one. */
CAUGHT(recorded_fills_are_read_late, async, "test_graph_table.py::test_recorded_fills_keep_their_pattern",
       "a fill that was recorded")
FAULT(recorded_fills_are_read_late, memory_fill) {
  int32_t records = 0;
  if (stream) good.graph.stream_is_capturing(device, stream, &records);
  if (!records) return GOOD(memory_fill);
  return good.core.stream_host_function(device, stream, run_late_fill,
                                        KEPT(late_fill, dst, pattern, pattern_bytes, size_bytes));
}

/* What a graph copies is gone with it; the stream stands for the graph. */
static tb_stream* recorded_on;

CAUGHT(destroyed_graphs_do_nothing, async, "test_graph_table.py::test_a_graph_may_be_destroyed_while_it_runs",
       "a launch of a destroyed graph")
FAULT(destroyed_graphs_do_nothing, memory_copy) {
  int32_t records = 0;
  if (kind == TB_COPY_DEVICE_TO_DEVICE && stream) good.graph.stream_is_capturing(dst_device, stream, &records);
  if (!records) return GOOD(memory_copy);
  remember(recorded_on = stream);
  return good.core.stream_host_function(dst_device, stream, run_checked_copy,
                                        KEPT(checked_copy, dst, src, size_bytes, stream));
}

FIRST(destroyed_graphs_do_nothing, graph_destroy, forget(recorded_on))
