// The simulated libhccl: ranks, in threads or processes of one machine, with a socket between each two.
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <set>
#include <string>
#include <thread>

#include "operator.h"

namespace sim {
namespace {

constexpr int kParameter = 1, kInternal = 4, kNotSupported = 5, kTimeout = 9, kRemote = 21;
constexpr uint64_t kRootBytes = 4108;

using clock = std::chrono::steady_clock;

clock::time_point deadline() {
  const char* seconds = std::getenv("ASCEND_SIM_HCCL_TIMEOUT_S");
  return clock::now() + std::chrono::seconds(seconds && *seconds ? std::atoi(seconds) : 60);
}

enum kind : uint32_t { kSendReceive, kAllReduce, kReduce, kBroadcast, kAllGather, kReduceScatter, kAllToAll };

// What both ends of a message have to agree about.
struct signature {
  uint32_t of; // kind
  int32_t dtype, reduction;
  uint32_t root;
};

// Before each message, and, with no bytes, to tell that one has come: a call ends when its messages were received.
struct frame {
  signature call;
  uint64_t size_bytes;
  uint64_t is_answer;
};

struct comm {
  device* owner = nullptr;
  uint32_t ranks = 0, rank = 0;
  std::vector<int> sockets; // by rank; -1 of its own
  std::mutex mutex;         // guards what follows
  std::condition_variable changed;
  uint64_t next_ticket = 0, turn = 0; // calls run in the order in which they were made, on whatever streams
  int failed = 0;

  ~comm() {
    for (const int socket : sockets)
      if (socket >= 0) close(socket);
  }
};

std::mutex registry_mutex; // guards live_comms
std::set<comm*>& live_comms() {
  static auto& all = *new std::set<comm*>;
  return all;
}

const leftovers at_the_end{"communicators", [] { return live_comms().size(); }};

// ---- joining ----

sockaddr_un address(const std::string& name, socklen_t* out_size) {
  sockaddr_un a{};
  a.sun_family = AF_UNIX;
  std::memcpy(a.sun_path + 1, name.data(), name.size()); // abstract: no file, gone with its process
  *out_size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return a;
}

struct greeting {
  uint32_t ranks, rank;
  int32_t device;
};

bool send_all(int socket, const void* data, size_t size) {
  return send(socket, data, size, MSG_NOSIGNAL) == static_cast<ssize_t>(size);
}

bool receive_all(int socket, void* data, size_t size) {
  return recv(socket, data, size, MSG_WAITALL) == static_cast<ssize_t>(size);
}

// Until the other rank listens; -1 if it never does.
int connect_to(const std::string& name, clock::time_point until) {
  socklen_t size = 0;
  const sockaddr_un a = address(name, &size);
  while (clock::now() < until) {
    const int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(s, reinterpret_cast<const sockaddr*>(&a), size) == 0) return s;
    close(s);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return -1;
}

int listen_as(const std::string& name) {
  socklen_t size = 0;
  const sockaddr_un a = address(name, &size);
  const int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (bind(s, reinterpret_cast<const sockaddr*>(&a), size) == 0 && listen(s, 64) == 0) return s;
  close(s);
  return -1;
}

int greet(comm* c, int socket, bool first) {
  greeting own{c->ranks, c->rank, c->owner->index}, other{};
  const bool told = first ? send_all(socket, &own, sizeof own) && receive_all(socket, &other, sizeof other)
                          : receive_all(socket, &other, sizeof other) && send_all(socket, &own, sizeof own);
  if (!told) return refuse(kInternal, "HcclCommInitRootInfo: another rank has left");
  if (other.ranks != c->ranks || other.rank >= c->ranks || c->sockets[other.rank] >= 0)
    return refuse(kParameter, "HcclCommInitRootInfo: rank %u of %u meets rank %u of %u", c->rank, c->ranks, other.rank,
                  other.ranks);
  if (other.device == c->owner->index)
    return refuse(kParameter, "HcclCommInitRootInfo: ranks %u and %u have the same device %d", c->rank, other.rank,
                  other.device);
  c->sockets[other.rank] = socket;
  return kOk;
}

// Each rank connects to those before it.
int join(comm* c, const std::string& root) {
  const auto until = deadline();
  const int own = listen_as(root + "-" + std::to_string(c->rank));
  if (own < 0) return refuse(kParameter, "HcclCommInitRootInfo: rank %u is taken", c->rank);
  int error = kOk;
  for (uint32_t rank = 0; rank < c->rank && !error; ++rank) {
    const int s = connect_to(root + "-" + std::to_string(rank), until);
    error = s < 0 ? refuse(kTimeout, "HcclCommInitRootInfo: rank %u does not come", rank) : greet(c, s, true);
  }
  for (uint32_t rank = c->rank + 1; rank < c->ranks && !error; ++rank) {
    pollfd waiting{own, POLLIN, 0};
    const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(until - clock::now()).count();
    if (poll(&waiting, 1, static_cast<int>(std::max<int64_t>(ms, 0))) <= 0)
      error = refuse(kTimeout, "HcclCommInitRootInfo: not all ranks come");
    else
      error = greet(c, accept4(own, nullptr, nullptr, SOCK_CLOEXEC), false);
  }
  close(own);
  return error;
}

// ---- exchanging ----

struct transfer {
  uint32_t peer;
  char* data;
  uint64_t size_bytes;
};

// What one rank sends and receives in a call, with one other one.
struct conversation {
  int socket;
  std::vector<char> out; // frames and data, not sent yet
  size_t out_at = 0;
  std::deque<transfer> in;
  size_t answers = 0; // that are still to come
  frame head{};
  size_t head_at = 0, data_at = 0;

  bool is_over() const {
    return out_at == out.size() && in.empty() && answers == 0;
  }
};

void append(std::vector<char>* out, const frame& f, const char* data) {
  const auto* bytes = reinterpret_cast<const char*>(&f);
  out->insert(out->end(), bytes, bytes + sizeof f);
  if (data) out->insert(out->end(), data, data + f.size_bytes);
}

// False when the other rank is gone.
bool send_some(conversation* c) {
  const ssize_t n = send(c->socket, c->out.data() + c->out_at, c->out.size() - c->out_at, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (n > 0) c->out_at += static_cast<size_t>(n);
  return n >= 0 || errno == EAGAIN;
}

int receive_some(conversation* c, const signature& call, uint32_t peer) {
  const bool in_data = c->head_at == sizeof c->head;
  char* to = in_data ? c->in.front().data + c->data_at : reinterpret_cast<char*>(&c->head) + c->head_at;
  const size_t want = in_data ? c->head.size_bytes - c->data_at : sizeof c->head - c->head_at;
  const ssize_t n = want ? recv(c->socket, to, want, MSG_DONTWAIT) : 0;
  if (n < 0 && errno == EAGAIN) return kOk;
  if (n < 0 || (n == 0 && want)) return refuse(kRemote, "rank %u has left", peer);
  (in_data ? c->data_at : c->head_at) += static_cast<size_t>(n);
  if (c->head_at < sizeof c->head) return kOk;
  if (c->head.is_answer) {
    --c->answers;
    c->head_at = 0;
    return kOk;
  }
  if (c->in.empty() || c->head.size_bytes != c->in.front().size_bytes ||
      std::memcmp(&c->head.call, &call, sizeof call) != 0)
    return refuse(kParameter, "rank %u makes another call, or with another count, dtype, reduction or root", peer);
  if (c->data_at < c->head.size_bytes) return kOk;
  append(&c->out, {call, 0, 1}, nullptr);
  c->in.pop_front();
  c->head_at = c->data_at = 0;
  return kOk;
}

// Sends and receives all at once. A message to itself is copied.
int exchange(comm* c, const signature& call, const std::vector<transfer>& sent, std::vector<transfer> received) {
  std::vector<conversation> with(c->ranks);
  for (uint32_t rank = 0; rank < c->ranks; ++rank) with[rank].socket = c->sockets[rank];
  for (const transfer& t : received) with[t.peer].in.push_back(t);
  for (const transfer& t : sent) {
    if (t.peer == c->rank) {
      if (with[t.peer].in.empty() || with[t.peer].in.front().size_bytes != t.size_bytes)
        return refuse(kParameter, "a message to itself that is not received");
      std::memmove(with[t.peer].in.front().data, t.data, t.size_bytes);
      with[t.peer].in.pop_front();
      continue;
    }
    append(&with[t.peer].out, {call, t.size_bytes, 0}, t.data);
    ++with[t.peer].answers;
  }
  for (const auto until = deadline();;) {
    std::vector<pollfd> waiting;
    std::vector<uint32_t> peers;
    for (uint32_t rank = 0; rank < c->ranks; ++rank) {
      const conversation& w = with[rank];
      if (rank == c->rank || w.is_over()) continue;
      const bool reads = !w.in.empty() || w.answers > 0, writes = w.out_at < w.out.size();
      waiting.push_back({w.socket, static_cast<short>((reads ? POLLIN : 0) | (writes ? POLLOUT : 0)), 0});
      peers.push_back(rank);
    }
    if (waiting.empty()) return kOk;
    if (clock::now() > until) return refuse(kTimeout, "rank %u does not come", peers.front());
    poll(waiting.data(), waiting.size(), 100);
    for (size_t i = 0; i < waiting.size(); ++i) {
      if (waiting[i].revents & POLLOUT && !send_some(&with[peers[i]])) return refuse(kRemote, "rank %u left", peers[i]);
      if (waiting[i].revents & (POLLIN | POLLHUP | POLLERR))
        if (const int error = receive_some(&with[peers[i]], call, peers[i])) return error;
    }
  }
}

// ---- calls ----

int find(const char* name, void* handle, comm** out) {
  if (const int error = enter(name)) return error;
  *out = static_cast<comm*>(handle);
  const std::lock_guard<std::mutex> lock(registry_mutex);
  if (!live_comms().count(*out)) return refuse(kParameter, "%s: not a communicator", name);
  if ((*out)->owner != current_device())
    return refuse(kParameter, "%s: a communicator of device %d on a thread of device %d", name, (*out)->owner->index,
                  current_device()->index);
  return kOk;
}

int acl_dtype(int dtype) {
  constexpr int known[] = {kInt8, kInt16, kInt32, kHalf, kFloat, kInt64, -1, kUint8, -1, -1, kDouble, kBfloat16};
  return dtype >= 0 && dtype < 12 ? known[dtype] : -1;
}

// Runs on the stream.
using work = std::function<int(comm*)>;

int enqueue_call(const char* name, void* handle, void* stream_handle, work run) {
  comm* c = nullptr;
  if (const int error = find(name, handle, &c)) return error;
  stream* s = nullptr;
  if (const int error = find_stream(name, stream_handle, &s)) return error;
  uint64_t ticket = 0;
  {
    const std::lock_guard<std::mutex> lock(c->mutex);
    ticket = c->next_ticket++;
  }
  enqueue(s, [=] {
    {
      std::unique_lock<std::mutex> lock(c->mutex);
      c->changed.wait(lock, [&] { return c->turn == ticket; });
    }
    int error = c->failed ? refuse(c->failed, "%s: the communicator has failed before", name) : run(c);
    const std::lock_guard<std::mutex> lock(c->mutex);
    if (error && !c->failed) {
      c->failed = error;
      for (const int socket : c->sockets)
        if (socket >= 0) shutdown(socket, SHUT_RDWR); // the others notice
    }
    ++c->turn;
    c->changed.notify_all();
    return error ? kKernelFailed : kOk;
  });
  return kOk;
}

// The device's memory as commands see it.
int locate(comm* c, const char* name, const void* ptr, uint64_t size, char** out) {
  device* owner = nullptr;
  *out = find_memory(ptr, size, &owner);
  return *out && owner == c->owner ? kOk
                                   : refuse(kInternal, "%s: %lu bytes outside of an allocation of the device", name,
                                            static_cast<unsigned long>(size));
}

int64_t checked_bytes(const char* name, uint64_t count, int dtype, int reduction = 0) {
  const int64_t item = item_bytes(acl_dtype(dtype));
  if (item == 0 || count == 0 || reduction < 0 || reduction > 3) {
    refuse(kParameter, "%s: %lu elements, dtype %d, reduction %d", name, static_cast<unsigned long>(count), dtype,
           reduction);
    return 0;
  }
  return item;
}

// Adds the second up into the first.
void fold(char* to, const char* from, uint64_t count, int dtype, int reduction) {
  const int64_t n = static_cast<int64_t>(count);
  const view a{{n}, {1}, acl_dtype(dtype), to}, b{{n}, {1}, acl_dtype(dtype), const_cast<char*>(from)};
  const auto apply = [reduction](auto x, auto y) {
    return reduction == 0 ? x + y : reduction == 1 ? x * y : reduction == 2 ? std::max(x, y) : std::min(x, y);
  };
  for (int64_t i = 0; i < n; ++i) {
    if (is_floating(a.dtype))
      a.store(i, apply(a.number(i), b.number(i)));
    else
      a.store_integer(i, apply(a.integer(i), b.integer(i)));
  }
}

// Every rank's part of `in` that is this one's, added up in the order of ranks, so that all get the same.
int reduced(comm* c, const signature& call, const std::vector<transfer>& sent, const char* own, char* out,
            uint64_t count) {
  const uint64_t size = count * static_cast<uint64_t>(item_bytes(acl_dtype(call.dtype)));
  std::vector<std::vector<char>> parts(c->ranks, std::vector<char>(size));
  std::vector<transfer> received;
  for (uint32_t rank = 0; rank < c->ranks; ++rank)
    if (rank != c->rank) received.push_back({rank, parts[rank].data(), size});
  std::memcpy(parts[c->rank].data(), own, size);
  if (const int error = exchange(c, call, sent, received)) return error;
  for (uint32_t rank = 1; rank < c->ranks; ++rank)
    fold(parts[0].data(), parts[rank].data(), count, call.dtype, call.reduction);
  std::memcpy(out, parts[0].data(), size);
  return kOk;
}

// The same to every other rank.
std::vector<transfer> to_others(comm* c, char* data, uint64_t size, uint64_t step = 0) {
  std::vector<transfer> all;
  for (uint32_t rank = 0; rank < c->ranks; ++rank)
    if (rank != c->rank) all.push_back({rank, data + rank * step, size});
  return all;
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
  auto made = std::make_unique<comm>();
  made->owner = current_device();
  made->ranks = ranks;
  made->rank = rank;
  made->sockets.assign(ranks, -1);
  if (const int error = join(made.get(), static_cast<const char*>(root))) return error;
  const std::lock_guard<std::mutex> lock(registry_mutex);
  live_comms().insert(made.get());
  *out = made.release();
  return kOk;
}

SIM_API int HcclCommDestroy(void* handle) {
  comm* c = nullptr;
  if (const int error = find("HcclCommDestroy", handle, &c)) return error;
  {
    const std::lock_guard<std::mutex> lock(c->mutex);
    if (c->turn != c->next_ticket) return refuse(kInternal, "HcclCommDestroy: calls are pending");
  }
  const std::lock_guard<std::mutex> lock(registry_mutex);
  live_comms().erase(c);
  delete c;
  return kOk;
}

SIM_API int HcclGetCommAsyncError(void* handle, int* out) {
  comm* c = nullptr;
  if (const int error = find("HcclGetCommAsyncError", handle, &c)) return error;
  const std::lock_guard<std::mutex> lock(c->mutex);
  *out = c->failed ? kRemote : kOk;
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
      transfer t{i.peer, nullptr, i.count * static_cast<uint64_t>(item_bytes(acl_dtype(i.dtype)))};
      if (const int error = locate(c, "HcclBatchSendRecv", i.buffer, t.size_bytes, &t.data)) return error;
      (i.direction == 0 ? sent : received).push_back(t);
    }
    return exchange(c, {kSendReceive, 0, 0, 0}, sent, received);
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
    return exchange(c, {kSendReceive, 0, 0, 0}, sends ? list{t} : list{}, sends ? list{} : list{t});
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
                      return reduced(c, call, to_others(c, from, size), from, to, count);
                    });
}

SIM_API int HcclReduce(void* in, void* out, uint64_t count, int dtype, int reduction, uint32_t root, void* handle,
                       void* stream) {
  const signature call{kReduce, dtype, reduction, root};
  return collective("HcclReduce", in, 1, out, 1, count, call, handle, stream,
                    [=](comm* c, char* from, char* to, uint64_t size) {
                      if (c->rank == root) return reduced(c, call, {}, from, to, count);
                      return exchange(c, call, {{root, from, size}}, {});
                    });
}

SIM_API int HcclBroadcast(void* buffer, uint64_t count, int dtype, uint32_t root, void* handle, void* stream) {
  const signature call{kBroadcast, dtype, 0, root};
  return collective("HcclBroadcast", buffer, 1, buffer, 1, count, call, handle, stream,
                    [=](comm* c, char* from, char* to, uint64_t size) {
                      if (c->rank == root) return exchange(c, call, to_others(c, from, size), {});
                      return exchange(c, call, {}, {{root, to, size}});
                    });
}

SIM_API int HcclAllGather(void* in, void* out, uint64_t count, int dtype, void* handle, void* stream) {
  comm* found = nullptr;
  if (const int error = find("HcclAllGather", handle, &found)) return error;
  const signature call{kAllGather, dtype, 0, 0};
  return collective("HcclAllGather", in, 1, out, found->ranks, count, call, handle, stream,
                    [=](comm* c, char* from, char* to, uint64_t size) {
                      std::memmove(to + c->rank * size, from, size);
                      return exchange(c, call, to_others(c, to + c->rank * size, size), to_others(c, to, size, size));
                    });
}

SIM_API int HcclReduceScatter(void* in, void* out, uint64_t count, int dtype, int reduction, void* handle,
                              void* stream) {
  comm* found = nullptr;
  if (const int error = find("HcclReduceScatter", handle, &found)) return error;
  const signature call{kReduceScatter, dtype, reduction, 0};
  return collective("HcclReduceScatter", in, found->ranks, out, 1, count, call, handle, stream,
                    [=](comm* c, char* from, char* to, uint64_t size) {
                      return reduced(c, call, to_others(c, from, size, size), from + c->rank * size, to, count);
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
    return exchange(c, {kAllToAll, in_dtype, 0, 0}, sent, received);
  });
}
