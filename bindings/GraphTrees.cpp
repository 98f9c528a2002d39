// What graphs that share a pool ask of memory and tensors; see torch_backend/compile/graph_trees.py.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/autograd/python_variable.h>

#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include <c10/core/Storage.h>
#include <c10/core/StorageImpl.h>

#include "bindings/Module.h"
#include "csrc/core/Runtime.h"
#include "csrc/memory/DeviceAllocator.h"
#include "csrc/memory/PoolCheckpoint.h"

namespace py = pybind11;

namespace torch_backend::python {
namespace {

/// PyTorch hands storages around by these, "_cdata".
using StorageAddress = uintptr_t;

c10::StorageImpl& storage_at(StorageAddress address) {
  return *reinterpret_cast<c10::StorageImpl*>(address); // NOLINT(performance-no-int-to-ptr)
}

const at::Tensor& tensor_of(py::handle value) {
  TORCH_CHECK_TYPE(THPVariable_Check(value.ptr()), "A tensor is expected here, not a ", Py_TYPE(value.ptr())->tp_name,
                   ".");
  return THPVariable_Unpack(value.ptr());
}

std::vector<uintptr_t> addresses(const PoolCheckpoint& checkpoint) {
  std::vector<uintptr_t> result;
  for (const auto& use : checkpoint.uses) {
    result.push_back(reinterpret_cast<uintptr_t>(use.ptr));
  }
  return result;
}

/// Storages that were made from an address alone, and are in the checkpoint, free their memory from then on.
void restore_pool(int device, const PoolCheckpoint& checkpoint, const std::vector<StorageAddress>& storages) {
  auto& allocator = device_allocator();
  const auto deleter = allocator.raw_deleter();
  std::unordered_set<void*> in_use;
  for (const auto& use : checkpoint.uses) {
    in_use.insert(use.ptr);
  }
  std::vector<c10::StorageImpl*> adopting;
  for (const auto address : storages) {
    auto& storage = storage_at(address);
    TORCH_CHECK(in_use.count(storage.mutable_data()) != 0, "The memory of a tensor that is to be kept, at ",
                storage.data(), ", was not in use when its pool was noted.");
    if (storage.data_ptr().get_deleter() != deleter) {
      adopting.push_back(&storage);
    }
  }
  {
    const py::gil_scoped_release no_gil; // it may wait
    allocator.restore_pool(resolve_device(static_cast<c10::DeviceIndex>(device)), checkpoint);
  }
  for (auto* storage : adopting) {
    void* const data = storage->mutable_data();
    storage->set_data_ptr_noswap(c10::DataPtr(data, data, deleter, storage->device()));
  }
}

bool owns_memory(StorageAddress address) {
  const auto& data = storage_at(address).data_ptr();
  return data.get_deleter() == device_allocator().raw_deleter();
}

/// The storage keeps its address, which is not its own any more.
void free_storage(StorageAddress address) {
  auto& storage = storage_at(address);
  auto& allocator = device_allocator();
  TORCH_CHECK(storage._mutable_data_ptr_no_checks().compare_exchange_deleter(allocator.raw_deleter(),
                                                                             c10::detail::deleteNothing),
              "The memory at ", storage.data(), " is not this storage's to free.");
  void* const data = storage.mutable_data();
  const py::gil_scoped_release no_gil;
  allocator.free(data);
}

/// Whether values[i] is a tensor at expected[i], for the indices that are named.
bool are_at(const py::list& values, const py::list& expected, const py::list& indices) {
  for (const auto& index : indices) {
    const auto i = PyLong_AsSsize_t(index.ptr());
    TORCH_CHECK_INDEX(
        i >= 0 && i < static_cast<Py_ssize_t>(values.size()) && i < static_cast<Py_ssize_t>(expected.size()),
        "There is no value ", i, ".");
    const auto& tensor = tensor_of(PyList_GET_ITEM(values.ptr(), i));
    PyObject* const address = PyList_GET_ITEM(expected.ptr(), i);
    if (address == Py_None || tensor.const_data_ptr() != PyLong_AsVoidPtr(address)) {
      return false;
    }
  }
  return true;
}

} // namespace

void init_graph_trees(py::module_& m) {
  py::class_<PoolCheckpoint>(m, "PoolCheckpoint").def_property_readonly("addresses", &addresses);
  m.def(
      "checkpoint_pool",
      [](int device, c10::MempoolId_t pool) {
        return device_allocator().checkpoint_pool(resolve_device(static_cast<c10::DeviceIndex>(device)), pool);
      },
      py::arg("device"), py::arg("pool"));
  m.def("restore_pool", &restore_pool, py::arg("device"), py::arg("checkpoint"), py::arg("storages"));
  m.def("owns_memory", &owns_memory, py::arg("storage"));
  m.def("free_storage", &free_storage, py::arg("storage"));
  m.def("are_at", &are_at, py::arg("values"), py::arg("expected"), py::arg("indices"));
  m.def(
      "forbid_access",
      [](py::handle tensor, std::string message) {
        tensor_of(tensor).unsafeGetTensorImpl()->release_storage_and_set_meta_custom_data_ptr_error_msg_(
            std::move(message));
      },
      py::arg("tensor"), py::arg("message"));
  m.def(
      "forbid_storage_access",
      [](StorageAddress storage, std::string message) {
        storage_at(storage).release_data_and_set_meta_custom_data_ptr_error_msg_(std::move(message));
      },
      py::arg("storage"), py::arg("message"));
}

} // namespace torch_backend::python
