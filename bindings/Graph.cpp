// Graphs: capture and replay.

#include "csrc/graph/Graph.h"

#include <pybind11/stl.h>

#include <optional>

#include "bindings/Module.h"
#include "csrc/core/Runtime.h"

namespace py = pybind11;

namespace torch_backend::python {
namespace {

uint32_t parse_mode(const std::string& mode) {
  const std::pair<const char*, uint32_t> modes[] = {{"default", TB_CAPTURE_GLOBAL},
                                                    {"global", TB_CAPTURE_GLOBAL},
                                                    {"thread_local", TB_CAPTURE_THREAD_LOCAL},
                                                    {"relaxed", TB_CAPTURE_RELAXED}};
  for (const auto& [name, value] : modes) {
    if (mode == name) {
      return value;
    }
  }
  throw py::value_error("capture_error_mode must be 'global', 'thread_local' or 'relaxed', got '" + mode + "'");
}

} // namespace

void init_graph(py::module_& m) {
  using NoGil = py::call_guard<py::gil_scoped_release>;

  // The last reference may be dropped anywhere, and the end waits for the device: without the GIL.
  const auto destroy = [](Graph* graph) {
    const py::gil_scoped_release no_gil;
    delete graph;
  };
  py::class_<Graph, std::shared_ptr<Graph>>(m, "Graph")
      .def(py::init([destroy](bool keep_graph) { return std::shared_ptr<Graph>(new Graph(keep_graph), destroy); }),
           py::arg("keep_graph") = false)
      .def(
          "capture_begin",
          [](Graph& graph, const std::optional<c10::MempoolId_t>& pool, const std::string& mode) {
            const auto parsed = parse_mode(mode);
            const py::gil_scoped_release no_gil;
            graph.capture_begin(pool.value_or(c10::MempoolId_t{0, 0}), parsed);
          },
          py::arg("pool") = py::none(), py::arg("capture_error_mode") = "global")
      .def("capture_end", &Graph::capture_end, NoGil())
      .def("instantiate", &Graph::instantiate, NoGil())
      .def("replay", &Graph::replay, NoGil())
      .def("reset", &Graph::reset, NoGil())
      .def("pool", &Graph::pool)
      .def("enable_debug_mode", &Graph::enable_debug_mode)
      .def("debug_dump", &Graph::debug_dump, py::arg("debug_path"));
  m.def("graph_pool_handle", &graph_pool_handle);
  m.def("is_current_stream_capturing", [] { return graph::is_capturing(current_stream()); });
}

} // namespace torch_backend::python
