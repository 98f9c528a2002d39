#include "queue.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <thread>
#include <utility>

#include "options.h"
#include "spin.h"

namespace xcpu {
namespace {

result run_guarded(const queue::work& work) {
  try {
    return work();
  } catch (const std::exception& e) {
    return failure(TB_STATUS_INTERNAL, "asynchronous work: %s", e.what());
  }
}

} // namespace

std::shared_ptr<queue> queue::start(uint32_t seed) {
  std::shared_ptr<queue> q(new queue(seed));
  std::thread([q] { q->run_worker(); }).detach();
  return q;
}

uint64_t queue::push(work next) {
  unique_lock lock(mutex_);
  waiting_.push_back(std::move(next));
  const uint64_t place = ++num_pushed_;
  leave_to_worker(lock);
  return place;
}

uint64_t queue::push_brief(work next) {
  // Injected delays are there to show what happens when work is done late.
  if (settings().delay.high_us != 0) return push(std::move(next));
  unique_lock lock(mutex_);
  if (num_completed_ != num_pushed_) {
    lock.unlock();
    return push(std::move(next));
  }
  const uint64_t place = ++num_pushed_;
  run(std::move(next), lock);
  leave_to_worker(lock);
  return place;
}

void queue::close() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    closed_ = true;
  }
  pushed_.notify_one();
}

void queue::wait(uint64_t place) {
  unique_lock lock(mutex_);
  wait(place, lock);
  leave_to_worker(lock);
}

result queue::synchronize() {
  unique_lock lock(mutex_);
  wait(num_pushed_, lock);
  result r = take_failure();
  leave_to_worker(lock);
  return r;
}

result queue::query() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (num_completed_ != num_pushed_) return {TB_STATUS_NOT_READY, ""};
  return take_failure();
}

std::shared_ptr<pending_failure> queue::last_failure() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return failure_;
}

void queue::run_worker() {
  unique_lock lock(mutex_);
  while (wait_for_work(lock)) run_next(lock);
}

// False if none will come any more.
bool queue::wait_for_work(unique_lock& lock) {
  while (!can_run()) {
    if (closed_ && waiting_.empty()) return false;
    lock.unlock();
    const bool found = spin_until([this] { return can_run(); });
    lock.lock();
    if (found || can_run() || (closed_ && waiting_.empty())) continue;
    worker_sleeps_ = true;
    pushed_.wait(lock);
    worker_sleeps_ = false;
  }
  return true;
}

// The end of every use by another thread. The worker takes up what nobody runs.
void queue::leave_to_worker(unique_lock& lock) {
  const bool wake = can_run() && std::exchange(worker_sleeps_, false);
  lock.unlock();
  if (wake) pushed_.notify_one();
}

void queue::wait(uint64_t place, unique_lock& lock) {
  while (num_completed_ < place) {
    if (can_run()) {
      run_next(lock);
      continue;
    }
    lock.unlock();
    const bool changed = spin_until([&] { return num_completed_ >= place || can_run(); });
    lock.lock();
    if (changed || num_completed_ >= place || can_run()) continue;
    wake_at_ = std::min(wake_at_, place);
    completed_.wait(lock);
  }
}

void queue::run_next(unique_lock& lock) {
  work what = std::move(waiting_.front());
  waiting_.pop_front();
  run(std::move(what), lock);
}

void queue::run(work what, unique_lock& lock) {
  running_ = true;
  lock.unlock();
  delay();
  result outcome = run_guarded(what);
  what = nullptr; // what the work holds is released before anybody is told that it is done
  lock.lock();
  complete(std::move(outcome), lock);
}

void queue::complete(result outcome, unique_lock& lock) {
  if (!outcome.ok() && (!failure_ || failure_->reported()))
    failure_ = std::make_shared<pending_failure>(std::move(outcome));
  ++num_completed_;
  running_ = false;
  if (num_completed_ < wake_at_) return;
  wake_at_ = UINT64_MAX;
  lock.unlock(); // or who is woken would wait for it
  completed_.notify_all();
  lock.lock();
}

void queue::delay() {
  const delay_range range = settings().delay;
  if (range.high_us == 0) return;
  const uint64_t us = range.low_us + random_() % (range.high_us - range.low_us + 1);
  std::this_thread::sleep_for(std::chrono::microseconds(us));
}

// With mutex_ held.
result queue::take_failure() {
  return failure_ ? failure_->take() : result();
}

} // namespace xcpu
