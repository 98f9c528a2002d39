// The simulated AscendCL: what its parts share. Nothing here is Huawei's: it is written from notes on the functions,
// and refuses what these forbid.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#define SIM_API extern "C" __attribute__((visibility("default")))
#define SIM_SHARED __attribute__((visibility("default")))

namespace sim {

// ---- errors ----

constexpr int kOk = 0, kUninitialized = 100001, kRepeatedInitialize = 100002, kInvalid = 107000, kNoDevice = 107001,
              kNoContext = 107002, kWrongContext = 107003, kNoTime = 107006, kNoCallback = 107012,
              kOutOfMemory = 207001, kLost = 507010, kKernelFailed = 507015;

// Keeps the text for aclGetRecentErrMsg, and writes it to the file that ASCEND_SIM_LOG names. Returns the code.
SIM_SHARED int refuse(int code, const char* format, ...) __attribute__((format(printf, 2, 3)));

// Of a library at its end: refuses what the program has not given back.
struct leftovers {
  const char* what;
  size_t (*count)();
  ~leftovers() {
    if (const size_t left = count()) refuse(kInvalid, "%zu %s are left at the end", left, what);
  }
};

// ---- settings ----

struct settings {
  int devices;      // ASCEND_SIM_DEVICES, 2
  uint64_t memory;  // ASCEND_SIM_MEMORY_MIB, 2048, of each
  int delay_low_us; // ASCEND_SIM_DELAY_US, "low-high": before each command
  int delay_high_us;
};
SIM_SHARED const settings& config();

// The error that ASCEND_SIM_FAIL wants of this call of `name`: "aclrtMallocAlign32=207001,task:7=507015": of every call, or
// of the seventh. 0 if none. "task" are commands on streams.
SIM_SHARED int injected_fault(const char* name);

// ---- devices ----

// Memory has two addresses: one that the program is given and that nobody can load from or store to, and one that commands
// use.
struct device {
  int index = 0;
  char* base = nullptr;  // what the program sees
  char* alias = nullptr; // what commands use
  uint64_t size = 0;
  std::mutex mutex;                         // guards allocations, used, streams
  std::map<uint64_t, uint64_t> allocations; // size by offset
  uint64_t used = 0;
  std::vector<struct stream*> streams;
  std::map<int, bool> peers; // whose memory it may access
  std::atomic<bool> lost{false};
};

SIM_SHARED device* device_at(int index);
// The calling thread's; null if it has none.
SIM_SHARED device* current_device();
// Whether the library is initialized, the thread has a device, and that is alive; and no fault is wanted of `name`.
SIM_SHARED int enter(const char* name);
// Null unless the range lies in one live allocation of some device; that device in *out_owner.
SIM_SHARED char* find_memory(const void* ptr, uint64_t size, device** out_owner = nullptr);
// Whether the address is in some device's range, allocated or not.
bool is_device_address(const void* ptr);
bool is_page_locked(const void* ptr, uint64_t size);

// ---- streams and events ----

using command = std::function<int()>; // returns an error code

struct stream {
  device* owner = nullptr;
  std::mutex mutex; // guards all below
  std::condition_variable changed;
  std::deque<command> commands;
  bool busy = false;
  bool started = false;
  bool destroyed = false;
  int error = 0; // of a command, not told yet
  uint64_t callback_thread = 0;
};

// The stream of the handle, NULL being the default stream; refuses one of another device than the thread's.
SIM_SHARED int find_stream(const char* name, void* handle, stream** out_stream);
SIM_SHARED void enqueue(stream* s, command c);
// Until all is complete. Tells of a failure once.
int wait_for(stream* s);

} // namespace sim
