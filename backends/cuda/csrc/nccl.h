// What is used of NCCL, declared here so that none has to be installed, and its errors as results.
//
// Names and values are those of nccl.h; backends/cuda/test/declarations.cpp compares them where there is one.
#pragma once

#include <cstddef>

#include "cu.h"
#include "result.h"

extern "C" struct ncclComm;

namespace xcuda {

using ncclResult_t = int;
using ncclComm_t = ncclComm*;

struct ncclUniqueId {
  char internal[128];
};

// X(name, value)
#define XCUDA_NCCL_CONSTANTS(X) \
  X(ncclSuccess, 0)             \
  X(ncclUnhandledCudaError, 1)  \
  X(ncclSystemError, 2)         \
  X(ncclInternalError, 3)       \
  X(ncclInvalidArgument, 4)     \
  X(ncclInvalidUsage, 5)        \
  X(ncclRemoteError, 6)         \
  X(ncclInProgress, 7)          \
  X(ncclInt8, 0)                \
  X(ncclUint8, 1)               \
  X(ncclInt32, 2)               \
  X(ncclUint32, 3)              \
  X(ncclInt64, 4)               \
  X(ncclUint64, 5)              \
  X(ncclFloat16, 6)             \
  X(ncclFloat32, 7)             \
  X(ncclFloat64, 8)             \
  X(ncclBfloat16, 9)            \
  X(ncclSum, 0)                 \
  X(ncclProd, 1)                \
  X(ncclMax, 2)                 \
  X(ncclMin, 3)                 \
  X(ncclAvg, 4)

#define XCUDA_CONSTANT(name, value) constexpr int k##name = value;
XCUDA_NCCL_CONSTANTS(XCUDA_CONSTANT)
#undef XCUDA_CONSTANT

// X(name, parameters)
#define XCUDA_NCCL_FUNCTIONS(X)                                                                                       \
  X(GetUniqueId, (ncclUniqueId * id))                                                                                 \
  X(CommInitRank, (ncclComm_t * comm, int ranks, ncclUniqueId id, int rank))                                          \
  X(CommDestroy, (ncclComm_t comm))                                                                                   \
  X(CommAbort, (ncclComm_t comm))                                                                                     \
  X(CommGetAsyncError, (ncclComm_t comm, ncclResult_t * error))                                                       \
  X(GroupStart, ())                                                                                                   \
  X(GroupEnd, ())                                                                                                     \
  X(Send, (const void* buffer, size_t count, int dtype, int peer, ncclComm_t comm, CUstream stream))                  \
  X(Recv, (void* buffer, size_t count, int dtype, int peer, ncclComm_t comm, CUstream stream))                        \
  X(AllReduce, (const void* in, void* out, size_t count, int dtype, int reduction, ncclComm_t comm, CUstream stream)) \
  X(Reduce,                                                                                                           \
    (const void* in, void* out, size_t count, int dtype, int reduction, int root, ncclComm_t comm, CUstream stream))  \
  X(Broadcast, (const void* in, void* out, size_t count, int dtype, int root, ncclComm_t comm, CUstream stream))      \
  X(AllGather, (const void* in, void* out, size_t count, int dtype, ncclComm_t comm, CUstream stream))                \
  X(ReduceScatter,                                                                                                    \
    (const void* in, void* out, size_t count, int dtype, int reduction, ncclComm_t comm, CUstream stream))

struct nccl_functions {
#define XCUDA_MEMBER(name, parameters) ncclResult_t(*name) parameters;
  XCUDA_NCCL_FUNCTIONS(XCUDA_MEMBER)
#undef XCUDA_MEMBER
};

// Constant from load_nccl on.
extern nccl_functions nccl;

// False if libnccl.so.2 is not installed, or lacks a function; the debug log says which.
bool load_nccl();

// OK for ncclSuccess. `what` is what was tried: the slot's name, mostly.
result check_nccl(ncclResult_t error, const char* what);

} // namespace xcuda
