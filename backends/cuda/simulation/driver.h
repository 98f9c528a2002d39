// The simulated CUDA driver: what its parts share. The types and numbers are those of the plugin, which a test compares
// with cuda.h. Objects are deleted late or never, so that handles that are not valid any more are known.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "../csrc/cu.h"
#include "common/simulation/arena.h"
#include "common/simulation/completion.h"
#include "common/simulation/rules.h"
#include "common/worker.h"

#define CU_API extern "C" __attribute__((visibility("default"))) int
#define SIM_SHARED __attribute__((visibility("default"))) // what the simulated NCCL uses

namespace sim {

using namespace xcuda;

// Those that the plugin does nothing about.
constexpr int kInvalidContext = 201, kIllegalState = 401, kNotPermitted = 800, kInvalidated = 901, kMerge = 902,
              kUnmatched = 903, kUnjoined = 904, kIsolation = 905, kImplicit = 906, kCapturedEvent = 907;

// ---- live handles ----

template <typename T>
class registry {
 public:
  T* add(T* made) {
    const std::lock_guard<std::mutex> lock(mutex_);
    live_.insert(made);
    return made;
  }
  bool has(T* handle) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return live_.count(handle) != 0;
  }
  bool remove(T* handle) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return live_.erase(handle) != 0;
  }
  // Likewise, and deletes it when many others have followed.
  bool retire(T* handle) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (live_.erase(handle) == 0) return false;
    retired_.emplace_back(handle);
    if (retired_.size() > 256) retired_.pop_front();
    return true;
  }
  static registry& all() {
    static auto& the = *new registry;
    return the;
  }

 private:
  std::mutex mutex_; // guards all below
  std::set<T*> live_;
  std::deque<std::unique_ptr<T>> retired_;
};

template <typename T>
T* make() {
  return registry<T>::all().add(new T);
}

// ---- captures ----

// What a profiler is told of a command.
struct traced_work {
  enum kind_of { kNothing, kKernel, kCopy, kFill } kind = kNothing;
  std::string name;
  uint64_t bytes = 0;
  int from = 0, to = 0; // CUPTI's kinds of memory
  bool to_peer = false;
};

// A command of a stream. Returns an error code: the context is lost then, and runs no others but those that do `always`.
struct command {
  std::function<int()> run;
  bool always = false;
  traced_work work = {};
};

// Who records what is done: the simulated CUPTI, while it does.
struct tracer {
  virtual ~tracer() = default;
  // A call that enqueues something. Its number.
  virtual uint32_t called(const char* name) = 0;
  // In nanoseconds of CLOCK_MONOTONIC.
  virtual void done(const traced_work& work, CUstream stream, uint32_t call, uint64_t start, uint64_t end) = 0;
};
SIM_SHARED extern std::atomic<tracer*> the_tracer;

// How many commands of each stream come before a point of a capture.
using reach = std::map<CUstream, size_t>;

struct capture {
  CUstream origin = nullptr;
  int mode = 0;
  std::thread::id thread;
  bool invalid = false;
  std::vector<command> commands;
  std::map<CUstream, reach> members;
};

// Guards all of captures.
SIM_SHARED std::mutex& capture_mutex();
std::vector<std::shared_ptr<capture>>& captures(); // active

// 0 unless a capture forbids calls like cuMemAlloc on this thread.
SIM_SHARED int refuse_unsafe(const char* name);

} // namespace sim

// Of a device's memory, allocated and freed in the order of streams. The context's mutex guards it.
struct CUmemPoolHandle_st {
  struct piece {
    size_t size = 0;
    sim::CUstream freed_on = nullptr; // of a free that the stream has not come to
    bool is_there = false, is_freed = false;
  };
  int device = 0;
  std::set<int> others;                     // devices that may access it
  std::map<sim::CUdeviceptr, piece> pieces; // by address
  uint64_t unused = 0;                      // kept until somebody waits for a stream or an event

  piece* find(sim::CUdeviceptr address) {
    auto next = pieces.upper_bound(address);
    if (next == pieces.begin()) return nullptr;
    --next;
    return address < next->first + next->second.size ? &next->second : nullptr;
  }
};

struct CUctx_st {
  int device = 0;
  std::atomic<int> error{0}; // sticks
  std::mutex mutex;          // guards streams, peers, arena, pool
  std::vector<sim::CUstream> streams;
  std::set<int> peers; // whose memory it may access
  std::unique_ptr<sim::arena> memory;
  CUmemPoolHandle_st pool;

  void fail(int code) {
    int none = 0;
    error.compare_exchange_strong(none, code);
  }
};

struct CUstream_st {
  sim::CUcontext context = nullptr;
  bool blocking = false; // waits for the default stream, and the other way round
  std::mutex mutex;      // guards pending, commands
  std::condition_variable changed;
  uint64_t pending = 0, commands = 0;
  std::shared_ptr<sim::capture> capturing; // guarded by capture_mutex
  std::unique_ptr<plugin::worker> worker{new plugin::worker};
};

struct CUevent_st {
  sim::CUcontext context = nullptr;
  unsigned flags = 0;
  std::mutex mutex; // guards all below
  std::shared_ptr<sim::completion> last;
  std::shared_ptr<sim::capture> captured;
  sim::reach at;
};

struct CUgraph_st {
  std::shared_ptr<std::vector<sim::command>> commands;
};

struct CUgraphExec_st {
  std::shared_ptr<std::vector<sim::command>> commands;
  std::mutex mutex; // guards last
  std::shared_ptr<sim::completion> last;
};

namespace sim {

// ---- the way in ----

// Whether the driver has been started in this process, and may be called here: not by a host function.
int enter_free(const char* name);
// Moreover, whether the thread has a context, which is *out_context, and whether that has no error; and no fault is wanted
// of `name`.
SIM_SHARED int enter(const char* name, CUcontext* out_context);

extern thread_local bool in_host_function;

int device_count();
SIM_SHARED CUcontext context_of(int device);

// The stream of the handle, NULL being the context's default stream.
SIM_SHARED int find_stream(const char* name, CUstream handle, CUcontext context, CUstream* out_stream);
// Both.
int enter(const char* name, CUstream handle, CUstream* out_stream);
// Into the stream or into its capture.
SIM_SHARED int enqueue(const char* name, CUstream stream, command c);
// On the stream's thread: what a command does, which a profiler may be told of.
int run_traced(command& c, CUstream stream);
// Until all is complete. The context's error.
int wait_for(CUstream stream);

// Of its context.
SIM_SHARED uint32_t number_of(CUstream stream);

constexpr unsigned kSharedBytes = 48 << 10; // of a block

// ---- memory ----

// Where a range is that a command on `context` may use; null if it may not. Host memory that is page-locked is itself.
SIM_SHARED char* resolve(CUdeviceptr address, size_t bytes, CUcontext context);
bool is_device_memory(CUdeviceptr address);

// What is mapped at an address that cuMemAddressReserve gave.
struct mapped_memory {
  bool is_reserved = false;  // whether it is such an address at all
  CUcontext owner = nullptr; // whose memory is mapped there; null if none is
  CUdeviceptr base = 0;      // of the mapping
  uint64_t size = 0;
  char* alias = nullptr; // of all bytes that were asked for, if `reader` may access them
};
mapped_memory find_mapped(CUdeviceptr address, size_t bytes, int reader);

// Whoever waits for a stream or an event has the pool give back what nobody uses.
void trim_pool(CUcontext context);

// A word that a stream waits for, or will: its memory may not go.
struct awaited_word {
  const CUdeviceptr address;
  explicit awaited_word(CUdeviceptr word);
  awaited_word(const awaited_word&) = delete;
  awaited_word& operator=(const awaited_word&) = delete;
  ~awaited_word();
};

} // namespace sim
