"""What the devices say about themselves."""

import ctypes

import pytest

from torch_backend.abi import (
    ABI_MINOR,
    Capability,
    DeviceLibrary,
    dtypes_in,
    tb_device_properties,
)
from torch_backend.testing.suite._threads import in_numbered_threads
from torch_backend.testing.suite.abi._support import expect_bytes

_SIZE = ctypes.sizeof(tb_device_properties)
_UNTOUCHED = 0xA5
_COMMON = Capability.ASYNC | Capability.HOST_ACCESS | Capability.HOST_COHERENT
_SIZE_FIELD_BYTES = 8


def _answer(library: DeviceLibrary, device: int, struct_size: int, room: int) -> bytes:
    """What device_properties writes into ``room`` bytes of which it is told that the struct has ``struct_size``."""
    buffer = (ctypes.c_uint8 * room)(*[_UNTOUCHED] * room)
    properties = tb_device_properties.from_buffer(buffer)
    properties.struct_size = struct_size
    library.check("device_properties", device, ctypes.byref(properties))
    return bytes(buffer)


def _is_power_of_two(value: int) -> bool:
    return value > 0 and value & (value - 1) == 0


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


def test_there_is_a_device(library: DeviceLibrary) -> None:
    """At least one device is there to be tested."""
    assert library.device_count > 0, "device_count is 0: the driver finds no device on this machine"


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


def test_texts_are_terminated(library: DeviceLibrary) -> None:
    """Name and architecture are UTF-8 that ends with a NUL, and the name is not empty."""
    for device in library.devices:
        for field in ("name", "arch"):
            place = getattr(tb_device_properties, field)
            text = bytes(device.properties)[place.offset : place.offset + place.size]
            assert b"\0" in text, f"{device}: {field} does not end with a NUL within its {place.size} bytes"
            text.split(b"\0")[0].decode("utf-8")
        assert device.properties.name, f"{device}: the name is empty"


def test_alignment_and_granularity_are_powers_of_two(library: DeviceLibrary) -> None:
    """Allocations are aligned to a power of two of at least 64, and their granularity is a power of two or 0."""
    for device in library.devices:
        alignment = device.properties.allocation_alignment_bytes
        granularity = device.properties.allocation_granularity_bytes
        assert _is_power_of_two(alignment), f"{device}: allocation_alignment_bytes is {alignment}"
        assert alignment >= 64, f"{device}: allocation_alignment_bytes is {alignment}; at least 64 is required"
        assert granularity == 0 or _is_power_of_two(granularity), (
            f"{device}: allocation_granularity_bytes is {granularity}"
        )


def test_numbers_are_in_their_ranges(library: DeviceLibrary) -> None:
    """Memory, counts and the NUMA node are values that their definitions allow."""
    for device in library.devices:
        properties = device.properties
        assert properties.total_memory_bytes > 0, f"{device}: total_memory_bytes is 0"
        assert properties.warp_size >= 1, f"{device}: warp_size is {properties.warp_size}; 1 if it has no meaning"
        assert properties.multiprocessor_count >= 0, (
            f"{device}: multiprocessor_count is {properties.multiprocessor_count}"
        )
        assert properties.numa_node >= -1, f"{device}: numa_node is {properties.numa_node}; -1 if it is unknown"
        assert properties.reserved == 0, f"{device}: the reserved field is {properties.reserved}; it must be 0"


def test_capabilities_are_known(library: DeviceLibrary) -> None:
    """A library of our minor version or an older one sets no capability bits that its header did not have."""
    known = sum(Capability.__members__.values())
    for device in library.devices:
        unknown = device.properties.capabilities & ~known
        assert library.plugin.abi_minor > ABI_MINOR or not unknown, f"{device}: unknown capability bits {unknown:#x}"


def test_common_capabilities_are_the_same_on_all_devices(library: DeviceLibrary) -> None:
    """TB_CAP_ASYNC, HOST_ACCESS and HOST_COHERENT are the same on all devices."""
    for device in library.devices:
        different = (device.properties.capabilities ^ library.devices[0].properties.capabilities) & _COMMON
        assert not different, f"{device} and {library.devices[0]} differ in {sorted(Capability.names(different))}"


def test_priorities_are_ordered_as_in_cuda(library: DeviceLibrary) -> None:
    """The highest priority is the lowest number."""
    for device in library.devices:
        lowest, highest = device.properties.stream_priority_lowest, device.properties.stream_priority_highest
        assert highest <= lowest, (
            f"{device}: stream_priority_highest is {highest} and _lowest {lowest}; lower numbers are served first"
        )


def test_dtypes_can_be_named(library: DeviceLibrary) -> None:
    """The set of dtypes holds one that PyTorch knows."""
    for device in library.devices:
        assert dtypes_in(device.properties.dtype_mask), f"{device}: no dtype of PyTorch is in dtype_mask"


def test_uuids_tell_devices_apart(library: DeviceLibrary) -> None:
    """Two devices do not have the same UUID."""
    uuids = [bytes(device.properties.uuid) for device in library.devices]
    named = [uuid for uuid in uuids if any(uuid)]
    assert len(set(named)) == len(named), "two devices have the same uuid"


_SHORTER = [_SIZE_FIELD_BYTES, 40, 72, 112, 136, 168, _SIZE - 4]


@pytest.mark.parametrize("struct_size", _SHORTER)
def test_a_host_of_an_older_version_gets_what_it_knows(library: DeviceLibrary, struct_size: int) -> None:
    """Properties are written up to the struct_size of the caller, and not past it."""
    for device in library.devices:
        answer = _answer(library, device.index, struct_size, _SIZE)
        written, beyond = answer[_SIZE_FIELD_BYTES:struct_size], answer[struct_size:]
        expect_bytes(
            beyond,
            bytes([_UNTOUCHED]) * len(beyond),
            f"{device}: device_properties wrote past the caller's struct_size of {struct_size}",
        )
        expect_bytes(
            written,
            bytes(device.properties)[_SIZE_FIELD_BYTES:struct_size],
            f"{device}: device_properties with a struct_size of {struct_size}",
        )
        filled = int.from_bytes(answer[:_SIZE_FIELD_BYTES], "little")
        assert filled == struct_size, (
            f"{device}: struct_size is {filled} on return, but {struct_size} bytes were to be filled"
        )


def test_a_host_of_a_newer_version_learns_what_was_filled(library: DeviceLibrary) -> None:
    """A longer struct comes back with the size that was filled, and what lies past it as it was."""
    longer = _SIZE + 64
    for device in library.devices:
        answer = _answer(library, device.index, longer, longer)
        filled = int.from_bytes(answer[:_SIZE_FIELD_BYTES], "little")
        assert filled <= longer, f"{device}: struct_size is {filled} on return, more than the caller's {longer}"
        assert library.plugin.abi_minor > ABI_MINOR or filled == _SIZE, (
            f"{device}: struct_size is {filled} on return, but {_SIZE} bytes have a meaning"
        )
        expect_bytes(
            answer[filled:],
            bytes([_UNTOUCHED]) * (longer - filled),
            f"{device}: device_properties wrote past the struct_size of {filled} that it returned",
        )
