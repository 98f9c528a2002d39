// Loading and activation.

#include "csrc/core/Plugin.h"

#include <algorithm>
#include <cstdio>

#include <pybind11/stl.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/DynamicTypes.h>
#include <torch/csrc/utils/device_lazy_init.h>

#include "bindings/Module.h"
#include "csrc/core/DType.h"
#include "csrc/core/InterpreterLock.h"
#include "csrc/core/Runtime.h"
#include "csrc/torch/Activate.h"

namespace py = pybind11;

namespace torch_backend::python {
namespace {

constexpr std::pair<const char*, uint64_t> kCapabilities[] = {
    {"ASYNC", TB_CAP_ASYNC},
    {"HOST_ACCESS", TB_CAP_HOST_ACCESS},
    {"HOST_COHERENT", TB_CAP_HOST_COHERENT},
    {"PAGEABLE_ACCESS", TB_CAP_PAGEABLE_ACCESS},
    {"STREAM_ALLOC", TB_CAP_STREAM_ALLOC},
    {"EVENT_TIMING", TB_CAP_EVENT_TIMING},
    {"EVENT_RERECORD", TB_CAP_EVENT_RERECORD},
    {"PEER", TB_CAP_PEER},
    {"IPC", TB_CAP_IPC},
    {"GRAPH", TB_CAP_GRAPH},
    {"VIRTUAL_MEMORY", TB_CAP_VIRTUAL_MEMORY},
};

constexpr const char* kTables[] = {"graph.1", "kernels.1", "ccl.1", "prof.1"};

py::frozenset capability_names(uint64_t capabilities) {
  py::set names;
  for (const auto& [name, flag] : kCapabilities) {
    if (capabilities & flag) {
      names.add(name);
    }
  }
  return py::frozenset(names);
}

py::frozenset dtype_objects(const tb_device_properties& properties) {
  py::set dtypes;
  for (const auto type : supported_dtypes(properties)) {
    dtypes.add(py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject*>(torch::getTHPDtype(type))));
  }
  return py::frozenset(dtypes);
}

/// 8-4-4-4-12 hexadecimal digits, or "" if the device has none.
std::string uuid_text(const uint8_t (&uuid)[16]) {
  if (std::all_of(std::begin(uuid), std::end(uuid), [](uint8_t byte) { return byte == 0; })) {
    return "";
  }
  std::string text;
  for (std::size_t i = 0; i < sizeof(uuid); ++i) {
    char digits[4];
    std::snprintf(digits, sizeof(digits), i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x", uuid[i]);
    text += digits;
  }
  return text;
}

std::vector<std::string> offered_tables(const Plugin& plugin) {
  std::vector<std::string> names;
  for (const auto* name : kTables) {
    if (plugin.table(name)) {
      names.emplace_back(name);
    }
  }
  return names;
}

/// See Note [Slots and the interpreter's lock].
void* release_interpreter() {
  return Py_IsInitialized() && PyGILState_Check() ? PyEval_SaveThread() : nullptr;
}

void acquire_interpreter(void* state) {
  PyEval_RestoreThread(static_cast<PyThreadState*>(state));
}

Plugin& load_entry(uintptr_t entry, const std::string& origin) {
  return Plugin::load_entry(reinterpret_cast<tb_plugin_entry_function>(entry), origin);
}

void activate_plugin(Plugin& plugin) {
  activate(plugin);
  // PyTorch calls torch.<name>._lazy_init at the first use, which needs to happen again in a forked child.
  torch::utils::register_fork_handler_for_device_init(c10::DeviceType::PrivateUse1);
}

} // namespace

void init_plugin(py::module_& m) {
  py::class_<tb_device_properties>(m, "DeviceProperties")
      .def_property_readonly("name", [](const tb_device_properties& p) { return std::string(p.name); })
      .def_property_readonly("arch", [](const tb_device_properties& p) { return std::string(p.arch); })
      .def_readonly("major", &tb_device_properties::capability_major)
      .def_readonly("minor", &tb_device_properties::capability_minor)
      .def_readonly("total_memory", &tb_device_properties::total_memory_bytes)
      .def_readonly("multi_processor_count", &tb_device_properties::multiprocessor_count)
      .def_readonly("warp_size", &tb_device_properties::warp_size)
      .def_property_readonly(
          "stream_priority_range",
          [](const tb_device_properties& p) { return std::pair(p.stream_priority_lowest, p.stream_priority_highest); })
      .def_readonly("numa_node", &tb_device_properties::numa_node)
      .def_property_readonly("uuid", [](const tb_device_properties& p) { return uuid_text(p.uuid); })
      .def_readonly("allocation_granularity", &tb_device_properties::allocation_granularity_bytes)
      .def_readonly("allocation_alignment", &tb_device_properties::allocation_alignment_bytes)
      .def_property_readonly("capabilities",
                             [](const tb_device_properties& p) { return capability_names(p.capabilities); })
      .def_property_readonly("dtypes", dtype_objects);

  // Plugins live until the process ends, so Python never owns one.
  py::class_<Plugin, std::unique_ptr<Plugin, py::nodelete>>(m, "Plugin")
      .def_property_readonly("name", &Plugin::name)
      .def_property_readonly("vendor", &Plugin::vendor)
      .def_property_readonly("version", &Plugin::version)
      .def_property_readonly("path", &Plugin::path)
      .def_property_readonly("abi_version", &Plugin::abi_version)
      .def_property_readonly("tables", offered_tables)
      .def_property_readonly("is_async", [](Plugin& plugin) { return plugin.api().async(); })
      .def("device_count", [](Plugin& plugin) { return plugin.api().device_count(); })
      .def(
          "device_properties", [](Plugin& plugin, int device) { return plugin.api().properties(device); },
          py::arg("device"))
      .def("__repr__",
           [](const Plugin& plugin) { return "Plugin(name='" + plugin.name() + "', path='" + plugin.path() + "')"; });

  set_interpreter_lock({release_interpreter, acquire_interpreter});

  const auto reference = py::return_value_policy::reference;
  m.def("load_plugin", &Plugin::load, py::arg("path"), reference, py::call_guard<py::gil_scoped_release>());
  m.def("load_plugin_entry", load_entry, py::arg("entry"), py::arg("origin"), reference,
        py::call_guard<py::gil_scoped_release>());
  m.def("set_option", &Plugin::set_option, py::arg("key"), py::arg("value"));
  m.def("activate", activate_plugin, py::arg("plugin"));
  m.def("active_plugin", active_plugin, reference);
  m.def("abi_version", [] { return std::pair(TB_ABI_MAJOR, TB_ABI_MINOR); });
}

} // namespace torch_backend::python
