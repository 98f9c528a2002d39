#include "group.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <vector>

#include "../graph.h"
#include "../options.h"
#include "../stream.h"

namespace xcpu::ccl {
namespace {

struct placed_call {
  call what;
  std::shared_ptr<queue> on; // null if the device is synchronous
  result fault;              // the call fails with it when it runs
};

// Calls of which each has a communicator or a stream in common with another one: they run as one batch.
struct cluster {
  std::vector<placed_call> calls;
  std::vector<std::shared_ptr<queue>> queues;

  bool touches(const placed_call& c) const {
    return std::any_of(calls.begin(), calls.end(),
                       [&](const placed_call& o) { return o.what.comm == c.what.comm || o.on == c.on; });
  }
};

struct open_group {
  int depth = 0;
  std::vector<placed_call> calls;
  std::vector<std::shared_ptr<communicator>> joining;
};
thread_local open_group current;

// Held while the place of calls among all others is settled: tickets and streams in one order.
std::mutex& submission() {
  static std::mutex& m = *new std::mutex;
  return m;
}

// A batch on several streams: the last one to come to it runs it, and the others wait for that.
class shared_run {
 public:
  shared_run(std::shared_ptr<batch> what, size_t num_streams) : what_(std::move(what)), missing_(num_streams) {}

  result arrive() {
    std::unique_lock<std::mutex> lock(mutex_);
    if (--missing_ == 0) {
      lock.unlock();
      result r = what_->run();
      lock.lock();
      outcome_ = std::move(r);
      done_ = true;
      completed_.notify_all();
    } else {
      completed_.wait(lock, [this] { return done_; });
    }
    return outcome_;
  }

 private:
  const std::shared_ptr<batch> what_;
  std::mutex mutex_; // guards all below; not held while the batch runs
  std::condition_variable completed_;
  size_t missing_;
  bool done_ = false;
  result outcome_;
};

result place(call next, placed_call* out_call) {
  result fault = injected_fault(next.which, next.comm->device());
  if (fault.status == TB_STATUS_UNSUPPORTED) return fault;
  result r = next.comm->own_failure();
  if (r.ok() && settings().async) r = find_queue(next.comm->device(), next.stream, &out_call->on);
  if (r.ok() && out_call->on) r = refuse_captured(next.which, *out_call->on);
  if (!r.ok()) return r;
  out_call->what = std::move(next);
  out_call->fault = std::move(fault);
  return {};
}

std::vector<cluster> find_clusters(std::vector<placed_call> calls) {
  std::vector<cluster> found;
  for (placed_call& c : calls) {
    cluster merged;
    const auto others =
        std::stable_partition(found.begin(), found.end(), [&](const cluster& k) { return !k.touches(c); });
    for (auto k = others; k != found.end(); ++k)
      std::move(k->calls.begin(), k->calls.end(), std::back_inserter(merged.calls));
    found.erase(others, found.end());
    merged.calls.push_back(std::move(c));
    found.push_back(std::move(merged));
  }
  for (cluster& k : found)
    for (const placed_call& c : k.calls)
      if (c.on && std::find(k.queues.begin(), k.queues.end(), c.on) == k.queues.end()) k.queues.push_back(c.on);
  return found;
}

std::shared_ptr<batch> make_batch(const cluster& k) {
  auto made = std::make_shared<batch>();
  for (const placed_call& c : k.calls) {
    c.what.add(*made);
    if (!c.fault.ok()) made->fail_with(c.fault);
  }
  return made;
}

void enqueue(const std::shared_ptr<batch>& work, const std::vector<std::shared_ptr<queue>>& queues) {
  if (queues.size() == 1) {
    queues.front()->push([work] { return work->run(); });
    return;
  }
  const auto shared = std::make_shared<shared_run>(work, queues.size());
  for (const std::shared_ptr<queue>& q : queues) q->push([shared] { return shared->arrive(); });
}

result run_all(std::vector<placed_call> calls) {
  std::vector<cluster> clusters = find_clusters(std::move(calls));
  std::vector<std::shared_ptr<batch>> batches;
  for (const cluster& k : clusters) {
    batches.push_back(make_batch(k));
    if (result r = batches.back()->check(); !r.ok()) return r;
  }
  {
    const std::lock_guard<std::mutex> lock(submission());
    for (size_t i = 0; i < batches.size(); ++i) {
      batches[i]->take_tickets();
      if (settings().async) enqueue(batches[i], clusters[i].queues);
    }
  }
  result first;
  if (!settings().async)
    for (const std::shared_ptr<batch>& b : batches)
      if (result r = b->run(); first.ok()) first = std::move(r);
  return first;
}

} // namespace

result submit(call next) {
  placed_call placed;
  result r = place(std::move(next), &placed);
  if (!r.ok()) return r;
  if (current.depth > 0) {
    current.calls.push_back(std::move(placed));
    return {};
  }
  std::vector<placed_call> calls;
  calls.push_back(std::move(placed));
  return run_all(std::move(calls));
}

result submit_join(const std::shared_ptr<communicator>& comm) {
  if (current.depth == 0) return comm->wait_for_all();
  current.joining.push_back(comm);
  return {};
}

result group_begin() {
  ++current.depth;
  return {};
}

result group_end() {
  if (current.depth == 0)
    return failure(TB_STATUS_INVALID_ARGUMENT, "group_end: this thread has not called group_begin");
  if (--current.depth > 0) return {};
  open_group ended;
  std::swap(ended, current);
  result first;
  for (const std::shared_ptr<communicator>& comm : ended.joining)
    if (result r = comm->wait_for_all(); first.ok()) first = std::move(r);
  if (!first.ok() || ended.calls.empty()) return first;
  return run_all(std::move(ended.calls));
}

} // namespace xcpu::ccl
