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
TAKEN_IN_CAPTURES(recorded_events_are_pending, event_query, TB_STATUS_NOT_READY)
TAKEN_IN_CAPTURES(recording_streams_are_busy, stream_query, TB_STATUS_NOT_READY)
TAKEN_IN_CAPTURES(recorded_events_are_waited_for, event_synchronize, TB_STATUS_OK)
TAKEN_IN_CAPTURES(events_of_before_are_taken, stream_wait_event, TB_STATUS_OK)
TAKEN_IN_CAPTURES(captures_refuse_memory, memory_allocate,
                  host->fail(TB_STATUS_INTERNAL, "no memory while a stream records"))
TAKEN_IN_CAPTURES(captures_refuse_commits, memory_commit,
                  host->fail(TB_STATUS_INTERNAL, "no pages while a stream records"))
FIRST(all_captures_are_for_their_thread, capture_begin, if (mode == TB_CAPTURE_GLOBAL) mode = TB_CAPTURE_THREAD_LOCAL)
FIRST(all_captures_are_global, capture_begin, mode = TB_CAPTURE_GLOBAL)

/* What is not recorded is complete, it seems. */
TAKEN_IN_CAPTURES(captured_streams_are_not_waited_for, device_synchronize, TB_STATUS_OK)

NOTES_CAPTURES(unloading_ends_captures)
FIRST(unloading_ends_captures, module_unload, if (records_on) good.core.stream_query(device, records_on))

/* Refused without a word to the capture. */
TAKEN_IN_CAPTURES(refused_calls_leave_captures, stream_synchronize,
                  host->fail(TB_STATUS_INVALID_ARGUMENT, "the stream records"))

/* ---- threads ---- */

NOTES_CAPTURES(only_the_first_thread_records)
FIRST(only_the_first_thread_records, memory_copy,
      if (records_on && !pthread_equal(recording_thread, pthread_self())) stream = NULL)

THEN(captures_end_where_they_began, capture_begin, if (!status) recording_thread = pthread_self())
FIRST(captures_end_where_they_began, capture_end,
      if (!pthread_equal(recording_thread, pthread_self())) return host->fail(TB_STATUS_INVALID_ARGUMENT,
                                                                              "another thread has begun the capture"))

/* ---- graphs ---- */

/* The pattern is read at the launch, of which there is one. */
FAULT(recorded_fills_are_read_late, memory_fill) {
  int32_t records = 0;
  if (stream) good.graph.stream_is_capturing(device, stream, &records);
  if (!records) return GOOD(memory_fill);
  return good.core.stream_host_function(device, stream, run_late_fill,
                                        KEPT(late_fill, dst, pattern, pattern_bytes, size_bytes));
}

/* What a graph copies is gone with it; the stream stands for the graph. */
static tb_stream* recorded_on;

FAULT(destroyed_graphs_do_nothing, memory_copy) {
  int32_t records = 0;
  if (kind == TB_COPY_DEVICE_TO_DEVICE && stream) good.graph.stream_is_capturing(dst_device, stream, &records);
  if (!records) return GOOD(memory_copy);
  remember(recorded_on = stream);
  return good.core.stream_host_function(dst_device, stream, run_checked_copy,
                                        KEPT(checked_copy, dst, src, size_bytes, stream));
}

FIRST(destroyed_graphs_do_nothing, graph_destroy, forget(recorded_on))
