#include "crew.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>

#include "../options.h"
#include "../spin.h"

namespace xcpu::modules {
namespace {

// So many ranges for each thread that one which is held up holds up little.
constexpr uint64_t kRangesPerThread = 4;

struct job {
  const range_function run;
  const void* const of;
  const uint64_t count, step;
  std::atomic<uint64_t> next{0};

  void work() {
    for (uint64_t first; (first = next.fetch_add(step)) < count;) run(of, first, std::min(first + step, count));
  }
};

class crew {
 public:
  // False if it works for another call.
  bool work_on(uint64_t count, range_function run, const void* of) {
    if (taken_.exchange(true)) return false;
    const uint64_t threads = std::min<uint64_t>(count, settings().threads);
    job shared{run, of, count, std::max<uint64_t>(1, count / (threads * kRangesPerThread))};
    invite(&shared, static_cast<uint32_t>(threads) - 1);
    shared.work();
    wait_for_others();
    taken_ = false;
    return true;
  }

 private:
  using unique_lock = std::unique_lock<std::mutex>;

  // With the mutex held, or as a hint.
  bool can_join() const {
    return num_places_ > 0;
  }

  void invite(job* to, uint32_t num_places) {
    unique_lock lock(mutex_);
    start_threads();
    job_ = to;
    num_places_ = num_places;
    const bool wake = num_asleep_ > 0;
    lock.unlock();
    if (wake && num_places == 1) invited_.notify_one();
    if (wake && num_places > 1) invited_.notify_all();
  }

  void wait_for_others() {
    unique_lock lock(mutex_);
    num_places_ = 0;
    while (num_inside_ > 0) {
      lock.unlock();
      const bool done = spin_until([this] { return num_inside_ == 0; });
      lock.lock();
      if (!done && num_inside_ > 0) left_.wait(lock);
    }
  }

  // Once, with the mutex held. They are detached and end with the process.
  void start_threads() {
    if (started_) return;
    started_ = true;
    try {
      for (uint32_t i = 1; i < settings().threads; ++i) std::thread([this] { help(); }).detach();
    } catch (const std::system_error&) { // with fewer it takes longer
    }
  }

  void help() {
    unique_lock lock(mutex_);
    for (;;) {
      wait_for_place(lock);
      --num_places_;
      ++num_inside_;
      job& joined = *job_;
      lock.unlock();
      joined.work();
      lock.lock();
      if (--num_inside_ == 0) left_.notify_one();
    }
  }

  void wait_for_place(unique_lock& lock) {
    while (!can_join()) {
      lock.unlock();
      const bool found = spin_until([this] { return can_join(); });
      lock.lock();
      if (found || can_join()) continue;
      ++num_asleep_;
      invited_.wait(lock);
      --num_asleep_;
    }
  }

  std::atomic<bool> taken_{false};
  std::mutex mutex_; // guards all below
  std::condition_variable invited_, left_;
  job* job_ = nullptr;                                  // while there are places or threads inside
  std::atomic<uint32_t> num_places_{0}, num_inside_{0}; // for threads to join it, and those that have
  uint32_t num_asleep_ = 0;
  bool started_ = false;
};

} // namespace

void share_out(uint64_t count, range_function run, const void* of) {
  // Never destroyed: its threads may outlast static destruction.
  static crew& the_crew = *new crew;
  if (count < 2 || settings().threads < 2 || !the_crew.work_on(count, run, of)) run(of, 0, count);
}

} // namespace xcpu::modules
