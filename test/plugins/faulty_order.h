/* Faults of when work runs, and of how long what a call was given is used, for faulty.c. */

/* ---- work that runs elsewhere than on its stream ---- */

static void wait_in_engine(void* arg) {
  pause_ms(50);
}

FIRST(fills_are_on_the_default_stream, memory_fill, stream = NULL)
FIRST(rows_are_on_the_default_stream, memory_copy_2d, stream = NULL)
FIRST(copies_within_are_on_the_default_stream, memory_copy, if (kind == TB_COPY_DEVICE_TO_DEVICE) stream = NULL)
FIRST(copies_between_are_on_the_default_stream, memory_copy, if (kind == TB_COPY_PEER) stream = NULL)
FIRST(copies_out_are_on_the_default_stream, memory_copy, if (kind == TB_COPY_DEVICE_TO_HOST) stream = NULL)

#define ON_THE_DEFAULT(slot) FIRST(everything_is_on_the_default_stream, slot, stream = NULL)
ON_THE_DEFAULT(memory_copy)
ON_THE_DEFAULT(memory_copy_2d)
ON_THE_DEFAULT(memory_fill)
ON_THE_DEFAULT(event_record)
ON_THE_DEFAULT(stream_wait_event)
ON_THE_DEFAULT(stream_host_function)
ON_THE_DEFAULT(stream_synchronize)
ON_THE_DEFAULT(stream_query)

FIRST(only_device_0_has_a_default_stream, memory_copy, if (!stream && dst_device > 0) return TB_STATUS_OK)

/* By an engine of its own, which starts when the stream gets there. */
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

THEN(copies_are_on_the_first_stream, stream_create,
     if (!status && !first_stream[device]) first_stream[device] = *out_stream)
FIRST(copies_are_on_the_first_stream, stream_destroy, if (stream == first_stream[device]) first_stream[device] = NULL)
FIRST(copies_are_on_the_first_stream, memory_copy,
      if (stream) stream = first_stream[src_device < 0 ? dst_device : src_device])

FIRST(graphs_are_on_the_default_stream, graph_launch, stream = NULL)

/* One fault for each collective. */
#define ON_THE_DEFAULT_STREAM(slot) FIRST(slot##_is_on_the_default_stream, slot, stream = NULL)
ON_THE_DEFAULT_STREAM(send)
ON_THE_DEFAULT_STREAM(recv)
ON_THE_DEFAULT_STREAM(all_reduce)
ON_THE_DEFAULT_STREAM(reduce)
ON_THE_DEFAULT_STREAM(broadcast)
ON_THE_DEFAULT_STREAM(all_gather)
ON_THE_DEFAULT_STREAM(reduce_scatter)
ON_THE_DEFAULT_STREAM(all_to_all)

FAULT(fills_run_at_once, memory_fill) {
  uint64_t i;
  for (i = 0; i < size_bytes; ++i) ((char*)dst)[i] = ((const char*)pattern)[i % pattern_bytes];
  return TB_STATUS_OK;
}

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

FAULT(waits_see_later_records, stream_wait_event) {
  return good.core.stream_host_function(device, stream, look_at_event, KEPT(polled_event, device, event));
}

static int num_polls;

#define GIVES_UP(fault, slot) \
  THEN(fault, slot, if (status == TB_STATUS_NOT_READY && ++num_polls % 4 == 0) status = TB_STATUS_OK)
GIVES_UP(event_query_gives_up, event_query)
GIVES_UP(stream_query_gives_up, stream_query)

/* The address behind an event stands for one that was recorded again. */
FIRST(synchronize_knows_one_record, event_record, if (!remember(event)) remember((char*)event + 1))
ANSWERS(synchronize_knows_one_record, event_synchronize,
        forget((char*)event + 1) ? TB_STATUS_OK : GOOD(event_synchronize))
FIRST(synchronize_knows_one_record, event_destroy, forget(event), forget((char*)event + 1))

/* An event is a name for its stream: complete when that has nothing left to do. */
static tb_event* last_event;
static tb_stream* stream_of_last_event;

#define STANDS_FOR_ITS_STREAM(fault) FIRST(fault, event_record, last_event = event, stream_of_last_event = stream)
STANDS_FOR_ITS_STREAM(events_are_for_all_of_their_stream)
ANSWERS(events_are_for_all_of_their_stream, event_query,
        event == last_event ? good.core.stream_query(device, stream_of_last_event) : GOOD(event_query))
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

THEN(events_complete_when_waited_for, event_record, nobody_waited = 1)
THEN(events_complete_when_waited_for, stream_synchronize, nobody_waited = 0)
ANSWERS(events_complete_when_waited_for, event_query, nobody_waited ? TB_STATUS_NOT_READY : GOOD(event_query))

FIRST(waits_know_one_record, event_record, if (!remember(event)) remember((char*)event + 1))
ANSWERS(waits_know_one_record, stream_wait_event, forget((char*)event + 1) ? TB_STATUS_OK : GOOD(stream_wait_event))
FIRST(waits_know_one_record, event_destroy, forget(event), forget((char*)event + 1))

FIRST(records_are_on_the_default_stream, event_record, stream = NULL)
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
WHERE_COPIES_WAIT(fills_run_at_once, memory_fill)
WHERE_COPIES_WAIT(rows_run_at_once, memory_copy_2d)
PAGEABLE_COPIES_WAIT(waits_are_ignored_and_pageable_copies_wait)
ANSWERS(waits_are_ignored_and_pageable_copies_wait, stream_wait_event, TB_STATUS_OK)
WHERE_COPIES_WAIT(waits_know_one_record, stream_wait_event)
FIRST(waits_know_one_record_and_pageable_copies_wait, event_record, if (!remember(event)) remember((char*)event + 1))

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

FAULT(counts_are_read_late, all_to_all) {
  void* call = KEPT(late_exchange, in, send_counts, send_offsets, out, recv_counts, recv_offsets, dtype, comm, stream);
  is_late = pthread_create(&late_thread, NULL, exchange_late, call) == 0;
  return TB_STATUS_OK;
}

FIRST(counts_are_read_late, memory_copy, wait_for_late_thread())
FIRST(counts_are_read_late, stream_synchronize, wait_for_late_thread())

FAULT(graphs_keep_what_the_host_had, memory_copy) {
  int32_t records = 0;
  if (good.graph.struct_size && stream && kind == TB_COPY_HOST_TO_DEVICE)
    good.graph.stream_is_capturing(dst_device, stream, &records);
  if (records) src = memcpy(malloc(size_bytes), src, size_bytes);
  return GOOD(memory_copy);
}

/* ---- what a call must leave as it is ---- */

FAULT(sums_overwrite_their_input, all_reduce) {
  tb_pointer_info info = {.struct_size = sizeof info};
  const tb_status status = GOOD(all_reduce);
  good.core.memory_query(in, &info);
  if (!status && in != out)
    good.core.memory_copy(info.device, (void*)in, info.device, out, bytes_of(count, dtype), TB_COPY_DEVICE_TO_DEVICE,
                          stream);
  return status;
}

FIRST(registering_clears_memory, host_register, memset(ptr, 0, size_bytes))

#define UNSUPPORTED_AFTER_WRITING(fault, slot, condition) \
  THEN(fault, slot, if (!status && (condition)) status = host->fail(TB_STATUS_UNSUPPORTED, "not like this"))
UNSUPPORTED_AFTER_WRITING(refused_fills_are_written, memory_fill, pattern_bytes == 8)
UNSUPPORTED_AFTER_WRITING(refused_copies_are_made, memory_copy, kind == TB_COPY_PEER)
CHANGED(refused_copies_are_made, p->capabilities &= ~TB_CAP_PEER)
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

CHANGED_ADD(kernels_read_arguments_late) {
  return good.core.stream_host_function(context->device, context->stream, run_late_kernel, (void*)args);
}

CHANGED_ADD(kernels_run_at_once) {
  call_add_now(args);
  return TB_STATUS_OK;
}

CHANGED_ADD(kernels_are_on_the_default_stream) {
  tb_kernel_context changed = *context;
  changed.stream = NULL;
  return good_add(&changed, args, num_args);
}

CHANGED_ADD(refused_kernels_are_written) {
  const tb_tensor* in = args[0].v.p;
  const tb_status status = good_add(context, args, num_args);
  return status || in->strides[0] == 5 ? status : host->fail(TB_STATUS_UNSUPPORTED, "only rows");
}

CHANGED_ADD(kernels_wait_for_their_stream) {
  finish(context->device, context->stream);
  return good_add(context, args, num_args);
}

/* One place for the arguments of the next launch. */
CHANGED_ADD(kernels_share_their_arguments) {
  static tb_arg next[4];
  memcpy(next, args, (size_t)num_args * sizeof *args);
  pause_ms(1);
  return good_add(context, next, num_args);
}

CHANGED_ADD(kernels_ignore_offsets) {
  tb_tensor first = *(const tb_tensor*)args[0].v.p;
  tb_arg changed[4];
  memcpy(changed, args, (size_t)num_args * sizeof *args);
  first.byte_offset = 0;
  changed[0].v.p = &first;
  return good_add(context, changed, num_args);
}

CHANGED_ADD(kernels_write_their_input) {
  tb_arg changed[4];
  memcpy(changed, args, (size_t)num_args * sizeof *args);
  changed[num_args - 1] = args[0];
  good_add(context, args, num_args);
  return good_add(context, changed, num_args);
}

CHANGED_ADD(kernels_clear_their_output_first) {
  const tb_tensor* out = args[num_args - 1].v.p;
  memset((char*)out->data + out->byte_offset, 0, 4);
  return good_add(context, args, num_args);
}
