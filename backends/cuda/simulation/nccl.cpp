// The simulated libnccl: its calls, over ranks of this machine.
#include "../csrc/nccl.h"

#include <c10/core/ScalarType.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "common/simulation/ranks.h"
#include "driver.h"

#define NCCL_API extern "C" __attribute__((visibility("default")))

namespace sim {

const rank_errors kRankErrors{kncclInvalidArgument, kncclInvalidUsage,           kncclSystemError,  kncclRemoteError,
                              kncclRemoteError,     kCUDA_ERROR_ILLEGAL_ADDRESS, "ncclCommInitRank"};

namespace {

// For calls that need a context.
int find(const char* name, ncclComm_t handle, rank_group_ptr* out) {
  CUcontext context = nullptr;
  return enter(name, &context) ? int{kncclUnhandledCudaError} : find_group(name, handle, out);
}

char* locate(int32_t device, const void* address, uint64_t bytes) {
  return resolve(address_of(address), bytes, context_of(device));
}

c10::ScalarType scalar_type_of(int dtype) {
  using enum c10::ScalarType;
  constexpr c10::ScalarType kTypes[] = {Char, Byte, Int, UInt32, Long, UInt64, Half, Float, Double, BFloat16};
  return dtype >= 0 && dtype <= kncclBfloat16 ? kTypes[dtype] : Undefined;
}

// ---- calls ----

// Of a group, which is sent with the others of its communicator and stream.
struct grouped_message {
  rank_group_ptr comm;
  CUstream stream;
  message what;
};

struct group {
  int depth = 0;
  std::vector<grouped_message> messages;
  std::vector<std::function<int()>> calls; // what begins at the end
};

thread_local group of_thread;

// `call` runs on the stream. What it cannot reach fails the context; other errors fail the communicator, and the stream
// stands still until that is aborted.
int enqueue_call(const char* name, const rank_group_ptr& c, CUstream handle, std::function<int()> call) {
  const CUcontext context = context_of(c->device);
  CUstream stream = nullptr;
  if (find_stream(name, handle, context, &stream)) return kncclUnhandledCudaError;
  if (stream->context != context)
    return refuse(kncclInvalidArgument, "%s: communicator and stream are of two devices", name);
  bool captured = false;
  {
    const std::lock_guard<std::mutex> lock(capture_mutex());
    captured = stream->capturing != nullptr;
  }
  const uint64_t own = captured ? 0 : c->take_ticket();
  const auto run = [=] {
    const uint64_t ticket = captured ? c->take_ticket() : own; // one for each launch
    const int error = c->run(name, ticket, call);
    if (error == kCUDA_ERROR_ILLEGAL_ADDRESS) return error;
    if (error) c->wait_for_abort();
    return 0;
  };
  return enqueue(name, stream, {run}) ? kncclUnhandledCudaError : 0;
}

int send_all(const rank_group_ptr& c, CUstream stream, std::vector<message> messages) {
  constexpr const char* kName = "ncclSend or ncclRecv";
  return enqueue_call(kName, c, stream, [c = c.get(), messages = std::move(messages)] {
    return c->exchange(kName, {kSendReceive}, messages);
  });
}

int pass(const char* name, bool is_sent, const void* buffer, size_t count, int dtype, int peer, ncclComm_t handle,
         CUstream stream) {
  rank_group_ptr c;
  if (const int error = find(name, handle, &c)) return error;
  const c10::ScalarType type = scalar_type_of(dtype);
  if (type == c10::ScalarType::Undefined || peer < 0 || static_cast<uint32_t>(peer) >= c->ranks)
    return refuse(kncclInvalidArgument, "%s: rank %d, dtype %d", name, peer, dtype);
  if (static_cast<uint32_t>(peer) == c->rank && of_thread.depth == 0)
    return refuse(kncclInvalidUsage, "%s: to itself, outside of a group", name);
  const message m{is_sent, static_cast<uint32_t>(peer), buffer, count * c10::elementSize(type)};
  if (of_thread.depth == 0) return send_all(c, stream, {m});
  of_thread.messages.push_back({c, stream, m});
  return 0;
}

int collective(const char* name, rank_call of, const void* in, void* out, uint64_t count, int dtype, int reduction,
               int root, ncclComm_t handle, CUstream stream) {
  rank_group_ptr c;
  if (const int error = find(name, handle, &c)) return error;
  const signature call{of, static_cast<int32_t>(scalar_type_of(dtype)), reduction, static_cast<uint32_t>(root)};
  if (scalar_type_of(dtype) == c10::ScalarType::Undefined || reduction < 0 || reduction > kncclAvg ||
      call.root >= c->ranks)
    return refuse(kncclInvalidArgument, "%s: dtype %d, reduction %d, root %d", name, dtype, reduction, root);
  const auto begin = [=] {
    return enqueue_call(name, c, stream, [=, c = c.get()] { return c->collective(name, call, in, out, count); });
  };
  if (of_thread.depth == 0) return begin();
  of_thread.calls.push_back(begin);
  return 0;
}

} // namespace
} // namespace sim

using namespace sim;

NCCL_API const char* ncclGetErrorString(int error) {
  return error == kncclInvalidArgument      ? "invalid argument"
         : error == kncclInvalidUsage       ? "invalid usage"
         : error == kncclRemoteError        ? "remote process exited or there was a network error"
         : error == kncclSystemError        ? "unhandled system error"
         : error == kncclUnhandledCudaError ? "unhandled cuda error"
                                            : "internal error";
}

NCCL_API const char* ncclGetLastError(ncclComm_t) {
  return refusal().c_str();
}

NCCL_API int ncclGetUniqueId(ncclUniqueId* id) {
  static std::atomic<int> made{0};
  std::memset(id, 0, sizeof *id);
  std::snprintf(id->internal, sizeof id->internal, "cuda-sim-nccl-%d-%d", getpid(), made++);
  return 0;
}

NCCL_API int ncclCommInitRank(ncclComm_t* out, int ranks, ncclUniqueId id, int rank) {
  CUcontext context = nullptr;
  if (enter("ncclCommInitRank", &context)) return kncclUnhandledCudaError;
  if (ranks < 1 || rank < 0 || rank >= ranks || !id.internal[0])
    return refuse(kncclInvalidArgument, "ncclCommInitRank: rank %d of %d", rank, ranks);
  auto made =
      std::make_unique<rank_group>(context->device, static_cast<uint32_t>(ranks), static_cast<uint32_t>(rank), locate);
  return make_group(std::move(made), id.internal, reinterpret_cast<void**>(out));
}

NCCL_API int ncclCommDestroy(ncclComm_t handle) {
  CUcontext context = nullptr;
  return enter("ncclCommDestroy", &context) ? int{kncclUnhandledCudaError} : destroy_group("ncclCommDestroy", handle);
}

NCCL_API int ncclCommAbort(ncclComm_t handle) {
  CUcontext context = nullptr;
  return enter("ncclCommAbort", &context) ? int{kncclUnhandledCudaError} : abort_group("ncclCommAbort", handle);
}

NCCL_API int ncclCommGetAsyncError(ncclComm_t handle, int* out) {
  rank_group_ptr c;
  if (const int error = find_group("ncclCommGetAsyncError", handle, &c)) return error;
  *out = c->error();
  return 0;
}

NCCL_API int ncclGroupStart() {
  ++of_thread.depth;
  return 0;
}

NCCL_API int ncclGroupEnd() {
  if (of_thread.depth == 0) return refuse(kncclInvalidUsage, "ncclGroupEnd without ncclGroupStart");
  if (--of_thread.depth > 0) return 0;
  std::vector<grouped_message> left;
  std::vector<std::function<int()>> calls;
  left.swap(of_thread.messages);
  calls.swap(of_thread.calls);
  for (const auto& begin : calls)
    if (const int error = begin()) return error;
  while (!left.empty()) {
    const grouped_message first = left.front();
    const auto others = std::stable_partition(left.begin(), left.end(), [&first](const grouped_message& each) {
      return each.comm == first.comm && each.stream == first.stream;
    });
    std::vector<message> batch;
    std::transform(left.begin(), others, std::back_inserter(batch), [](const auto& each) { return each.what; });
    left.erase(left.begin(), others);
    if (const int error = send_all(first.comm, first.stream, batch)) return error;
  }
  return 0;
}

NCCL_API int ncclSend(const void* buffer, size_t count, int dtype, int peer, ncclComm_t comm, CUstream stream) {
  return pass("ncclSend", true, buffer, count, dtype, peer, comm, stream);
}

NCCL_API int ncclRecv(void* buffer, size_t count, int dtype, int peer, ncclComm_t comm, CUstream stream) {
  return pass("ncclRecv", false, buffer, count, dtype, peer, comm, stream);
}

NCCL_API int ncclAllReduce(const void* in, void* out, size_t count, int dtype, int reduction, ncclComm_t comm,
                           CUstream stream) {
  return collective("ncclAllReduce", kAllReduce, in, out, count, dtype, reduction, 0, comm, stream);
}

NCCL_API int ncclReduce(const void* in, void* out, size_t count, int dtype, int reduction, int root, ncclComm_t comm,
                        CUstream stream) {
  return collective("ncclReduce", kReduce, in, out, count, dtype, reduction, root, comm, stream);
}

NCCL_API int ncclBroadcast(const void* in, void* out, size_t count, int dtype, int root, ncclComm_t comm,
                           CUstream stream) {
  return collective("ncclBroadcast", kBroadcast, in, out, count, dtype, 0, root, comm, stream);
}

NCCL_API int ncclAllGather(const void* in, void* out, size_t count, int dtype, ncclComm_t comm, CUstream stream) {
  return collective("ncclAllGather", kAllGather, in, out, count, dtype, 0, 0, comm, stream);
}

NCCL_API int ncclReduceScatter(const void* in, void* out, size_t count, int dtype, int reduction, ncclComm_t comm,
                               CUstream stream) {
  return collective("ncclReduceScatter", kReduceScatter, in, out, count, dtype, reduction, 0, comm, stream);
}
