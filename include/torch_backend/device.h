/* torch_backend device ABI, version 1.1: everything a device library has to know to become a PyTorch device.
 *
 * C99, self-contained: no torch, no C++, no vendor header. A device library ("plugin") is one shared library that
 * exports one symbol, tb_plugin_entry, and hands out tables of functions. The host ("core") is torch_backend. A
 * plugin compiled once works under every PyTorch version the core supports.
 *
 * Versions and growth
 *   Inside a major version, structs and tables only grow at their end. Every struct that can grow starts with
 *   struct_size: whoever fills a struct sets it to the sizeof it was compiled with, and nobody reads past the other
 *   side's struct_size. A slot that lies beyond a plugin's struct_size counts as unset. In a struct the caller passes
 *   to be filled, struct_size is the caller's on entry and what was filled on return. New minor: something was
 *   appended. New major: anything else. The core loads plugins of its own major and of any minor, older or newer.
 *
 * What holds for every call (a slot repeats only what differs)
 *   - Result: a tb_status. On failure outputs are untouched and there was no side effect, unless the slot says
 *     otherwise. A plugin explains a failure with host->fail(code, "text", ...), which stores the text for the
 *     calling thread.
 *   - Nothing throws, exits, or jumps across the boundary. Strings are UTF-8 and NUL-terminated.
 *   - Pointers are non-NULL unless marked "may be NULL". out_* are written by the callee. Sizes are in bytes.
 *   - Threads: any slot may be called from any thread at any time, concurrently. The order of concurrent calls on the
 *     same stream is unspecified. The core never holds one of its locks that another slot call would need.
 *   - `device` is an index in [0, device_count). Slots are not called after tb_plugin_entry failed, nor in a child that
 *     was forked after initialize, nor for a device that has reported TB_STATUS_DEVICE_LOST.
 *   - Streams: NULL names the device's default stream, which exists without being created. Work on one stream runs in
 *     the order it was enqueued; nothing else orders two streams but events. Without TB_CAP_ASYNC every call returns
 *     after its work is complete and `stream` is always NULL.
 *   - An asynchronous failure is returned once, by the first call that waits for or queries the stream or event it
 *     happened on; DEVICE_LOST is returned by every call from then on.
 *   - An event is used with its own device: event_record takes a stream of the device the event was created on.
 *   - At process exit the core does not wait for the devices. Work then pending may never run, host functions
 *     included, and a plugin must not make the process wait for it.
 *   - Required: the plugin does not load without it. Optional: may be NULL, and may return TB_STATUS_UNSUPPORTED; the
 *     core then does what the slot calls its default. The default is never a silent no-op.
 */
#ifndef TORCH_BACKEND_DEVICE_H_
#define TORCH_BACKEND_DEVICE_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TB_ABI_MAJOR 1u
#define TB_ABI_MINOR 1u

#if defined(_WIN32)
#define TB_EXPORT __declspec(dllexport)
#else
#define TB_EXPORT __attribute__((visibility("default")))
#endif

/* ================================================= status ================================================= */

/* X(name, value, text). Values are frozen. The core treats a value that is not listed as TB_STATUS_INTERNAL.
 *   NOT_READY         only from queries: the work is not complete. Not an error.
 *   UNSUPPORTED       the device cannot do this; the core uses its default or another way. No side effect.
 *   OUT_OF_MEMORY     the core empties its caches and retries, then raises torch.OutOfMemoryError.
 *   INVALID_ARGUMENT  a precondition was violated.
 *   DEVICE_LOST       sticky: no call again, torch.AcceleratorError from now on; its work touches no host memory.
 *   INTERNAL          any other failure of the device or its driver.
 *   TIMEOUT           the operation gave up waiting. */
#define TB_STATUS_LIST(X)                              \
  X(TB_STATUS_OK, 0, "ok")                             \
  X(TB_STATUS_NOT_READY, 1, "not ready")               \
  X(TB_STATUS_UNSUPPORTED, 2, "unsupported")           \
  X(TB_STATUS_OUT_OF_MEMORY, 3, "out of memory")       \
  X(TB_STATUS_INVALID_ARGUMENT, 4, "invalid argument") \
  X(TB_STATUS_DEVICE_LOST, 5, "device lost")           \
  X(TB_STATUS_INTERNAL, 6, "internal error")           \
  X(TB_STATUS_TIMEOUT, 7, "timed out")

typedef int32_t tb_status;
#define TB_STATUS_ENUMERATOR(name, value, text) name = value,
enum { TB_STATUS_LIST(TB_STATUS_ENUMERATOR) TB_STATUS_COUNT_ = 8 };
#undef TB_STATUS_ENUMERATOR

/* ================================================= handles ================================================ */

/* Owned by the plugin; the core only passes them back. */
typedef struct tb_stream tb_stream;
typedef struct tb_event tb_event;
typedef struct tb_graph tb_graph;
typedef struct tb_module tb_module;
typedef struct tb_function tb_function; /* of a module */
typedef struct tb_comm tb_comm;
/* Owned by the core; valid during the call that passes it. */
typedef struct tb_kernel_host tb_kernel_host;

/* ================================================= tensors ================================================ */

/* Layout of DLPack 1.0's DLDevice, DLDataType and DLTensor, restated and frozen. */
typedef struct tb_device_id {
  int32_t type; /* kDLExtDev (12) for memory of this device, kDLCPU (1) for host memory */
  int32_t index;
} tb_device_id;

typedef struct tb_dtype {
  uint8_t code; /* TB_DTYPE_* */
  uint8_t bits; /* of one lane */
  uint16_t lanes;
} tb_dtype;

#define TB_DTYPE_INT 0u
#define TB_DTYPE_UINT 1u
#define TB_DTYPE_FLOAT 2u
#define TB_DTYPE_BFLOAT 4u
#define TB_DTYPE_COMPLEX 5u
#define TB_DTYPE_BOOL 6u
#define TB_DTYPE_FLOAT8_E4M3FN 10u
#define TB_DTYPE_FLOAT8_E4M3FNUZ 11u
#define TB_DTYPE_FLOAT8_E5M2 12u
#define TB_DTYPE_FLOAT8_E5M2FNUZ 13u
#define TB_DTYPE_FLOAT8_E8M0FNU 14u

/* A set of dtypes: 8 bits per DLPack code, one per element size of 1, 2, 4, 8, 16 bytes. */
#define TB_DTYPE_MASK_WORDS 4
#define TB_DTYPE_SIZE_LOG2_(bits) \
  ((bits) <= 8u ? 0u : (bits) <= 16u ? 1u : (bits) <= 32u ? 2u : (bits) <= 64u ? 3u : 4u)
#define TB_DTYPE_BIT(code, bits) ((code) * 8u + TB_DTYPE_SIZE_LOG2_(bits))
#define TB_DTYPE_MASK_WORD(code, bits) (TB_DTYPE_BIT(code, bits) / 64u)
#define TB_DTYPE_MASK_FLAG(code, bits) (1ull << (TB_DTYPE_BIT(code, bits) % 64u))

typedef struct tb_tensor {
  void* data; /* of the storage; the first element is at data + byte_offset. NULL if the tensor has no elements */
  tb_device_id device;
  int32_t ndim;
  tb_dtype dtype;
  int64_t* shape;   /* [ndim], elements */
  int64_t* strides; /* [ndim], elements, never NULL for ndim > 0 */
  uint64_t byte_offset;
} tb_tensor;

/* One kernel argument. Tags up to 0xff hold the value itself; lists hold a pointer and `length` elements. */
#define TB_ARG_NONE 0
#define TB_ARG_INT 1             /* v.i */
#define TB_ARG_BOOL 2            /* v.i, 0 or 1 */
#define TB_ARG_FLOAT 3           /* v.f */
#define TB_ARG_POINTER 4         /* v.p */
#define TB_ARG_DTYPE 5           /* v.dtype */
#define TB_ARG_DEVICE 6          /* v.device */
#define TB_ARG_TENSOR 7          /* v.p -> tb_tensor */
#define TB_ARG_STRING 8          /* v.p -> char[length], and a NUL */
#define TB_ARG_COMPLEX 9         /* v.p -> double[2] */
#define TB_ARG_GENERATOR 10      /* v.p -> tb_philox */
#define TB_ARG_INT_LIST 0x101    /* v.p -> int64_t[length] */
#define TB_ARG_FLOAT_LIST 0x103  /* v.p -> double[length] */
#define TB_ARG_TENSOR_LIST 0x107 /* v.p -> tb_tensor*[length]; an entry may be NULL */
typedef struct tb_arg {
  int32_t tag;
  uint32_t length;
  union {
    int64_t i;
    double f;
    void* p;
    tb_dtype dtype;
    tb_device_id device;
  } v;
} tb_arg;

/* Random numbers for one kernel call: Philox 4x32-10 (Salmon et al., SC 2011) with `seed` as key. The kernel may use the
 * counters {offset / 4 + k, n} for k in [0, 64) and every 64-bit n, four 32-bit numbers each; no other call gets them. The
 * counter's lower half is offset / 4 + k, its upper half n. */
typedef struct tb_philox {
  uint64_t seed;
  uint64_t offset; /* a multiple of 4 */
} tb_philox;

/* ============================================== device properties ========================================= */

#define TB_CAP_ASYNC (1ull << 0)           /* work is enqueued; needs the eight stream and event slots */
#define TB_CAP_HOST_ACCESS (1ull << 1)     /* the host may load and store TB_MEMORY_DEVICE memory at its own address */
#define TB_CAP_HOST_COHERENT (1ull << 2)   /* ... at any time. Else only between memory_map and memory_unmap */
#define TB_CAP_PAGEABLE_ACCESS (1ull << 3) /* kernels may access any host memory, not only TB_MEMORY_HOST */
#define TB_CAP_STREAM_ALLOC (1ull << 4)    /* memory_allocate and memory_free are ordered by their stream */
#define TB_CAP_EVENT_TIMING (1ull << 5)    /* event_elapsed is offered. Else the core times with the host's clock */
#define TB_CAP_EVENT_RERECORD (1ull << 6)  /* an event may be recorded again. Else the core makes a new one */
#define TB_CAP_PEER (1ull << 7)            /* memory_copy takes TB_COPY_PEER. Else the core stages through the host */
#define TB_CAP_IPC (1ull << 8)             /* the three ipc_ slots are offered */
#define TB_CAP_GRAPH (1ull << 9)           /* table "graph.1" is offered */
#define TB_CAP_VIRTUAL_MEMORY (1ull << 10) /* address_reserve and the three slots after it are offered */

typedef struct tb_device_properties {
  uint64_t struct_size;
  char name[64];                            /* product name, e.g. "Acme X100" */
  char arch[32];                            /* what kernels are built for, e.g. "acme_v2"; "" if that has no meaning */
  uint64_t capabilities;                    /* TB_CAP_*; ASYNC, HOST_ACCESS, HOST_COHERENT equal on all devices */
  uint64_t total_memory_bytes;              /* 0 = unknown */
  uint64_t allocation_granularity_bytes;    /* the core requests multiples of it; a power of two to 2^30; 0 = none */
  uint64_t allocation_alignment_bytes;      /* of what memory_allocate returns; a power of two, 64 to 2^30 */
  uint64_t dtype_mask[TB_DTYPE_MASK_WORDS]; /* dtypes the device stores; all zero = every dtype */
  int32_t capability_major, capability_minor;              /* of the architecture */
  int32_t multiprocessor_count;                            /* 0 = unknown */
  int32_t warp_size;                                       /* lanes that execute together; 1 if that has no meaning */
  int32_t stream_priority_lowest, stream_priority_highest; /* as in CUDA: lower numbers are served first; 0, 0 = none */
  int32_t numa_node;                                       /* -1 = unknown */
  int32_t reserved;
  uint8_t uuid[16];              /* all zero = none */
  uint64_t max_allocation_bytes; /* of one memory_allocate; more is refused without a call. 0 = as much as there is */
  /* What modules are launched with; 0 = no limit but that of the types. */
  uint32_t max_block[3];    /* items of a block in each dimension */
  uint32_t max_block_items; /* ... and in all; 1 = blocks of one item, as on processors that run a block as a loop */
  uint32_t preferred_block_items;
  uint32_t max_grid[3];        /* blocks in each dimension */
  uint32_t local_memory_bytes; /* that the items of a block share */
  uint32_t reserved_limits;
  /* Of those stored, the dtypes that modules compute in; all zero = all of them. */
  uint64_t compute_dtype_mask[TB_DTYPE_MASK_WORDS];
  /* Version of driver and compiler: a module image of one version is never given to another. "" = images are not kept. */
  char driver_version[64];
  /* What memory_commit takes multiples of, and address_reserve aligns to; a power of two to 2^30. 0 without
   * TB_CAP_VIRTUAL_MEMORY. Since 1.1. */
  uint64_t commit_granularity_bytes;
} tb_device_properties;

/* ================================================ core table ============================================== */

#define TB_MEMORY_DEVICE 0u  /* on the device */
#define TB_MEMORY_HOST 1u    /* page-locked host memory: a side of memory_copy; kernels do not get it */
#define TB_MEMORY_SHARED 2u  /* migrates between host and device */
#define TB_MEMORY_UNKNOWN 3u /* only from memory_query: not from this plugin */

#define TB_COPY_HOST_TO_DEVICE 1u
#define TB_COPY_DEVICE_TO_HOST 2u
#define TB_COPY_DEVICE_TO_DEVICE 3u /* same device */
#define TB_COPY_PEER 4u             /* two devices of this plugin */

#define TB_MAP_READ 1u
#define TB_MAP_WRITE 2u

#define TB_EVENT_TIMING 1u       /* event_elapsed will be asked */
#define TB_EVENT_INTERPROCESS 2u /* reserved */

typedef struct tb_pointer_info {
  uint64_t struct_size;
  uint32_t kind;       /* TB_MEMORY_* */
  int32_t device;      /* that memory_allocate was called for; -1 if unknown */
  void* base;          /* of the allocation; NULL if unknown */
  uint64_t size_bytes; /* of the allocation; 0 if unknown */
} tb_pointer_info;

#define TB_IPC_HANDLE_BYTES 64
typedef struct tb_ipc_handle {
  uint8_t bytes[TB_IPC_HANDLE_BYTES];
} tb_ipc_handle;

/* Runs on a thread of the plugin's choice. Must not call into the plugin. */
typedef void (*tb_host_function)(void* arg);

typedef struct tb_core_table {
  uint64_t struct_size;

  /* ---- required ---- */

  /* Number of devices, 0 to 64. Blocking, cheap. Pre: none; may be called before initialize and must leave the process
   * able to fork (where the driver starts threads when it is asked: ask in a child process). Required. Since 1.0. */
  tb_status (*device_count)(int32_t* out_count);

  /* Fill *out_properties up to its struct_size. Blocking. The same answer every time. Required. Since 1.0. */
  tb_status (*device_properties)(int32_t device, tb_device_properties* out_properties);

  /* Allocate raw memory of `kind` that stays valid until memory_free. Blocking, may be slow: the core caches. Aligned
   * to allocation_alignment_bytes; distinct from every live allocation of the process. With TB_CAP_STREAM_ALLOC usable
   * from this point of `stream` on, else at once from every stream. TB_MEMORY_HOST and TB_MEMORY_SHARED are optional
   * kinds (TB_STATUS_UNSUPPORTED: the core uses ordinary host memory and knows that it is not page-locked). Pre:
   * size_bytes > 0. Full: TB_STATUS_OUT_OF_MEMORY, and later calls work again once memory is freed. An address need not
   * be one that anybody can load from: the core only does arithmetic within [ptr, ptr + size_bytes), and gives every
   * slot that takes memory what results. Required. Since 1.0. */
  tb_status (*memory_allocate)(int32_t device, uint32_t kind, uint64_t size_bytes, tb_stream* stream, void** out_ptr);

  /* Give back what memory_allocate returned; device, kind and size_bytes are those of the allocation. May block.
   * Without TB_CAP_STREAM_ALLOC the core has waited for all work that uses the memory; with it, work enqueued on
   * `stream` before this call may still use it. Required. Since 1.0. */
  tb_status (*memory_free)(int32_t device, uint32_t kind, void* ptr, uint64_t size_bytes, tb_stream* stream);

  /* Enqueue a copy of `size_bytes` on `stream`, which belongs to src_device if kind is DEVICE_TO_HOST or PEER, else to
   * dst_device. May return before the copy is done; both ranges stay valid until the stream has passed it (for pageable
   * host memory the core waits itself). Any alignment and size. A host side's device is -1.
   * Pre: size_bytes > 0; the ranges do not overlap; each lies in one allocation. Required. Since 1.0. */
  tb_status (*memory_copy)(int32_t dst_device, void* dst, int32_t src_device, const void* src, uint64_t size_bytes,
                           uint32_t kind, tb_stream* stream);

  /* ---- asynchronous devices: all eight required iff TB_CAP_ASYNC, else all eight NULL ---- */

  /* Create a stream. `priority` lies between stream_priority_lowest and _highest. Owned by the core until
   * stream_destroy. Since 1.0. */
  tb_status (*stream_create)(int32_t device, int32_t priority, tb_stream** out_stream);

  /* Destroy a stream; work already on it still completes. Never the default stream. Since 1.0. */
  tb_status (*stream_destroy)(int32_t device, tb_stream* stream);

  /* Block until everything enqueued on the stream before the call is complete. `stream` may be NULL. Since 1.0. */
  tb_status (*stream_synchronize)(int32_t device, tb_stream* stream);

  /* Work enqueued on `stream` after this call waits for the last record of `event` made before this call; the event may
   * belong to another device. Does not block the host. An event never recorded counts as complete. Since 1.0. */
  tb_status (*stream_wait_event)(int32_t device, tb_stream* stream, tb_event* event);

  /* Create an event. `flags`: TB_EVENT_*; a flag the plugin does not know is TB_STATUS_UNSUPPORTED. Owned by the core
   * until event_destroy. Since 1.0. */
  tb_status (*event_create)(int32_t device, uint32_t flags, tb_event** out_event);

  /* Destroy an event, which may be pending: what waits for it still does. Since 1.0. */
  tb_status (*event_destroy)(int32_t device, tb_event* event);

  /* The event completes when everything enqueued on `stream` before this call is complete. Does not block. A second
   * record (TB_CAP_EVENT_RERECORD) replaces the first; waits that were made before keep the first. Since 1.0. */
  tb_status (*event_record)(int32_t device, tb_event* event, tb_stream* stream);

  /* TB_STATUS_OK if the last record is complete or there was none, else TB_STATUS_NOT_READY. Never blocks. Since 1.0.
   */
  tb_status (*event_query)(int32_t device, tb_event* event);

  /* ---- optional ---- */

  /* Start the driver. Called once, before any slot but device_count. Default: nothing to start. Since 1.0. */
  tb_status (*initialize)(void);

  /* Make `device` the calling thread's device. Called before a slot of any table that works on a device, unless the
   * thread's device is that one already; a communicator's is the one it was created for, a copy's that of its stream.
   * Not called before device_properties, and slots that name no device. Slots still name their device. Default: the
   * plugin keeps no per-thread state. Since 1.0. */
  tb_status (*thread_bind)(int32_t device);

  /* Block until everything enqueued on the device is complete. Default: every stream in turn. Since 1.0. */
  tb_status (*device_synchronize)(int32_t device);

  /* Free and total memory as the driver sees them. Default: total_memory_bytes, less what the core holds. Since 1.0. */
  tb_status (*memory_info)(int32_t device, uint64_t* out_free_bytes, uint64_t* out_total_bytes);

  /* Enqueue: repeat the `pattern_bytes` (1, 2, 4, 8 or 16) at `pattern` over the range, beginning at `dst`. `pattern` is
   * host memory and is read before the call returns. Pre: size_bytes > 0 and a multiple of pattern_bytes, and so is
   * what lies between the allocation's base and dst.
   * Default: a filled host buffer is copied. Since 1.0. */
  tb_status (*memory_fill)(int32_t device, void* dst, const void* pattern, uint32_t pattern_bytes, uint64_t size_bytes,
                           tb_stream* stream);

  /* Enqueue a copy of `height` rows of `width_bytes`, `*_pitch_bytes` apart; otherwise as memory_copy within `device`
   * (kinds but PEER). Pre: width_bytes <= both pitches; width_bytes, height > 0. Both sides may lie in one allocation; a
   * device that cannot do that says UNSUPPORTED then. Default: row by row, or, where many rows lie near
   * each other, by kernels or by the host. Since 1.0. */
  tb_status (*memory_copy_2d)(int32_t device, void* dst, uint64_t dst_pitch_bytes, const void* src,
                              uint64_t src_pitch_bytes, uint64_t width_bytes, uint64_t height, uint32_t kind,
                              tb_stream* stream);

  /* What `ptr` points into, which may be any address; TB_MEMORY_UNKNOWN if it is not the plugin's.
   * Default: the core asks its own allocators. Since 1.0. */
  tb_status (*memory_query)(const void* ptr, tb_pointer_info* out_info);

  /* Let the host load (TB_MAP_READ) or store (TB_MAP_WRITE) this range of device memory until memory_unmap with the
   * same arguments. Blocks until the range is coherent; the core has ordered the work before. TB_MAP_WRITE alone
   * promises no meaningful loads. Pairs nest and overlap, also across threads. Required iff TB_CAP_HOST_ACCESS without
   * TB_CAP_HOST_COHERENT, together with memory_unmap, else unused. Since 1.0. */
  tb_status (*memory_map)(int32_t device, void* ptr, uint64_t size_bytes, uint32_t access);

  /* End what memory_map began; the device then sees the host's stores. Since 1.0. */
  tb_status (*memory_unmap)(int32_t device, void* ptr, uint64_t size_bytes, uint32_t access);

  /* Page-lock existing host memory, and undo it. Default: refused with a message. Both or none. Since 1.0. */
  tb_status (*host_register)(void* ptr, uint64_t size_bytes);
  tb_status (*host_unregister)(void* ptr);

  /* TB_STATUS_OK if everything enqueued is complete, else TB_STATUS_NOT_READY. Never blocks.
   * Default: a fresh event is recorded and queried. Since 1.0. */
  tb_status (*stream_query)(int32_t device, tb_stream* stream);

  /* Enqueue a host function: it runs after what is on the stream, and what follows waits for it, on a thread that may
   * block: not the calling one, and none that the driver needs to go on. `fn` is called exactly
   * once, also if the stream has failed; once by every launch if it is recorded (graph.1). Default: the stream is
   * synchronized and fn called. Since 1.0. */
  tb_status (*stream_host_function)(int32_t device, tb_stream* stream, tb_host_function fn, void* arg);

  /* Block until the last record is complete. Default: event_query is polled. Since 1.0. */
  tb_status (*event_synchronize)(int32_t device, tb_event* event);

  /* Device time from `start` to `end`, both created with TB_EVENT_TIMING. TB_STATUS_NOT_READY unless both are complete,
   * TB_STATUS_INVALID_ARGUMENT if one was never recorded or belongs to another device. Required iff
   * TB_CAP_EVENT_TIMING. Default: host times at which the records were seen complete. Since 1.0. */
  tb_status (*event_elapsed)(int32_t device, tb_event* start, tb_event* end, int64_t* out_elapsed_ns);

  /* Whether kernels of `device` may access memory of `peer` directly (1) or not (0). Default: no. Since 1.0. */
  tb_status (*peer_can_access)(int32_t device, int32_t peer, int32_t* out_can_access);

  /* Make an allocation (its base address) available to other processes; open it there; close what was opened. The
   * exporter keeps the allocation alive; one that is gone is not opened. All three iff TB_CAP_IPC. Since 1.0. */
  tb_status (*ipc_export)(int32_t device, void* ptr, tb_ipc_handle* out_handle);
  tb_status (*ipc_import)(int32_t device, const tb_ipc_handle* handle, void** out_ptr);
  tb_status (*ipc_close)(int32_t device, void* ptr);

  /* Reserve addresses without memory, aligned to commit_granularity_bytes, of which size_bytes is a multiple; distinct
   * from every live allocation and reservation of the process. May be many times what the device has. Blocking. No
   * room: TB_STATUS_OUT_OF_MEMORY. Used for segments that grow; all four iff TB_CAP_VIRTUAL_MEMORY. Default: segments
   * have the size that memory_allocate gave them. Since 1.1. */
  tb_status (*address_reserve)(int32_t device, uint64_t size_bytes, void** out_ptr);

  /* Give back what address_reserve returned; size_bytes is that of the reservation. Pre: nothing in it is committed.
   * Since 1.1. */
  tb_status (*address_release)(int32_t device, void* ptr, uint64_t size_bytes);

  /* Put TB_MEMORY_DEVICE memory behind a part of a reservation, until memory_decommit. At once usable from every stream,
   * and by whoever may use what memory_allocate gives: peers, and the host with TB_CAP_HOST_ACCESS. Parts that touch in
   * one reservation are one allocation to all slots; memory_free and ipc_export do not get them. Blocking, may be
   * slow. Pre: ptr and size_bytes are multiples of commit_granularity_bytes from the reservation's base; nothing there is
   * committed. Full: as memory_allocate. Not unsafe during a capture. Since 1.1. */
  tb_status (*memory_commit)(int32_t device, void* ptr, uint64_t size_bytes);

  /* Take back the memory of one memory_commit, all of it and no more: the same arguments. The addresses stay reserved
   * and may be committed again. May block. The core has waited for all work that uses the memory, with
   * TB_CAP_STREAM_ALLOC too. Since 1.1. */
  tb_status (*memory_decommit)(int32_t device, void* ptr, uint64_t size_bytes);
} tb_core_table;

/* ============================================ optional table "graph.1" ==================================== */

#define TB_CAPTURE_GLOBAL 0u       /* unsafe calls from any thread fail the capture */
#define TB_CAPTURE_THREAD_LOCAL 1u /* ... from the thread that called capture_begin */
#define TB_CAPTURE_RELAXED 2u      /* none */

/* Record what is enqueued on a stream and replay it, on an asynchronous device. All slots required with the table.
 *
 * A stream that waits for an event which was recorded in a capture joins it: from then on it is recorded as well, and what
 * it has must be waited for by the first stream, through events, before the end. Any thread may enqueue on the streams of
 * a capture. The memory that recorded work uses, and the arguments of recorded host functions, stay valid until
 * graph_destroy, and as long as launches are pending. A recorded host function is called once by every launch, never
 * otherwise.
 *
 * In every mode a call fails, and the capture with it, that waits for or queries a stream or an event of the capture,
 * destroys or launches on a stream of it, or lets one wait for an event that was recorded outside. device_synchronize is
 * unsafe, and what else the device cannot do during a capture; memory_allocate is not. Other calls that fail leave the
 * capture as it is. */
typedef struct tb_graph_table {
  uint64_t struct_size;
  /* Record work on `stream`, which is not the default stream and records nothing yet, from here on. Since 1.0. */
  tb_status (*capture_begin)(int32_t device, tb_stream* stream, uint32_t mode);
  /* End the capture that has begun on `stream`, also if this call fails: then it says why the capture has failed. From any
   * thread. Owned by the core until graph_destroy. Since 1.0. */
  tb_status (*capture_end)(int32_t device, tb_stream* stream, tb_graph** out_graph);
  /* 1 while the stream records. Since 1.0. */
  tb_status (*stream_is_capturing)(int32_t device, tb_stream* stream, int32_t* out_is_capturing);
  /* Prepare for launches; blocking, once. Since 1.0. */
  tb_status (*graph_instantiate)(int32_t device, tb_graph* graph);
  /* Enqueue the whole graph. Its launches run one after the other in the order of these calls, on whichever streams.
   * Since 1.0. */
  tb_status (*graph_launch)(int32_t device, tb_graph* graph, tb_stream* stream);
  /* Destroy; pending launches complete. Since 1.0. */
  tb_status (*graph_destroy)(int32_t device, tb_graph* graph);
} tb_graph_table;

/* =========================================== optional table "kernels.1" =================================== */

typedef struct tb_kernel_context {
  uint64_t struct_size;
  int32_t device;
  uint32_t flags;         /* TB_MATH_*, of a kernel with TB_KERNEL_MATH_FLAGS; else 0 */
  tb_stream* stream;      /* enqueue here */
  tb_kernel_host* host;   /* the core's; see host->alloc_output and host->alloc_workspace */
  tb_dtype compute_dtype; /* in which PyTorch computes a pointwise operator; bits is 0 if that has no meaning */
} tb_kernel_context;

/* Enqueue one operator call on context->stream; on an asynchronous device return without waiting for it. Called by any
 * thread, concurrently, after thread_bind for context->device.
 *
 * Arguments. Those of the operator's schema in its order, then its outputs: an out= operator's own out arguments, else
 * one for every new tensor it returns. One kernel, named after the out= or the functional overload, serves every form
 * of the operator with the same inputs ("aten::add.out": add.out, add.Tensor, add_.Tensor) with the same arguments. A
 * kernel named after an operator that writes its inputs ("aten::_fused_sgd_") writes them there, and has no output.
 *   - None and undefined tensors are TB_ARG_NONE, in a list NULL. A Scalar has the tag of the Python number it is:
 *     TB_ARG_BOOL, INT, FLOAT or COMPLEX. A ScalarType is TB_ARG_DTYPE; Layout and MemoryFormat are PyTorch's numbers
 *     as TB_ARG_INT; a list of bool is a TB_ARG_INT_LIST. A Generator is TB_ARG_GENERATOR, the device's own if None was
 *     passed. Operators with other types (Storage, lists of Scalar or str) cannot have a kernel.
 *   - Tensors are strided, on context->device, of a dtype in dtype_mask, and have elements; strides may be 0 or in any
 *     order, and with TB_KERNEL_NEEDS_CONTIGUOUS are those of a contiguous tensor. Conj and neg bits are resolved.
 *   - Inputs of pointwise operators are broadcast to the output's shape (with strides of 0) and have one dtype, that of
 *     the computation, except for a bool condition or mask; the output has it too or is a bool. A number that PyTorch
 *     passes as a tensor (the 2 of x + 2) is a tensor like any other, in device memory, with strides of 0. Two flags
 *     say that a kernel takes more than this: TB_KERNEL_MIXED_DTYPES and TB_KERNEL_NUMBERS.
 *   - A Scalar that PyTorch converts to the dtype of the computation (alpha, value, min, ...) is a number of that dtype if
 *     it is one of integers: floats are cut, and what does not fit has been refused.
 *   - Inputs of other operators are as the caller passed them: dtypes may differ, and nothing is broadcast. The running
 *     statistics of batch normalization are written, though the schema does not say so.
 *   - Outputs have their final shape and dtype; what they hold is undefined. One of several may be without
 *     elements; those that an output_mask leaves out are TB_ARG_NONE. They overlap neither each other nor an input, except
 *     that a pointwise operator's output may be one of its inputs: same memory, shape and strides.
 * A call that is not like this is never made: outputs of which none has elements are returned as they are, and all else
 * goes to the next source. The kernel does not see that a temporary is copied to where the result belongs.
 *
 * Lifetime. Everything that args and context point at, the structs and arrays included, is the core's, is read-only, and
 * is gone when the call returns: copy what enqueued work reads. The tensors' device memory, and workspaces, are safe to
 * use by work that was enqueued on context->stream before the return.
 *
 * Result. TB_STATUS_UNSUPPORTED: nothing was enqueued or written; the next kernel source is tried. OUT_OF_MEMORY: the
 * core empties its cache and calls once more. Every other failure is raised with the operator's name and the plugin's
 * text. Since 1.0. */
typedef tb_status (*tb_kernel_function)(const tb_kernel_context* context, const tb_arg* args, int32_t num_args);

/* The core makes every tensor argument contiguous first, and copies outputs to where they belong. */
#define TB_KERNEL_NEEDS_CONTIGUOUS 1u
/* Output shapes depend on data: output arguments are TB_ARG_NONE and the kernel calls host->alloc_output for each. Such a
 * kernel may have to wait for context->stream. */
#define TB_KERNEL_ALLOCATES_OUTPUT 2u
/* Of a pointwise operator: inputs keep their dtypes, and the output has that which the caller asked for; the kernel
 * converts from and to context->compute_dtype. */
#define TB_KERNEL_MIXED_DTYPES 4u
/* Of a pointwise operator: a number that PyTorch passes as a tensor has the tag of a Scalar. */
#define TB_KERNEL_NUMBERS 8u
/* context->flags are what the program allows at the time of the call. */
#define TB_KERNEL_MATH_FLAGS 16u
/* dtype_mask is of the inputs; outputs have the dtypes that PyTorch gives them, such as int64 of places and float32 of what
 * is kept for a gradient. Since 1.1. */
#define TB_KERNEL_INPUT_DTYPES 32u

/* float32 may be rounded to TF32 or less before it is multiplied: in products of matrices
 * (torch.set_float32_matmul_precision, torch.backends.cuda.matmul.fp32_precision) ... */
#define TB_MATH_TF32_MATMUL 1u
/* ... and in convolutions (torch.backends.cudnn.conv.fp32_precision). */
#define TB_MATH_TF32_CONV 2u
/* Parts of a product's sum may be rounded to float16, or bfloat16, before they are added
 * (torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction and allow_bf16_...). */
#define TB_MATH_FP16_REDUCTION 4u
#define TB_MATH_BF16_REDUCTION 8u
/* Products of float16 may be added in float16 (torch.backends.cuda.matmul.allow_fp16_accumulation). */
#define TB_MATH_FP16_ACCUMULATION 16u
/* The same inputs have to give the same result in every call (torch.use_deterministic_algorithms,
 * torch.backends.cudnn.deterministic). */
#define TB_MATH_DETERMINISTIC 32u

/* One parameter of a launch. What a function looks like that takes them, by format:
 *   "c++"       extern "C" void NAME(const uint32_t* block, const uint32_t* grid, const uint32_t* block_size,
 *               void* const* params), C++17, called once for every block: `block` is its index of three, and it loops over
 *               its items. params[i] points at the value, or is the address, or the block's own local memory.
 *   "opencl-c"  a __kernel of OpenCL C 1.2. A POINTER is two parameters, `__global char*` and `ulong`, an offset in bytes
 *               from it; LOCAL a `__local` pointer.
 *   "cuda-c"    extern "C" __global__. A POINTER is a pointer; LOCAL a `unsigned`, an offset in bytes into the dynamic
 *               shared memory.
 * A VALUE has the size and alignment that the C type has on the host, in every format. */
/* size_bytes at `data` */
#define TB_PARAM_VALUE 0u
/* `data` itself is an address in device memory, of any alignment, or NULL; size_bytes is 0 */
#define TB_PARAM_POINTER 1u
/* size_bytes of memory that the items of a block share; `data` is NULL */
#define TB_PARAM_LOCAL 2u
typedef struct tb_launch_param {
  uint32_t kind; /* TB_PARAM_* */
  uint32_t size_bytes;
  const void* data;
} tb_launch_param;

/* Static storage; never changes. "aten::copy_" serves all strided and converting copies within a device, the core's too:
 * its first two arguments are destination and source, of one shape, each with strides and a dtype of its own. */
typedef struct tb_kernel {
  uint64_t struct_size;
  const char* op; /* operator and overload, "aten::add.out"; without overload "aten::relu" */
  tb_kernel_function function;
  uint32_t flags; /* TB_KERNEL_*; no others */
  uint32_t reserved;
  /* [TB_DTYPE_MASK_WORDS], of all tensor arguments but outputs that the kernel allocates. All zero = every dtype. NULL =
   * the device's dtype_mask. */
  const uint64_t* dtype_mask;
} tb_kernel;

/* Read once, when the device is activated and before initialize. An operator that PyTorch has in one version and not in
 * another may be listed: the core warns and goes on. Operators of other namespaces than aten may be defined later. A
 * malformed entry, and the same op twice, is an error. */
typedef struct tb_kernel_table {
  uint64_t struct_size;
  const tb_kernel* const* kernels; /* [num_kernels], live as long as the plugin; may be NULL if num_kernels is 0 */
  uint64_t num_kernels;
  /* ---- optional ---- */
  /* Any operator by name, for a plugin that does not list its kernels; the result's op is that name. NULL result: not
   * offered. Asked once per operator that is not listed, when the device is activated (before initialize) or when the
   * operator is defined later, and remembered. Must not call the core but for host->fail, log and option. Since 1.0. */
  const tb_kernel* (*kernel_find)(const char* op);

  /* ---- modules: code that the device compiles. All or none, but for module_image ---- */

  /* What module_load takes as `format`, best first, ended by NULL; static storage. NULL: no modules. The core writes
   * kernels in "c++", "opencl-c" and "cuda-c", see tb_launch_param. Since 1.0. */
  const char* const* module_formats;
  /* Compile source, or load an image. `format` is one of module_formats, or "image" for what module_image gave or a
   * compiler of the vendor made. Blocking, may be slow; several at once are. A compiler's messages go through host->fail.
   * An image that the driver does not take is TB_STATUS_UNSUPPORTED, and so is all source where there is no compiler: then
   * only what `torch-backend compile-kernels` has made images of runs on the device. Owned by the core until
   * module_unload. Optional. Since 1.0. */
  tb_status (*module_load)(int32_t device, const char* format, const void* image, uint64_t size_bytes,
                           tb_module** out_module);
  /* The module's functions are not launched any more; launches that are pending complete first. Optional. Since 1.0. */
  tb_status (*module_unload)(int32_t device, tb_module* module);
  /* The function called `name`, valid until module_unload. TB_STATUS_INVALID_ARGUMENT if there is none. Optional.
   * Since 1.0. */
  tb_status (*module_function)(int32_t device, tb_module* module, const char* name, tb_function** out_function);
  /* Enqueue grid[0] * grid[1] * grid[2] blocks of block[0] * block[1] * block[2] items, all of them at least 1 and within
   * the device's limits. `params` in the order of the function's parameters, read before the return. The memory that they
   * point at is the core's to keep until the stream has passed the launch. Optional. Since 1.0. */
  tb_status (*module_launch)(int32_t device, tb_function* function, const uint32_t grid[3], const uint32_t block[3],
                             const tb_launch_param* params, uint32_t num_params, tb_stream* stream);
  /* What module_load takes in place of the source, for the core's cache on disk. *size_bytes is how much room there is at
   * out_image, and then how much is needed; if that is more nothing is written. Default: compiled in every process.
   * Optional. Since 1.0. */
  tb_status (*module_image)(int32_t device, tb_module* module, void* out_image, uint64_t* size_bytes);
} tb_kernel_table;

/* ============================================= optional table "ccl.1" ===================================== */

#define TB_REDUCE_SUM 0
#define TB_REDUCE_PRODUCT 1
#define TB_REDUCE_MIN 2
#define TB_REDUCE_MAX 3
#define TB_REDUCE_AVERAGE 4

/* Collectives. Counts are elements of `dtype`, per rank where ranks hold slices. Calls enqueue on `stream`. */
typedef struct tb_ccl_table {
  uint64_t struct_size;
  uint64_t unique_id_bytes;
  /* ---- required ---- */
  tb_status (*unique_id_create)(void* out_unique_id); /* by one rank; the core brings it to the others */
  /* Ranks that share a device may be refused. */
  tb_status (*comm_create)(int32_t device, int32_t num_ranks, int32_t rank, const void* unique_id, tb_comm** out_comm);
  tb_status (*comm_destroy)(tb_comm* comm);
  tb_status (*send)(const void* buffer, uint64_t count, tb_dtype dtype, int32_t peer, tb_comm* comm, tb_stream* stream);
  tb_status (*recv)(void* buffer, uint64_t count, tb_dtype dtype, int32_t peer, tb_comm* comm, tb_stream* stream);
  /* ---- optional: built from send and recv by the core; `in` may be `out` in all_reduce, reduce, broadcast ---- */
  tb_status (*group_begin)(void);
  tb_status (*group_end)(void);
  tb_status (*comm_abort)(tb_comm* comm); /* from any thread; pending calls fail */
  tb_status (*comm_query_error)(tb_comm* comm);
  tb_status (*all_reduce)(const void* in, void* out, uint64_t count, tb_dtype dtype, int32_t reduction, tb_comm* comm,
                          tb_stream* stream);
  tb_status (*reduce)(const void* in, void* out, uint64_t count, tb_dtype dtype, int32_t reduction, int32_t root,
                      tb_comm* comm, tb_stream* stream);
  tb_status (*broadcast)(const void* in, void* out, uint64_t count, tb_dtype dtype, int32_t root, tb_comm* comm,
                         tb_stream* stream);
  tb_status (*all_gather)(const void* in, void* out, uint64_t count, tb_dtype dtype, tb_comm* comm, tb_stream* stream);
  tb_status (*reduce_scatter)(const void* in, void* out, uint64_t count, tb_dtype dtype, int32_t reduction,
                              tb_comm* comm, tb_stream* stream);
  tb_status (*all_to_all)(const void* in, const uint64_t* send_counts, const uint64_t* send_offsets, void* out,
                          const uint64_t* recv_counts, const uint64_t* recv_offsets, tb_dtype dtype, tb_comm* comm,
                          tb_stream* stream);
} tb_ccl_table;

/* ============================================ optional table "prof.1" ===================================== */

#define TB_TRACE_KERNEL 1u
#define TB_TRACE_COPY 2u
#define TB_TRACE_FILL 4u
#define TB_TRACE_RUNTIME 8u /* the host's side of a call */

typedef struct tb_trace_record {
  uint64_t struct_size;
  uint32_t kind; /* one TB_TRACE_* */
  int32_t device;
  uint64_t stream;          /* the handle as a number; 0 = default stream */
  uint64_t correlation;     /* what was on top of the correlation stack when the work was enqueued */
  int64_t start_ns, end_ns; /* on the device's clock, see clock_pair */
  const char* name;         /* valid during the callback */
  uint64_t size_bytes;
} tb_trace_record;

typedef void (*tb_trace_callback)(void* arg, const tb_trace_record* record);

typedef struct tb_profiler_table {
  uint64_t struct_size;
  tb_status (*trace_start)(uint64_t kinds);                          /* mask of TB_TRACE_* */
  tb_status (*trace_stop)(void);                                     /* after the devices were synchronized */
  tb_status (*trace_collect)(tb_trace_callback callback, void* arg); /* hands out and forgets what was recorded */
  tb_status (*correlation_push)(uint64_t id);                        /* per thread */
  tb_status (*correlation_pop)(void);
  tb_status (*clock_pair)(int32_t device, int64_t* out_device_ns, int64_t* out_host_ns); /* host: CLOCK_MONOTONIC */
  tb_status (*range_push)(const char* name); /* optional: markers for the vendor's own tools */
  tb_status (*range_pop)(void);              /* optional */
} tb_profiler_table;

/* =========================================== the core's services and the entry ============================ */

#define TB_LOG_DEBUG 0
#define TB_LOG_INFO 1
#define TB_LOG_WARNING 2
#define TB_LOG_ERROR 3

/* Valid as long as the plugin is loaded. May be called from any thread. The fields up to and including `fail` keep
 * their place in every major version: an entry that finds the wrong abi_major can say so. */
typedef struct tb_host {
  uint64_t struct_size;
  uint32_t abi_major, abi_minor;
  /* Store a printf-formatted text for the calling thread and return `code`: `return host->fail(code, "...", ...)`.
   * The text belongs to the next failing status this thread returns to the core. Since 1.0. */
  tb_status (*fail)(tb_status code, const char* format, ...);
  /* Write to the core's log, which filters by level. Since 1.0. */
  void (*log)(int32_t level, const char* text);
  /* The user's setting for "<plugin>.<key>", or NULL if there is none. From activate(..., options={key: value}), else
   * the environment variable TORCH_BACKEND_<PLUGIN>_<KEY> as it was when first asked for. The setting may change
   * between calls; a returned string stays valid until the process ends. Since 1.0. */
  const char* (*option)(const char* key);
  /* Only inside a kernel with TB_KERNEL_ALLOCATES_OUTPUT, by the thread that was called, with the context it was given.
   * Allocate and shape output `index`, 0 the first; out_tensor->dtype, set by the kernel, is its dtype. Fills
   * *out_tensor, shape and strides (PyTorch's for the operator: nonzero's are {1, n}) valid until the kernel returns;
   * data is NULL if there are no elements. Hand on what it returns if it fails. Since 1.0. */
  tb_status (*alloc_output)(const tb_kernel_context* context, int32_t index, int32_t ndim, const int64_t* shape,
                            tb_tensor* out_tensor);
  /* Only inside a kernel, by the thread that was called, with the context it was given. Device memory for work on the
   * kernel's stream, aligned as by memory_allocate, from the core's cache; the core takes it back when the kernel has
   * returned, ordered by the stream. Hand on what it returns if it fails. Since 1.0. */
  tb_status (*alloc_workspace)(const tb_kernel_context* context, uint64_t size_bytes, void** out_ptr);
} tb_host;

/* Static storage; lives until the process ends (plugins are never unloaded). */
typedef struct tb_plugin {
  uint64_t struct_size;
  uint32_t abi_major, abi_minor; /* TB_ABI_MAJOR, TB_ABI_MINOR as compiled */
  const char* name; /* the torch device name, [a-z][a-z0-9_]{0,62}: torch.device("<name>:0"), torch.<name> */
  const char* vendor;
  const char* version; /* of the plugin */
  const tb_core_table* core;
  /* "graph.1", "kernels.1", "ccl.1", "prof.1": the table, or NULL = not offered. May be NULL itself. Since 1.0. */
  const void* (*table)(const char* name);
  /* The keys the plugin asks host->option for, without "<plugin>.", ended by NULL; the core warns of a setting that is
   * not among them. NULL = the plugin does not say. Since 1.0. */
  const char* const* option_keys;
} tb_plugin;

/* The one exported symbol. Called once, at load. Keeps `host`; returns NULL after host->fail if the plugin cannot work
 * here (no driver, too old a host). Must not start the driver: that is initialize. */
#define TB_PLUGIN_ENTRY_NAME "tb_plugin_entry"
typedef const tb_plugin* (*tb_plugin_entry_function)(const tb_host* host);
TB_EXPORT const tb_plugin* tb_plugin_entry(const tb_host* host);

#ifdef __cplusplus
}
#endif
#endif
