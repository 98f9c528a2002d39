// Ranks of collectives, in threads or processes of one machine, with a socket between each two: what the simulated
// libraries of collectives share. Each has its own calls, dtypes and errors.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

namespace sim {

// What the library's errors are, and its function that makes a communicator.
struct rank_errors {
  int parameter, duplicate_device, internal, timeout, remote;
  const char* join;
};

// Each library defines it.
extern const rank_errors kRankErrors;

enum rank_call : uint32_t { kSendReceive, kAllReduce, kReduce, kBroadcast, kAllGather, kReduceScatter, kAllToAll };

// What both ends of a message have to agree about.
struct signature {
  uint32_t of; // rank_call
  int32_t dtype, reduction;
  uint32_t root;
};

struct transfer {
  uint32_t peer;
  char* data;
  uint64_t size_bytes;
};

// Folds the second into the first, which have the elements of a call.
using folding = std::function<void(char* to, const char* from)>;

// One rank of a communicator. Functions return 0, or an error that refuse has been told.
class rank_group {
 public:
  rank_group(int32_t device, uint32_t ranks, uint32_t rank);
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

  // While a call runs, with addresses that the host can use; sizes are of one rank's part.
  int exchange(const signature& call, const std::vector<transfer>& sent, std::vector<transfer> received);
  int all_reduce(const signature& call, char* in, char* out, uint64_t size, const folding& fold);
  int reduce(const signature& call, char* in, char* out, uint64_t size, const folding& fold);
  int broadcast(const signature& call, const char* in, char* out, uint64_t size);
  int all_gather(const signature& call, const char* in, char* out, uint64_t size);
  int reduce_scatter(const signature& call, char* in, char* out, uint64_t size, const folding& fold);

 private:
  struct conversation;
  int greet(int socket, bool first);
  int receive_some(conversation* c, const signature& call, uint32_t peer);
  int reduced(const signature& call, const std::vector<transfer>& sent, const char* own, char* out, uint64_t size,
              const folding& fold);
  std::vector<transfer> with_others(char* data, uint64_t size, uint64_t step = 0) const;
  int lost(uint32_t peer);
  void hang_up();

  std::vector<int> sockets_; // by rank; -1 of its own
  std::mutex mutex_;         // guards what follows
  std::condition_variable changed_;
  uint64_t next_ticket_ = 0, turn_ = 0;
  int failed_ = 0;
  bool aborted_ = false;
};

} // namespace sim
