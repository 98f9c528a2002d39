// torch.accelerator.Graph on the active device.

#include "csrc/graph/Graph.h"

#if __has_include(<ATen/core/GraphImplInterface.h>)
#include <ATen/core/GraphImplInterface.h>

#include <memory>
#include <string>

namespace torch_backend {
namespace {

class GraphImpl final : public at::GraphImplInterface {
 public:
  explicit GraphImpl(const at::GraphImplArgs& args) : graph_(args.keep_graph) {}

  void capture_begin(at::MempoolId_t pool, at::GraphCaptureMode mode) override {
    const auto native = mode == at::GraphCaptureMode::ThreadLocal ? TB_CAPTURE_THREAD_LOCAL
                        : mode == at::GraphCaptureMode::Relaxed   ? TB_CAPTURE_RELAXED
                                                                  : TB_CAPTURE_GLOBAL;
    graph_.capture_begin(pool, native);
  }
  void capture_end() override {
    graph_.capture_end();
  }
  void instantiate() override {
    graph_.instantiate();
  }
  void replay() override {
    graph_.replay();
  }
  void reset() override {
    graph_.reset();
  }
  at::MempoolId_t pool() const override {
    return graph_.pool();
  }
  void enable_debug_mode() override {
    graph_.enable_debug_mode();
  }
  void debug_dump(const std::string& path) override {
    graph_.debug_dump(path);
  }

 private:
  Graph graph_;
};

std::unique_ptr<at::GraphImplInterface> make_graph(const at::GraphImplArgs& args) {
  return std::make_unique<GraphImpl>(args);
}

} // namespace

void register_graphs() {
  const auto key = c10::DeviceTypeName(c10::DeviceType::PrivateUse1, /*lower_case=*/false);
  at::GraphImplRegistry()->Register(key, &make_graph);
}

} // namespace torch_backend
#else
namespace torch_backend {
void register_graphs() {}
} // namespace torch_backend
#endif
