#include "worker.h"

#include <pthread.h>
#include <signal.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

namespace plugin {

struct worker::state {
  std::mutex mutex; // guards all below
  std::condition_variable changed;
  std::deque<work> waiting;
  bool started = false, closed = false;

  void run() {
    std::unique_lock<std::mutex> lock(mutex);
    for (;;) {
      changed.wait(lock, [this] { return closed || !waiting.empty(); });
      if (waiting.empty()) return;
      work next = std::move(waiting.front());
      waiting.pop_front();
      lock.unlock();
      next();
      next = nullptr; // may own the worker
      lock.lock();
    }
  }
};

namespace {

// Signals are the program's: its threads get them.
template <typename Function>
void start_thread(Function function) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    std::thread(std::move(function)).detach();
  } catch (...) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

} // namespace

worker::worker() : state_(std::make_shared<state>()) {}

worker::~worker() {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  state_->closed = true;
  state_->changed.notify_one();
}

void worker::push(work w) {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  if (!state_->started) start_thread([s = state_] { s->run(); });
  state_->started = true;
  state_->waiting.push_back(std::move(w));
  state_->changed.notify_one();
}

} // namespace plugin
