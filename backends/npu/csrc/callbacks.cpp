#include "callbacks.h"

#include <pthread.h>
#include <signal.h>

#include <mutex>
#include <set>
#include <thread>

#include "device.h"

namespace npu {
namespace {

constexpr int kBlock = 1; // what follows on the stream waits for the function
constexpr int32_t kPollMs = 1000;

// A thread for every stream that has had a function: one that blocks holds up no other stream. Threads live as long as the
// process. AscendCL knows them by this number.
uint64_t start_server(int32_t device) {
  sigset_t every, before;
  sigfillset(&every); // signals are the program's
  pthread_sigmask(SIG_SETMASK, &every, &before);
  std::thread server([device] {
    thread_bind(device);
    for (;;) acl.aclrtProcessReport(kPollMs); // runs one function, or fails because there was none
  });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  const auto id = static_cast<uint64_t>(server.native_handle());
  server.detach();
  return id;
}

std::mutex mutex; // guards subscribed
std::set<acl_stream>& subscribed() {
  static auto& all = *new std::set<acl_stream>;
  return all;
}

result subscribe(int32_t device, acl_stream stream) {
  const std::lock_guard<std::mutex> lock(mutex);
  if (subscribed().count(stream)) return {};
  result r = check(acl.aclrtSubscribeReport(start_server(device), stream), "aclrtSubscribeReport");
  if (r.ok()) subscribed().insert(stream);
  return r;
}

} // namespace

result launch_callback(int32_t device, acl_stream stream, void (*function)(void*), void* argument) {
  if (!acl.aclrtSubscribeReport || !acl.aclrtProcessReport || !acl.aclrtLaunchCallback)
    return failure(TB_STATUS_UNSUPPORTED, "this CANN has no aclrtLaunchCallback");
  if (result r = subscribe(device, stream); !r.ok()) return r;
  return check(acl.aclrtLaunchCallback(function, argument, kBlock, stream), "aclrtLaunchCallback");
}

} // namespace npu
