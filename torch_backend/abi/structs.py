"""The structs, tables and function types of device.h in ctypes: the header is read, and nothing of it repeated.

Pointers are addresses, and strings bytes; None is NULL. Parameters that point at numbers or structs take
``ctypes.byref`` of one. Annotations are for the type checker, where it is told a field's type; slots have none.
"""

import ctypes
from typing import Any, TypeVar

from torch_backend.abi.header import Field, Function, Variable, installed_declarations

_Struct = TypeVar("_Struct", bound=type[ctypes.Structure])

_header = installed_declarations()

_types: dict[str, Any] = {
    **{f"{sign}int{bits}_t": getattr(ctypes, f"c_{sign}int{bits}") for bits in (8, 16, 32, 64) for sign in ("", "u")},
    "char": ctypes.c_char,
    "double": ctypes.c_double,
    "tb_status": ctypes.c_int32,
    "void": None,
}
"""By their names in C."""


def _value_type(name: str) -> Any:
    """The type of a field or a result: a pointer is an address."""
    if name.endswith("*"):
        return ctypes.c_char_p if name == "char*" else ctypes.c_void_p
    return _types[name]


def _parameter_type(name: str) -> Any:
    """That of a pointer to a number or a struct says to what."""
    target = ctypes.c_void_p if name.endswith("**") else _types.get(name[:-1])
    return _value_type(name) if name[-1] != "*" or target in (None, ctypes.c_char) else ctypes.POINTER(target)


def _function_type(function: Function) -> Any:
    return ctypes.CFUNCTYPE(_value_type(function.result), *(_parameter_type(p.type) for p in function.parameters))


def _field(field: Field) -> tuple[str, Any]:
    if isinstance(field, Function):
        return field.name, _function_type(field)
    if isinstance(field, Variable):
        kind = _value_type(field.type)
        return field.name, kind * int(_header.constants.get(field.length, field.length)) if field.length else kind
    name, members = field
    return name, type(f"{name}_union", (ctypes.Union,), {"_fields_": [_field(member) for member in members]})


def _of_header(cls: _Struct) -> _Struct:
    """Give a class the fields of the struct that it is named after."""
    cls._fields_ = [_field(field) for field in _header.structs[cls.__name__]]
    _types[cls.__name__] = cls
    return cls


def _function_type_of_header(name: str) -> Any:
    _types[name] = _function_type(_header.functions[name])
    return _types[name]


@_of_header
class tb_device_id(ctypes.Structure):
    """The device of a tensor."""

    type: int
    index: int


@_of_header
class tb_dtype(ctypes.Structure):
    """A dtype."""

    code: int
    bits: int
    lanes: int


@_of_header
class tb_tensor(ctypes.Structure):
    """A strided tensor."""

    data: int | None
    device: tb_device_id
    ndim: int
    dtype: tb_dtype
    shape: int | None
    strides: int | None
    byte_offset: int


@_of_header
class tb_arg(ctypes.Structure):
    """One argument of a kernel; which member of ``v`` counts is what its tag says."""

    tag: int
    length: int
    v: Any


tb_arg_value: Any = tb_arg._fields_[-1][1]


@_of_header
class tb_device_properties(ctypes.Structure):
    """The properties of one device."""

    struct_size: int
    name: bytes
    arch: bytes
    capabilities: int
    total_memory_bytes: int
    allocation_granularity_bytes: int
    allocation_alignment_bytes: int
    dtype_mask: "ctypes.Array[ctypes.c_uint64]"
    capability_major: int
    capability_minor: int
    multiprocessor_count: int
    warp_size: int
    stream_priority_lowest: int
    stream_priority_highest: int
    numa_node: int
    uuid: "ctypes.Array[ctypes.c_uint8]"


@_of_header
class tb_pointer_info(ctypes.Structure):
    """What memory_query says of an address."""

    struct_size: int
    kind: int
    device: int
    base: int | None
    size_bytes: int


@_of_header
class tb_ipc_handle(ctypes.Structure):
    """An allocation, for another process."""

    bytes: "ctypes.Array[ctypes.c_uint8]"


tb_host_function = _function_type_of_header("tb_host_function")


@_of_header
class tb_core_table(ctypes.Structure):
    """The functions that every device offers some of."""


@_of_header
class tb_graph_table(ctypes.Structure):
    """The optional table "graph.1"."""


@_of_header
class tb_philox(ctypes.Structure):
    """What a kernel draws random numbers from."""

    seed: int
    offset: int


@_of_header
class tb_launch_param(ctypes.Structure):
    """One parameter of a module's launch."""

    kind: int
    size_bytes: int
    data: int | None


@_of_header
class tb_kernel_context(ctypes.Structure):
    """What a kernel is called with besides its arguments."""

    struct_size: int
    device: int
    flags: int
    stream: int | None
    host: int | None
    compute_dtype: "tb_dtype"


tb_kernel_function = _function_type_of_header("tb_kernel_function")


@_of_header
class tb_kernel(ctypes.Structure):
    """One kernel."""

    struct_size: int
    op: bytes | None
    flags: int
    dtype_mask: int | None


@_of_header
class tb_kernel_table(ctypes.Structure):
    """The optional table "kernels.1"."""

    kernels: int | None
    num_kernels: int


@_of_header
class tb_ccl_table(ctypes.Structure):
    """The optional table "ccl.1"."""

    unique_id_bytes: int


@_of_header
class tb_trace_record(ctypes.Structure):
    """One thing that the device did."""

    struct_size: int
    kind: int
    device: int
    stream: int
    correlation: int
    start_ns: int
    end_ns: int
    name: bytes | None
    size_bytes: int


tb_trace_callback = _function_type_of_header("tb_trace_callback")


@_of_header
class tb_profiler_table(ctypes.Structure):
    """The optional table "prof.1"."""


@_of_header
class tb_host(ctypes.Structure):
    """The services of the process that opens a device library. ``fail`` is variadic, so only C can offer it."""

    struct_size: int
    abi_major: int
    abi_minor: int


@_of_header
class tb_plugin(ctypes.Structure):
    """A device library."""

    struct_size: int
    abi_major: int
    abi_minor: int
    name: bytes | None
    vendor: bytes | None
    version: bytes | None
    core: int | None
    option_keys: int | None


tb_plugin_entry_function = _function_type_of_header("tb_plugin_entry_function")

OPTIONAL_TABLES: dict[str, type[ctypes.Structure]] = {
    name: _types[struct] for name, struct in _header.tables.items() if name != "core"
}
"""By the names that tb_plugin.table is asked for."""


def slots_of(table: type[ctypes.Structure], need: str = "") -> list[str]:
    """The names of the slots of a table, all or those that are "required", "asynchronous" or "optional"."""
    return [slot.name for slot in _header.slots(table.__name__, need)]


REQUIRED_SLOTS = slots_of(tb_core_table, "required")
ASYNC_SLOTS = slots_of(tb_core_table, "asynchronous")
"""All of them are set on an asynchronous device, none on another."""

ABI_MAJOR = int(_header.constants["TB_ABI_MAJOR"].rstrip("u"))
ABI_MINOR = int(_header.constants["TB_ABI_MINOR"].rstrip("u"))
ENTRY_NAME = _header.constants["TB_PLUGIN_ENTRY_NAME"].strip('"')
DTYPE_MASK_WORDS = int(_header.constants["TB_DTYPE_MASK_WORDS"])
