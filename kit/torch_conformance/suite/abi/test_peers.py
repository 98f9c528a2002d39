"""Two devices of one library."""

import ctypes

import pytest

from torch_backend.abi import CopyKind, DeviceLibrary, Status, status_name
from torch_conformance import needs
from torch_conformance.promises import promise
from torch_conformance.suite.abi._support import GUARD_BYTES, expect_bytes, memory, pattern


@promise("TB_CAP_PEER 1, TB_COPY_PEER")
@needs.devices(2)
@needs.capability("PEER")
@pytest.mark.parametrize("size", [1, 3, 17, 4097, 65537])
def test_copies_between_devices_arrive_whole(library: DeviceLibrary, size: int) -> None:
    """A copy from one device to another writes its target and nothing else, in both directions."""
    first, second = library.devices[:2]
    for source, target in ((first, second), (second, first)):
        data, outside = pattern(size, seed=1), pattern(size + 2 * GUARD_BYTES, seed=2)
        with memory(source, size) as src, memory(target, len(outside)) as dst:
            source.write(src, data)
            target.write(dst, outside)
            source.copy(dst + 1, src, size, CopyKind.PEER, dst_device=target)
            source.synchronize()
            expect_bytes(
                target.read(dst, len(outside)),
                outside[:1] + data + outside[1 + size :],
                f"{size} bytes copied from {source} to {target}",
            )


@promise("all calls 5.2")
@needs.devices(2)
def test_a_refused_copy_between_devices_moves_nothing(library: DeviceLibrary) -> None:
    """A copy between devices that is UNSUPPORTED leaves its target as it was, and is not declared."""
    source, target = library.devices[:2]
    size = 256
    data, before = pattern(size, seed=1), pattern(size, seed=2)
    with memory(source, size) as src, memory(target, size) as dst:
        source.write(src, data)
        target.write(dst, before)
        status = library.status("memory_copy", target.index, dst, source.index, src, size, CopyKind.PEER, None)
        source.synchronize()
        expected = data if status == Status.OK else before
        expect_bytes(
            target.read(dst, size),
            expected,
            f"{target}: after memory_copy of TB_COPY_PEER answered {status_name(status)}",
        )


@promise("peer_can_access 1")
@needs.devices(2)
@needs.slot("peer_can_access")
def test_peer_access_is_yes_or_no(library: DeviceLibrary) -> None:
    """Whether a device can access another is answered with 0 or 1, and the same every time."""
    for device in library.devices:
        for peer in library.devices:
            if device is peer:
                continue
            answers = []
            for _ in range(2):
                answer = ctypes.c_int32(-7)
                status = library.status("peer_can_access", device.index, peer.index, ctypes.byref(answer))
                if status == Status.UNSUPPORTED:
                    needs.not_offered("peer_can_access answered UNSUPPORTED")
                assert status == Status.OK, (
                    f"peer_can_access({device.index}, {peer.index}) returned {status_name(status)}"
                )
                answers.append(answer.value)
            assert answers in ([0, 0], [1, 1]), f"peer_can_access({device.index}, {peer.index}) answered {answers}"


@promise("memory_allocate 3")
@needs.devices(2)
def test_devices_do_not_share_memory(library: DeviceLibrary) -> None:
    """What is written on one device does not change what another one holds."""
    size = 4096
    blocks = [(device, device.allocate(size), pattern(size, seed=device.index)) for device in library.devices]
    try:
        for device, address, data in blocks:
            device.write(address, data)
        for device, address, data in blocks:
            expect_bytes(device.read(address, size), data, f"{device}: after the other devices were written")
    finally:
        for device, address, _ in blocks:
            device.free(address, size)
