"""Addresses that are reserved, and memory behind parts of them."""

import ctypes
import itertools
import struct
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from torch_backend.abi import (
    CopyKind,
    Device,
    DeviceError,
    DeviceLibrary,
    MemoryKind,
    Status,
    status_name,
    tb_pointer_info,
)
from torch_conformance import needs
from torch_conformance.promises import promise
from torch_conformance.suite.abi._module_sources import Mixed, sum_of
from torch_conformance.suite.abi._modules import Launch, Parameter, Pointer, modules_of
from torch_conformance.suite.abi._support import expect_bytes, memory, pattern, total_bytes
from torch_conformance.threads import in_numbered_threads

pytestmark = needs.capability("VIRTUAL_MEMORY")

_MARK_BYTES = 4096
_THREADS = 4
_ROUNDS = 20


@contextmanager
def _committed(device: Device, parts: int) -> Iterator[tuple[int, int]]:
    """The base of a reservation with that many parts, committed one by one, and the size of each."""
    size = device.properties.commit_granularity_bytes
    with device.reservation(parts * size) as base:
        done = 0
        try:
            for _ in range(parts):
                device.commit(base + done * size, size)
                done += 1
            yield base, size
        finally:
            device.synchronize()
            for part in range(done):
                device.decommit(base + part * size, size)


@promise("tb_device_properties.commit_granularity_bytes, address_reserve 1")
def test_reservations_are_aligned_and_distinct(library: DeviceLibrary) -> None:
    """Reserved addresses are multiples of the granularity, and overlap nothing else."""
    for device in library.devices:
        size = device.properties.commit_granularity_bytes
        with device.reservation(size) as a, device.reservation(3 * size) as b, memory(device, size) as c:
            for base in (a, b):
                assert base % size == 0, f"{device}: reserved addresses at {base:#x} are not aligned to {size} bytes"
            ranges = sorted([(a, a + size), (b, b + 3 * size), (c, c + size)])
            for (begin, end), (next_begin, _) in itertools.pairwise(ranges):
                assert end <= next_begin, f"{device}: {begin:#x} to {end:#x} overlaps what begins at {next_begin:#x}"


@promise("address_reserve 2")
def test_reservations_take_no_memory(library: DeviceLibrary) -> None:
    """Several reservations, each larger than the device's memory, exist at once."""
    for device in library.devices:
        granularity = device.properties.commit_granularity_bytes
        size = max(4 * device.properties.total_memory_bytes, 1 << 41) // granularity * granularity
        try:
            with device.reservation(size), device.reservation(size) as base:
                device.commit(base + size - granularity, granularity)
                device.write(base + size - 1, b"\x01")
                device.decommit(base + size - granularity, granularity)
        except DeviceError as error:
            raise AssertionError(f"{device}: {size} bytes of addresses could not be reserved twice: {error}") from None


@promise("address_release 1")
def test_addresses_are_not_lost(library: DeviceLibrary) -> None:
    """Addresses can be reserved and given back again and again: together, more than there are."""
    for device in library.devices:
        granularity = device.properties.commit_granularity_bytes
        size = (1 << 43) // granularity * granularity
        for _ in range(64):
            with device.reservation(size):
                pass


@promise("memory_commit 1")
def test_committed_memory_keeps_its_contents(library: DeviceLibrary) -> None:
    """What is written stays when memory is committed before and after it."""
    for device in library.devices:
        size = device.properties.commit_granularity_bytes
        data = pattern(_MARK_BYTES)
        with device.reservation(3 * size) as base:
            for part in (1, 0, 2):
                device.commit(base + part * size, size)
                device.write(base + part * size, data)
            for part in range(3):
                content = device.read(base + part * size, _MARK_BYTES)
                device.decommit(base + part * size, size)
                expect_bytes(content, data, f"{device}: part {part} of a reservation, after more was committed")


@promise("memory_commit 3")
def test_parts_that_touch_are_one_allocation(library: DeviceLibrary) -> None:
    """Copies go over the borders of parts, to and from the device and within it."""
    for device in library.devices:
        with _committed(device, 4) as (base, size):
            data = pattern(2 * _MARK_BYTES)
            device.write(base + size - _MARK_BYTES, data)
            expect_bytes(
                device.read(base + size - _MARK_BYTES, len(data)),
                data,
                f"{device}: written over the border of two parts",
            )
            target = base + 3 * size - _MARK_BYTES
            device.copy(target, base + size - _MARK_BYTES, len(data), CopyKind.DEVICE_TO_DEVICE)
            device.synchronize()
            expect_bytes(device.read(target, len(data)), data, f"{device}: copied over the borders of parts")


@promise("memory_commit 3")
@needs.slot("memory_query")
def test_parts_that_touch_are_one_to_queries(library: DeviceLibrary) -> None:
    """memory_query knows committed memory as one range, and addresses without memory not at all."""
    for device in library.devices:
        with _committed(device, 3) as (base, size):
            device.decommit(base + 2 * size, size)
            try:
                info = tb_pointer_info(struct_size=ctypes.sizeof(tb_pointer_info))
                _expect_range(library, device, base + size + 1, base, 2 * size)
                library.check("memory_query", base + 2 * size, ctypes.byref(info))
                assert info.kind == MemoryKind.UNKNOWN, f"{device}: addresses without memory have kind {info.kind}"
                device.decommit(base, size)
                try:
                    _expect_range(library, device, base + size + 1, base + size, size)
                finally:
                    device.commit(base, size)
            finally:
                device.commit(base + 2 * size, size)


def _expect_range(library: DeviceLibrary, device: Device, address: int, base: int, size: int) -> None:
    """The range that a query of a committed address knows, if it knows one."""
    info = tb_pointer_info(struct_size=ctypes.sizeof(tb_pointer_info))
    library.check("memory_query", address, ctypes.byref(info))
    what = f"{device}: memory_query of the second part"
    assert info.kind == MemoryKind.DEVICE, f"{what} says kind {info.kind}"
    assert info.device in (device.index, -1), f"{what} says device {info.device}"
    assert info.base in (base, None), f"{what} says base {info.base or 0:#x}, not {base:#x}"
    if info.base is not None:
        assert info.size_bytes == size, f"{what} says {info.size_bytes} bytes, not {size}"


@promise("memory_decommit 1 2")
def test_neighbours_stay_when_a_part_goes(library: DeviceLibrary) -> None:
    """A part is taken back and committed again, and those beside it keep what they hold."""
    for device in library.devices:
        with _committed(device, 3) as (base, size):
            data = pattern(_MARK_BYTES)
            for part in range(3):
                device.write(base + (part + 1) * size - _MARK_BYTES, data)
            device.decommit(base + size, size)
            device.commit(base + size, size)
            device.write(base + 2 * size - _MARK_BYTES, data)
            for part in range(3):
                content = device.read(base + (part + 1) * size - _MARK_BYTES, _MARK_BYTES)
                expect_bytes(content, data, f"{device}: part {part}, after the one in the middle was taken back")


@promise("memory_commit 2")
@needs.capability("ASYNC")
def test_committed_memory_is_usable_from_every_stream(library: DeviceLibrary) -> None:
    """New memory is there for all streams at once."""
    for device in library.devices:
        with device.stream() as one, device.stream() as other, _committed(device, 1) as (base, size):
            data = pattern(_MARK_BYTES)
            for stream, at in ((one, 0), (other, size // 2), (None, size - _MARK_BYTES)):
                device.write(base + at, data, stream)
                expect_bytes(device.read(base + at, _MARK_BYTES, stream), data, f"{device}: committed memory at {at}")


@promise("memory_commit 2")
@needs.devices(2)
@needs.capability("PEER")
def test_committed_memory_is_for_peers(library: DeviceLibrary) -> None:
    """Copies between devices take memory that was committed before and after the first of them."""
    first, second = library.devices[:2]
    for source, target in ((first, second), (second, first)):
        for _ in range(2):
            with _committed(source, 1) as (src, _), _committed(target, 1) as (dst, _):
                data = pattern(_MARK_BYTES)
                source.write(src, data)
                source.copy(dst, src, len(data), CopyKind.PEER, dst_device=target)
                source.synchronize()
                expect_bytes(target.read(dst, len(data)), data, f"copied from {source} to {target}")


@promise("memory_commit 2")
@needs.devices(2)
@needs.table("kernels.1")
@needs.slot("peer_can_access")
def test_kernels_of_peers_use_committed_memory(library: DeviceLibrary) -> None:
    """A device that may access another's memory has what is committed there, before it asked and afterwards."""
    mixed = Mixed(-5, 70000, -300, 1 << 20, 2.5, (ctypes.c_uint8 * 3)(1, 200, 255))
    values: list[Parameter] = [mixed, ctypes.c_uint8(250), ctypes.c_int64(-77 << 32)]
    for modules in modules_of(library):
        device = modules.device
        peer = next(other for other in library.devices if other is not device)
        with _committed(peer, 1) as (before, _):
            can_access = ctypes.c_int32()
            library.check("peer_can_access", device.index, peer.index, ctypes.byref(can_access))
            if not can_access.value:
                needs.not_offered(f"peer_can_access({device.index}, {peer.index}) answered 0")
            with _committed(peer, 1) as (after, _):
                for when, address in (("before", before), ("after", after)):
                    peer.write(address, bytes(4))
                    modules.launch("sum", Launch([Pointer(address), *values]), None)
                    device.synchronize()
                    (number,) = struct.unpack("i", peer.read(address, 4))
                    assert number == sum_of(mixed, 250, -77 << 32), (
                        f"{modules}: a function wrote {number} to memory of {peer} that was committed {when} "
                        "peer_can_access"
                    )


@promise("memory_commit 2")
@needs.capability("HOST_ACCESS")
@needs.capability("HOST_COHERENT")
def test_committed_memory_is_for_the_host(library: DeviceLibrary) -> None:
    """The host loads and stores what was committed, over the borders of parts."""
    for device in library.devices:
        with _committed(device, 2) as (base, size):
            data, address = pattern(2 * _MARK_BYTES), base + size - _MARK_BYTES
            ctypes.memmove(address, data, len(data))
            expect_bytes(device.read(address, len(data)), data, f"{device}: what the host has stored")
            expect_bytes(ctypes.string_at(address, len(data)), data, f"{device}: what the host loads")


@promise("memory_decommit 1")
@needs.slot("memory_info")
def test_committed_memory_is_not_lost(library: DeviceLibrary) -> None:
    """Memory goes back: together, several times what the device has can be committed."""
    for device in library.devices:
        granularity = device.properties.commit_granularity_bytes
        free, total = device.memory_info()
        size = max(min(free, total) // 4 // granularity, 1) * granularity
        with device.reservation(size) as base:
            for _ in range(_ROUNDS):
                device.commit(base, size)
                device.write(base + size - 1, b"\x01")
                device.decommit(base, size)


@promise("memory_commit 6")
@pytest.mark.thorough
def test_full_memory_is_out_of_memory(library: DeviceLibrary) -> None:
    """A commit that finds no memory is OUT_OF_MEMORY, and the next works once some was taken back."""
    for device in library.devices:
        granularity = device.properties.commit_granularity_bytes
        size = max(total_bytes(device) // 16 // granularity, 1) * granularity
        with device.reservation(20 * size) as base:
            held: list[int] = []
            full: int = Status.OK
            for part in range(20):
                full = library.status("memory_commit", device.index, base + part * size, size)
                if full != Status.OK:
                    break
                held.append(base + part * size)
            try:
                assert full == Status.OUT_OF_MEMORY, (
                    f"{device}: full memory is reported as {status_name(full)} instead of OUT_OF_MEMORY"
                )
                assert held, f"{device}: not even one sixteenth of its memory ({size} bytes) could be committed"
                device.decommit(held[-1], size)
                device.commit(held[-1], size)
                device.write(held[-1], b"\x01")
            finally:
                for address in held:
                    device.decommit(address, size)


@promise("all calls 8.1")
def test_threads_commit_parts_of_one_reservation(library: DeviceLibrary) -> None:
    """Threads commit and take back parts beside each other, and each has what it wrote."""
    for device in library.devices:
        size = device.properties.commit_granularity_bytes
        with device.reservation(_THREADS * size) as base:

            def work(number: int, device: Device = device, base: int = base, size: int = size) -> None:
                library.bind(device.index)
                address, data = base + number * size, pattern(_MARK_BYTES, seed=number)
                for _ in range(_ROUNDS):
                    device.commit(address, size)
                    device.write(address, data)
                    content = device.read(address, _MARK_BYTES)
                    device.decommit(address, size)
                    expect_bytes(content, data, f"{device}: the part of thread {number}")

            in_numbered_threads(_THREADS, work)
