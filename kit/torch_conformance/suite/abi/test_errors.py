"""What a device says when it fails: the right status, a reason, and no side effect."""

import ctypes

import pytest

from torch_backend.abi import Device, DeviceLibrary, MemoryKind, Status, status_name
from torch_conformance import needs
from torch_conformance.promises import promise
from torch_conformance.suite.abi._support import ROUNDS, memory, used_bytes
from torch_conformance.threads import in_numbered_threads

_IMPOSSIBLE_BYTES = (1 << 60, 1 << 61)
_UNTOUCHED = 0x5A5A5A5A5A5A5A5A
_UNKNOWN_KINDS = (MemoryKind.UNKNOWN, 77)
_REPEATS = 200


def _allocate(device: Device, kind: int, size_bytes: int) -> tuple[int, int | None]:
    out = ctypes.c_void_p(_UNTOUCHED)
    status = device.library.status("memory_allocate", device.index, kind, size_bytes, None, ctypes.byref(out))
    return status, out.value


def _reason(device: Device, size_bytes: int) -> str:
    """The text of an allocation that cannot succeed."""
    status, _ = _allocate(device, MemoryKind.DEVICE, size_bytes)
    assert status != Status.OK, f"{device}: {size_bytes} bytes could be allocated"
    return device.library.error_text()


@promise("all calls 5.3")
def test_failures_come_with_a_reason(library: DeviceLibrary) -> None:
    """A call that fails says why, each time."""
    for device in library.devices:
        for _ in range(3):
            reason = _reason(device, _IMPOSSIBLE_BYTES[0])
            assert reason, f"{device}: memory_allocate failed without host->fail: the reason is lost"


@promise("all calls 5.3")
def test_reasons_are_those_of_the_calling_thread(library: DeviceLibrary) -> None:
    """Threads that fail at the same time each get the reason of their own call."""
    for device in library.devices:
        expected = [_reason(device, size) for size in _IMPOSSIBLE_BYTES]
        # A reason that names the size tells the two calls apart.
        tells_apart = expected[0] != expected[1] and expected == [_reason(device, size) for size in _IMPOSSIBLE_BYTES]

        def fail(
            number: int, device: Device = device, expected: list[str] = expected, tells_apart: bool = tells_apart
        ) -> None:
            own = number % len(_IMPOSSIBLE_BYTES)
            for _ in range(_REPEATS):
                reason = _reason(device, _IMPOSSIBLE_BYTES[own])
                assert reason, f"{device}: the reason of a failure is lost when several threads fail"
                assert reason == expected[own] or not tells_apart, (
                    f"{device}: a thread got the reason of another: {reason!r} instead of {expected[own]!r}"
                )

        in_numbered_threads(4, fail)


@promise("memory_allocate 5")
@pytest.mark.parametrize("kind", _UNKNOWN_KINDS, ids=int)
def test_memory_of_an_unknown_kind_is_unsupported(library: DeviceLibrary, kind: int) -> None:
    """Memory of a kind that the contract does not have is UNSUPPORTED, and no address is given."""
    for device in library.devices:
        status, address = _allocate(device, kind, 4096)
        assert status == Status.UNSUPPORTED, (
            f"{device}: memory_allocate of kind {int(kind)} returned {status_name(status)} instead of UNSUPPORTED"
        )
        assert address == _UNTOUCHED, f"{device}: memory_allocate is UNSUPPORTED but wrote to out_ptr"


@promise("all calls 5.2")
@needs.slot("memory_info")
def test_refused_memory_is_not_taken(library: DeviceLibrary) -> None:
    """Memory of a kind that is UNSUPPORTED, and memory that is too large, does not become less."""
    size = 1 << 20
    for device in library.devices:
        taken = []
        with memory(device, size):
            for _ in range(ROUNDS):
                before = used_bytes(device)
                for _ in range(64):
                    _allocate(device, _UNKNOWN_KINDS[-1], size)
                    _allocate(device, MemoryKind.DEVICE, _IMPOSSIBLE_BYTES[0])
                taken.append(used_bytes(device) - before)
                if taken[-1] < 32 * size:
                    break
        assert min(taken) < 32 * size, (
            f"{device}: memory_allocate failed 128 times, and {min(taken)} bytes less are free, or more, in each of "
            f"{ROUNDS} rounds: a side effect"
        )


@promise("all calls 5.2")
def test_a_failure_does_not_stay(library: DeviceLibrary) -> None:
    """The calls after one that failed succeed."""
    for device in library.devices:
        _reason(device, _IMPOSSIBLE_BYTES[0])
        with memory(device, 64) as address:
            device.write(address, b"after")
            assert device.read(address, 5) == b"after", f"{device}: copies are wrong after a call that failed"


@promise("TB_STATUS_LIST 2.1")
def test_work_is_never_not_ready(library: DeviceLibrary) -> None:
    """Only queries return NOT_READY; what allocates, copies or waits does not."""
    for device in library.devices:
        buffer = ctypes.create_string_buffer(1 << 20)
        with memory(device, 1 << 20) as address:
            calls: list[tuple[str, tuple[object, ...]]] = [
                ("memory_copy", (device.index, address, -1, ctypes.addressof(buffer), 1 << 20, 1, None)),
                ("memory_copy", (-1, ctypes.addressof(buffer), device.index, address, 1 << 20, 2, None)),
            ]
            if device.is_async:
                calls.append(("stream_synchronize", (device.index, None)))
            for slot, arguments in calls:
                status = library.status(slot, *arguments)
                assert status == Status.OK, f"{device}: {slot} returned {status_name(status)}: {library.error_text()}"
