#include "callbacks.h"

#include <pthread.h>
#include <signal.h>

#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>

#include "device.h"

namespace npu {
namespace {

constexpr int kBlock = 1; // what follows on the stream waits for the function
constexpr int32_t kPollMs = 1000;

// A thread for every stream that has had a function: one that blocks holds up no other stream. Threads live as long as the
// process.
class server {
 public:
  static void start(int32_t device, server** out_server) {
    auto* s = new server;
    sigset_t every, before;
    sigfillset(&every); // signals are the program's
    pthread_sigmask(SIG_SETMASK, &every, &before);
    std::thread([s, device] { s->run(device); }).detach();
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    *out_server = s;
  }

  uint64_t thread_id() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return id_ != 0; });
    return id_;
  }

 private:
  void run(int32_t device) {
    thread_bind(device);
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      id_ = static_cast<uint64_t>(pthread_self());
    }
    changed_.notify_all();
    for (;;) acl.aclrtProcessReport(kPollMs); // runs one function, or fails because there was none
  }

  std::mutex mutex_; // guards id_
  std::condition_variable changed_;
  uint64_t id_ = 0;
};

std::mutex mutex; // guards subscribed
std::map<acl_stream, server*>& subscribed() {
  static auto& all = *new std::map<acl_stream, server*>;
  return all;
}

result subscribe(int32_t device, acl_stream stream) {
  const std::lock_guard<std::mutex> lock(mutex);
  if (subscribed().count(stream)) return {};
  server* s = nullptr;
  server::start(device, &s);
  result r = check(acl.aclrtSubscribeReport(s->thread_id(), stream), "aclrtSubscribeReport");
  if (r.ok()) subscribed()[stream] = s;
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
