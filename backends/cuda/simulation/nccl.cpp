// The simulated libnccl: its calls, over ranks of this machine.
#include "../csrc/nccl.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "bfloat16.h"
#include "common/simulation/ranks.h"
#include "driver.h"

#define NCCL_API extern "C" __attribute__((visibility("default")))

namespace sim {

const rank_errors kRankErrors{kncclInvalidArgument, kncclInvalidUsage, kncclSystemError,
                              kncclRemoteError,     kncclRemoteError,  "ncclCommInitRank"};

namespace {

struct communicator : rank_group {
  const CUcontext context;
  communicator(CUcontext made_in, uint32_t ranks, uint32_t rank)
      : rank_group(made_in->device, ranks, rank), context(made_in) {}
};

using comm_ptr = std::shared_ptr<communicator>; // calls that are pending have theirs

std::mutex comms_mutex; // guards comms
std::map<ncclComm_t, comm_ptr>& comms() {
  static auto& all = *new std::map<ncclComm_t, comm_ptr>;
  return all;
}

int find_anywhere(const char* name, ncclComm_t handle, comm_ptr* out) {
  const std::lock_guard<std::mutex> lock(comms_mutex);
  const auto found = comms().find(handle);
  if (found == comms().end()) return refuse(kncclInvalidArgument, "%s: not a communicator", name);
  *out = found->second;
  return 0;
}

// For calls that need a context.
int find(const char* name, ncclComm_t handle, comm_ptr* out) {
  CUcontext context = nullptr;
  return enter(name, &context) ? int{kncclUnhandledCudaError} : find_anywhere(name, handle, out);
}

// ---- elements ----

uint64_t item_bytes(int dtype) {
  constexpr uint64_t sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
  return dtype >= 0 && dtype <= kncclBfloat16 ? sizes[dtype] : 0;
}

// The last call of all but one rank's divides, for an average.
template <typename T, typename Computed = T>
folding fold_as(uint64_t count, int reduction, uint32_t ranks) {
  return [=, left = ranks - 1](char* to, const char* from) mutable {
    const Computed parts = --left == 0 && reduction == kncclAvg ? static_cast<Computed>(ranks) : Computed(1);
    for (uint64_t i = 0; i < count; ++i, to += sizeof(T), from += sizeof(T)) {
      T a{}, b{};
      std::memcpy(&a, to, sizeof a);
      std::memcpy(&b, from, sizeof b);
      const auto x = static_cast<Computed>(a), y = static_cast<Computed>(b);
      a = static_cast<T>(reduction == kncclProd  ? static_cast<Computed>(x * y)
                         : reduction == kncclMax ? std::max(x, y)
                         : reduction == kncclMin ? std::min(x, y)
                                                 : static_cast<Computed>((x + y) / parts));
      std::memcpy(to, &a, sizeof a);
    }
  };
}

folding fold_of(uint64_t count, int dtype, int reduction, uint32_t ranks) {
  switch (dtype) {
    case kncclInt8:
      return fold_as<int8_t>(count, reduction, ranks);
    case kncclUint8:
      return fold_as<uint8_t>(count, reduction, ranks);
    case kncclInt32:
      return fold_as<int32_t>(count, reduction, ranks);
    case kncclUint32:
      return fold_as<uint32_t>(count, reduction, ranks);
    case kncclInt64:
      return fold_as<int64_t>(count, reduction, ranks);
    case kncclUint64:
      return fold_as<uint64_t>(count, reduction, ranks);
    case kncclFloat16:
      return fold_as<_Float16, float>(count, reduction, ranks);
    case kncclFloat32:
      return fold_as<float>(count, reduction, ranks);
    case kncclFloat64:
      return fold_as<double>(count, reduction, ranks);
    default:
      return fold_as<bfloat16, float>(count, reduction, ranks);
  }
}

// ---- calls ----

// A message of a group, which is sent with the others of its communicator and stream.
struct message {
  comm_ptr comm;
  CUstream stream;
  bool is_sent;
  uint32_t peer;
  const void* buffer;
  uint64_t size_bytes;
};

struct group {
  int depth = 0;
  std::vector<message> messages;
  std::vector<std::function<int()>> calls; // what begins at the end
};

thread_local group of_thread;

int locate(const communicator& c, const char* name, const void* address, uint64_t bytes, char** out) {
  *out = resolve(address_of(address), bytes, c.context);
  if (*out) return 0;
  return refuse(kCUDA_ERROR_ILLEGAL_ADDRESS, "%s: %lu bytes that the device cannot access", name,
                static_cast<unsigned long>(bytes));
}

// `call` runs on the stream. What it cannot reach fails the context; other errors fail the communicator, and the stream
// stands still until that is aborted.
int enqueue_call(const char* name, const comm_ptr& c, CUstream handle, std::function<int()> call) {
  CUstream stream = nullptr;
  if (find_stream(name, handle, c->context, &stream)) return kncclUnhandledCudaError;
  if (stream->context != c->context)
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

int send_all(const comm_ptr& c, CUstream stream, std::vector<message> messages) {
  return enqueue_call("ncclSend or ncclRecv", c, stream, [c = c.get(), messages = std::move(messages)] {
    std::vector<transfer> sent, received;
    for (const message& m : messages) {
      transfer t{m.peer, nullptr, m.size_bytes};
      if (const int error = locate(*c, "ncclSend or ncclRecv", m.buffer, t.size_bytes, &t.data)) return error;
      (m.is_sent ? sent : received).push_back(t);
    }
    return c->exchange({kSendReceive, 0, 0, 0}, sent, received);
  });
}

int pass(const char* name, bool is_sent, const void* buffer, size_t count, int dtype, int peer, ncclComm_t handle,
         CUstream stream) {
  comm_ptr c;
  if (const int error = find(name, handle, &c)) return error;
  if (!item_bytes(dtype) || peer < 0 || static_cast<uint32_t>(peer) >= c->ranks)
    return refuse(kncclInvalidArgument, "%s: rank %d, dtype %d", name, peer, dtype);
  if (static_cast<uint32_t>(peer) == c->rank && of_thread.depth == 0)
    return refuse(kncclInvalidUsage, "%s: to itself, outside of a group", name);
  const message m{c, stream, is_sent, static_cast<uint32_t>(peer), buffer, count * item_bytes(dtype)};
  if (of_thread.depth == 0) return send_all(c, stream, {m});
  of_thread.messages.push_back(m);
  return 0;
}

// Of `in_parts` and `out_parts` times `count` elements.
template <typename F>
int collective(const char* name, const void* in, uint64_t in_parts, void* out, uint64_t out_parts, uint64_t count,
               signature call, const comm_ptr& c, CUstream stream, F run) {
  const uint64_t size = count * item_bytes(call.dtype);
  if (!item_bytes(call.dtype) || call.reduction < 0 || call.reduction > kncclAvg || call.root >= c->ranks)
    return refuse(kncclInvalidArgument, "%s: dtype %d, reduction %d, root %u", name, call.dtype, call.reduction,
                  call.root);
  const auto begin = [=] {
    return enqueue_call(name, c, stream, [=, c = c.get()] {
      char *from = nullptr, *to = nullptr;
      if (const int error = in_parts ? locate(*c, name, in, size * in_parts, &from) : 0) return error;
      if (const int error = out_parts ? locate(*c, name, out, size * out_parts, &to) : 0) return error;
      return run(c, from, to, size);
    });
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
  auto made = std::make_shared<communicator>(context, static_cast<uint32_t>(ranks), static_cast<uint32_t>(rank));
  if (const int error = made->join(id.internal)) return error;
  *out = reinterpret_cast<ncclComm_t>(made.get());
  const std::lock_guard<std::mutex> lock(comms_mutex);
  comms()[*out] = std::move(made);
  return 0;
}

NCCL_API int ncclCommDestroy(ncclComm_t handle) {
  comm_ptr c;
  if (const int error = find("ncclCommDestroy", handle, &c)) return error;
  if (!c->is_idle()) return refuse(kncclInvalidUsage, "ncclCommDestroy: calls are pending");
  const std::lock_guard<std::mutex> lock(comms_mutex);
  comms().erase(handle);
  return 0;
}

NCCL_API int ncclCommAbort(ncclComm_t handle) {
  comm_ptr c;
  if (const int error = find("ncclCommAbort", handle, &c)) return error;
  c->abort();
  const std::lock_guard<std::mutex> lock(comms_mutex);
  comms().erase(handle);
  return 0;
}

NCCL_API int ncclCommGetAsyncError(ncclComm_t handle, int* out) {
  comm_ptr c;
  if (const int error = find_anywhere("ncclCommGetAsyncError", handle, &c)) return error;
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
  std::vector<message> left;
  std::vector<std::function<int()>> calls;
  left.swap(of_thread.messages);
  calls.swap(of_thread.calls);
  for (const auto& begin : calls)
    if (const int error = begin()) return error;
  while (!left.empty()) {
    const message first = left.front();
    const auto others = std::stable_partition(left.begin(), left.end(), [&first](const message& each) {
      return each.comm == first.comm && each.stream == first.stream;
    });
    const std::vector<message> batch(left.begin(), others);
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
  comm_ptr found;
  if (const int error = find("ncclAllReduce", comm, &found)) return error;
  const signature call{kAllReduce, dtype, reduction, 0};
  return collective("ncclAllReduce", in, 1, out, 1, count, call, found, stream,
                    [=](communicator* c, char* from, char* to, uint64_t size) {
                      return c->all_reduce(call, from, to, size, fold_of(count, dtype, reduction, c->ranks));
                    });
}

// Of the output only the root's is written.
NCCL_API int ncclReduce(const void* in, void* out, size_t count, int dtype, int reduction, int root, ncclComm_t comm,
                        CUstream stream) {
  comm_ptr found;
  if (const int error = find("ncclReduce", comm, &found)) return error;
  const signature call{kReduce, dtype, reduction, static_cast<uint32_t>(root)};
  return collective("ncclReduce", in, 1, out, call.root == found->rank, count, call, found, stream,
                    [=](communicator* c, char* from, char* to, uint64_t size) {
                      return c->reduce(call, from, to, size, fold_of(count, dtype, reduction, c->ranks));
                    });
}

// Of the input only the root's is read.
NCCL_API int ncclBroadcast(const void* in, void* out, size_t count, int dtype, int root, ncclComm_t comm,
                           CUstream stream) {
  comm_ptr found;
  if (const int error = find("ncclBroadcast", comm, &found)) return error;
  const signature call{kBroadcast, dtype, 0, static_cast<uint32_t>(root)};
  return collective(
      "ncclBroadcast", in, call.root == found->rank, out, 1, count, call, found, stream,
      [=](communicator* c, char* from, char* to, uint64_t size) { return c->broadcast(call, from, to, size); });
}

NCCL_API int ncclAllGather(const void* in, void* out, size_t count, int dtype, ncclComm_t comm, CUstream stream) {
  comm_ptr found;
  if (const int error = find("ncclAllGather", comm, &found)) return error;
  const signature call{kAllGather, dtype, 0, 0};
  return collective(
      "ncclAllGather", in, 1, out, found->ranks, count, call, found, stream,
      [=](communicator* c, char* from, char* to, uint64_t size) { return c->all_gather(call, from, to, size); });
}

NCCL_API int ncclReduceScatter(const void* in, void* out, size_t count, int dtype, int reduction, ncclComm_t comm,
                               CUstream stream) {
  comm_ptr found;
  if (const int error = find("ncclReduceScatter", comm, &found)) return error;
  const signature call{kReduceScatter, dtype, reduction, 0};
  return collective("ncclReduceScatter", in, found->ranks, out, 1, count, call, found, stream,
                    [=](communicator* c, char* from, char* to, uint64_t size) {
                      return c->reduce_scatter(call, from, to, size, fold_of(count, dtype, reduction, c->ranks));
                    });
}
