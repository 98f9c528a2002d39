// Ranks of collectives, in threads or processes of one machine, with a socket between each two: what the simulated
// libraries of collectives share, of which ATen has the dtypes. Each has its own calls and errors.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace sim {

// What the library's errors are, and its function that makes a communicator.
struct rank_errors {
  int parameter, usage, internal, timeout, remote;
  int outside; // of what the device can access
  const char* join;
};

// Each library defines it.
extern const rank_errors kRankErrors;

enum rank_call : uint32_t { kSendReceive, kAllReduce, kReduce, kBroadcast, kAllGather, kReduceScatter, kAllToAll };

// As NCCL and HCCL count them.
enum reduction : int32_t { kSum, kProduct, kGreatest, kLeast, kMean };

// What both ends of a message have to agree about.
struct signature {
  rank_call of;
  int32_t dtype = 0; // at::ScalarType
  int32_t how = kSum;
  uint32_t root = 0;
};

// What a rank sends to another one, or receives of it.
struct message {
  bool is_sent;
  uint32_t peer;
  const void* buffer;
  uint64_t size_bytes;
};

// One on its way, with an address that the host can use.
struct transfer {
  uint32_t peer;
  char* data;
  uint64_t size_bytes;
};

// One rank of a communicator. Functions return 0, or an error that refuse has been told.
class rank_group {
 public:
  // What finds memory of the device for a call; null if it cannot access it.
  using locator = char* (*)(int32_t device, const void* address, uint64_t size_bytes);

  rank_group(int32_t device, uint32_t ranks, uint32_t rank, locator locate);
  rank_group(const rank_group&) = delete;
  rank_group& operator=(const rank_group&) = delete;
  ~rank_group();

  const int32_t device;
  const uint32_t ranks, rank;

  // Waits for the others, which join under the same name.
  int join(const std::string& root);

  // Calls run in the order in which they took their tickets, on whatever streams. After one that fails all do, on the
  // other ranks too.
  uint64_t take_ticket();
  int run(const char* name, uint64_t ticket, const std::function<int()>& call);
  bool is_idle();
  // Of a call that has failed; 0.
  int error();
  // Calls that are pending fail, which is no reason to refuse anything.
  void abort();
  // For at most as long as ranks wait for each other.
  void wait_for_abort();

  // While a call runs. A count is of one rank's part.
  int exchange(const char* name, const signature& call, const std::vector<message>& messages);
  int collective(const char* name, const signature& call, const void* in, void* out, uint64_t count);

 private:
  struct conversation;
  int find(const char* name, const void* address, uint64_t size_bytes, char** out) const;
  int exchange(const signature& call, const std::vector<transfer>& sent, std::vector<transfer> received);
  int greet(int socket, bool first);
  int receive_some(conversation* c, const signature& call, uint32_t peer);
  int reduced(const signature& call, const std::vector<transfer>& sent, const char* own, char* out, uint64_t count);
  std::vector<transfer> with_others(char* data, uint64_t size, uint64_t step = 0) const;
  int lost(uint32_t peer);
  void hang_up();

  const locator locate_;
  std::vector<int> sockets_; // by rank; -1 of its own
  std::mutex mutex_;         // guards what follows
  std::condition_variable changed_;
  uint64_t next_ticket_ = 0, turn_ = 0;
  int failed_ = 0;
  bool aborted_ = false;
};

// ---- the process' communicators ----

using rank_group_ptr = std::shared_ptr<rank_group>; // calls that are pending have theirs

// Joins the others under the name. The communicator's handle.
int make_group(std::unique_ptr<rank_group> group, const std::string& root, void** out_handle);
int find_group(const char* name, void* handle, rank_group_ptr* out);
// Unless calls are pending.
int destroy_group(const char* name, void* handle);
int abort_group(const char* name, void* handle);
size_t live_groups();

} // namespace sim
