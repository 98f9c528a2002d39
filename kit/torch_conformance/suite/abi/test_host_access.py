"""Device memory that the host loads and stores itself."""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from torch_backend.abi import Capability, Device, DeviceLibrary, MapAccess
from torch_conformance import needs
from torch_conformance.promises import promise
from torch_conformance.suite.abi._support import expect_bytes, memory, pattern
from torch_conformance.threads import in_threads

pytestmark = needs.capability("HOST_ACCESS")

_SIZE = 10_001


@contextmanager
def _mapped(device: Device, address: int, size: int, access: MapAccess) -> Iterator[None]:
    """The range for the host: mapped, unless the memory is coherent at any time."""
    if device.properties.capabilities & Capability.HOST_COHERENT:
        yield
        return
    device.library.check("memory_map", device.index, address, size, access)
    try:
        yield
    finally:
        device.library.check("memory_unmap", device.index, address, size, access)


@promise("TB_CAP_HOST_ACCESS, TB_CAP_HOST_COHERENT 1, memory_map 1 2")
def test_the_host_loads_what_the_device_holds(library: DeviceLibrary) -> None:
    """The host reads at its own address what a copy has written."""
    for device in library.devices:
        data = pattern(_SIZE)
        with memory(device, _SIZE) as address:
            device.write(address, data)
            with _mapped(device, address, _SIZE, MapAccess.READ):
                expect_bytes(ctypes.string_at(address, _SIZE), data, f"{device}: what the host loaded")


@promise("TB_CAP_HOST_ACCESS, TB_CAP_HOST_COHERENT 1, memory_map 1, memory_unmap")
def test_the_device_sees_what_the_host_stores(library: DeviceLibrary) -> None:
    """A copy reads what the host has stored, also in the midst of an allocation."""
    for device in library.devices:
        data, before = pattern(100, seed=1), pattern(_SIZE, seed=2)
        with memory(device, _SIZE) as address:
            device.write(address, before)
            with _mapped(device, address + 77, 100, MapAccess.READ | MapAccess.WRITE):
                ctypes.memmove(address + 77, data, 100)
            expect_bytes(
                device.read(address, _SIZE),
                before[:77] + data + before[177:],
                f"{device}: after the host stored 100 bytes at offset 77",
            )


def _map_and_unmap(device: Device, address: int) -> None:
    with _mapped(device, address, 100, MapAccess.READ):
        pass


@promise("TB_CAP_HOST_COHERENT 2, memory_map 4")
def test_mapped_ranges_nest_and_overlap(library: DeviceLibrary) -> None:
    """A range stays mapped until the last of the pairs that hold it has ended, in whichever thread."""
    for device in library.devices:
        data = pattern(_SIZE)
        with memory(device, _SIZE) as address:
            device.write(address, data)
            with _mapped(device, address, _SIZE, MapAccess.READ):
                with _mapped(device, address, _SIZE, MapAccess.READ | MapAccess.WRITE):
                    in_threads([partial(_map_and_unmap, device, address + 10)])
                    ctypes.memmove(address + 50, b"\x01", 1)
                expect_bytes(
                    ctypes.string_at(address, _SIZE),
                    data[:50] + b"\x01" + data[51:],
                    f"{device}: what the host loaded after an inner mapping ended",
                )
            expect_bytes(device.read(address + 50, 1), b"\x01", f"{device}: what the host stored in an inner mapping")
