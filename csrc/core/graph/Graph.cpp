#include "csrc/core/graph/Graph.h"

#include <exception>
#include <fstream>
#include <utility>

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include "csrc/core/CallSpan.h"
#include "csrc/core/Runtime.h"
#include "csrc/core/allocator/DeviceAllocator.h"

namespace torch_backend {
namespace {

/// NULL if the device leaves graphs to the core.
const tb_graph_table* table_of(c10::DeviceIndex device) {
  auto& api = device_api();
  const auto& offered = active_plugin()->tables().graph;
  return offered && api.async() && api.has_capability(device, TB_CAP_GRAPH) ? &*offered : nullptr;
}

void log_failure(const std::exception& error) {
  TORCH_WARN("While a graph was released: ", error.what());
}

} // namespace

Graph::~Graph() {
  try {
    if (capture_) {
      tb_graph* unused = nullptr;
      capture_->invalidate("the graph was destroyed");
      end_capture(&unused);
    }
    reset();
  } catch (const std::exception& error) {
    log_failure(error);
  }
}

void Graph::capture_begin(c10::MempoolId_t pool, uint32_t mode) {
  TORCH_CHECK(!capture_, "This graph is being captured; call capture_end first.");
  TORCH_CHECK(!captured_, "This graph holds a capture; call reset before it is captured again.");
  const auto stream = current_stream();
  TORCH_CHECK(stream.id() != 0, "A graph must be captured on a stream that is not the default one: torch.",
              device_api().name(), ".graph(g) has one of its own; else use `with torch.Stream(device), g:`.");
  TORCH_CHECK(!graph::is_capturing(stream), "The current stream is capturing another graph.");
  device_ = stream.device_index();
  device_api().check_usable(device_, "capture_begin");
  const auto* table = table_of(device_);
  pool_ = pool == c10::MempoolId_t{0, 0} ? generate_mempool_id(/*user_created=*/false) : pool;
  auto capture = std::make_shared<graph::Capture>(stream, table != nullptr);
  device_allocator().begin_allocate_to_pool(
      device_, pool_, [capture](c10::Stream s) { return capture->includes(s.device_index(), s.id()); },
      /*capturing=*/table != nullptr);
  holds_pool_ = true;
  graph::begin(capture);
  if (table) {
    try {
      device_api().check_call(device_, "capture_begin", table->capture_begin, device_, stream.handle(), mode);
    } catch (...) {
      graph::end(*capture);
      device_allocator().end_allocate_to_pool(device_, pool_);
      release_memory();
      throw;
    }
  }
  capture_ = std::move(capture);
}

void Graph::end_capture(tb_graph** out_graph) {
  const auto capture = std::exchange(capture_, nullptr);
  std::exception_ptr error;
  if (const auto* table = capture->native() ? table_of(device_) : nullptr) {
    try {
      auto& api = device_api();
      api.check_call(device_, "capture_end", table->capture_end, device_, capture->origin().handle(), out_graph);
      api.check_given(*out_graph, "capture_end", "*out_graph", device_);
    } catch (...) {
      error = std::current_exception();
    }
  }
  graph::end(*capture);
  device_allocator().end_allocate_to_pool(device_, pool_);
  const auto failure = capture->failure();
  if (error || !failure.empty()) {
    destroy(std::exchange(*out_graph, nullptr));
    release_memory();
  }
  TORCH_CHECK(failure.empty(), "The capture has failed: ", failure, " cannot be captured in a graph.");
  if (error) {
    std::rethrow_exception(error);
  }
  steps_ = capture->take_steps();
  kept_ = capture->take_kept();
}

void Graph::destroy(tb_graph* native) noexcept {
  if (native) {
    device_api().clean_up(device_, "graph_destroy", active_plugin()->tables().graph->graph_destroy, device_, native);
  }
}

void Graph::capture_end() {
  TORCH_CHECK(capture_, "capture_end was called without capture_begin.");
  native_ = nullptr;
  end_capture(&native_);
  captured_ = true;
  if (!keep_graph_) {
    instantiate();
  }
}

void Graph::instantiate() {
  TORCH_CHECK(captured_, "There is nothing to instantiate: capture a graph first.");
  if (native_ && !instantiated_) {
    device_api().check_call(device_, "graph_instantiate", table_of(device_)->graph_instantiate, device_, native_);
  }
  instantiated_ = true;
}

void Graph::replay() {
  TORCH_CHECK(captured_, "There is nothing to replay: capture a graph first.");
  if (!instantiated_) {
    instantiate();
  }
  const auto before = exchange_device(device_);
  const auto stream = current_stream(device_);
  try {
    if (native_) {
      device_api().check_usable(device_, "graph_launch");
      CallSpan span("graph_launch", device_);
      span.kernel(stream.handle(), "graph");
      device_api().check_call(device_, "graph_launch", table_of(device_)->graph_launch, device_, native_,
                              stream.handle());
      span.enqueued();
    } else {
      for (const auto& step : steps_) {
        step.run(stream);
      }
    }
  } catch (...) {
    replayed_on_.insert(stream.id());
    exchange_device(before);
    throw;
  }
  replayed_on_.insert(stream.id());
  exchange_device(before);
}

void Graph::reset() {
  TORCH_CHECK(!capture_, "This graph is being captured; call capture_end first.");
  if (device_ >= 0 && !device_api().is_lost(device_)) {
    // The memory may be given back to the device, which must not happen under the work.
    const c10::Device device(c10::DeviceType::PrivateUse1, device_);
    for (const auto id : std::exchange(replayed_on_, {})) {
      Stream(c10::Stream(c10::Stream::UNSAFE, device, id)).synchronize();
    }
  }
  destroy(std::exchange(native_, nullptr));
  steps_.clear();
  kept_.clear();
  captured_ = instantiated_ = false;
  release_memory();
}

void Graph::release_memory() noexcept {
  if (std::exchange(holds_pool_, false)) {
    try {
      device_allocator().release_pool(device_, pool_);
    } catch (const std::exception& error) {
      log_failure(error);
    }
  }
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
  if (native_) {
    file << "  n0 [label=\"captured by " << device_api().name() << "\"]\n";
  }
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    file << "  n" << i << " [label=\"" << steps_[i].name << "\"]\n";
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
