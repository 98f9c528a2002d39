"""Memory that processes share: exported by one, imported by another."""

import ctypes
from pathlib import Path

from torch_backend.abi import Device, DeviceLibrary, Status, tb_ipc_handle
from torch_conformance import needs
from torch_conformance.promises import promise
from torch_conformance.suite.abi._child import OFFSET_BYTES, REPLY, SHARED_BYTES
from torch_conformance.suite.abi._support import expect_bytes, pattern, run_child

pytestmark = needs.capability("IPC")

_UNTOUCHED = 0x5A5A5A5A5A5A5A5A


def _expect_refused(device: Device, handle: bytes, what: str) -> None:
    library = device.library
    out = ctypes.c_void_p(_UNTOUCHED)
    status = library.status(
        "ipc_import", device.index, ctypes.byref(tb_ipc_handle.from_buffer_copy(handle)), ctypes.byref(out)
    )
    assert status != Status.OK, f"{device}: ipc_import of {what} returned OK"
    assert out.value == _UNTOUCHED, f"{device}: ipc_import of {what} failed but wrote to out_ptr"


@promise("ipc_export 1")
def test_processes_share_memory(library: DeviceLibrary) -> None:
    """A process that imports memory reads what its exporter wrote, and the exporter sees what is written there."""
    device = library.devices[0]
    with device.allocation(SHARED_BYTES) as address:
        data = pattern(SHARED_BYTES, seed=3)
        device.write(address, data)
        run_child(library, "import_memory", "0", device.export_memory(address).hex(), "3")
        expected = data[:OFFSET_BYTES] + REPLY + data[OFFSET_BYTES + len(REPLY) :]
        expect_bytes(
            device.read(address, SHARED_BYTES), expected, f"{device}: after another process wrote to exported memory"
        )


@promise("ipc_export 1")
def test_handles_name_their_allocation(library: DeviceLibrary) -> None:
    """Each of several handles opens the allocation that it was made of, on every device."""
    blocks = [(device, device.allocate(SHARED_BYTES)) for device in (*library.devices, *library.devices)]
    try:
        for number, (device, address) in enumerate(blocks):
            device.write(address, pattern(SHARED_BYTES, seed=number))
        arguments = [
            argument
            for number, (device, address) in enumerate(blocks)
            for argument in (str(device.index), device.export_memory(address).hex(), str(number))
        ]
        run_child(library, "read_memory", *arguments)
    finally:
        for device, address in blocks:
            device.free(address, SHARED_BYTES)


@promise("ipc_export 1")
def test_importing_and_closing_loses_nothing(library: DeviceLibrary) -> None:
    """Memory that is imported and closed over and over leaves the process with as many mappings and files as before."""
    device = library.devices[0]
    with device.allocation(SHARED_BYTES) as address:
        device.write(address, pattern(SHARED_BYTES, seed=5))
        run_child(library, "import_over_and_over", "0", device.export_memory(address).hex(), "5")
        expect_bytes(
            device.read(address, SHARED_BYTES), pattern(SHARED_BYTES, seed=5), f"{device}: memory that others closed"
        )


@promise("ipc_export 2")
def test_exported_memory_is_freed(library: DeviceLibrary) -> None:
    """Memory that was exported is freed like any other, after which no process can import it."""
    device = library.devices[0]
    address = device.allocate(SHARED_BYTES)
    handle = device.export_memory(address)
    device.free(address, SHARED_BYTES)
    run_child(library, "import_what_is_gone", "0", handle.hex())


@promise("ipc_export 2")
def test_memory_of_a_process_that_has_ended(library: DeviceLibrary, tmp_path: Path) -> None:
    """What a process exported that has ended cannot be imported."""
    file = tmp_path / "handle"
    run_child(library, "export_and_end", "0", str(file))
    _expect_refused(library.devices[0], file.read_bytes(), "memory of a process that has ended")
