#include "graph.h"

#include <algorithm>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "device.h"
#include "record.h"
#include "stream.h"

namespace xcpu {
namespace {

// What a launch enqueues, in this order. Lane 0 is the stream of the launch; each other stream that was captured has a
// queue of the graph's own in its place.
struct node {
  size_t lane;
  queue::work work; // null: a point that others wait for, or a wait for one
  size_t point = 0;
  bool waits = false;
};

// Of each lane, how many of its nodes are known to be before a place.
using nodes_before = std::vector<size_t>;

void merge(nodes_before& into, const nodes_before& other) {
  into.resize(std::max(into.size(), other.size()));
  for (size_t i = 0; i < other.size(); ++i) into[i] = std::max(into[i], other[i]);
}

struct lane {
  std::shared_ptr<queue> on;
  nodes_before before;
};

} // namespace

struct capture {
  const int32_t device;
  const uint32_t mode;
  const std::thread::id thread;
  std::vector<lane> lanes;
  std::vector<node> nodes;
  std::vector<nodes_before> points;
  result failed; // the first reason

  size_t find(const queue& on) const {
    const auto found = std::find_if(lanes.begin(), lanes.end(), [&](const lane& l) { return l.on.get() == &on; });
    return static_cast<size_t>(found - lanes.begin());
  }
  size_t join(const std::shared_ptr<queue>& on) {
    const size_t index = find(*on);
    if (index == lanes.size()) lanes.push_back({on, nodes_before(index + 1)});
    return index;
  }
  void add(node next) {
    nodes_before& before = lanes[next.lane].before;
    before.resize(std::max(before.size(), next.lane + 1));
    if (next.work) ++before[next.lane];
    nodes.push_back(std::move(next));
  }
  result fail(result reason) {
    if (failed.ok()) failed = reason;
    return reason;
  }
  // Whether the end of lane 0 comes after everything.
  bool is_joined() {
    nodes_before all;
    for (const lane& l : lanes) merge(all, l.before);
    lanes[0].before.resize(all.size());
    return lanes[0].before == all;
  }
};

namespace {

struct capture_list {
  std::mutex mutex; // guards what is in the captures, and while there are none is not needed
  std::vector<std::shared_ptr<capture>> active;
  std::atomic<size_t> num_active{0};
};

// Never destroyed: worker threads may outlast static destruction.
capture_list& captures() {
  static capture_list& list = *new capture_list;
  return list;
}

using lock = std::unique_lock<std::mutex>;

// Holds the mutex unless there is no capture.
lock lock_captures() {
  capture_list& list = captures();
  return list.num_active == 0 ? lock() : lock(list.mutex);
}

// With the mutex held, as the next.
std::shared_ptr<capture> find_capture(const queue& on) {
  const auto& active = captures().active;
  const auto found = std::find_if(active.begin(), active.end(),
                                  [&](const auto& each) { return each->find(on) != each->lanes.size(); });
  return found == active.end() ? nullptr : *found;
}

std::shared_ptr<capture> find_capture(const captured_record& record) {
  const auto& active = captures().active;
  const auto found = std::find(active.begin(), active.end(), record.in.lock());
  return found == active.end() ? nullptr : *found;
}

result refuse(slot s, capture* of) {
  result r = failure(TB_STATUS_INVALID_ARGUMENT, "%s: not while a stream is captured in a graph", slot_name(s));
  return of ? of->fail(std::move(r)) : result();
}

} // namespace

bool is_captured(const queue& on) {
  const lock held = lock_captures();
  return held && find_capture(on);
}

bool capture_work(const queue& on, queue::work& work) {
  const lock held = lock_captures();
  const auto found = held ? find_capture(on) : nullptr;
  if (found) found->add({found->find(on), std::move(work)});
  return found != nullptr;
}

std::shared_ptr<const captured_record> capture_record(const queue& on) {
  const lock held = lock_captures();
  const auto found = held ? find_capture(on) : nullptr;
  if (!found) return nullptr;
  const size_t index = found->find(on), point = found->points.size();
  found->points.push_back(found->lanes[index].before);
  found->add({index, nullptr, point});
  return std::make_shared<captured_record>(captured_record{found, point});
}

result capture_wait(const std::shared_ptr<queue>& on, int32_t device, const captured_record* waited,
                    bool* out_captured) {
  const lock held = lock_captures();
  const auto own = held ? find_capture(*on) : nullptr, joined = held && waited ? find_capture(*waited) : nullptr;
  *out_captured = own || waited;
  if (!*out_captured) return {};
  if (!joined || (own && own != joined) || joined->device != device) {
    result r = failure(TB_STATUS_INVALID_ARGUMENT, "stream_wait_event: %s",
                       joined   ? "a stream cannot join the capture of another device, or a second one"
                       : waited ? "the event was recorded in a capture that is over"
                                : "the event was recorded outside of the capture");
    return own ? own->fail(std::move(r)) : r;
  }
  const size_t index = joined->join(on);
  merge(joined->lanes[index].before, joined->points[waited->point]);
  joined->add({index, nullptr, waited->point, /*waits=*/true});
  return {};
}

result refuse_captured(slot s, const queue& on) {
  const lock held = lock_captures();
  return held ? refuse(s, find_capture(on).get()) : result();
}

result refuse_captured(slot s, const captured_record& last) {
  const lock held = lock_captures();
  if (const auto found = held ? find_capture(last) : nullptr) return refuse(s, found.get());
  return failure(TB_STATUS_INVALID_ARGUMENT, "%s: the event was last recorded in a capture", slot_name(s));
}

result refuse_unsafe(slot s, int32_t device) {
  const lock held = lock_captures();
  result first;
  for (size_t i = 0; held && i < captures().active.size(); ++i) {
    capture& each = *captures().active[i];
    const bool minds = each.mode == TB_CAPTURE_GLOBAL ||
                       (each.mode == TB_CAPTURE_THREAD_LOCAL && each.thread == std::this_thread::get_id());
    if (each.device == device && minds) first = refuse(s, &each);
  }
  return first;
}

} // namespace xcpu

struct tb_graph {
  const int32_t device;
  const std::vector<xcpu::node> nodes;
  const size_t num_points;
  const size_t num_lanes;
  std::mutex mutex;                                // guards what follows, and keeps launches apart
  std::vector<std::shared_ptr<xcpu::queue>> lanes; // all but the first; from graph_instantiate on
  std::shared_ptr<xcpu::record> last;              // the end of the last launch
};

namespace xcpu {
namespace {

result check_graph(int32_t device, const tb_graph* graph) {
  if (graph->device == device) return {};
  return failure(TB_STATUS_INVALID_ARGUMENT, "a graph of device %d is used as one of device %d", graph->device, device);
}

} // namespace

result capture_begin(int32_t device, tb_stream* stream, uint32_t mode) {
  if (!stream) return failure(TB_STATUS_INVALID_ARGUMENT, "capture_begin: the default stream cannot be captured");
  if (mode > TB_CAPTURE_RELAXED)
    return failure(TB_STATUS_INVALID_ARGUMENT, "capture_begin: mode %u is no TB_CAPTURE_*", mode);
  std::shared_ptr<queue> q;
  result r = find_queue(device, stream, &q);
  if (!r.ok()) return r;
  capture_list& list = captures();
  const lock held(list.mutex);
  if (const auto found = find_capture(*q)) return refuse(slot::capture_begin, found.get());
  list.active.push_back(
      std::make_shared<capture>(capture{device, mode, std::this_thread::get_id(), {{q, nodes_before(1)}}, {}, {}, {}}));
  list.num_active = list.active.size();
  return {};
}

result capture_end(int32_t device, tb_stream* stream, tb_graph** out_graph) {
  std::shared_ptr<queue> q;
  result r = check_device(device);
  if (r.ok()) r = find_queue(device, stream, &q);
  if (!r.ok()) return r;
  capture_list& list = captures();
  const lock held(list.mutex);
  const auto ended = find_capture(*q);
  if (!ended || ended->find(*q) != 0)
    return failure(TB_STATUS_INVALID_ARGUMENT, "capture_end: no capture has begun on this stream");
  list.active.erase(std::find(list.active.begin(), list.active.end(), ended));
  list.num_active = list.active.size();
  r = injected_fault(slot::capture_end, device);
  if (r.ok() && !ended->failed.ok())
    r = failure(ended->failed.status, "the capture has failed: %s", ended->failed.text.c_str());
  if (r.ok() && !ended->is_joined())
    r = failure(TB_STATUS_INVALID_ARGUMENT,
                "capture_end: a stream that joined the capture has work that the first one did not wait for");
  if (r.ok())
    *out_graph = new tb_graph{device, std::move(ended->nodes), ended->points.size(), ended->lanes.size(), {}, {}, {}};
  return r;
}

result stream_is_capturing(int32_t device, tb_stream* stream, int32_t* out_is_capturing) {
  std::shared_ptr<queue> q;
  result r = find_queue(device, stream, &q);
  if (r.ok()) *out_is_capturing = is_captured(*q);
  return r;
}

result graph_instantiate(int32_t device, tb_graph* graph) {
  result r = check_graph(device, graph);
  if (!r.ok()) return r;
  const lock held(graph->mutex);
  while (graph->lanes.size() + 1 < graph->num_lanes) graph->lanes.push_back(start_queue(device));
  return {};
}

result graph_launch(int32_t device, tb_graph* graph, tb_stream* stream) {
  std::shared_ptr<queue> q;
  result r = check_graph(device, graph);
  if (r.ok()) r = find_queue(device, stream, &q);
  if (r.ok()) r = refuse_captured(slot::graph_launch, *q);
  if (!r.ok()) return r;
  const lock held(graph->mutex);
  if (graph->lanes.size() + 1 < graph->num_lanes)
    return failure(TB_STATUS_INVALID_ARGUMENT, "graph_launch: graph_instantiate has to be called before");
  if (graph->last) push_wait(*q, graph->last);
  std::vector<std::shared_ptr<record>> points(graph->num_points);
  for (const node& next : graph->nodes) {
    const std::shared_ptr<queue>& on = next.lane == 0 ? q : graph->lanes[next.lane - 1];
    if (next.work) {
      on->push(next.work);
    } else if (next.waits) {
      push_wait(*on, points[next.point], &record::take_failure); // so that it comes to the stream of the launch
    } else {
      points[next.point] = record::make(on);
    }
  }
  graph->last = record::make(q);
  return {};
}

result graph_destroy(int32_t device, tb_graph* graph) {
  result r = check_graph(device, graph);
  if (!r.ok()) return r;
  for (const std::shared_ptr<queue>& lane : graph->lanes) lane->close();
  delete graph;
  return {};
}

} // namespace xcpu
