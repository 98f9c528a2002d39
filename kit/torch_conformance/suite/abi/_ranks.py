"""What the tests of the table ccl.1 share: two ranks, each a thread with a device of its own."""

import ctypes
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from torch_backend.abi import Device, DeviceError, DeviceLibrary, Status, status_name, tb_dtype
from torch_conformance import needs
from torch_conformance.threads import in_numbered_threads

RANKS = 2


@dataclass(frozen=True)
class Rank:
    """One rank of a communicator, to be used by the thread it was given to.

    Attributes:
        number: 0 or 1.
        device: its device.
        comm: its communicator.
    """

    number: int
    device: Device
    comm: int

    @property
    def peer(self) -> int:
        """The other rank."""
        return 1 - self.number

    def send(self, address: int, count: int, dtype: tb_dtype) -> None:
        """Send to the other rank."""
        self.check("send", address, count, dtype, self.peer, self.comm, None)

    def recv(self, address: int, count: int, dtype: tb_dtype) -> None:
        """Receive from the other rank."""
        self.check("recv", address, count, dtype, self.peer, self.comm, None)

    def status(self, slot: str, *arguments: object) -> int:
        """Call a slot of ccl.1; what it returned."""
        self.device.library.bind(self.device.index)
        return ccl_status(self.device.library, slot, *arguments)

    def check(self, slot: str, *arguments: object) -> None:
        """Call a slot of ccl.1, and raise DeviceError unless it returned OK."""
        self.device.library.bind(self.device.index)
        ccl_check(self.device.library, slot, *arguments)


def ccl_status(library: DeviceLibrary, slot: str, *arguments: object) -> int:
    """Call a slot of ccl.1; what it returned."""
    return library.noted(getattr(library.tables["ccl.1"], slot)(*arguments))


def ccl_check(library: DeviceLibrary, slot: str, *arguments: object) -> None:
    """Call a slot of ccl.1, and raise DeviceError unless it returned OK."""
    status = ccl_status(library, slot, *arguments)
    if status != Status.OK:
        raise DeviceError(slot, status, library.error_text())


def need_slots(library: DeviceLibrary, *slots: str) -> None:
    """End the test as not offered if ccl.1 leaves one of these slots unset."""
    for slot in slots:
        if slot not in library.tables["ccl.1"]:
            needs.not_offered(f"the table ccl.1 leaves the slot {slot} unset")


def new_unique_id(library: DeviceLibrary) -> "ctypes.Array[ctypes.c_char]":
    """An id for a communicator."""
    unique_id = ctypes.create_string_buffer(library.tables["ccl.1"].unique_id_bytes)
    ccl_check(library, "unique_id_create", unique_id)
    return unique_id


def on_every_rank(library: DeviceLibrary, work: Callable[[Rank], None]) -> None:
    """Call ``work`` in a thread for each rank.

    It must not fail because of what it received: the other ranks would wait for it.
    """
    unique_id = new_unique_id(library)

    def run(number: int) -> None:
        device = library.devices[number]
        comm = ctypes.c_void_p()
        library.bind(device.index)
        ccl_check(library, "comm_create", device.index, RANKS, number, unique_id, ctypes.byref(comm))
        assert comm.value is not None, f"comm_create gave rank {number} no communicator"
        work(Rank(number, device, comm.value))
        library.bind(device.index)
        ccl_check(library, "comm_destroy", comm)

    in_numbered_threads(RANKS, run)


def names_of(statuses: Iterable[int]) -> str:
    """How messages call what the ranks got."""
    return ", ".join(map(status_name, statuses))
