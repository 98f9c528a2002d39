"""device.h for Python, without torch: its types, and device libraries opened through ctypes.

The types have their names from C; the values of enumerations are classes named after what they number. The tables can
be read, as those of a library that :class:`DeviceLibrary` has opened, and filled with functions of Python.
"""

from torch_backend.abi.ccl_table import REQUIRED_CCL_SLOTS, Reduction, tb_ccl_table
from torch_backend.abi.core_table import (
    ASYNC_SLOTS,
    IPC_HANDLE_BYTES,
    REQUIRED_SLOTS,
    CopyKind,
    EventFlag,
    MapAccess,
    MemoryKind,
    tb_core_table,
    tb_host_function,
    tb_ipc_handle,
    tb_pointer_info,
)
from torch_backend.abi.device import Device
from torch_backend.abi.dtypes import DTYPE_MASK_WORDS, TORCH_DTYPES, dtypes_in, mask_of
from torch_backend.abi.graph_table import CaptureMode, tb_graph_table
from torch_backend.abi.kernel_table import (
    KernelFlag,
    tb_kernel,
    tb_kernel_context,
    tb_kernel_function,
    tb_kernel_table,
)
from torch_backend.abi.library import DeviceLibrary, LibraryError
from torch_backend.abi.plugin import (
    OPTIONAL_TABLES,
    LogLevel,
    tb_host,
    tb_plugin,
    tb_plugin_entry_function,
)
from torch_backend.abi.profiler_table import (
    REQUIRED_PROFILER_SLOTS,
    TraceKind,
    tb_profiler_table,
    tb_trace_callback,
    tb_trace_record,
)
from torch_backend.abi.properties import Capability, tb_device_properties
from torch_backend.abi.statuses import DeviceError, Status, status_name
from torch_backend.abi.table import Table
from torch_backend.abi.tensors import (
    ArgTag,
    DeviceType,
    DTypeCode,
    tb_arg,
    tb_arg_value,
    tb_device_id,
    tb_dtype,
    tb_tensor,
)
from torch_backend.abi.versions import ABI_MAJOR, ABI_MINOR, ENTRY_NAME

__all__ = [
    "ABI_MAJOR",
    "ABI_MINOR",
    "ASYNC_SLOTS",
    "DTYPE_MASK_WORDS",
    "ENTRY_NAME",
    "IPC_HANDLE_BYTES",
    "OPTIONAL_TABLES",
    "REQUIRED_CCL_SLOTS",
    "REQUIRED_PROFILER_SLOTS",
    "REQUIRED_SLOTS",
    "TORCH_DTYPES",
    "ArgTag",
    "Capability",
    "CaptureMode",
    "CopyKind",
    "DTypeCode",
    "Device",
    "DeviceError",
    "DeviceLibrary",
    "DeviceType",
    "EventFlag",
    "KernelFlag",
    "LibraryError",
    "LogLevel",
    "MapAccess",
    "MemoryKind",
    "Reduction",
    "Status",
    "Table",
    "TraceKind",
    "dtypes_in",
    "mask_of",
    "status_name",
    "tb_arg",
    "tb_arg_value",
    "tb_ccl_table",
    "tb_core_table",
    "tb_device_id",
    "tb_device_properties",
    "tb_dtype",
    "tb_graph_table",
    "tb_host",
    "tb_host_function",
    "tb_ipc_handle",
    "tb_kernel",
    "tb_kernel_context",
    "tb_kernel_function",
    "tb_kernel_table",
    "tb_plugin",
    "tb_plugin_entry_function",
    "tb_pointer_info",
    "tb_profiler_table",
    "tb_tensor",
    "tb_trace_callback",
    "tb_trace_record",
]
