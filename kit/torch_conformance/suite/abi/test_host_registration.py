"""Host memory that exists and is page-locked later."""

import ctypes
import mmap

from torch_backend.abi import CopyKind, DeviceError, DeviceLibrary, Status
from torch_conformance import needs
from torch_conformance.promises import promise
from torch_conformance.suite.abi._support import expect_bytes, memory, pattern

pytestmark = [needs.slot("host_register"), needs.slot("host_unregister")]

_SIZE = 16 * mmap.PAGESIZE


@promise("host_register 1")
def test_registered_memory_is_copied(library: DeviceLibrary) -> None:
    """Memory of the host is registered, used in copies, given back, and still the host's."""
    pages = mmap.mmap(-1, _SIZE)
    buffer = (ctypes.c_uint8 * _SIZE).from_buffer(pages)
    address = ctypes.addressof(buffer)
    data = pattern(_SIZE)
    for device in library.devices:
        before = pattern(_SIZE, seed=1)
        ctypes.memmove(address, before, _SIZE)
        status = library.status("host_register", address, _SIZE)
        expect_bytes(ctypes.string_at(address, _SIZE), before, f"{device}: memory that host_register was called for")
        if status == Status.UNSUPPORTED:
            needs.not_offered("host_register answered UNSUPPORTED")
        if status != Status.OK:
            raise DeviceError("host_register", status, library.error_text())
        ctypes.memmove(address, data, _SIZE)
        with memory(device, _SIZE) as on_device:
            device.copy(on_device, address, _SIZE, CopyKind.HOST_TO_DEVICE)
            device.synchronize()
            ctypes.memset(address, 0, _SIZE)
            device.copy(address, on_device, _SIZE, CopyKind.DEVICE_TO_HOST)
            device.synchronize()
        expect_bytes(ctypes.string_at(address, _SIZE), data, f"{device}: {_SIZE} bytes through registered memory")
        library.check("host_unregister", address)
        expect_bytes(ctypes.string_at(address, _SIZE), data, f"{device}: memory that host_unregister was called for")
        ctypes.memset(address, 1, _SIZE)
