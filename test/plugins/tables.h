/* The optional tables "prof.1", "ccl.1" and "kernels.1", as simple as they can be, for a device that has none: so that the
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

/* ---- kernels.1: one kernel, for devices whose memory the host can access at any time ---- */

enum { MAX_DIMS = 8, ADD_TENSORS = 3 };

typedef struct add_call {
  int64_t shape[MAX_DIMS], strides[ADD_TENSORS][MAX_DIMS];
  char* data[ADD_TENSORS]; /* two inputs, the output */
  int32_t ndim;
  float alpha;
} add_call;

static void add_dimension(const add_call* call, int32_t dim, const int64_t* places) {
  int64_t i, next[ADD_TENSORS];
  int t;
  if (dim == call->ndim) {
    float* out = (float*)call->data[2] + places[2];
    *out = ((float*)call->data[0])[places[0]] + call->alpha * ((float*)call->data[1])[places[1]];
    return;
  }
  for (i = 0; i < call->shape[dim]; ++i) {
    for (t = 0; t < ADD_TENSORS; ++t) next[t] = places[t] + i * call->strides[t][dim];
    add_dimension(call, dim + 1, next);
  }
}

static void run_add(void* arg) {
  const int64_t places[ADD_TENSORS] = {0};
  add_dimension(arg, 0, places);
}

static add_call add_of(const tb_arg* args) {
  const tb_tensor* tensors[ADD_TENSORS] = {args[0].v.p, args[1].v.p, args[3].v.p};
  add_call call = {.ndim = tensors[2]->ndim};
  int t;
  call.alpha = args[2].tag == TB_ARG_FLOAT ? (float)args[2].v.f : (float)args[2].v.i;
  memcpy(call.shape, tensors[2]->shape, (size_t)call.ndim * sizeof *call.shape);
  for (t = 0; t < ADD_TENSORS; ++t) {
    call.data[t] = (char*)tensors[t]->data + tensors[t]->byte_offset;
    memcpy(call.strides[t], tensors[t]->strides, (size_t)call.ndim * sizeof *call.shape);
  }
  return call;
}

static void call_add_now(const tb_arg* args) {
  add_call call = add_of(args);
  run_add(&call);
}

static void run_and_free_add(void* arg) {
  run_add(arg);
  free(arg);
}

static tb_status add_on_stream(const tb_kernel_context* context, const tb_arg* args, int32_t num_args) {
  const int is_number = args[2].tag == TB_ARG_INT || args[2].tag == TB_ARG_FLOAT;
  if (!is_number || ((const tb_tensor*)args[3].v.p)->ndim > MAX_DIMS) return TB_STATUS_UNSUPPORTED;
  if (!original.stream_host_function) return call_add_now(args), TB_STATUS_OK;
  return original.stream_host_function(context->device, context->stream, run_and_free_add,
                                       memcpy(malloc(sizeof(add_call)), &(add_call[]){add_of(args)}, sizeof(add_call)));
}

static const uint64_t float32_only[TB_DTYPE_MASK_WORDS] = {TB_DTYPE_MASK_FLAG(TB_DTYPE_FLOAT, 32)};
static const tb_kernel add_kernel = {sizeof(tb_kernel), "aten::add.out", add_on_stream, 0, 0, float32_only};
static const tb_kernel* const only_kernels[] = {&add_kernel};
static const tb_kernel_table kernel_table = {
    .struct_size = sizeof(tb_kernel_table), .kernels = only_kernels, .num_kernels = 1};

/* ---- all over the core table ---- */

FUNCTION(traced_copy, memory_copy) {
  int64_t start_ns;
  tb_status status;
  start_ns = now_ns();
  status = original.memory_copy ARGUMENTS_OF(TB_SLOT_memory_copy);
  if (!(traced_kinds & TB_TRACE_COPY)) return status;
  return trace_copy(status, DEVICE_OF(TB_SLOT_memory_copy), stream, size_bytes, start_ns);
}

/* After wrap(). Collectives and kernels that the device has are kept. */
static void add_tables(void) {
  original = good.core;
  good.core.memory_copy = traced_copy;
  good.prof = profiler_table;
  if (!good.ccl.struct_size) good.ccl = ccl_table;
  if (!good.kernels.struct_size && !good.core.memory_map) good.kernels = kernel_table;
  made = good;
}
