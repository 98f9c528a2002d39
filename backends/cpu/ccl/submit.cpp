#include "submit.h"

#include <algorithm>
#include <mutex>
#include <vector>

#include "../graph.h"
#include "../options.h"
#include "../record.h"
#include "../stream.h"

namespace xcpu::ccl {
namespace {

using queues = std::vector<std::shared_ptr<queue>>; // of an asynchronous device, each once

struct open_group {
  int depth = 0;
  std::shared_ptr<batch> calls;
  queues on;
  std::vector<std::shared_ptr<communicator>> joining;
};
thread_local open_group current;

result add(call next, open_group& group) {
  const int32_t device = next.comm->device();
  const result fault = injected_fault(next.which, device);
  if (fault.status == TB_STATUS_UNSUPPORTED) return fault;
  std::shared_ptr<queue> q;
  result r = next.comm->own_failure();
  if (r.ok() && settings().async) r = find_queue(device, next.stream, &q);
  if (r.ok() && q) r = refuse_captured(next.which, *q);
  if (!r.ok()) return r;
  if (q && std::find(group.on.begin(), group.on.end(), q) == group.on.end()) group.on.push_back(std::move(q));
  if (!group.calls) group.calls = std::make_shared<batch>();
  next.add(*group.calls);
  group.calls->fail_with(fault); // it fails when it runs
  return {};
}

// A batch runs on the first of its streams. It waits for what the others had to do before, and they wait for it.
void enqueue(const std::shared_ptr<batch>& work, const queues& on) {
  static std::mutex& submission = *new std::mutex; // one order for the streams and for every communicator
  const std::lock_guard<std::mutex> lock(submission);
  queue& first = *on.front();
  for (size_t i = 1; i < on.size(); ++i) push_wait(first, record::make(on[i]));
  for (const auto& comm : work->communicators())
    if (comm->last) push_wait(first, comm->last);
  first.push([work] { return work->run(); });
  const std::shared_ptr<record> end = record::make(on.front());
  for (size_t i = 1; i < on.size(); ++i)
    on[i]->push([work, end] {
      end->wait();
      return work->outcome();
    });
  for (const auto& comm : work->communicators()) comm->last = end;
}

result run(const open_group& group) {
  if (result r = group.calls->begin(); !r.ok()) return r;
  if (!settings().async) return group.calls->run();
  enqueue(group.calls, group.on);
  return {};
}

} // namespace

result submit(call next) {
  if (current.depth > 0) return add(std::move(next), current);
  open_group alone;
  result r = add(std::move(next), alone);
  return r.ok() ? run(alone) : r;
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
  return first.ok() && ended.calls ? run(ended) : first;
}

} // namespace xcpu::ccl
