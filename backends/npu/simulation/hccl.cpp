// The simulated libhccl: its calls, over ranks of this machine.
#include <unistd.h>

#include <cstring>
#include <set>
#include <string>

#include "common/simulation/ranks.h"
#include "elements.h"
#include "runtime.h"

namespace sim {

constexpr int kParameter = 1, kInternal = 4, kNotSupported = 5, kTimeout = 9, kRemote = 21;

const rank_errors kRankErrors{kParameter, kParameter, kInternal, kTimeout, kRemote, "HcclCommInitRootInfo"};

namespace {

constexpr uint64_t kRootBytes = 4108;

using comm = rank_group;

std::mutex registry_mutex; // guards live_comms
std::set<comm*>& live_comms() {
  static auto& all = *new std::set<comm*>;
  return all;
}

const leftovers at_the_end{"communicators", [] { return live_comms().size(); }};

// ---- calls ----

int find(const char* name, void* handle, comm** out) {
  if (const int error = enter(name)) return error;
  *out = static_cast<comm*>(handle);
  const std::lock_guard<std::mutex> lock(registry_mutex);
  if (!live_comms().count(*out)) return refuse(kParameter, "%s: not a communicator", name);
  if ((*out)->device != current_device()->index)
    return refuse(kParameter, "%s: a communicator of device %d on a thread of device %d", name, (*out)->device,
                  current_device()->index);
  return kOk;
}

// AscendCL's.
int acl_dtype(int dtype) {
  constexpr int known[] = {2, 6, 3, 1, 0, 9, -1, 4, -1, -1, 11, 27};
  return dtype >= 0 && dtype < 12 ? known[dtype] : -1;
}

// Runs on the stream.
using work = std::function<int(comm*)>;

int enqueue_call(const char* name, void* handle, void* stream_handle, work run) {
  comm* c = nullptr;
  if (const int error = find(name, handle, &c)) return error;
  stream* s = nullptr;
  if (const int error = find_stream(name, stream_handle, &s)) return error;
  const uint64_t ticket = c->take_ticket();
  enqueue(s, [=] { return c->run(name, ticket, [=] { return run(c); }) ? kKernelFailed : kOk; });
  return kOk;
}

// The device's memory as commands see it.
int locate(comm* c, const char* name, const void* ptr, uint64_t size, char** out) {
  device* owner = nullptr;
  *out = find_memory(ptr, size, &owner);
  return *out && owner->index == c->device ? kOk
                                           : refuse(kInternal, "%s: %lu bytes outside of an allocation of the device",
                                                    name, static_cast<unsigned long>(size));
}

int64_t checked_bytes(const char* name, uint64_t count, int dtype, int reduction = 0) {
  const uint64_t item = item_bytes(acl_dtype(dtype));
  if (item && count > 0 && reduction >= 0 && reduction <= 3) return static_cast<int64_t>(item);
  refuse(kParameter, "%s: %lu elements, dtype %d, reduction %d", name, static_cast<unsigned long>(count), dtype,
         reduction);
  return 0;
}

folding fold_of(uint64_t count, int dtype, int reduction) {
  return [=](char* to, const char* from) { fold(to, from, count, acl_dtype(dtype), reduction); };
}

} // namespace
} // namespace sim

using namespace sim;

SIM_API const char* HcclGetErrorString(int error) {
  return error == kParameter      ? "parameter error"
         : error == kNotSupported ? "not supported"
         : error == kTimeout      ? "timeout"
         : error == kRemote       ? "remote error"
                                  : "internal error";
}

SIM_API int HcclGetRootInfo(void* root) {
  if (enter("HcclGetRootInfo")) return kInternal;
  static std::atomic<int> made{0};
  std::memset(root, 0, kRootBytes);
  std::snprintf(static_cast<char*>(root), 64, "ascend-sim-%d-%d", getpid(), made++);
  return kOk;
}

SIM_API int HcclCommInitRootInfo(uint32_t ranks, const void* root, uint32_t rank, void** out) {
  if (enter("HcclCommInitRootInfo")) return kInternal;
  if (ranks == 0 || rank >= ranks || !*static_cast<const char*>(root))
    return refuse(kParameter, "HcclCommInitRootInfo: rank %u of %u", rank, ranks);
  auto made = std::make_unique<comm>(current_device()->index, ranks, rank);
  if (const int error = made->join(static_cast<const char*>(root))) return error;
  const std::lock_guard<std::mutex> lock(registry_mutex);
  live_comms().insert(made.get());
  *out = made.release();
  return kOk;
}

SIM_API int HcclCommDestroy(void* handle) {
  comm* c = nullptr;
  if (const int error = find("HcclCommDestroy", handle, &c)) return error;
  if (!c->is_idle()) return refuse(kInternal, "HcclCommDestroy: calls are pending");
  const std::lock_guard<std::mutex> lock(registry_mutex);
  live_comms().erase(c);
  delete c;
  return kOk;
}

SIM_API int HcclGetCommAsyncError(void* handle, int* out) {
  comm* c = nullptr;
  if (const int error = find("HcclGetCommAsyncError", handle, &c)) return error;
  *out = c->error() ? kRemote : kOk;
  return kOk;
}

SIM_API int HcclBatchSendRecv(void* list, uint32_t count, void* handle, void* stream) {
  struct item {
    int direction;
    void* buffer;
    uint64_t count;
    int dtype;
    uint32_t peer;
  };
  const auto* first = static_cast<const item*>(list);
  const std::vector<item> items(first, first + count);
  comm* c = nullptr;
  if (const int error = find("HcclBatchSendRecv", handle, &c)) return error;
  for (const item& i : items)
    if (!checked_bytes("HcclBatchSendRecv", i.count, i.dtype) || i.peer >= c->ranks || i.direction < 0 ||
        i.direction > 1)
      return kParameter;
  return enqueue_call("HcclBatchSendRecv", handle, stream, [=](comm* c) {
    std::vector<transfer> sent, received;
    for (const item& i : items) {
      transfer t{i.peer, nullptr, i.count * item_bytes(acl_dtype(i.dtype))};
      if (const int error = locate(c, "HcclBatchSendRecv", i.buffer, t.size_bytes, &t.data)) return error;
      (i.direction == 0 ? sent : received).push_back(t);
    }
    return c->exchange({kSendReceive, 0, 0, 0}, sent, received);
  });
}

namespace {

int message(const char* name, bool sends, void* buffer, uint64_t count, int dtype, uint32_t peer, void* handle,
            void* stream) {
  comm* c = nullptr;
  if (const int error = find(name, handle, &c)) return error;
  const int64_t item = checked_bytes(name, count, dtype);
  if (!item || peer >= c->ranks || peer == c->rank) return refuse(kParameter, "%s: rank %u", name, peer);
  return enqueue_call(name, handle, stream, [=](comm* c) {
    transfer t{peer, nullptr, count * static_cast<uint64_t>(item)};
    if (const int error = locate(c, name, buffer, t.size_bytes, &t.data)) return error;
    using list = std::vector<transfer>;
    return c->exchange({kSendReceive, 0, 0, 0}, sends ? list{t} : list{}, sends ? list{} : list{t});
  });
}

// A collective of `in_parts` and `out_parts` times `count` elements.
template <typename F>
int collective(const char* name, void* in, uint64_t in_parts, void* out, uint64_t out_parts, uint64_t count,
               signature call, void* handle, void* stream, F run) {
  comm* found = nullptr;
  if (const int error = find(name, handle, &found)) return error;
  const int64_t item = checked_bytes(name, count, call.dtype, call.reduction);
  if (!item) return kParameter;
  if (call.root >= found->ranks) return refuse(kParameter, "%s: root %u", name, call.root);
  const uint64_t size = count * static_cast<uint64_t>(item);
  return enqueue_call(name, handle, stream, [=](comm* c) {
    char *from = nullptr, *to = nullptr;
    if (const int error = in_parts ? locate(c, name, in, size * in_parts, &from) : kOk) return error;
    if (const int error = out_parts ? locate(c, name, out, size * out_parts, &to) : kOk) return error;
    return run(c, from, to, size);
  });
}

} // namespace

SIM_API int HcclSend(void* buffer, uint64_t count, int dtype, uint32_t peer, void* handle, void* stream) {
  return message("HcclSend", true, buffer, count, dtype, peer, handle, stream);
}

SIM_API int HcclRecv(void* buffer, uint64_t count, int dtype, uint32_t peer, void* handle, void* stream) {
  return message("HcclRecv", false, buffer, count, dtype, peer, handle, stream);
}

SIM_API int HcclAllReduce(void* in, void* out, uint64_t count, int dtype, int reduction, void* handle, void* stream) {
  const signature call{kAllReduce, dtype, reduction, 0};
  return collective("HcclAllReduce", in, 1, out, 1, count, call, handle, stream,
                    [=](comm* c, char* from, char* to, uint64_t size) {
                      return c->all_reduce(call, from, to, size, fold_of(count, dtype, reduction));
                    });
}

SIM_API int HcclReduce(void* in, void* out, uint64_t count, int dtype, int reduction, uint32_t root, void* handle,
                       void* stream) {
  const signature call{kReduce, dtype, reduction, root};
  return collective("HcclReduce", in, 1, out, 1, count, call, handle, stream,
                    [=](comm* c, char* from, char* to, uint64_t size) {
                      return c->reduce(call, from, to, size, fold_of(count, dtype, reduction));
                    });
}

SIM_API int HcclBroadcast(void* buffer, uint64_t count, int dtype, uint32_t root, void* handle, void* stream) {
  const signature call{kBroadcast, dtype, 0, root};
  return collective("HcclBroadcast", buffer, 1, buffer, 1, count, call, handle, stream,
                    [=](comm* c, char* from, char* to, uint64_t size) { return c->broadcast(call, from, to, size); });
}

SIM_API int HcclAllGather(void* in, void* out, uint64_t count, int dtype, void* handle, void* stream) {
  comm* found = nullptr;
  if (const int error = find("HcclAllGather", handle, &found)) return error;
  const signature call{kAllGather, dtype, 0, 0};
  return collective("HcclAllGather", in, 1, out, found->ranks, count, call, handle, stream,
                    [=](comm* c, char* from, char* to, uint64_t size) { return c->all_gather(call, from, to, size); });
}

SIM_API int HcclReduceScatter(void* in, void* out, uint64_t count, int dtype, int reduction, void* handle,
                              void* stream) {
  comm* found = nullptr;
  if (const int error = find("HcclReduceScatter", handle, &found)) return error;
  const signature call{kReduceScatter, dtype, reduction, 0};
  return collective("HcclReduceScatter", in, found->ranks, out, 1, count, call, handle, stream,
                    [=](comm* c, char* from, char* to, uint64_t size) {
                      return c->reduce_scatter(call, from, to, size, fold_of(count, dtype, reduction));
                    });
}

SIM_API int HcclAlltoAllV(const void* in, const void* in_counts, const void* in_offsets, int in_dtype, const void* out,
                          const void* out_counts, const void* out_offsets, int out_dtype, void* handle, void* stream) {
  comm* found = nullptr;
  if (const int error = find("HcclAlltoAllV", handle, &found)) return error;
  const int64_t item = checked_bytes("HcclAlltoAllV", 1, in_dtype);
  if (!item || in_dtype != out_dtype) return refuse(kParameter, "HcclAlltoAllV: dtypes %d and %d", in_dtype, out_dtype);
  struct part {
    const void* buffer;
    uint64_t count, offset;
  };
  const auto parts = [&](const void* buffer, const void* counts, const void* offsets) {
    std::vector<part> all;
    for (uint32_t rank = 0; rank < found->ranks; ++rank)
      all.push_back({buffer, static_cast<const uint64_t*>(counts)[rank], static_cast<const uint64_t*>(offsets)[rank]});
    return all;
  };
  const auto sends = parts(in, in_counts, in_offsets), receives = parts(out, out_counts, out_offsets);
  return enqueue_call("HcclAlltoAllV", handle, stream, [=](comm* c) {
    std::vector<transfer> sent, received;
    for (const bool is_sent : {true, false}) {
      const auto& all = is_sent ? sends : receives;
      for (uint32_t rank = 0; rank < c->ranks; ++rank) {
        if (all[rank].count == 0) continue;
        const auto bytes = static_cast<uint64_t>(item);
        transfer t{rank, nullptr, all[rank].count * bytes};
        const char* at = static_cast<const char*>(all[rank].buffer) + all[rank].offset * bytes;
        if (const int error = locate(c, "HcclAlltoAllV", at, t.size_bytes, &t.data)) return error;
        (is_sent ? sent : received).push_back(t);
      }
    }
    return c->exchange({kAllToAll, in_dtype, 0, 0}, sent, received);
  });
}
