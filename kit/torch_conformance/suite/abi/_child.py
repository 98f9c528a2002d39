"""Processes that tests start, because the state of a process is what they are about.

python -m torch_conformance.suite.abi._child FUNCTION LIBRARY [ARGUMENT ...]
"""

import ctypes
import mmap
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NoReturn

from torch_backend.abi import (
    ABI_MAJOR,
    CopyKind,
    Device,
    DeviceError,
    DeviceLibrary,
    LibraryError,
    host,
    status_name,
    tb_host,
    tb_host_function,
)
from torch_backend.files import patience

PATTERN = bytes(range(256)) * 4
_PENDING_SECONDS = 60
_FORK_SECONDS = 15

SHARED_BYTES = (1 << 20) + 77
OFFSET_BYTES = 4099
REPLY = bytes(range(1, 200))
"""What a process writes to memory that it has imported, at OFFSET_BYTES."""

_OFTEN = 200
_MOST_MORE = 20

_kept: list[object] = []
"""What a library may use until the process ends."""


def _use(library: DeviceLibrary) -> None:
    library.initialize()
    for device in library.devices:
        with device.allocation(len(PATTERN)) as address:
            device.write(address, PATTERN)
            if device.read(address, len(PATTERN)) != PATTERN:
                sys.exit(f"{device} returned other bytes than were written")


def _services_at(address: int, struct_size: int) -> tb_host:
    """A copy of our services that says it has another size. What it lies in has to be in _kept."""
    ctypes.memmove(address, ctypes.byref(host.services()), ctypes.sizeof(tb_host))
    services = tb_host.from_address(address)
    services.struct_size = struct_size
    return services


def open_with_newer_host(path: str) -> None:
    """A host whose struct is longer, and filled past what the library knows."""
    longer = ctypes.sizeof(tb_host) + 64
    room = (ctypes.c_uint8 * longer)(*[0xFF] * longer)
    _kept.append(room)
    services = _services_at(ctypes.addressof(room), longer)
    services.abi_minor += 7
    _use(DeviceLibrary.open(path, services=services))


def open_with_host_at_the_end_of_memory(path: str) -> None:
    """A host whose struct ends where memory ends."""
    pages = mmap.mmap(-1, 2 * mmap.PAGESIZE)
    _kept.append(pages)
    start = ctypes.addressof(ctypes.c_char.from_buffer(pages))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mprotect(ctypes.c_void_p(start + mmap.PAGESIZE), ctypes.c_size_t(mmap.PAGESIZE), 0) != 0:
        raise OSError(ctypes.get_errno(), "mprotect")
    size = ctypes.sizeof(tb_host)
    _use(DeviceLibrary.open(path, services=_services_at(start + mmap.PAGESIZE - size, size)))


def open_with_other_major(path: str) -> None:
    """A host of another major version: the library says no, or says what it speaks."""
    size = ctypes.sizeof(tb_host)
    room = (ctypes.c_uint8 * size)()
    _kept.append(room)
    services = _services_at(ctypes.addressof(room), size)
    services.abi_major = ABI_MAJOR + 98
    try:
        DeviceLibrary.open(path, services=services)
    except LibraryError as error:
        if "gave no reason" in str(error):
            sys.exit(str(error))


def _in_fork(work: Callable[[], None]) -> int:
    """The exit code of a forked process that does ``work``."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        _work_and_exit(work)
    end = time.monotonic() + patience.seconds(_FORK_SECONDS)
    while time.monotonic() < end:
        finished, status = os.waitpid(child, os.WNOHANG)
        if finished:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(child, 9)
    os.waitpid(child, 0)
    sys.exit("the forked process hangs")


def _work_and_exit(work: Callable[[], None]) -> NoReturn:
    try:
        work()
    except SystemExit as error:
        sys.stderr.write(f"forked process: {error}\n")
        os._exit(1)
    except Exception as error:
        sys.stderr.write(f"forked process: {error}\n")
        os._exit(2)
    sys.exit(0)  # as a process ends: handlers of the library run


def fork_before_initialize(path: str) -> None:
    """The devices are counted, and used by a forked process, and then by this one."""
    library = DeviceLibrary.open(path)
    if library.device_count < 0:
        sys.exit("device_count is negative")
    code = _in_fork(lambda: _use(library))
    if code != 0:
        sys.exit(
            f"a process that was forked after device_count, and before initialize, could not use the devices ({code}); "
            "device_count must leave the process able to fork"
        )
    _use(library)


def fork_after_initialize(path: str) -> None:
    """A forked process that does not use the devices ends, and its parent goes on."""
    library = DeviceLibrary.open(path)
    _use(library)
    code = _in_fork(lambda: None)
    if code != 0:
        sys.exit(f"a forked process that did not use the devices ended with {code}")
    _use(library)


def exit_while_work_is_pending(path: str) -> None:
    """The process ends while a stream is held. The function is C's: at exit Python's could not run any more."""
    library = DeviceLibrary.open(path)
    library.initialize()
    device = library.devices[0]
    library.bind(device.index)
    sleep = ctypes.CDLL(None).sleep
    slot = library.core.stream_host_function
    status = library.noted(
        slot(device.index, None, ctypes.cast(sleep, tb_host_function), ctypes.c_void_p(_PENDING_SECONDS))
    )
    if status != 0:
        sys.exit(f"stream_host_function returned {status_name(status)}: {library.error_text()}")


# ---- memory of another process ----


def _open_device(path: str, index: str) -> Device:
    library = DeviceLibrary.open(path)
    if not _kept:
        library.initialize()
    _kept.append(library)
    return library.devices[int(index)]


def _expect_pattern(device: Device, address: int, seed: str, what: str) -> None:
    from torch_conformance.suite.abi._support import expect_bytes, pattern  # takes time, and few need it

    expect_bytes(device.read(address, SHARED_BYTES), pattern(SHARED_BYTES, seed=int(seed)), f"{device}: {what}")


def import_memory(path: str, index: str, handle: str, seed: str) -> None:
    """What another process has written is read, copied within the device and to this process's memory, and written."""
    device = _open_device(path, index)
    address = device.import_memory(bytes.fromhex(handle))
    _expect_pattern(device, address, seed, "memory of another process")
    with device.allocation(SHARED_BYTES) as own:
        device.copy(own, address, SHARED_BYTES, CopyKind.DEVICE_TO_DEVICE)
        device.synchronize()
        _expect_pattern(device, own, seed, "own memory, to which that of another process was copied")
    device.write(address + OFFSET_BYTES, REPLY)
    device.close_memory(address)


def read_memory(path: str, *arguments: str) -> None:
    """What another process has written to several allocations is read while all are open.

    ``arguments`` are the device, handle and seed of each.
    """
    opened = []
    for index, handle, seed in zip(*[iter(arguments)] * 3, strict=True):
        device = _open_device(path, index)
        opened.append((device, device.import_memory(bytes.fromhex(handle)), seed))
    for device, address, seed in opened:
        _expect_pattern(device, address, seed, "one of several allocations of another process")
    for device, address, _ in opened:
        device.close_memory(address)


def _mappings_and_files() -> tuple[int, int]:
    return len(Path("/proc/self/maps").read_text().splitlines()), len(os.listdir("/proc/self/fd"))


def import_over_and_over(path: str, index: str, handle: str, seed: str) -> None:
    """Memory is imported and closed many times."""
    device = _open_device(path, index)
    before = None
    for turn in range(_OFTEN):
        address = device.import_memory(bytes.fromhex(handle))
        if turn in (0, _OFTEN - 1):
            _expect_pattern(device, address, seed, f"memory of another process that was imported {turn + 1} times")
        device.close_memory(address)
        before = before or _mappings_and_files()
    for what, first, last in zip(("mappings", "files"), before or (), _mappings_and_files(), strict=True):
        if last > first + _MOST_MORE:
            sys.exit(f"{device}: {_OFTEN} imports that were closed left {last - first} more {what}")


def import_what_is_gone(path: str, index: str, handle: str) -> None:
    """Memory that its process has freed is not opened."""
    device = _open_device(path, index)
    try:
        device.import_memory(bytes.fromhex(handle))
    except DeviceError as error:
        if "gave no reason" in str(error):
            sys.exit(str(error))
        return
    sys.exit(f"{device}: ipc_import of memory that its process has freed returned OK")


def export_and_end(path: str, index: str, file: str) -> None:
    """A handle is written to a file, and the process ends."""
    device = _open_device(path, index)
    Path(file).write_bytes(device.export_memory(device.allocate(SHARED_BYTES)))


def main(functions: Mapping[str, Callable[..., None]]) -> None:
    """Call the function that the command line names, with the library and its other arguments, and end as it does."""
    try:
        functions[sys.argv[1]](*sys.argv[2:])
    except (DeviceError, LibraryError, AssertionError) as failure:
        sys.exit(str(failure))


if __name__ == "__main__":
    main(globals())
