"""What the library knows of an address."""

import ctypes

import pytest

from torch_backend.abi import DeviceLibrary, MemoryKind, Status, status_name, tb_pointer_info
from torch_conformance import needs
from torch_conformance.promises import promise
from torch_conformance.suite.abi._support import expect_bytes, memory

pytestmark = needs.slot("memory_query")

_SIZE = 3000
_UNTOUCHED = 0xA5


def _query(library: DeviceLibrary, address: int) -> tb_pointer_info:
    info = tb_pointer_info(struct_size=ctypes.sizeof(tb_pointer_info))
    status = library.status("memory_query", address, ctypes.byref(info))
    if status == Status.UNSUPPORTED:
        needs.not_offered("memory_query answered UNSUPPORTED")
    assert status == Status.OK, f"memory_query({address:#x}) returned {status_name(status)}: {library.error_text()}"
    return info


@promise(
    "tb_pointer_info.kind, tb_pointer_info.device, tb_pointer_info.base, tb_pointer_info.size_bytes",
    "memory_query 1",
)
@pytest.mark.parametrize("kind", [MemoryKind.DEVICE, MemoryKind.HOST, MemoryKind.SHARED], ids=lambda k: k.name)
def test_addresses_of_memory_are_known(library: DeviceLibrary, kind: MemoryKind) -> None:
    """Every address of an allocation is known, with its kind, its device and where it lies."""
    for device in library.devices:
        with memory(device, _SIZE, kind) as address:
            for offset in (0, 1, _SIZE - 1):
                info = _query(library, address + offset)
                what = f"{device}: memory_query of offset {offset}"
                assert info.kind == kind, f"{what} says kind {info.kind}, but it is {kind.value} ({kind.name})"
                assert info.device in (device.index, -1), f"{what} says device {info.device}"
                assert info.base in (address, None), f"{what} says base {info.base or 0:#x}, not {address:#x}"
                if info.base is not None:
                    assert info.size_bytes == 0 or info.size_bytes >= _SIZE, (
                        f"{what} says {info.size_bytes} bytes, fewer than {_SIZE}"
                    )


@promise("TB_MEMORY_UNKNOWN, memory_query 1")
def test_foreign_addresses_are_unknown(library: DeviceLibrary) -> None:
    """An address that the library did not give out is TB_MEMORY_UNKNOWN."""
    own = ctypes.create_string_buffer(_SIZE)
    for what, address in (("host memory", ctypes.addressof(own)), ("address 8", 8)):
        kind = _query(library, address).kind
        assert kind == MemoryKind.UNKNOWN, f"memory_query of {what} says kind {kind}, not TB_MEMORY_UNKNOWN"


@promise("all calls 3.2 3.4")
@pytest.mark.parametrize("struct_size", [8, 12, 16, 24])
def test_the_answer_is_no_longer_than_asked(library: DeviceLibrary, struct_size: int) -> None:
    """The answer is written up to the struct_size of the caller, and not past it."""
    size = ctypes.sizeof(tb_pointer_info)
    device = library.devices[0]
    with memory(device, _SIZE) as address:
        full = bytes(_query(library, address))
        buffer = (ctypes.c_uint8 * size)(*[_UNTOUCHED] * size)
        info = tb_pointer_info.from_buffer(buffer)
        info.struct_size = struct_size
        library.check("memory_query", address, ctypes.byref(info))
    answer = bytes(buffer)
    what = f"memory_query with a struct_size of {struct_size}"
    expect_bytes(answer[8:struct_size], full[8:struct_size], what)
    expect_bytes(
        answer[struct_size:], bytes([_UNTOUCHED]) * (size - struct_size), f"{what} wrote past the caller's struct"
    )
    filled = int.from_bytes(answer[:8], "little")
    assert filled == struct_size, f"struct_size is {filled} on return, but {struct_size} bytes were to be filled"
