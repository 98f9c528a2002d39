// The simulated libhccl: its calls, over ranks of this machine.
#include <c10/core/ScalarType.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "common/simulation/ranks.h"
#include "runtime.h"

namespace sim {

constexpr int kParameter = 1, kInternal = 4, kNotSupported = 5, kTimeout = 9, kRemote = 21;

const rank_errors kRankErrors{kParameter, kParameter, kInternal, kTimeout, kRemote, kInternal, "HcclCommInitRootInfo"};

namespace {

constexpr uint64_t kRootBytes = 4108;

const leftovers at_the_end{"communicators", live_groups};

// ---- calls ----

int find(const char* name, void* handle, rank_group_ptr* out) {
  if (const int error = enter(name)) return error;
  if (const int error = find_group(name, handle, out)) return error;
  const int device = (*out)->device, current = current_device()->index;
  return device == current
             ? kOk
             : refuse(kParameter, "%s: a communicator of device %d on a thread of device %d", name, device, current);
}

// The device's memory as commands see it.
char* locate(int32_t index, const void* ptr, uint64_t size) {
  device* owner = nullptr;
  char* const found = find_memory(ptr, size, &owner);
  return found && owner->index == index ? found : nullptr;
}

c10::ScalarType scalar_type_of(int dtype) {
  using enum c10::ScalarType;
  constexpr c10::ScalarType kTypes[] = {Char,      Short, Int,       Half,      Float,  Long,
                                        Undefined, Byte,  Undefined, Undefined, Double, BFloat16};
  return dtype >= 0 && dtype < 12 ? kTypes[dtype] : Undefined;
}

// Runs on the stream.
using work = std::function<int(rank_group*)>;

int enqueue_call(const char* name, const rank_group_ptr& c, void* handle, work run) {
  stream* s = nullptr;
  if (const int error = find_stream(name, handle, &s)) return error;
  const uint64_t ticket = c->take_ticket();
  enqueue(s, [=] { return c->run(name, ticket, [=] { return run(c.get()); }) ? kKernelFailed : kOk; });
  return kOk;
}

int check(const char* name, uint64_t count, int dtype, int reduction = 0) {
  if (scalar_type_of(dtype) != c10::ScalarType::Undefined && count > 0 && reduction >= 0 && reduction <= 3) return kOk;
  return refuse(kParameter, "%s: %lu elements, dtype %d, reduction %d", name, static_cast<unsigned long>(count), dtype,
                reduction);
}

uint64_t bytes_of(uint64_t count, int dtype) {
  return count * c10::elementSize(scalar_type_of(dtype));
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
  return make_group(std::make_unique<rank_group>(current_device()->index, ranks, rank, locate),
                    static_cast<const char*>(root), out);
}

SIM_API int HcclCommDestroy(void* handle) {
  rank_group_ptr c;
  const int error = find("HcclCommDestroy", handle, &c);
  return error ? error : destroy_group("HcclCommDestroy", handle);
}

SIM_API int HcclGetCommAsyncError(void* handle, int* out) {
  rank_group_ptr c;
  if (const int error = find("HcclGetCommAsyncError", handle, &c)) return error;
  *out = c->error() ? kRemote : kOk;
  return kOk;
}

SIM_API int HcclBatchSendRecv(void* list, uint32_t count, void* handle, void* stream) {
  constexpr const char* kName = "HcclBatchSendRecv";
  struct item {
    int direction;
    void* buffer;
    uint64_t count;
    int dtype;
    uint32_t peer;
  };
  rank_group_ptr c;
  if (const int error = find(kName, handle, &c)) return error;
  std::vector<message> messages;
  for (const auto* i = static_cast<const item*>(list); i != static_cast<const item*>(list) + count; ++i) {
    if (const int error = check(kName, i->count, i->dtype)) return error;
    if (i->peer >= c->ranks || i->direction < 0 || i->direction > 1)
      return refuse(kParameter, "%s: rank %u, direction %d", kName, i->peer, i->direction);
    messages.push_back({i->direction == 0, i->peer, i->buffer, bytes_of(i->count, i->dtype)});
  }
  return enqueue_call(kName, c, stream, [=](rank_group* g) { return g->exchange(kName, {kSendReceive}, messages); });
}

namespace {

int pass(const char* name, bool is_sent, void* buffer, uint64_t count, int dtype, uint32_t peer, void* handle,
         void* stream) {
  rank_group_ptr c;
  if (const int error = find(name, handle, &c)) return error;
  if (const int error = check(name, count, dtype)) return error;
  if (peer >= c->ranks || peer == c->rank) return refuse(kParameter, "%s: rank %u", name, peer);
  const message m{is_sent, peer, buffer, bytes_of(count, dtype)};
  return enqueue_call(name, c, stream, [=](rank_group* g) { return g->exchange(name, {kSendReceive}, {m}); });
}

int collective(const char* name, rank_call of, void* in, void* out, uint64_t count, int dtype, int reduction,
               uint32_t root, void* handle, void* stream) {
  rank_group_ptr c;
  if (const int error = find(name, handle, &c)) return error;
  if (const int error = check(name, count, dtype, reduction)) return error;
  if (root >= c->ranks) return refuse(kParameter, "%s: root %u", name, root);
  const signature call{of, static_cast<int32_t>(scalar_type_of(dtype)), reduction, root};
  return enqueue_call(name, c, stream, [=](rank_group* g) { return g->collective(name, call, in, out, count); });
}

} // namespace

SIM_API int HcclSend(void* buffer, uint64_t count, int dtype, uint32_t peer, void* handle, void* stream) {
  return pass("HcclSend", true, buffer, count, dtype, peer, handle, stream);
}

SIM_API int HcclRecv(void* buffer, uint64_t count, int dtype, uint32_t peer, void* handle, void* stream) {
  return pass("HcclRecv", false, buffer, count, dtype, peer, handle, stream);
}

SIM_API int HcclAllReduce(void* in, void* out, uint64_t count, int dtype, int reduction, void* handle, void* stream) {
  return collective("HcclAllReduce", kAllReduce, in, out, count, dtype, reduction, 0, handle, stream);
}

SIM_API int HcclReduce(void* in, void* out, uint64_t count, int dtype, int reduction, uint32_t root, void* handle,
                       void* stream) {
  return collective("HcclReduce", kReduce, in, out, count, dtype, reduction, root, handle, stream);
}

SIM_API int HcclBroadcast(void* buffer, uint64_t count, int dtype, uint32_t root, void* handle, void* stream) {
  return collective("HcclBroadcast", kBroadcast, buffer, buffer, count, dtype, 0, root, handle, stream);
}

SIM_API int HcclAllGather(void* in, void* out, uint64_t count, int dtype, void* handle, void* stream) {
  return collective("HcclAllGather", kAllGather, in, out, count, dtype, 0, 0, handle, stream);
}

SIM_API int HcclReduceScatter(void* in, void* out, uint64_t count, int dtype, int reduction, void* handle,
                              void* stream) {
  return collective("HcclReduceScatter", kReduceScatter, in, out, count, dtype, reduction, 0, handle, stream);
}

SIM_API int HcclAlltoAllV(const void* in, const void* in_counts, const void* in_offsets, int in_dtype, const void* out,
                          const void* out_counts, const void* out_offsets, int out_dtype, void* handle, void* stream) {
  constexpr const char* kName = "HcclAlltoAllV";
  rank_group_ptr c;
  if (const int error = find(kName, handle, &c)) return error;
  if (const int error = check(kName, 1, in_dtype)) return error;
  if (in_dtype != out_dtype) return refuse(kParameter, "%s: dtypes %d and %d", kName, in_dtype, out_dtype);
  std::vector<message> messages;
  const auto add = [&](bool is_sent, const void* buffer, const void* counts, const void* offsets) {
    for (uint32_t rank = 0; rank < c->ranks; ++rank) {
      const uint64_t bytes = bytes_of(static_cast<const uint64_t*>(counts)[rank], in_dtype),
                     offset = bytes_of(static_cast<const uint64_t*>(offsets)[rank], in_dtype);
      if (bytes) messages.push_back({is_sent, rank, static_cast<const char*>(buffer) + offset, bytes});
    }
  };
  add(true, in, in_counts, in_offsets), add(false, out, out_counts, out_offsets);
  const signature call{kAllToAll, in_dtype};
  return enqueue_call(kName, c, stream, [=](rank_group* g) { return g->exchange(kName, call, messages); });
}
