// Work that is captured once and replayed.
#pragma once

#include <exception>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <c10/core/Allocator.h>

#include "csrc/core/Capture.h"

namespace torch_backend {

/// What torch.cuda.CUDAGraph is for CUDA; see Note [Captures]. Not for several threads at once.
///
/// Errors: NotImplementedError from capture_begin on a device that is synchronous;
/// RuntimeError for calls in a wrong order, for a capture on the default stream, and from capture_end if something could
/// not be captured, which it names. After a failed capture the graph is empty and the device works on.
class Graph {
 public:
  /// `keep_graph`: capture_end does not instantiate; the first replay, or instantiate, does.
  explicit Graph(bool keep_graph = false) : keep_graph_(keep_graph) {}
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  /// On the calling thread's current stream, with memory from `pool`: {0, 0} is a new one. `mode`: TB_CAPTURE_*.
  void capture_begin(c10::MempoolId_t pool, uint32_t mode);
  void capture_end();
  void instantiate();
  /// Enqueues the work on the current stream of the graph's device.
  void replay();
  /// Waits for replays that go on, then gives up work and memory.
  void reset();
  c10::MempoolId_t pool() const;

  /// Keeps the names of the steps for debug_dump.
  void enable_debug_mode() {
    debug_ = true;
  }
  /// In the language of Graphviz.
  void debug_dump(const std::string& path) const;

 private:
  /// Once what the graph has enqueued on the streams of replayed_on_ is over. Returns what waiting for them reports.
  std::exception_ptr release() noexcept;
  void end_capture();

  const bool keep_graph_;
  bool debug_ = false;
  bool captured_ = false;
  bool instantiated_ = false;
  bool holds_pool_ = false;
  c10::DeviceIndex device_ = -1;
  c10::MempoolId_t pool_{0, 0};
  std::shared_ptr<graph::Capture> capture_; // while it goes on
  std::vector<std::string> steps_;
  std::vector<std::shared_ptr<graph::Recorded>> recorded_;
  tb_graph* graph_ = nullptr; // the plugin's
  std::set<c10::StreamId> replayed_on_;
};

/// A pool id for several graphs.
c10::MempoolId_t graph_pool_handle();

/// Make at::accelerator::Graph capture on the active device, where PyTorch has it (2.12).
void register_graphs();

} // namespace torch_backend
