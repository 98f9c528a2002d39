/* Faults of devices that take it that one thread calls them at a time, for faulty.c. */

/* ---- calls that find another one going on ---- */

static int num_busy, busy_device;

#define ALONE(fault, slot, minds)                                                         \
  FAULT(fault, slot) {                                                                    \
    const int is_busy = __atomic_fetch_add(&num_busy, 1, __ATOMIC_SEQ_CST) && (minds);    \
    tb_status status;                                                                     \
    busy_device = DEVICE_OF(TB_SLOT_##slot);                                              \
    pause_ms(1);                                                                          \
    status = is_busy ? host->fail(TB_STATUS_INTERNAL, "the driver is busy") : GOOD(slot); \
    __atomic_sub_fetch(&num_busy, 1, __ATOMIC_SEQ_CST);                                   \
    return status;                                                                        \
  }
CAUGHT(streams_are_made_one_by_one, async, "test_threads.py::test_threads_create_and_destroy_streams_and_events",
       "the driver is busy")
ALONE(streams_are_made_one_by_one, stream_create, 1)
CAUGHT(commits_are_made_one_by_one, xcpu, "test_virtual_memory.py::test_threads_commit_parts_of_one_reservation",
       "the driver is busy")
ALONE(commits_are_made_one_by_one, memory_commit, 1)
CAUGHT(streams_take_one_thread, async, "test_threads.py::test_threads_share_a_stream", "the driver is busy")
ALONE(streams_take_one_thread, memory_copy, stream != NULL)
CAUGHT(one_device_works_at_a_time, xcpu, "test_threads.py::test_threads_use_different_devices_at_once",
       "the driver is busy")
ALONE(one_device_works_at_a_time, memory_copy, busy_device != DEVICE_OF(TB_SLOT_memory_copy))

/* ---- memory of threads ---- */

static __thread const void* memory_of_thread[4096];
static __thread int num_of_thread;

CAUGHT(memory_belongs_to_its_thread, xcpu, "test_threads.py::test_memory_is_freed_by_another_thread",
       "was not allocated by this thread")
THEN(memory_belongs_to_its_thread, memory_allocate,
     if (!status && num_of_thread < 4096) memory_of_thread[num_of_thread++] = *out_ptr)

FAULT(memory_belongs_to_its_thread, memory_free) {
  int i = num_of_thread;
  while (i && memory_of_thread[i - 1] != ptr) --i;
  if (!i) return host->fail(TB_STATUS_INVALID_ARGUMENT, "%p was not allocated by this thread", ptr);
  memory_of_thread[i - 1] = memory_of_thread[--num_of_thread];
  return GOOD(memory_free);
}
