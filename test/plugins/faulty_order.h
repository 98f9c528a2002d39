/* Faults of when work runs, and of how long what a call was given is used, for faulty.c. */

/* ---- work that runs elsewhere than on its stream ---- */

static void wait_in_engine(void* arg) {
  pause_ms(50);
}

CAUGHT(fills_are_on_the_default_stream, async, "test_order.py::test_work_takes_its_place_on_its_stream[fill]",
       "between two copies to its target")
FIRST(fills_are_on_the_default_stream, memory_fill, stream = NULL)
CAUGHT(rows_are_on_the_default_stream, async, "test_order.py::test_work_takes_its_place_on_its_stream[rows-within]",
       "between two copies to its target")
FIRST(rows_are_on_the_default_stream, memory_copy_2d, stream = NULL)
CAUGHT(copies_within_are_on_the_default_stream, async,
       "test_order.py::test_work_takes_its_place_on_its_stream[copy-within]", "between two copies to its target")
FIRST(copies_within_are_on_the_default_stream, memory_copy, if (kind == TB_COPY_DEVICE_TO_DEVICE) stream = NULL)
CAUGHT(copies_between_are_on_the_default_stream, async, "test_order.py::test_copies_between_devices_take_their_place",
       "between two copies to its source")
FIRST(copies_between_are_on_the_default_stream, memory_copy, if (kind == TB_COPY_PEER) stream = NULL)
CAUGHT(copies_out_are_on_the_default_stream, async, "test_streams.py::test_work_on_one_stream_runs_in_order",
       "on one stream")
FIRST(copies_out_are_on_the_default_stream, memory_copy, if (kind == TB_COPY_DEVICE_TO_HOST) stream = NULL)

CAUGHT(everything_is_on_the_default_stream, async, "test_host_functions.py::test_a_host_function_may_block",
       "one on another stream does not run")
#define ON_THE_DEFAULT(slot) FIRST(everything_is_on_the_default_stream, slot, stream = NULL)
ON_THE_DEFAULT(memory_copy)
ON_THE_DEFAULT(memory_copy_2d)
ON_THE_DEFAULT(memory_fill)
ON_THE_DEFAULT(event_record)
ON_THE_DEFAULT(stream_wait_event)
ON_THE_DEFAULT(stream_host_function)
ON_THE_DEFAULT(stream_synchronize)
ON_THE_DEFAULT(stream_query)

CAUGHT(only_device_0_has_a_default_stream, async, "test_streams.py::test_every_device_has_its_own_default_stream",
       "xcpu:1: on its default stream")
FIRST(only_device_0_has_a_default_stream, memory_copy, if (!stream && dst_device > 0) return TB_STATUS_OK)

/* By an engine of its own, which starts when the stream gets there. */
CAUGHT(copies_out_are_not_waited_for, async, "test_streams.py::test_synchronize_makes_copies_visible",
       "stream_synchronize returned before 4194304 bytes were copied")
FAULT(copies_out_are_not_waited_for, memory_copy) {
  static tb_stream* engines[64];
  tb_event* before;
  if (kind != TB_COPY_DEVICE_TO_HOST) return GOOD(memory_copy);
  if (!engines[src_device]) good.core.stream_create(src_device, 0, &engines[src_device]);
  good.core.event_create(src_device, 0, &before);
  good.core.event_record(src_device, before, stream);
  good.core.stream_wait_event(src_device, engines[src_device], before);
  good.core.event_destroy(src_device, before);
  good.core.stream_host_function(src_device, engines[src_device], wait_in_engine, NULL);
  stream = engines[src_device];
  return GOOD(memory_copy);
}

static tb_stream* first_stream[64];

CAUGHT(copies_are_on_the_first_stream, async, "test_streams.py::test_a_held_stream_does_not_change_what_another_does",
       "copies beside a held stream")
THEN(copies_are_on_the_first_stream, stream_create,
     if (!status && !first_stream[device]) first_stream[device] = *out_stream)
FIRST(copies_are_on_the_first_stream, stream_destroy, if (stream == first_stream[device]) first_stream[device] = NULL)
FIRST(copies_are_on_the_first_stream, memory_copy,
      if (stream) stream = first_stream[src_device < 0 ? dst_device : src_device])

CAUGHT(graphs_are_on_the_default_stream, async, "test_order.py::test_graphs_take_their_place_on_their_stream",
       "between two copies to its target")
FIRST(graphs_are_on_the_default_stream, graph_launch, stream = NULL)

/* One fault for each collective. */
#define ON_THE_DEFAULT_STREAM(slot) FIRST(slot##_is_on_the_default_stream, slot, stream = NULL)
CAUGHT(send_is_on_the_default_stream, async ccl,
       "test_ccl_order.py::test_collectives_take_their_place_on_their_stream[send]",
       "send between copies on a created stream")
ON_THE_DEFAULT_STREAM(send)
CAUGHT(recv_is_on_the_default_stream, async ccl,
       "test_ccl_order.py::test_collectives_take_their_place_on_their_stream[send]",
       "send between copies on a created stream")
ON_THE_DEFAULT_STREAM(recv)
CAUGHT(all_reduce_is_on_the_default_stream, async ccl,
       "test_ccl_order.py::test_collectives_take_their_place_on_their_stream[all_reduce]",
       "all_reduce between copies on a created stream")
ON_THE_DEFAULT_STREAM(all_reduce)
CAUGHT(reduce_is_on_the_default_stream, async ccl,
       "test_ccl_order.py::test_collectives_take_their_place_on_their_stream[reduce]",
       "reduce between copies on a created stream")
ON_THE_DEFAULT_STREAM(reduce)
CAUGHT(broadcast_is_on_the_default_stream, async ccl,
       "test_ccl_order.py::test_collectives_take_their_place_on_their_stream[broadcast]",
       "broadcast between copies on a created stream")
ON_THE_DEFAULT_STREAM(broadcast)
CAUGHT(all_gather_is_on_the_default_stream, async ccl,
       "test_ccl_order.py::test_collectives_take_their_place_on_their_stream[all_gather]",
       "all_gather between copies on a created stream")
ON_THE_DEFAULT_STREAM(all_gather)
CAUGHT(reduce_scatter_is_on_the_default_stream, async ccl,
       "test_ccl_order.py::test_collectives_take_their_place_on_their_stream[reduce_scatter]",
       "reduce_scatter between copies on a created stream")
ON_THE_DEFAULT_STREAM(reduce_scatter)
CAUGHT(all_to_all_is_on_the_default_stream, async ccl,
       "test_ccl_order.py::test_collectives_take_their_place_on_their_stream[all_to_all]",
       "all_to_all between copies on a created stream")
ON_THE_DEFAULT_STREAM(all_to_all)

CAUGHT(fills_run_at_once, async, "test_order.py::test_work_takes_its_place_on_its_stream[fill]",
       "between two copies to its target")
FAULT(fills_run_at_once, memory_fill) {
  uint64_t i;
  for (i = 0; i < size_bytes; ++i) ((char*)dst)[i] = ((const char*)pattern)[i % pattern_bytes];
  return TB_STATUS_OK;
}

CAUGHT(rows_run_at_once, async, "test_order.py::test_work_takes_its_place_on_its_stream[rows-in]",
       "between two copies to its target")
FAULT(rows_run_at_once, memory_copy_2d) {
  uint64_t row;
  for (row = 0; row < height; ++row)
    memcpy((char*)dst + row * dst_pitch_bytes, (const char*)src + row * src_pitch_bytes, width_bytes);
  return TB_STATUS_OK;
}

/* A thread that nobody waits for. */
static void* run_late_fill_in_thread(void* arg) {
  run_late_fill(arg);
  return NULL;
}

CAUGHT(fills_are_on_a_loose_thread, async, "test_order.py::test_work_takes_its_place_on_its_stream[fill]",
       "between two copies to its target")
FAULT(fills_are_on_a_loose_thread, memory_fill) {
  static char patterns[1 << 16];
  static int used;
  char* kept = &patterns[(used += 16) % sizeof patterns];
  pthread_t thread;
  memcpy(kept, pattern, pattern_bytes);
  if (pthread_create(&thread, NULL, run_late_fill_in_thread, KEPT(late_fill, dst, kept, pattern_bytes, size_bytes)) ==
      0)
    pthread_detach(thread);
  return TB_STATUS_OK;
}

/* On a stream of its own, which waits for nothing. */
CAUGHT(graphs_are_on_their_own_stream, async, "test_order.py::test_graphs_take_their_place_on_their_stream",
       "between two copies to its target")
FAULT(graphs_are_on_their_own_stream, graph_launch) {
  static tb_stream* own[64];
  const tb_status status = own[device] ? TB_STATUS_OK : good.core.stream_create(device, 0, &own[device]);
  return status ? status : good.graph.graph_launch(device, graph, own[device]);
}

/* ---- events ---- */

/* The stream looks at the event when it gets there, and sees what was recorded since. */
static void look_at_event(void* arg) {
  polled_event* polled = arg;
  while (good.core.event_query(polled->device, polled->event) == TB_STATUS_NOT_READY) pause_ms(1);
  free(polled);
}

CAUGHT(waits_see_later_records, async, "test_events.py::test_a_wait_is_for_the_record_before_it",
       "did not wait for the event of")
FAULT(waits_see_later_records, stream_wait_event) {
  return good.core.stream_host_function(device, stream, look_at_event, KEPT(polled_event, device, event));
}

static int num_polls;

#define GIVES_UP(fault, slot) \
  THEN(fault, slot, if (status == TB_STATUS_NOT_READY && ++num_polls % 4 == 0) status = TB_STATUS_OK)
CAUGHT(event_query_gives_up, async, "test_order.py::test_a_stream_that_is_held_is_pending_however_often_it_is_asked",
       "of event_query says OK, but the stream is held")
GIVES_UP(event_query_gives_up, event_query)
CAUGHT(stream_query_gives_up, async, "test_order.py::test_a_stream_that_is_held_is_pending_however_often_it_is_asked",
       "of stream_query says OK, but the stream is held")
GIVES_UP(stream_query_gives_up, stream_query)

/* The address behind an event stands for one that was recorded again. */
CAUGHT(synchronize_knows_one_record, async, "test_events.py::test_event_synchronize_waits_for_the_work_before_it",
       "event_synchronize returned while work before the record was not complete")
FIRST(synchronize_knows_one_record, event_record, if (!remember(event)) remember((char*)event + 1))
ANSWERS(synchronize_knows_one_record, event_synchronize,
        forget((char*)event + 1) ? TB_STATUS_OK : GOOD(event_synchronize))
FIRST(synchronize_knows_one_record, event_destroy, forget(event), forget((char*)event + 1))

/* An event is a name for its stream: complete when that has nothing left to do. */
static tb_event* last_event;
static tb_stream* stream_of_last_event;

#define STANDS_FOR_ITS_STREAM(fault) FIRST(fault, event_record, last_event = event, stream_of_last_event = stream)
CAUGHT(events_are_for_all_of_their_stream, async, "test_events.py::test_later_work_holds_no_event_up",
       "event_query waits for work that was enqueued after event_record")
STANDS_FOR_ITS_STREAM(events_are_for_all_of_their_stream)
ANSWERS(events_are_for_all_of_their_stream, event_query,
        event == last_event ? good.core.stream_query(device, stream_of_last_event) : GOOD(event_query))
CAUGHT(waits_are_for_all_of_a_stream, async, "test_events.py::test_later_work_holds_no_event_up",
       "stream_wait_event waits for work that was enqueued after event_record")
STANDS_FOR_ITS_STREAM(waits_are_for_all_of_a_stream)

FAULT(waits_are_for_all_of_a_stream, stream_wait_event) {
  tb_event* now;
  tb_status status;
  if (event != last_event || (status = good.core.event_create(device, 0, &now))) return GOOD(stream_wait_event);
  status = good.core.event_record(device, now, stream_of_last_event);
  if (!status) status = good.core.stream_wait_event(device, stream, now);
  good.core.event_destroy(device, now);
  return status;
}

/* A driver that learns of what is complete when somebody waits. */
static int nobody_waited;

CAUGHT(events_complete_when_waited_for, async, "test_events.py::test_an_event_completes_with_the_work_before_it",
       "s after the work before it")
THEN(events_complete_when_waited_for, event_record, nobody_waited = 1)
THEN(events_complete_when_waited_for, stream_synchronize, nobody_waited = 0)
ANSWERS(events_complete_when_waited_for, event_query, nobody_waited ? TB_STATUS_NOT_READY : GOOD(event_query))

CAUGHT(waits_know_one_record, async, "test_events.py::test_who_waits_for_the_second_record_gets_the_second",
       "after the second record")
FIRST(waits_know_one_record, event_record, if (!remember(event)) remember((char*)event + 1))
ANSWERS(waits_know_one_record, stream_wait_event, forget((char*)event + 1) ? TB_STATUS_OK : GOOD(stream_wait_event))
FIRST(waits_know_one_record, event_destroy, forget(event), forget((char*)event + 1))

CAUGHT(records_are_on_the_default_stream, async, "test_events.py::test_an_event_is_pending_while_the_work_before_it_is",
       "the event is complete, but work that was enqueued before its record is not")
FIRST(records_are_on_the_default_stream, event_record, stream = NULL)
CAUGHT(waits_are_on_the_default_stream, async, "test_events.py::test_a_stream_waits_for_an_event_of_another",
       "did not wait for the event of")
FIRST(waits_are_on_the_default_stream, stream_wait_event, stream = NULL)

/* ---- the same on devices whose copies of pageable memory wait ---- */

static tb_status wait_if_pageable(tb_status status, int32_t device, uint32_t kind, const void* dst, const void* src,
                                  tb_stream* stream) {
  const void* on_host = kind == TB_COPY_HOST_TO_DEVICE ? src : kind == TB_COPY_DEVICE_TO_HOST ? dst : NULL;
  tb_pointer_info info = {.struct_size = sizeof info};
  if (status || !on_host || good.core.memory_query(on_host, &info) || info.kind != TB_MEMORY_UNKNOWN) return status;
  return finish(device, stream);
}

#define PAGEABLE_COPIES_WAIT(fault) \
  THEN(fault, memory_copy,          \
       status = wait_if_pageable(status, src_device < 0 ? dst_device : src_device, kind, dst, src, stream))
PAGEABLE_COPIES_WAIT(pageable_copies_wait) /* which is no fault */
THEN(pageable_copies_wait, memory_copy_2d, status = wait_if_pageable(status, device, kind, dst, src, stream))

#define WHERE_COPIES_WAIT(fault, slot)                   \
  PAGEABLE_COPIES_WAIT(fault##_and_pageable_copies_wait) \
  ANSWERS(fault##_and_pageable_copies_wait, slot, fault##_##slot ARGUMENTS_OF(TB_SLOT_##slot))
CAUGHT(fills_run_at_once_and_pageable_copies_wait, async,
       "test_order.py::test_work_takes_its_place_on_its_stream[fill]", "fill between")
WHERE_COPIES_WAIT(fills_run_at_once, memory_fill)
CAUGHT(rows_run_at_once_and_pageable_copies_wait, async,
       "test_order.py::test_work_takes_its_place_on_its_stream[rows-in]", "rows-in between")
WHERE_COPIES_WAIT(rows_run_at_once, memory_copy_2d)
CAUGHT(waits_are_ignored_and_pageable_copies_wait, async, "test_events.py::test_a_stream_waits_for_an_event_of_another",
       "did not wait for")
PAGEABLE_COPIES_WAIT(waits_are_ignored_and_pageable_copies_wait)
ANSWERS(waits_are_ignored_and_pageable_copies_wait, stream_wait_event, TB_STATUS_OK)
CAUGHT(waits_know_one_record_and_pageable_copies_wait, async,
       "test_events.py::test_who_waits_for_the_second_record_gets_the_second", "after the second record")
WHERE_COPIES_WAIT(waits_know_one_record, stream_wait_event)
FIRST(waits_know_one_record_and_pageable_copies_wait, event_record, if (!remember(event)) remember((char*)event + 1))

CAUGHT(small_copies_overtake_and_pageable_copies_wait, async,
       "test_streams.py::test_small_work_does_not_overtake_large_work", "16 bytes that were copied over")
FAULT(small_copies_overtake_and_pageable_copies_wait, memory_copy) {
  if (kind == TB_COPY_HOST_TO_DEVICE && size_bytes <= 64)
    return small_copies_overtake_memory_copy(dst_device, dst, src_device, src, size_bytes, kind, stream);
  return pageable_copies_wait_memory_copy(dst_device, dst, src_device, src, size_bytes, kind, stream);
}

/* ---- what a call was given, and is gone when it runs ---- */

/* The call is made when its arguments may be gone; the device waits for that before it waits for anything. */
typedef struct late_exchange {
  const void* in;
  const uint64_t *send_counts, *send_offsets;
  void* out;
  const uint64_t *recv_counts, *recv_offsets;
  tb_dtype dtype;
  tb_comm* comm;
  tb_stream* stream;
} late_exchange;

static __thread pthread_t late_thread;
static __thread int is_late;

static void* exchange_late(void* arg) {
  const late_exchange* call = arg;
  pause_ms(20);
  good.ccl.all_to_all(call->in, call->send_counts, call->send_offsets, call->out, call->recv_counts, call->recv_offsets,
                      call->dtype, call->comm, call->stream);
  free(arg);
  return NULL;
}

static void wait_for_late_thread(void) {
  if (is_late) pthread_join(late_thread, NULL);
  is_late = 0;
}

CAUGHT(counts_are_read_late, ccl, "test_ccl_order.py::test_collectives_take_their_place_on_their_stream[all_to_all]",
       "all_to_all between copies on")
FAULT(counts_are_read_late, all_to_all) {
  void* call = KEPT(late_exchange, in, send_counts, send_offsets, out, recv_counts, recv_offsets, dtype, comm, stream);
  is_late = pthread_create(&late_thread, NULL, exchange_late, call) == 0;
  return TB_STATUS_OK;
}

FIRST(counts_are_read_late, memory_copy, wait_for_late_thread())
FIRST(counts_are_read_late, stream_synchronize, wait_for_late_thread())

CAUGHT(graphs_keep_what_the_host_had, async,
       "test_graph_table.py::test_recorded_copies_use_what_the_host_has_at_the_launch",
       "launch 1 of a copy from the host, whose memory was written before it")
FAULT(graphs_keep_what_the_host_had, memory_copy) {
  int32_t records = 0;
  if (good.graph.struct_size && stream && kind == TB_COPY_HOST_TO_DEVICE)
    good.graph.stream_is_capturing(dst_device, stream, &records);
  if (records) src = memcpy(malloc(size_bytes), src, size_bytes);
  return GOOD(memory_copy);
}

/* ---- what a call must leave as it is ---- */

CAUGHT(sums_overwrite_their_input, ccl,
       "test_ccl_order.py::test_collectives_take_their_place_on_their_stream[all_reduce]", "its input afterwards")
FAULT(sums_overwrite_their_input, all_reduce) {
  tb_pointer_info info = {.struct_size = sizeof info};
  const tb_status status = GOOD(all_reduce);
  good.core.memory_query(in, &info);
  if (!status && in != out)
    good.core.memory_copy(info.device, (void*)in, info.device, out, bytes_of(count, dtype), TB_COPY_DEVICE_TO_DEVICE,
                          stream);
  return status;
}

CAUGHT(registering_clears_memory, xcpu, "test_host_registration.py::test_registered_memory_is_copied",
       "memory that host_register was called for")
FIRST(registering_clears_memory, host_register, memset(ptr, 0, size_bytes))

#define UNSUPPORTED_AFTER_WRITING(fault, slot, condition) \
  THEN(fault, slot, if (!status && (condition)) status = host->fail(TB_STATUS_UNSUPPORTED, "not like this"))
CAUGHT(refused_fills_are_written, xcpu, "test_fills.py::test_fills_with_equal_bytes[8]",
       "memory_fill with a pattern of 8 bytes answered UNSUPPORTED, but")
UNSUPPORTED_AFTER_WRITING(refused_fills_are_written, memory_fill, pattern_bytes == 8)
CAUGHT(refused_copies_are_made, xcpu, "test_peers.py::test_a_refused_copy_between_devices_moves_nothing",
       "after memory_copy of TB_COPY_PEER answered UNSUPPORTED")
UNSUPPORTED_AFTER_WRITING(refused_copies_are_made, memory_copy, kind == TB_COPY_PEER)
CHANGED(refused_copies_are_made, p->capabilities &= ~TB_CAP_PEER)
CAUGHT(refused_rows_are_written, xcpu, "test_copies_2d.py::test_rows_are_copied_to_the_device[17x33x20x9]",
       "memory_copy_2d of kind HOST_TO_DEVICE answered UNSUPPORTED, but")
UNSUPPORTED_AFTER_WRITING(refused_rows_are_written, memory_copy_2d, kind == TB_COPY_HOST_TO_DEVICE)

/* ---- kernels ---- */

static tb_kernel_function good_add;

static void change_add(tb_kernel_function function) {
  copy_kernels();
  good_add = changed_kernel.function;
  changed_kernel.function = function;
}

#define CHANGED_ADD(fault)                                                                              \
  static tb_status fault##_add(const tb_kernel_context* context, const tb_arg* args, int32_t num_args); \
  CHANGE(fault, change_add(fault##_add))                                                                \
  static tb_status fault##_add(const tb_kernel_context* context, const tb_arg* args, int32_t num_args)

static void run_late_kernel(void* arg) {
  pause_ms(2);
  call_add_now(arg);
}

CAUGHT(kernels_read_arguments_late, async,
       "test_kernel_table.py::test_pointwise_kernels_compute[aten::add.out-contiguous]", "aten::add.out: element 0 is")
CHANGED_ADD(kernels_read_arguments_late) {
  return good.core.stream_host_function(context->device, context->stream, run_late_kernel, (void*)args);
}

CAUGHT(kernels_run_at_once, async, "test_kernel_table.py::test_pointwise_kernels_compute[aten::add.out-contiguous]",
       "aten::add.out: element 0 is")
CHANGED_ADD(kernels_run_at_once) {
  call_add_now(args);
  return TB_STATUS_OK;
}

CAUGHT(kernels_are_on_the_default_stream, async,
       "test_kernel_table.py::test_pointwise_kernels_compute[aten::add.out-contiguous]", "aten::add.out: element 0 is")
CHANGED_ADD(kernels_are_on_the_default_stream) {
  tb_kernel_context changed = *context;
  changed.stream = NULL;
  return good_add(&changed, args, num_args);
}

CAUGHT(refused_kernels_are_written, async,
       "test_kernel_table.py::test_pointwise_kernels_compute[aten::add.out-transposed]",
       "answered UNSUPPORTED, but a tensor")
CHANGED_ADD(refused_kernels_are_written) {
  const tb_tensor* in = args[0].v.p;
  const tb_status status = good_add(context, args, num_args);
  return status || in->strides[0] == 5 ? status : host->fail(TB_STATUS_UNSUPPORTED, "only rows");
}

CAUGHT(kernels_wait_for_their_stream, async,
       "test_kernel_table.py::test_pointwise_kernels_compute[aten::add.out-contiguous]",
       "waited for the stream that it was to enqueue its work on")
CHANGED_ADD(kernels_wait_for_their_stream) {
  finish(context->device, context->stream);
  return good_add(context, args, num_args);
}

/* One place for the first argument of the next launch: the results are still everybody's own, as memory that is written
 * when it has been freed may end the process. */
CAUGHT(kernels_share_their_arguments, async, "test_kernel_table.py::test_threads_call_one_kernel", "aten::add.out: ")
CHANGED_ADD(kernels_share_their_arguments) {
  static tb_tensor next;
  tb_tensor first;
  tb_arg changed[4];
  memcpy(changed, args, (size_t)num_args * sizeof *args);
  next = *(const tb_tensor*)args[0].v.p;
  pause_ms(1);
  first = next;
  changed[0].v.p = &first;
  return good_add(context, changed, num_args);
}

CAUGHT(kernels_ignore_offsets, async, "test_kernel_table.py::test_pointwise_kernels_compute[aten::add.out-contiguous]",
       "aten::add.out: element 0 is")
CHANGED_ADD(kernels_ignore_offsets) {
  tb_tensor first = *(const tb_tensor*)args[0].v.p;
  tb_arg changed[4];
  memcpy(changed, args, (size_t)num_args * sizeof *args);
  first.byte_offset = 0;
  changed[0].v.p = &first;
  return good_add(context, changed, num_args);
}

CAUGHT(kernels_write_their_input, async,
       "test_kernel_table.py::test_pointwise_kernels_compute[aten::add.out-contiguous]",
       "aten::add.out: an input after the call")
CHANGED_ADD(kernels_write_their_input) {
  tb_arg changed[4];
  memcpy(changed, args, (size_t)num_args * sizeof *args);
  changed[num_args - 1] = args[0];
  good_add(context, args, num_args);
  return good_add(context, changed, num_args);
}

CAUGHT(kernels_clear_their_output_first, example,
       "test_kernel_table.py::test_pointwise_kernels_compute[aten::add.out-in-place]", "aten::add.out: element 0 is")
CHANGED_ADD(kernels_clear_their_output_first) {
  const tb_tensor* out = args[num_args - 1].v.p;
  memset((char*)out->data + out->byte_offset, 0, 4);
  return good_add(context, args, num_args);
}
