#include "ranks.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <ATen/Dispatch_v2.h>
#include <ATen/OpMathType.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <deque>
#include <map>
#include <thread>

#include "rules.h"

namespace sim {
namespace {

using clock = std::chrono::steady_clock;

clock::time_point deadline() {
  return clock::now() + std::chrono::seconds(setting("RANK_TIMEOUT_S", 60));
}

// Before each message, and, with no bytes, to tell that one has come: a call ends when its messages were received.
struct frame {
  signature call;
  uint64_t size_bytes;
  uint64_t is_answer;
};

struct greeting {
  uint32_t ranks, rank;
  int32_t device;
};

sockaddr_un address(const std::string& name, socklen_t* out_size) {
  sockaddr_un a{};
  a.sun_family = AF_UNIX;
  std::memcpy(a.sun_path + 1, name.data(), name.size()); // abstract: no file, gone with its process
  *out_size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return a;
}

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

void append(std::vector<char>* out, const frame& f, const char* data) {
  const auto* bytes = reinterpret_cast<const char*>(&f);
  out->insert(out->end(), bytes, bytes + sizeof f);
  if (data) out->insert(out->end(), data, data + f.size_bytes);
}

} // namespace

// What one rank sends and receives in a call, with one other one.
struct rank_group::conversation {
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
  // False when the other rank is gone.
  bool send_some() {
    const ssize_t n = send(socket, out.data() + out_at, out.size() - out_at, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n > 0) out_at += static_cast<size_t>(n);
    return n >= 0 || errno == EAGAIN;
  }
};

rank_group::rank_group(int32_t own_device, uint32_t count, uint32_t number, locator locate)
    : device(own_device), ranks(count), rank(number), locate_(locate), sockets_(count, -1) {}

rank_group::~rank_group() {
  for (const int socket : sockets_)
    if (socket >= 0) close(socket);
}

// ---- joining ----

int rank_group::greet(int socket, bool first) {
  greeting own{ranks, rank, device}, other{};
  const bool told = first ? send_all(socket, &own, sizeof own) && receive_all(socket, &other, sizeof other)
                          : receive_all(socket, &other, sizeof other) && send_all(socket, &own, sizeof own);
  if (!told) return refuse(kRankErrors.internal, "%s: another rank has left", kRankErrors.join);
  if (other.ranks != ranks || other.rank >= ranks || sockets_[other.rank] >= 0)
    return refuse(kRankErrors.parameter, "%s: rank %u of %u meets rank %u of %u", kRankErrors.join, rank, ranks,
                  other.rank, other.ranks);
  if (other.device == device)
    return refuse(kRankErrors.usage, "%s: ranks %u and %u have the same device %d", kRankErrors.join, rank, other.rank,
                  device);
  sockets_[other.rank] = socket;
  return 0;
}

// Each rank connects to those before it.
int rank_group::join(const std::string& root) {
  const auto until = deadline();
  const int own = listen_as(root + "-" + std::to_string(rank));
  if (own < 0) return refuse(kRankErrors.parameter, "%s: rank %u is taken", kRankErrors.join, rank);
  int error = 0;
  for (uint32_t other = 0; other < rank && !error; ++other) {
    const int s = connect_to(root + "-" + std::to_string(other), until);
    error = s < 0 ? refuse(kRankErrors.timeout, "%s: rank %u does not come", kRankErrors.join, other) : greet(s, true);
  }
  for (uint32_t other = rank + 1; other < ranks && !error; ++other) {
    pollfd waiting{own, POLLIN, 0};
    const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(until - clock::now()).count();
    if (poll(&waiting, 1, static_cast<int>(std::max<int64_t>(ms, 0))) <= 0)
      error = refuse(kRankErrors.timeout, "%s: not all ranks come", kRankErrors.join);
    else
      error = greet(accept4(own, nullptr, nullptr, SOCK_CLOEXEC), false);
  }
  close(own);
  return error;
}

// ---- calls in turn ----

uint64_t rank_group::take_ticket() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return next_ticket_++;
}

int rank_group::run(const char* name, uint64_t ticket, const std::function<int()>& call) {
  bool aborted = false;
  {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return turn_ == ticket; });
    aborted = aborted_;
  }
  int error = aborted         ? kRankErrors.remote
              : this->error() ? refuse(this->error(), "%s: the communicator has failed before", name)
                              : call();
  const std::lock_guard<std::mutex> lock(mutex_);
  if (error && !failed_) {
    failed_ = error;
    hang_up();
  }
  ++turn_;
  changed_.notify_all();
  return error;
}

bool rank_group::is_idle() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return turn_ == next_ticket_;
}

int rank_group::error() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return failed_;
}

void rank_group::abort() {
  const std::lock_guard<std::mutex> lock(mutex_);
  aborted_ = true;
  hang_up();
  changed_.notify_all();
}

void rank_group::wait_for_abort() {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait_until(lock, deadline(), [this] { return aborted_; });
}

// The others notice.
void rank_group::hang_up() {
  for (const int socket : sockets_)
    if (socket >= 0) shutdown(socket, SHUT_RDWR);
}

// ---- exchanging ----

int rank_group::lost(uint32_t peer) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (aborted_) return kRankErrors.remote;
  }
  return refuse(kRankErrors.remote, "rank %u has left", peer);
}

int rank_group::receive_some(conversation* c, const signature& call, uint32_t peer) {
  const bool in_data = c->head_at == sizeof c->head;
  char* to = in_data ? c->in.front().data + c->data_at : reinterpret_cast<char*>(&c->head) + c->head_at;
  const size_t want = in_data ? c->head.size_bytes - c->data_at : sizeof c->head - c->head_at;
  const ssize_t n = want ? recv(c->socket, to, want, MSG_DONTWAIT) : 0;
  if (n < 0 && errno == EAGAIN) return 0;
  if (n < 0 || (n == 0 && want)) return lost(peer);
  (in_data ? c->data_at : c->head_at) += static_cast<size_t>(n);
  if (c->head_at < sizeof c->head) return 0;
  if (c->head.is_answer) {
    --c->answers;
    c->head_at = 0;
    return 0;
  }
  if (c->in.empty() || c->head.size_bytes != c->in.front().size_bytes ||
      std::memcmp(&c->head.call, &call, sizeof call) != 0)
    return refuse(kRankErrors.parameter, "rank %u makes another call, or with another count, dtype, reduction or root",
                  peer);
  if (c->data_at < c->head.size_bytes) return 0;
  append(&c->out, {call, 0, 1}, nullptr);
  c->in.pop_front();
  c->head_at = c->data_at = 0;
  return 0;
}

int rank_group::find(const char* name, const void* address, uint64_t size_bytes, char** out) const {
  *out = locate_(device, address, size_bytes);
  return *out ? 0
              : refuse(kRankErrors.outside, "%s: %lu bytes that the device cannot access", name,
                       static_cast<unsigned long>(size_bytes));
}

int rank_group::exchange(const char* name, const signature& call, const std::vector<message>& messages) {
  std::vector<transfer> sent, received;
  for (const message& m : messages) {
    transfer t{m.peer, nullptr, m.size_bytes};
    if (const int error = find(name, m.buffer, m.size_bytes, &t.data)) return error;
    (m.is_sent ? sent : received).push_back(t);
  }
  return exchange(call, sent, received);
}

// Sends and receives all at once. A message to itself is copied.
int rank_group::exchange(const signature& call, const std::vector<transfer>& sent, std::vector<transfer> received) {
  std::vector<conversation> with(ranks);
  for (uint32_t other = 0; other < ranks; ++other) with[other].socket = sockets_[other];
  for (const transfer& t : received) with[t.peer].in.push_back(t);
  for (const transfer& t : sent) {
    if (t.peer == rank) {
      if (with[t.peer].in.empty() || with[t.peer].in.front().size_bytes != t.size_bytes)
        return refuse(kRankErrors.parameter, "a message to itself that is not received");
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
    for (uint32_t other = 0; other < ranks; ++other) {
      const conversation& w = with[other];
      if (other == rank || w.is_over()) continue;
      const bool reads = !w.in.empty() || w.answers > 0, writes = w.out_at < w.out.size();
      waiting.push_back({w.socket, static_cast<short>((reads ? POLLIN : 0) | (writes ? POLLOUT : 0)), 0});
      peers.push_back(other);
    }
    if (waiting.empty()) return 0;
    if (clock::now() > until) return refuse(kRankErrors.timeout, "rank %u does not come", peers.front());
    poll(waiting.data(), waiting.size(), 100);
    for (size_t i = 0; i < waiting.size(); ++i) {
      if (waiting[i].revents & POLLOUT && !with[peers[i]].send_some()) return lost(peers[i]);
      if (waiting[i].revents & (POLLIN | POLLHUP | POLLERR))
        if (const int error = receive_some(&with[peers[i]], call, peers[i])) return error;
    }
  }
}

// ---- collectives ----

namespace {

template <typename T>
T fold(T x, T y, int32_t how) {
  return how == kProduct ? x * y : how == kGreatest ? std::max(x, y) : how == kLeast ? std::min(x, y) : x + y;
}

at::ScalarType dtype_of(const signature& call) {
  return static_cast<at::ScalarType>(call.dtype);
}

// In the order of ranks, so that all get the same.
void fold_all(const signature& call, const std::vector<std::vector<char>>& parts, char* out, uint64_t count) {
  AT_DISPATCH_V2(dtype_of(call), "fold", AT_WRAP([&] {
                   using wide = at::opmath_type<scalar_t>;
                   const auto element = [&](size_t part, uint64_t i) {
                     return static_cast<wide>(reinterpret_cast<const scalar_t*>(parts[part].data())[i]);
                   };
                   for (uint64_t i = 0; i < count; ++i) {
                     wide folded = element(0, i);
                     for (size_t part = 1; part < parts.size(); ++part)
                       folded = fold<wide>(folded, element(part, i), call.how);
                     if (call.how == kMean) folded /= static_cast<wide>(parts.size());
                     const auto result = static_cast<scalar_t>(folded);
                     std::memcpy(out + i * sizeof result, &result, sizeof result);
                   }
                 }),
                 AT_EXPAND(AT_ALL_TYPES), AT_EXPAND(AT_BAREBONES_UNSIGNED_TYPES), at::kHalf, at::kBFloat16);
}

} // namespace

// `step` apart.
std::vector<transfer> rank_group::with_others(char* data, uint64_t size, uint64_t step) const {
  std::vector<transfer> all;
  for (uint32_t other = 0; other < ranks; ++other)
    if (other != rank) all.push_back({other, data + other * step, size});
  return all;
}

int rank_group::reduced(const signature& call, const std::vector<transfer>& sent, const char* own, char* out,
                        uint64_t count) {
  const uint64_t size = count * at::elementSize(dtype_of(call));
  std::vector<std::vector<char>> parts(ranks, std::vector<char>(size));
  std::vector<transfer> received;
  for (uint32_t other = 0; other < ranks; ++other)
    if (other != rank) received.push_back({other, parts[other].data(), size});
  std::memcpy(parts[rank].data(), own, size);
  if (const int error = exchange(call, sent, received)) return error;
  fold_all(call, parts, out, count);
  return 0;
}

// Of the root's buffers and the others' only those are used that the collective needs.
int rank_group::collective(const char* name, const signature& call, const void* in, void* out, uint64_t count) {
  const uint64_t size = count * at::elementSize(dtype_of(call));
  const bool is_root = rank == call.root;
  const uint64_t in_parts = call.of == kReduceScatter ? ranks : call.of != kBroadcast || is_root,
                 out_parts = call.of == kAllGather ? ranks : call.of != kReduce || is_root;
  char *from = nullptr, *to = nullptr;
  if (const int error = in_parts ? find(name, in, size * in_parts, &from) : 0) return error;
  if (const int error = out_parts ? find(name, out, size * out_parts, &to) : 0) return error;
  switch (call.of) {
    case kReduce:
      return is_root ? reduced(call, {}, from, to, count) : exchange(call, {{call.root, from, size}}, {});
    case kBroadcast:
      if (!is_root) return exchange(call, {}, {{call.root, to, size}});
      std::memmove(to, from, size);
      return exchange(call, with_others(to, size), {});
    case kAllGather:
      std::memmove(to + rank * size, from, size);
      return exchange(call, with_others(to + rank * size, size), with_others(to, size, size));
    case kReduceScatter:
      return reduced(call, with_others(from, size, size), from + rank * size, to, count);
    default: // kAllReduce
      return reduced(call, with_others(from, size), from, to, count);
  }
}

// ---- the process' communicators ----

namespace {

std::mutex groups_mutex; // guards groups
std::map<void*, rank_group_ptr>& groups() {
  static auto& all = *new std::map<void*, rank_group_ptr>;
  return all;
}

void forget(void* handle) {
  const std::lock_guard<std::mutex> lock(groups_mutex);
  groups().erase(handle);
}

} // namespace

int make_group(std::unique_ptr<rank_group> group, const std::string& root, void** out_handle) {
  if (const int error = group->join(root)) return error;
  const std::lock_guard<std::mutex> lock(groups_mutex);
  *out_handle = group.get();
  groups()[*out_handle] = std::move(group);
  return 0;
}

int find_group(const char* name, void* handle, rank_group_ptr* out) {
  const std::lock_guard<std::mutex> lock(groups_mutex);
  const auto found = groups().find(handle);
  if (found == groups().end()) return refuse(kRankErrors.parameter, "%s: not a communicator", name);
  *out = found->second;
  return 0;
}

int destroy_group(const char* name, void* handle) {
  rank_group_ptr group;
  if (const int error = find_group(name, handle, &group)) return error;
  if (!group->is_idle()) return refuse(kRankErrors.usage, "%s: calls are pending", name);
  forget(handle);
  return 0;
}

int abort_group(const char* name, void* handle) {
  rank_group_ptr group;
  if (const int error = find_group(name, handle, &group)) return error;
  group->abort();
  forget(handle);
  return 0;
}

size_t live_groups() {
  const std::lock_guard<std::mutex> lock(groups_mutex);
  return groups().size();
}

} // namespace sim
