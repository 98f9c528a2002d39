"""How much memory is free."""

from torch_backend.abi import DeviceLibrary
from torch_conformance import needs
from torch_conformance.promises import promise
from torch_conformance.suite.abi._support import ROUNDS, memory, pattern, total_bytes, used_bytes

pytestmark = needs.slot("memory_info")


@promise("memory_info 1")
def test_free_memory_is_at_most_all_memory(library: DeviceLibrary) -> None:
    """Free memory is not more than there is, before and while some is in use."""
    for device in library.devices:
        with memory(device, 1 << 20):
            free, total = device.memory_info()
        assert total > 0, f"{device}: memory_info says that there are 0 bytes"
        assert free <= total, f"{device}: memory_info says that {free} of {total} bytes are free"


@promise("memory_info 1")
def test_allocations_show_in_memory_info(library: DeviceLibrary) -> None:
    """A large allocation makes less memory free, and its end makes more free."""
    for device in library.devices:
        size = min(256 << 20, total_bytes(device) // 4)
        for attempt in range(ROUNDS):
            before = used_bytes(device)
            with memory(device, size) as address:
                device.write(address, pattern(4096))
                during = used_bytes(device)
            after = used_bytes(device)
            if during - before >= size // 2 and during - after >= size // 2:
                break
            assert attempt + 1 < ROUNDS, (
                f"{device}: memory_info says that {before} bytes are in use, then {during} with {size} bytes more, and "
                f"then {after} without them"
            )
