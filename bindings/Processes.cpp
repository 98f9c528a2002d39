// Storages for other processes, and from them.
#include <pybind11/pybind11.h>
#include <torch/csrc/utils/pybind.h>

#include <cstring>
#include <string>

#include <c10/core/Storage.h>

#include "bindings/Module.h"
#include "csrc/memory/DeviceAllocator.h"
#include "csrc/memory/ipc/LoanBook.h"
#include "csrc/memory/ipc/SharedStorage.h"

namespace py = pybind11;

namespace torch_backend::python {
namespace {

using ipc::StorageMessage;

/// Both sides run the same build: a message lives as long as the processes.
py::bytes to_bytes(const StorageMessage& message) {
  return {reinterpret_cast<const char*>(&message), sizeof message};
}

StorageMessage from_bytes(const std::string& bytes) {
  TORCH_CHECK_VALUE(bytes.size() == sizeof(StorageMessage), "A message of ", bytes.size(),
                    " bytes about a tensor was received, but one has ", sizeof(StorageMessage),
                    " bytes: the processes do not run the same torch_backend.");
  StorageMessage message;
  std::memcpy(&message, bytes.data(), sizeof message);
  return message;
}

} // namespace

void init_processes(py::module_& m) {
  m.def("lend_storage", [](const at::Storage& storage) { return to_bytes(ipc::lend(storage)); }, py::arg("storage"));
  m.def("borrow_storage", [](const std::string& bytes) { return ipc::borrow(from_bytes(bytes)); }, py::arg("message"));
  m.def(
      "acknowledge_storage", [](const std::string& bytes) { ipc::acknowledge(from_bytes(bytes)); }, py::arg("message"));
  m.def(
      "describe_storage_message",
      [](const std::string& bytes) {
        const auto message = from_bytes(bytes);
        const std::string segment(reinterpret_cast<const char*>(message.segment.bytes), TB_IPC_HANDLE_BYTES);
        return py::make_tuple(message.loan.lender, static_cast<int>(message.device), py::bytes(segment), message.offset,
                              message.size_bytes, message.address);
      },
      py::arg("message"));
  m.def("num_lent", [] { return ipc::LoanBook::own().num_lent(); });
  m.def("ipc_collect", [] { device_allocator().collect_lent(); }, py::call_guard<py::gil_scoped_release>());
}

} // namespace torch_backend::python
