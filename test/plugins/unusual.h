/* Devices without a fault, for faulty.c: what few are like, and the contract allows. */

/* ---- little that is optional, and memory in pages ---- */

#define PAGE 4096

CHANGED(unusual, p->allocation_alignment_bytes = PAGE; p->capabilities &= ~(TB_CAP_EVENT_RERECORD | TB_CAP_PEER);
        p->stream_priority_lowest = p->stream_priority_highest = 0; memset(p->dtype_mask, 0, sizeof p->dtype_mask);
        p->dtype_mask[0] = TB_DTYPE_MASK_FLAG(TB_DTYPE_FLOAT, 32) | TB_DTYPE_MASK_FLAG(TB_DTYPE_INT, 32))
ANSWERS(unusual, device_count, (*out_count = 1, TB_STATUS_OK))
FIRST(unusual, memory_copy, if (kind == TB_COPY_PEER) return host->fail(TB_STATUS_UNSUPPORTED, "one device"))

/* The block begins somewhere in the page before. */
FAULT(unusual, memory_allocate) {
  void* block;
  const tb_status status = good.core.memory_allocate(device, kind, size_bytes + 2 * PAGE, stream, &block);
  if (status) return status;
  *out_ptr = (void*)(((uintptr_t)block + 2 * PAGE - 1) & ~(uintptr_t)(PAGE - 1));
  ((void**)*out_ptr)[-1] = block;
  return status;
}

ANSWERS(unusual, memory_free, good.core.memory_free(device, kind, ((void**)ptr)[-1], size_bytes + 2 * PAGE, stream))
CHANGE(unusual, MADE(memory_query) = NULL, MADE(stream_query) = NULL, MADE(device_synchronize) = NULL,
       MADE(peer_can_access) = NULL, MADE(memory_info) = NULL)

/* ---- nothing that is optional ---- */

#define UNSET(slot) MADE(slot) = NULL;
CHANGE(required_slots_only, TB_CORE_OPTIONAL_SLOTS(UNSET); made.graph.struct_size = made.prof.struct_size = 0;
       made.ccl.struct_size = made.kernels.struct_size = 0)
CHANGED(required_slots_only, p->capabilities &= TB_CAP_ASYNC; p->total_memory_bytes = p->commit_granularity_bytes = 0;
        memset(p->uuid, 0, sizeof p->uuid))

/* ---- memory in the order of streams ---- */

CHANGED(stream_alloc, p->capabilities |= TB_CAP_STREAM_ALLOC)

typedef struct late_free {
  int32_t device;
  uint32_t kind;
  void* ptr;
  uint64_t size;
} late_free;

static void run_late_free(void* arg) {
  late_free* call = arg;
  good.core.memory_free(call->device, call->kind, call->ptr, call->size, NULL);
  free(call);
}

FAULT(stream_alloc, memory_free) {
  return good.core.stream_host_function(device, stream, run_late_free, KEPT(late_free, device, kind, ptr, size_bytes));
}

/* ---- every call takes its time ---- */

#define SLOW(slot)              \
  FUNCTION(slot##_slow, slot) { \
    pause_ms(10);               \
    return GOOD(slot);          \
  }
TB_CORE_SLOTS(SLOW)
#define MAKE_SLOW(slot) \
  if (MADE(slot)) MADE(slot) = slot##_slow;
CHANGE(slow, TB_CORE_SLOTS(MAKE_SLOW))

/* ---- other processes use its memory ---- */

/* Whoever looks a few times finds two amounts, in an order that no test falls in step with. */
THEN(memory_is_shared, memory_info, {
  static const char taken[] = {0, 1, 1, 0, 1};
  static unsigned looks;
  if (taken[__atomic_fetch_add(&looks, 1, __ATOMIC_SEQ_CST) / 3 % sizeof taken])
    *out_free_bytes -= *out_free_bytes < 48 << 20 ? *out_free_bytes : 48 << 20;
})

/* ---- a device for each rank ---- */

ANSWERS(ranks_share_no_device, comm_create,
        num_ranks > 1 ? host->fail(TB_STATUS_INVALID_ARGUMENT, "one device has two ranks") : GOOD(comm_create))
ANSWERS(ranks_share_no_device, device_count, (*out_count = 1, TB_STATUS_OK))
