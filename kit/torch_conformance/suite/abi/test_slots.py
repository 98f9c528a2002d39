"""Which slots are set, and whether they agree with the capabilities."""

import pytest

from torch_backend.abi import Capability, DeviceLibrary
from torch_conformance.promises import promise

_TOGETHER = (
    ("memory_map", "memory_unmap"),
    ("host_register", "host_unregister"),
    ("ipc_export", "ipc_import", "ipc_close"),
    ("address_reserve", "address_release", "memory_commit", "memory_decommit"),
)


def _declaring(library: DeviceLibrary, capability: Capability) -> list[int]:
    return [device.index for device in library.devices if device.properties.capabilities & capability]


@promise("memory_map 5, host_register 3, ipc_export 3, address_reserve 5")
@pytest.mark.parametrize("slots", _TOGETHER, ids="-".join)
def test_slots_that_belong_together_are_set_together(library: DeviceLibrary, slots: tuple[str, ...]) -> None:
    """Slots that undo each other are set all or none."""
    unset = [slot for slot in slots if slot not in library.core]
    assert len(unset) in (0, len(slots)), f"of {', '.join(slots)} only {', '.join(unset)} is unset"


@promise("TB_CAP_EVENT_TIMING 1, TB_CAP_IPC, TB_CAP_VIRTUAL_MEMORY, event_elapsed 3, ipc_export 3, address_reserve 5")
@pytest.mark.parametrize(
    ("capability", "slot"),
    [
        (Capability.EVENT_TIMING, "event_elapsed"),
        (Capability.IPC, "ipc_export"),
        (Capability.VIRTUAL_MEMORY, "address_reserve"),
    ],
    ids=["EVENT_TIMING", "IPC", "VIRTUAL_MEMORY"],
)
def test_a_capability_has_its_slot(library: DeviceLibrary, capability: Capability, slot: str) -> None:
    """The slot that a capability promises is set."""
    assert slot in library.core or not _declaring(library, capability), (
        f"TB_CAP_{capability.name} is declared, but the slot {slot} is unset"
    )


@promise("TB_CAP_IPC")
def test_ipc_slots_are_declared(library: DeviceLibrary) -> None:
    """The slots that share memory between processes are set only with TB_CAP_IPC."""
    assert "ipc_export" not in library.core or _declaring(library, Capability.IPC), (
        "the ipc slots are set, but TB_CAP_IPC is not declared"
    )


@promise("TB_CAP_HOST_COHERENT 2, memory_map 5")
def test_memory_that_is_not_coherent_can_be_mapped(library: DeviceLibrary) -> None:
    """TB_CAP_HOST_ACCESS without TB_CAP_HOST_COHERENT comes with memory_map and memory_unmap."""
    needing = set(_declaring(library, Capability.HOST_ACCESS)) - set(_declaring(library, Capability.HOST_COHERENT))
    assert not needing or ("memory_map" in library.core and "memory_unmap" in library.core), (
        "TB_CAP_HOST_ACCESS is declared without TB_CAP_HOST_COHERENT, but memory_map and memory_unmap are unset"
    )


@promise("TB_CAP_GRAPH")
def test_graphs_are_declared_with_their_table(library: DeviceLibrary) -> None:
    """The table graph.1 is offered if and only if TB_CAP_GRAPH is declared."""
    declared, offered = bool(_declaring(library, Capability.GRAPH)), "graph.1" in library.tables
    assert declared == offered, f"TB_CAP_GRAPH is {declared}, but that the table graph.1 is offered is {offered}"


@pytest.mark.parametrize(
    ("capability", "needed"),
    [
        (Capability.HOST_COHERENT, Capability.HOST_ACCESS),
        (Capability.EVENT_TIMING, Capability.ASYNC),
        (Capability.EVENT_RERECORD, Capability.ASYNC),
        (Capability.STREAM_ALLOC, Capability.ASYNC),
        (Capability.GRAPH, Capability.ASYNC),
    ],
    ids=lambda capability: capability.name,
)
def test_a_capability_comes_with_what_it_is_about(
    library: DeviceLibrary, capability: Capability, needed: Capability
) -> None:
    """A capability that speaks of coherence, events or streams is declared with the capability to have them."""
    alone = set(_declaring(library, capability)) - set(_declaring(library, needed))
    assert not alone, f"devices {sorted(alone)} declare TB_CAP_{capability.name} without TB_CAP_{needed.name}"
