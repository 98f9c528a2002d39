#include "queue.h"

#include <chrono>
#include <exception>
#include <thread>

#include "options.h"

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
  std::thread([q] { q->run(); }).detach();
  return q;
}

void queue::push(work next) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    waiting_.push_back(std::move(next));
    ++num_pushed_;
  }
  pushed_.notify_one();
}

void queue::close() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    closed_ = true;
  }
  pushed_.notify_one();
}

result queue::synchronize() {
  std::unique_lock<std::mutex> lock(mutex_);
  const uint64_t target = num_pushed_;
  completed_.wait(lock, [&] { return num_completed_ >= target; });
  return take_failure();
}

result queue::query() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (num_completed_ < num_pushed_) return {TB_STATUS_NOT_READY, ""};
  return take_failure();
}

std::shared_ptr<pending_failure> queue::last_failure() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return failure_;
}

void queue::run() {
  for (;;) {
    work w;
    if (!next(&w)) return;
    delay();
    result outcome = run_guarded(w);
    w = nullptr; // what the work holds is released before anybody is told that it is done
    complete(std::move(outcome));
  }
}

// Blocks until there is work; false if none will come any more.
bool queue::next(work* out_work) {
  std::unique_lock<std::mutex> lock(mutex_);
  pushed_.wait(lock, [&] { return closed_ || !waiting_.empty(); });
  if (waiting_.empty()) return false;
  *out_work = std::move(waiting_.front());
  waiting_.pop_front();
  return true;
}

void queue::complete(result outcome) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++num_completed_;
    if (!outcome.ok() && (!failure_ || failure_->reported()))
      failure_ = std::make_shared<pending_failure>(std::move(outcome));
  }
  completed_.notify_all();
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
