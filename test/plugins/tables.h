/* The optional tables "prof.1" and "ccl.1", as simple as they can be, for a device that has none: so that the
 * tests of the conformance kit for them have something to test. `original` is the core table they stand on. */
#include <pthread.h>
#include <time.h>
#include <unistd.h>

static tb_core_table original;

static tb_status finish(int32_t device, tb_stream* stream) {
  return original.stream_synchronize ? original.stream_synchronize(device, stream) : TB_STATUS_OK;
}

/* ---- prof.1: copies are traced, which waits for them ---- */

#define MAX_RECORDS 256
static pthread_mutex_t trace_mutex = PTHREAD_MUTEX_INITIALIZER; /* guards the next three */
static tb_trace_record records[MAX_RECORDS];
static int num_records;
static uint64_t traced_kinds;
static __thread uint64_t correlations[16];
static __thread int num_correlations;

static int64_t now_ns(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static tb_status trace_copy(tb_status status, int32_t device, tb_stream* stream, uint64_t size, int64_t start_ns) {
  tb_trace_record record = {sizeof record, TB_TRACE_COPY, device, (uint64_t)(uintptr_t)stream, 0, start_ns, 0,
                            "copy",        size};
  if (status == TB_STATUS_OK) status = finish(device, stream);
  record.end_ns = now_ns();
  if (num_correlations) record.correlation = correlations[num_correlations - 1];
  pthread_mutex_lock(&trace_mutex);
  if (num_records < MAX_RECORDS) records[num_records++] = record;
  pthread_mutex_unlock(&trace_mutex);
  return status;
}

FUNCTION(trace_start, trace_start) {
  traced_kinds = kinds;
  return TB_STATUS_OK;
}

FUNCTION(trace_stop, trace_stop) {
  traced_kinds = 0;
  return TB_STATUS_OK;
}

FUNCTION(trace_collect, trace_collect) {
  int i;
  for (i = 0; i < num_records; ++i) callback(arg, &records[i]);
  num_records = 0;
  return TB_STATUS_OK;
}

FUNCTION(correlation_push, correlation_push) {
  correlations[num_correlations++] = id;
  return TB_STATUS_OK;
}

FUNCTION(correlation_pop, correlation_pop) {
  --num_correlations;
  return TB_STATUS_OK;
}

FUNCTION(clock_pair, clock_pair) {
  *out_device_ns = *out_host_ns = now_ns();
  return TB_STATUS_OK;
}

static const tb_profiler_table profiler_table = {
    sizeof(tb_profiler_table), trace_start, trace_stop, trace_collect, correlation_push,
    correlation_pop,           clock_pair,  NULL,       NULL,
};

/* ---- ccl.1: two ranks in one process, a mailbox for each ---- */

typedef struct mailbox {
  void* message; /* NULL: empty */
} mailbox;

typedef struct meeting {
  mailbox boxes[2]; /* of messages to this rank */
} meeting;

struct tb_comm {
  meeting* where;
  int32_t device, rank;
};

static pthread_mutex_t ccl_mutex = PTHREAD_MUTEX_INITIALIZER; /* guards all below and the mailboxes */
static pthread_cond_t ccl_changed = PTHREAD_COND_INITIALIZER;
static meeting meetings[64];
static uint64_t num_meetings;

/* Where a communicator meets, and the process that has it. */
typedef struct meeting_id {
  uint64_t number;
  int64_t process;
} meeting_id;

FUNCTION(unique_id_create, unique_id_create) {
  meeting_id id = {0, getpid()};
  pthread_mutex_lock(&ccl_mutex);
  id.number = ++num_meetings;
  memcpy(out_unique_id, &id, sizeof id);
  pthread_mutex_unlock(&ccl_mutex);
  return TB_STATUS_OK;
}

FUNCTION(comm_create, comm_create) {
  meeting_id id;
  tb_comm* comm;
  memcpy(&id, unique_id, sizeof id);
  if (num_ranks != 2 || id.process != getpid()) return TB_STATUS_UNSUPPORTED;
  comm = malloc(sizeof *comm);
  *comm = (tb_comm){&meetings[id.number % 64], device, rank};
  *out_comm = comm;
  return TB_STATUS_OK;
}

FUNCTION(comm_destroy, comm_destroy) {
  free(comm);
  return TB_STATUS_OK;
}

static uint64_t bytes_of(uint64_t count, tb_dtype dtype) {
  return count * dtype.bits / 8;
}

FUNCTION(send_message, send) {
  const uint64_t size = bytes_of(count, dtype);
  void* message = malloc(size + 1); /* one of no elements is a message too */
  mailbox* box = &comm->where->boxes[peer];
  if (size) original.memory_copy(-1, message, comm->device, buffer, size, TB_COPY_DEVICE_TO_HOST, stream);
  finish(comm->device, stream);
  pthread_mutex_lock(&ccl_mutex);
  while (box->message) pthread_cond_wait(&ccl_changed, &ccl_mutex);
  box->message = message;
  pthread_cond_broadcast(&ccl_changed);
  pthread_mutex_unlock(&ccl_mutex);
  return TB_STATUS_OK;
}

static void* next_message(tb_comm* comm) {
  mailbox* box = &comm->where->boxes[comm->rank];
  void* message;
  pthread_mutex_lock(&ccl_mutex);
  while (!box->message) pthread_cond_wait(&ccl_changed, &ccl_mutex);
  message = box->message;
  box->message = NULL;
  pthread_cond_broadcast(&ccl_changed);
  pthread_mutex_unlock(&ccl_mutex);
  return message;
}

FUNCTION(recv_message, recv) {
  const uint64_t size = bytes_of(count, dtype);
  void* message = next_message(comm);
  if (size) original.memory_copy(comm->device, buffer, -1, message, size, TB_COPY_HOST_TO_DEVICE, stream);
  finish(comm->device, stream);
  free(message);
  return TB_STATUS_OK;
}

FUNCTION(all_reduce, all_reduce) {
  const uint64_t size = bytes_of(count, dtype);
  float *own, *other;
  uint64_t i;
  if (reduction != TB_REDUCE_SUM || dtype.code != TB_DTYPE_FLOAT || dtype.bits != 32) return TB_STATUS_UNSUPPORTED;
  send_message(in, count, dtype, 1 - comm->rank, comm, stream);
  other = next_message(comm);
  own = malloc(size);
  original.memory_copy(-1, own, comm->device, in, size, TB_COPY_DEVICE_TO_HOST, stream);
  finish(comm->device, stream);
  for (i = 0; i < count; ++i) own[i] += other[i];
  original.memory_copy(comm->device, out, -1, own, size, TB_COPY_HOST_TO_DEVICE, stream);
  finish(comm->device, stream);
  free(own);
  free(other);
  return TB_STATUS_OK;
}

static const tb_ccl_table ccl_table = {
    .struct_size = sizeof(tb_ccl_table),
    .unique_id_bytes = sizeof(meeting_id),
    .unique_id_create = unique_id_create,
    .comm_create = comm_create,
    .comm_destroy = comm_destroy,
    .send = send_message,
    .recv = recv_message,
    .all_reduce = all_reduce,
};

/* ---- all three over the core table ---- */

FUNCTION(traced_copy, memory_copy) {
  int64_t start_ns;
  tb_status status;
  start_ns = now_ns();
  status = original.memory_copy ARGUMENTS_OF(TB_SLOT_memory_copy);
  if (!(traced_kinds & TB_TRACE_COPY)) return status;
  return trace_copy(status, DEVICE_OF(TB_SLOT_memory_copy), stream, size_bytes, start_ns);
}

/* After wrap(). Collectives that the device has are kept. */
static void add_tables(void) {
  original = good.core;
  good.core.memory_copy = traced_copy;
  good.prof = profiler_table;
  if (!good.ccl.struct_size) good.ccl = ccl_table;
  made = good;
}
