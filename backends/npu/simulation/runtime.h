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

#include "common/simulation/arena.h"
#include "common/simulation/rules.h"

#define SIM_API extern "C" __attribute__((visibility("default")))
#define SIM_SHARED __attribute__((visibility("default")))

namespace sim {

// ---- errors ----

constexpr int kOk = 0, kUninitialized = 100001, kRepeatedInitialize = 100002, kInvalid = 107000, kNoDevice = 107001,
              kNoContext = 107002, kWrongContext = 107003, kNoTime = 107006, kNoCallback = 107012,
              kOutOfMemory = 207001, kLost = 507010, kKernelFailed = 507015;

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
  int devices;     // ASCEND_SIM_DEVICES, 2
  uint64_t memory; // ASCEND_SIM_MEMORY_MIB, 2048, of each
};
SIM_SHARED const settings& config();

// ---- devices ----

// What aclrtMallocAlign32 promises.
constexpr uint64_t kAlignment = 64;

struct device {
  const int index;
  std::mutex mutex; // guards memory, streams, peers
  arena memory;
  std::vector<struct stream*> streams;
  std::map<int, bool> peers; // whose memory it may access
  std::atomic<bool> lost{false};

  device(int number, uint64_t size) : index(number), memory(size, kAlignment) {}
};

SIM_SHARED device* device_at(int index);
// The calling thread's; null if it has none.
SIM_SHARED device* current_device();
// Whether the library is initialized, the thread has a device, and that is alive; and no fault is wanted of `name`.
SIM_SHARED int enter(const char* name);
// Null unless the range lies in one live allocation of some device, or in memory that is mapped there; that device in
// *out_owner.
SIM_SHARED char* find_memory(const void* ptr, uint64_t size, device** out_owner = nullptr);
// Whether the address is in some device's range, allocated or not, or is reserved.
bool is_device_address(const void* ptr);
// The same for memory that is mapped, and for addresses that are reserved.
char* find_mapped(const void* ptr, uint64_t size, device** out_owner);
bool is_reserved(const void* ptr);
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
