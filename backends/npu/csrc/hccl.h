// HCCL as this plugin knows it: declarations of our own, resolved in libhccl.so when collectives are first asked for.
#pragma once

#include <cstdint>

#include "acl.h"
#include "result.h"

namespace npu {

using hccl_comm = void*;

// HcclRootInfo: what one rank makes and all join with.
constexpr uint64_t kRootInfoBytes = 4108;
struct hccl_root_info {
  char internal[kRootInfoBytes];
};

// HcclSendRecvItem
constexpr int kHcclSend = 0, kHcclReceive = 1;
struct hccl_message {
  int direction;
  void* buffer;
  uint64_t count;
  int dtype;
  uint32_t peer;
};

// X(name, parameters): without them there are no collectives.
#define NPU_HCCL_NEEDED(X)                                                                                             \
  X(HcclGetRootInfo, (hccl_root_info * root))                                                                          \
  X(HcclCommInitRootInfo, (uint32_t ranks, const hccl_root_info* root, uint32_t rank, hccl_comm* comm))                \
  X(HcclCommDestroy, (hccl_comm comm))                                                                                 \
  X(HcclSend, (void* buffer, uint64_t count, int dtype, uint32_t peer, hccl_comm comm, acl_stream stream))             \
  X(HcclRecv, (void* buffer, uint64_t count, int dtype, uint32_t peer, hccl_comm comm, acl_stream stream))             \
  X(HcclBatchSendRecv, (hccl_message * messages, uint32_t count, hccl_comm comm, acl_stream stream))                   \
  X(HcclAllReduce, (void* in, void* out, uint64_t count, int dtype, int reduction, hccl_comm comm, acl_stream stream)) \
  X(HcclBroadcast, (void* buffer, uint64_t count, int dtype, uint32_t root, hccl_comm comm, acl_stream stream))        \
  X(HcclAllGather, (void* in, void* out, uint64_t count, int dtype, hccl_comm comm, acl_stream stream))                \
  X(HcclReduceScatter,                                                                                                 \
    (void* in, void* out, uint64_t count, int dtype, int reduction, hccl_comm comm, acl_stream stream))                \
  X(HcclReduce,                                                                                                        \
    (void* in, void* out, uint64_t count, int dtype, int reduction, uint32_t root, hccl_comm comm, acl_stream stream)) \
  X(HcclAlltoAllV,                                                                                                     \
    (const void* in, const void* in_counts, const void* in_offsets, int in_dtype, const void* out,                     \
     const void* out_counts, const void* out_offsets, int out_dtype, hccl_comm comm, acl_stream stream))               \
  X(HcclGetCommAsyncError, (hccl_comm comm, int* error))

struct hccl_functions {
#define NPU_MEMBER(name, parameters) int(*name) parameters;
  NPU_HCCL_NEEDED(NPU_MEMBER)
#undef NPU_MEMBER
  const char* (*HcclGetErrorString)(int error);
};

// Constant from load_hccl on.
extern hccl_functions hccl;

// False if the installed CANN has no libhccl.so, or one that lacks a function; the debug log says which.
bool load_hccl();

// OK for 0. `what` is the function that returned `error`.
result check_hccl(int error, const char* what);

} // namespace npu
