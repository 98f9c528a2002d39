"""What the devices say about themselves."""

import ctypes

import pytest

from torch_backend.abi import (
    ABI_MINOR,
    Capability,
    DeviceLibrary,
    tb_device_properties,
)
from torch_backend.diagnosis import properties
from torch_conformance.promises import promise
from torch_conformance.suite.abi._support import expect_bytes
from torch_conformance.threads import in_numbered_threads

_SIZE = ctypes.sizeof(tb_device_properties)
_UNTOUCHED = 0xA5
_COMMON = Capability.ASYNC | Capability.HOST_ACCESS | Capability.HOST_COHERENT
_SIZE_FIELD_BYTES = 8


def _answer(library: DeviceLibrary, device: int, struct_size: int, room: int) -> bytes:
    """What device_properties writes into ``room`` bytes of which it is told that the struct has ``struct_size``."""
    buffer = (ctypes.c_uint8 * room)(*[_UNTOUCHED] * room)
    answer = tb_device_properties.from_buffer(buffer)
    answer.struct_size = struct_size
    library.check("device_properties", device, ctypes.byref(answer))
    return bytes(buffer)


@promise("device_count 1")
def test_the_number_of_devices_stays(library: DeviceLibrary) -> None:
    """The number of devices is the same every time, also in other threads."""
    counts = []

    def ask(_: int) -> None:
        count = ctypes.c_int32(-1)
        library.check("device_count", ctypes.byref(count))
        counts.append(count.value)

    ask(0)
    in_numbered_threads(4, ask)
    ask(0)
    assert set(counts) == {library.device_count}, f"device_count gave {counts}, and {library.device_count} before"


@promise("device_properties 3")
def test_properties_stay(library: DeviceLibrary) -> None:
    """The properties of a device are the same every time, also in other threads."""
    for device in library.devices:
        answers = [bytes(device.properties)]

        def ask(_: int, index: int = device.index, into: list[bytes] = answers) -> None:
            into.append(bytes(library.properties(index)))

        ask(0)
        in_numbered_threads(4, ask)
        for answer in answers[1:]:
            expect_bytes(answer, answers[0], f"{device}: device_properties answered differently than before")


@promise(
    "all calls 6.2, TB_CAP_ASYNC, tb_device_properties.name, tb_device_properties.arch",
    "tb_device_properties.total_memory_bytes, tb_device_properties.allocation_granularity_bytes",
    "tb_device_properties.allocation_alignment_bytes, tb_device_properties.dtype_mask",
    "tb_device_properties.multiprocessor_count, tb_device_properties.warp_size",
    "tb_device_properties.stream_priority_lowest, tb_device_properties.numa_node",
    "tb_device_properties.max_block_items, tb_device_properties.compute_dtype_mask",
    "tb_device_properties.driver_version 1, tb_device_properties.commit_granularity_bytes, tb_core_table",
)
def test_properties_are_possible(library: DeviceLibrary) -> None:
    """Texts end and are UTF-8, numbers are in their ranges, and capabilities are known and have their slots."""
    for device in library.devices:
        faults = list(properties.faults_of(library, device.index))
        assert not faults, f"{device}: {' '.join(faults)}"


@promise("tb_device_properties.capabilities")
def test_common_capabilities_are_the_same_on_all_devices(library: DeviceLibrary) -> None:
    """TB_CAP_ASYNC, HOST_ACCESS and HOST_COHERENT are the same on all devices."""
    for device in library.devices:
        different = (device.properties.capabilities ^ library.devices[0].properties.capabilities) & _COMMON
        assert not different, f"{device} and {library.devices[0]} differ in {sorted(Capability.names(different))}"


@promise("tb_device_properties.uuid")
def test_uuids_tell_devices_apart(library: DeviceLibrary) -> None:
    """Two devices do not have the same UUID."""
    uuids = [bytes(device.properties.uuid) for device in library.devices]
    named = [uuid for uuid in uuids if any(uuid)]
    assert len(set(named)) == len(named), "two devices have the same uuid"


_SHORTER = [_SIZE_FIELD_BYTES, 40, 72, 112, 136, 168, _SIZE - 4]


@promise("all calls 3.2 3.4, device_properties 1")
@pytest.mark.parametrize("struct_size", _SHORTER)
def test_a_host_of_an_older_version_gets_what_it_knows(library: DeviceLibrary, struct_size: int) -> None:
    """Properties are written up to the struct_size of the caller, and not past it."""
    for device in library.devices:
        answer = _answer(library, device.index, struct_size, _SIZE)
        # A library of an older version knows less than this host.
        known = device.properties.struct_size if library.plugin.abi_minor < ABI_MINOR else _SIZE
        end = min(struct_size, known)
        written, beyond = answer[_SIZE_FIELD_BYTES:end], answer[end:]
        expect_bytes(
            beyond,
            bytes([_UNTOUCHED]) * len(beyond),
            f"{device}: device_properties wrote past the caller's struct_size of {struct_size}",
        )
        expect_bytes(
            written,
            bytes(device.properties)[_SIZE_FIELD_BYTES:end],
            f"{device}: device_properties with a struct_size of {struct_size}",
        )
        filled = int.from_bytes(answer[:_SIZE_FIELD_BYTES], "little")
        assert filled == end, f"{device}: struct_size is {filled} on return, but {end} bytes were to be filled"


@promise("all calls 3.4")
def test_a_host_of_a_newer_version_learns_what_was_filled(library: DeviceLibrary) -> None:
    """A longer struct comes back with the size that was filled, and what lies past it as it was."""
    longer = _SIZE + 64
    for device in library.devices:
        answer = _answer(library, device.index, longer, longer)
        filled = int.from_bytes(answer[:_SIZE_FIELD_BYTES], "little")
        assert filled <= longer, f"{device}: struct_size is {filled} on return, more than the caller's {longer}"
        assert library.plugin.abi_minor != ABI_MINOR or filled == _SIZE, (
            f"{device}: struct_size is {filled} on return, but {_SIZE} bytes have a meaning"
        )
        expect_bytes(
            answer[filled:],
            bytes([_UNTOUCHED]) * (longer - filled),
            f"{device}: device_properties wrote past the struct_size of {filled} that it returned",
        )
