#include "csrc/core/Tape.h"

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include <c10/util/Exception.h>

#include "csrc/core/Runtime.h"

namespace torch_backend::graph {
namespace {

/// Of each lane, how many of its steps are known to be before a place.
using Before = std::vector<std::size_t>;

void merge(Before& into, const Before& other) {
  into.resize(std::max(into.size(), other.size()));
  for (std::size_t i = 0; i < other.size(); ++i) {
    into[i] = std::max(into[i], other[i]);
  }
}

struct Step {
  enum class Kind { kWork, kRecord, kWait };

  std::size_t lane;
  Kind kind;
  std::function<void(tb_stream*)> work;
  std::size_t point = 0; // that is recorded or waited for
};

struct Lane {
  tb_stream* stream;
  Before before;
};

/// A capture that goes on. Lane 0 is the stream that it began on.
struct Tape {
  int device;
  std::vector<Lane> lanes;
  std::vector<Step> steps;
  std::vector<Before> points;
  std::map<tb_event*, std::size_t> last_point;

  std::size_t find(tb_stream* stream) const {
    const auto found =
        std::find_if(lanes.begin(), lanes.end(), [&](const auto& each) { return each.stream == stream; });
    return static_cast<std::size_t>(found - lanes.begin());
  }
  bool has(int on_device, tb_stream* stream) const {
    return device == on_device && find(stream) < lanes.size();
  }
  void add(std::size_t lane, Step::Kind kind, std::function<void(tb_stream*)> work, std::size_t point = 0) {
    auto& before = lanes[lane].before;
    before.resize(std::max(before.size(), lane + 1));
    before[lane] += kind == Step::Kind::kWork;
    steps.push_back({lane, kind, std::move(work), point});
  }
  /// Whether the end of lane 0 comes after everything.
  bool is_joined() {
    Before all;
    for (const auto& lane : lanes) {
      merge(all, lane.before);
    }
    lanes[0].before.resize(all.size());
    return lanes[0].before == all;
  }
};

struct Registry {
  std::mutex mutex; // guards tapes and what is in them
  std::vector<std::unique_ptr<Tape>> tapes;
};

Registry& registry() {
  static auto* instance = new Registry;
  return *instance;
}

/// Under the mutex. NULL if there is none.
template <class Accepts>
Tape* find_tape(const Accepts& accepts) {
  auto& tapes = registry().tapes;
  const auto found = std::find_if(tapes.begin(), tapes.end(), [&](const auto& each) { return accepts(*each); });
  return found == tapes.end() ? nullptr : found->get();
}

Tape* find_tape(int device, tb_stream* stream) {
  return find_tape([&](const Tape& tape) { return tape.has(device, stream); });
}

/// What a tape becomes. Not for several threads at once, but for launches.
class TapedGraph {
 public:
  explicit TapedGraph(Tape&& tape)
      : device_(tape.device),
        num_lanes_(tape.lanes.size()),
        num_points_(tape.points.size()),
        steps_(std::move(tape.steps)) {}
  ~TapedGraph() {
    for (auto* stream : streams_) {
      device_api().stream_destroy(device_, stream);
    }
  }
  TapedGraph(const TapedGraph&) = delete;
  TapedGraph& operator=(const TapedGraph&) = delete;

  void instantiate() {
    const std::lock_guard<std::mutex> lock(mutex_);
    while (streams_.size() + 1 < num_lanes_) {
      streams_.push_back(device_api().stream_create(device_, 0));
    }
  }

  void launch(tb_stream* stream) {
    const std::lock_guard<std::mutex> lock(mutex_);
    TORCH_CHECK(!is_halfway_, "A launch of this graph has failed before all of it was enqueued: capture it again.");
    if (was_launched_ && last_stream_ != stream) {
      const Event before(device_);
      before.record(last_stream_);
      before.wait(stream);
    }
    std::vector<Event> points;
    points.reserve(num_points_);
    for (std::size_t i = 0; i < num_points_; ++i) {
      points.emplace_back(device_);
    }
    for (const auto& step : steps_) {
      tb_stream* const on = step.lane == 0 ? stream : streams_.at(step.lane - 1);
      switch (step.kind) {
        case Step::Kind::kWork:
          step.work(on);
          break;
        case Step::Kind::kRecord:
          points[step.point].record(on);
          break;
        case Step::Kind::kWait:
          points[step.point].wait(on);
      }
      is_halfway_ = true;
    }
    is_halfway_ = false;
    was_launched_ = true;
    last_stream_ = stream;
  }

 private:
  /// One of the device's, for one launch.
  class Event {
   public:
    explicit Event(int device) : device_(device), handle_(device_api().event_create(device, 0)) {}
    Event(Event&& other) noexcept : device_(other.device_), handle_(std::exchange(other.handle_, nullptr)) {}
    Event& operator=(Event&&) = delete;
    ~Event() {
      device_api().event_destroy(device_, handle_);
    }
    void record(tb_stream* stream) const {
      device_api().event_record(device_, handle_, stream);
    }
    void wait(tb_stream* stream) const {
      device_api().stream_wait_event(device_, stream, handle_);
    }

   private:
    int device_;
    tb_event* handle_;
  };

  const int device_;
  const std::size_t num_lanes_;
  const std::size_t num_points_;
  const std::vector<Step> steps_;
  std::mutex mutex_;                // guards what follows, and keeps launches apart
  std::vector<tb_stream*> streams_; // of all lanes but the first, from instantiate on
  bool is_halfway_ = false;
  bool was_launched_ = false;
  tb_stream* last_stream_ = nullptr;
};

TapedGraph& graph_of(tb_graph* graph) {
  return *reinterpret_cast<TapedGraph*>(graph);
}

// ---- the slots ----

tb_status capture_begin(int32_t device, tb_stream* stream, uint32_t /*mode*/) {
  auto& all = registry();
  const std::lock_guard<std::mutex> lock(all.mutex);
  all.tapes.push_back(std::make_unique<Tape>(Tape{device, {{stream, Before(1)}}, {}, {}, {}}));
  detail::num_tapes.fetch_add(1);
  return TB_STATUS_OK;
}

tb_status capture_end(int32_t device, tb_stream* stream, tb_graph** out_graph) {
  auto& all = registry();
  const std::lock_guard<std::mutex> lock(all.mutex);
  auto& tapes = all.tapes;
  const auto found = std::find_if(tapes.begin(), tapes.end(), [&](const auto& each) {
    return each->device == device && each->lanes[0].stream == stream;
  });
  TORCH_CHECK(found != tapes.end(), "No capture has begun on this stream.");
  const auto tape = std::move(*found);
  tapes.erase(found);
  detail::num_tapes.fetch_sub(1);
  TORCH_CHECK(tape->is_joined(), "A stream that joined the capture has work that the first one did not wait for.");
  *out_graph = reinterpret_cast<tb_graph*>(new TapedGraph(std::move(*tape)));
  return TB_STATUS_OK;
}

tb_status stream_is_capturing(int32_t device, tb_stream* stream, int32_t* out_is_capturing) {
  *out_is_capturing = is_taped(device, stream);
  return TB_STATUS_OK;
}

tb_status graph_instantiate(int32_t /*device*/, tb_graph* graph) {
  graph_of(graph).instantiate();
  return TB_STATUS_OK;
}

tb_status graph_launch(int32_t /*device*/, tb_graph* graph, tb_stream* stream) {
  graph_of(graph).launch(stream);
  return TB_STATUS_OK;
}

tb_status graph_destroy(int32_t /*device*/, tb_graph* graph) {
  delete &graph_of(graph);
  return TB_STATUS_OK;
}

} // namespace

namespace detail {

std::atomic<int> num_tapes{0};

bool is_taped(int device, tb_stream* stream) {
  const std::lock_guard<std::mutex> lock(registry().mutex);
  return find_tape(device, stream) != nullptr;
}

bool write(int device, tb_stream* stream, std::function<void(tb_stream*)> step) {
  const std::lock_guard<std::mutex> lock(registry().mutex);
  Tape* const tape = find_tape(device, stream);
  if (tape != nullptr) {
    tape->add(tape->find(stream), Step::Kind::kWork, std::move(step));
  }
  return tape != nullptr;
}

bool write_record(int device, tb_stream* stream, tb_event* event) {
  const std::lock_guard<std::mutex> lock(registry().mutex);
  Tape* const tape = find_tape(device, stream);
  for (const auto& each : registry().tapes) {
    each->last_point.erase(event);
  }
  if (tape != nullptr) {
    const std::size_t lane = tape->find(stream);
    tape->last_point[event] = tape->points.size();
    tape->points.push_back(tape->lanes[lane].before);
    tape->add(lane, Step::Kind::kRecord, nullptr, tape->points.size() - 1);
  }
  return tape != nullptr;
}

bool write_wait(int device, tb_stream* stream, tb_event* event) {
  const std::lock_guard<std::mutex> lock(registry().mutex);
  Tape* const tape = find_tape(
      [&](const Tape& each) { return each.device == device && each.last_point.find(event) != each.last_point.end(); });
  if (tape == nullptr) {
    return false;
  }
  Tape* const own = find_tape(device, stream);
  TORCH_CHECK(own == nullptr || own == tape, "A stream cannot join a second capture.");
  const std::size_t lane = tape->find(stream), point = tape->last_point.at(event);
  if (lane == tape->lanes.size()) {
    tape->lanes.push_back({stream, Before(lane + 1)});
  }
  merge(tape->lanes[lane].before, tape->points[point]);
  tape->add(lane, Step::Kind::kWait, nullptr, point);
  return true;
}

} // namespace detail

const tb_graph_table& tape_table() {
  static const tb_graph_table table{sizeof(tb_graph_table), capture_begin, capture_end,  stream_is_capturing,
                                    graph_instantiate,      graph_launch,  graph_destroy};
  return table;
}

} // namespace torch_backend::graph
