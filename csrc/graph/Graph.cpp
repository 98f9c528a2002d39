#include "csrc/graph/Graph.h"

#include <fstream>
#include <utility>

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include "csrc/core/AsyncError.h"
#include "csrc/core/CallSpan.h"
#include "csrc/core/ErrorCell.h"
#include "csrc/core/FailedWait.h"
#include "csrc/core/Runtime.h"
#include "csrc/core/Tape.h"
#include "csrc/memory/DeviceAllocator.h"

namespace torch_backend {
namespace {

const tb_graph_table& table(c10::DeviceIndex device) {
  const auto& graphs = active_plugin()->tables().graph;
  return graphs && device_api().has_capability(device, TB_CAP_GRAPH) ? *graphs : graph::tape_table();
}

void check_captures_graphs(c10::DeviceIndex device) {
  auto& api = device_api();
  const auto name = c10::str(api.name(), ":", static_cast<int>(device));
  TORCH_CHECK_NOT_IMPLEMENTED(api.async(), name, " cannot capture a graph, which is work that waits on streams: this ",
                              "device is synchronous. If it has an option that makes it asynchronous, use that: "
                              "torch_backend.activate('",
                              api.name(), "', options={'async': 1}).");
}

/// What work of a graph uses. `pool` is released with it.
struct Memory {
  c10::DeviceIndex device;
  c10::MempoolId_t pool;
  std::vector<std::shared_ptr<graph::Recorded>> recorded;

  ~Memory() {
    try {
      device_allocator().release_pool(device, pool);
    } catch (const std::exception& error) {
      TORCH_WARN("While a graph was released: ", error.what());
    }
    if (device_api().is_lost(device)) {
      new auto(std::move(recorded)); // what is left of its work may still call them
    }
  }
};

} // namespace

Graph::~Graph() {
  try {
    if (capture_) {
      capture_->invalidate("the graph was destroyed");
      end_capture();
    }
  } catch (const std::exception&) {
    // Nobody asked for it.
  }
  if (const auto error = release()) {
    record_async_error(device_, error);
  }
}

void Graph::capture_begin(c10::MempoolId_t pool, uint32_t mode) {
  TORCH_CHECK(!capture_, "This graph is being captured; call capture_end first.");
  TORCH_CHECK(!captured_, "This graph holds a capture; call reset before it is captured again.");
  const auto stream = current_stream();
  check_captures_graphs(stream.device_index());
  TORCH_CHECK(stream.id() != 0, "A graph must be captured on a stream that is not the default one: torch.",
              device_api().name(), ".graph(g) has one of its own; else use `with torch.Stream(device), g:`.");
  TORCH_CHECK(!graph::is_capturing(stream), "The current stream is capturing another graph.");
  device_ = stream.device_index();
  pool_ = pool == c10::MempoolId_t{0, 0} ? generate_mempool_id(/*user_created=*/false) : pool;
  auto capture = std::make_shared<graph::Capture>(stream);
  device_allocator().begin_allocate_to_pool(
      device_, pool_, [capture](c10::Stream s) { return capture->includes(s.device_index(), s.id()); },
      /*capturing=*/true);
  holds_pool_ = true;
  graph::begin(capture);
  try {
    device_api().check_call(device_, "capture_begin", table(device_).capture_begin, device_, stream.handle(), mode);
  } catch (...) {
    graph::end(*capture);
    device_allocator().end_allocate_to_pool(device_, pool_);
    release();
    throw;
  }
  capture_ = std::move(capture);
}

void Graph::end_capture() {
  const auto capture = std::exchange(capture_, nullptr);
  auto& api = device_api();
  std::exception_ptr error;
  try {
    api.check_call(device_, "capture_end", table(device_).capture_end, device_, capture->origin().handle(), &graph_);
    api.check_given(graph_, "capture_end", "*out_graph", device_);
  } catch (...) {
    error = std::current_exception();
  }
  graph::end(*capture);
  device_allocator().end_allocate_to_pool(device_, pool_);
  recorded_ = capture->take_recorded();
  const auto failure = capture->failure();
  if (error || !failure.empty()) {
    release();
  }
  TORCH_CHECK(failure.empty(), "The capture has failed: ", failure, " cannot be captured in a graph.");
  if (error) {
    std::rethrow_exception(error);
  }
  steps_ = capture->take_steps();
}

void Graph::capture_end() {
  TORCH_CHECK(capture_, "capture_end was called without capture_begin.");
  end_capture();
  captured_ = true;
  if (!keep_graph_) {
    instantiate();
  }
}

void Graph::instantiate() {
  TORCH_CHECK(captured_, "There is nothing to instantiate: capture a graph first.");
  if (!instantiated_) {
    device_api().check_call(device_, "graph_instantiate", table(device_).graph_instantiate, device_, graph_);
  }
  instantiated_ = true;
}

void Graph::replay() {
  TORCH_CHECK(captured_, "There is nothing to replay: capture a graph first.");
  if (!instantiated_) {
    instantiate();
  }
  const auto stream = current_stream(device_);
  graph::refuse_in_capture(stream, "Graph.replay");
  device_api().check_usable(device_, "graph_launch");
  CallSpan span("graph_launch", device_);
  span.kernel(stream.handle(), "graph");
  std::size_t begun = 0;
  try {
    for (; begun < recorded_.size(); ++begun) {
      recorded_[begun]->begin_launch(stream);
    }
    replayed_on_.insert(stream.id());
    device_api().check_call(device_, "graph_launch", table(device_).graph_launch, device_, graph_, stream.handle());
    fallible_replay(device_, stream.handle());
  } catch (...) {
    while (begun > 0) {
      recorded_[--begun]->cancel_launch();
    }
    throw;
  }
  span.enqueued();
}

void Graph::reset() {
  TORCH_CHECK(!capture_, "This graph is being captured; call capture_end first.");
  if (const auto error = release()) {
    std::rethrow_exception(error);
  }
}

std::exception_ptr Graph::release() noexcept {
  captured_ = instantiated_ = false;
  steps_.clear();
  if (!std::exchange(holds_pool_, false)) {
    return nullptr;
  }
  auto& api = device_api();
  const std::shared_ptr<void> memory(new Memory{device_, pool_, std::move(recorded_)});
  recorded_.clear();
  std::exception_ptr error;
  for (const auto id : std::exchange(replayed_on_, {})) {
    const Stream stream(c10::Stream(c10::Stream::UNSAFE, c10::Device(c10::DeviceType::PrivateUse1, device_), id));
    try {
      if (!api.is_lost(device_)) {
        stream.synchronize();
      }
    } catch (...) {
      error = error ? error : std::current_exception();
      release_when_over(api, device_, stream.handle(), memory); // See Note [Failed waits].
    }
  }
  if (graph_) {
    api.clean_up(device_, "graph_destroy", table(device_).graph_destroy, device_, std::exchange(graph_, nullptr));
  }
  return error;
}

c10::MempoolId_t Graph::pool() const {
  TORCH_CHECK(captured_ || capture_, "A graph has a pool from capture_begin on.");
  return pool_;
}

void Graph::debug_dump(const std::string& path) const {
  TORCH_CHECK(debug_, "Call enable_debug_mode before the graph is dumped.");
  TORCH_CHECK(captured_, "There is nothing to dump: capture a graph first.");
  std::ofstream file(path);
  file << "digraph {\n";
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    file << "  n" << i << " [label=\"" << steps_[i] << "\"]\n";
    if (i > 0) {
      file << "  n" << i - 1 << " -> n" << i << "\n";
    }
  }
  file << "}\n";
  TORCH_CHECK(file.good(), "The graph could not be written to ", path, ".");
}

c10::MempoolId_t graph_pool_handle() {
  return generate_mempool_id(/*user_created=*/true);
}

} // namespace torch_backend
