"""What the ranks of test_xcpu_collectives.py do, each in a process of its own, without a process group of torch.

python collective_scenarios.py SCENARIO LIBRARY RANK RANKS DIRECTORY
"""

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch_backend.abi import Device, DeviceError, DeviceLibrary, DTypeCode, Reduction, tb_dtype

BYTE = tb_dtype(DTypeCode.UINT, 8, 1)
FLOAT = tb_dtype(DTypeCode.FLOAT, 32, 1)
INT = tb_dtype(DTypeCode.INT, 32, 1)


class Rank:
    """This process's rank. ``comm`` is the newest communicator of all ranks."""

    def __init__(self, library: str, number: int, size: int, directory: Path) -> None:
        self.library = DeviceLibrary.open(library)
        self.library.initialize()
        self.device: Device = self.library.devices[0]
        self.table: Any = self.library.tables["ccl.1"]
        self.number, self.size = number, size
        self.directory = directory
        self.comm = ctypes.c_void_p()
        self._num_comms = 0

    def status(self, slot: str, *arguments: object) -> int:
        return self.library.noted(getattr(self.table, slot)(*arguments))

    def check(self, slot: str, *arguments: object) -> None:
        status = self.status(slot, *arguments)
        if status:
            raise DeviceError(slot, status, self.library.error_text())

    def failure(self, *calls: tuple[Any, ...]) -> str:
        """What one of these calls, or the wait for them, fails with."""
        try:
            for call in calls:
                self.check(*call)
            self.device.synchronize()
        except DeviceError as error:
            return str(error)
        return ""

    def connect(self) -> None:
        """A new communicator."""
        self._num_comms += 1
        path = self.directory / f"id-{self._num_comms}"
        unique_id = ctypes.create_string_buffer(self.table.unique_id_bytes)
        if self.number == 0:
            self.check("unique_id_create", unique_id)
            path.with_suffix(".part").write_bytes(unique_id.raw)
            path.with_suffix(".part").rename(path)
        while not path.exists():
            time.sleep(0.002)
        unique_id.raw = path.read_bytes()
        self.comm = ctypes.c_void_p()
        self.check("comm_create", 0, self.size, self.number, unique_id, ctypes.byref(self.comm))

    def wait_for(self, file: str) -> None:
        """Until another rank has called :meth:`tell` with it."""
        while not (self.directory / file).exists():
            time.sleep(0.002)

    def tell(self, file: str) -> None:
        (self.directory / file).touch()


def killed(rank: Rank) -> None:
    """Rank 1 is killed while the others wait for it. They say whether they noticed in time, and what."""
    rank.connect()
    name = (rank.directory / "id-1").read_bytes().rstrip(b"\0").decode()
    address = rank.device.allocate(4096)
    if rank.number == 1:
        rank.wait_for("waiting-0")
        rank.wait_for("waiting-2")
        time.sleep(0.3)
        (rank.directory / "killed").write_text(repr(time.time()))
        os.kill(os.getpid(), signal.SIGKILL)
    rank.tell(f"waiting-{rank.number}")
    text = rank.failure(("all_reduce", address, address, 1000, FLOAT, Reduction.SUM, rank.comm, None))
    seconds = time.time() - float((rank.directory / "killed").read_text())
    again = rank.failure(("send", address, 1, BYTE, 1, rank.comm, None))
    print(os.path.exists(f"/dev/shm{name}"), seconds < 2, rank.status("comm_query_error", rank.comm))
    print(text)
    print(again)


def gives_up(rank: Rank) -> None:
    """Rank 1 joins, and ends before rank 2 comes, which never does. Rank 0 says what comm_create fails with."""
    rank.size = 3
    if rank.number == 0:
        (rank.directory / "process").write_text(str(os.getpid()))
        try:
            rank.connect()
        except DeviceError as error:
            print(error)
        return
    rank.check("group_begin")  # does not wait
    rank.connect()
    maps = Path("/proc") / (rank.directory / "process").read_text() / "maps"
    while "torch_backend_xcpu" not in maps.read_text():
        time.sleep(0.002)
    if os.environ["ENDS"] == "crash":
        os._exit(0)


def disagreements(rank: Rank) -> None:
    """Two ranks make calls that do not fit, each time on a new communicator."""
    address = rank.device.allocate(4096)

    def on(slot: str, *arguments: object) -> tuple[Any, ...]:
        return (slot, *arguments, rank.comm, None)

    def reduction(count: int, dtype: tb_dtype, which: Reduction) -> Callable[[], tuple[Any, ...]]:
        return lambda: on("all_reduce", address, address, count, dtype, which)

    pairs = [
        (lambda: on("recv", address, 1000, FLOAT, 1), lambda: on("send", address, 900, FLOAT, 0)),
        (reduction(10, FLOAT, Reduction.SUM), reduction(10, INT, Reduction.SUM)),
        (reduction(10, FLOAT, Reduction.SUM), reduction(10, FLOAT, Reduction.MAX)),
        (reduction(0, FLOAT, Reduction.SUM), reduction(7, FLOAT, Reduction.SUM)),
        (reduction(10, FLOAT, Reduction.SUM), lambda: on("broadcast", address, address, 10, FLOAT, 1)),
    ]
    for pair in pairs:
        rank.connect()
        print(rank.failure(pair[rank.number]()))
        rank.tell(f"tried-{rank.number}-{rank._num_comms}")
        rank.wait_for(f"tried-{1 - rank.number}-{rank._num_comms}")
        print(rank.status("comm_query_error", rank.comm))
        rank.check("comm_destroy", rank.comm)


def leaves(rank: Rank) -> None:
    """Rank 1 sends something and ends: rank 0 gets that, and then learns that nothing more will come."""
    rank.connect()
    address = rank.device.allocate(64)
    if rank.number == 1:
        rank.device.fill(address, b"\7", 64)
        rank.check("send", address, 64, BYTE, 0, rank.comm, None)
        rank.device.synchronize()
        return  # as a process ends that does not destroy its communicator
    time.sleep(0.5)
    rank.check("recv", address, 64, BYTE, 1, rank.comm, None)
    rank.device.synchronize()
    print(rank.device.read(address, 64) == b"\7" * 64, rank.failure(("recv", address, 1, BYTE, 1, rank.comm, None)))


def all_dtypes(rank: Rank) -> None:
    """Every reduction of every dtype and size, against torch: in place and not, rounded once."""
    import reduction_cases

    rank.connect()
    for case in reduction_cases.cases(rank.size):
        own = reduction_cases.stored(case.inputs[rank.number])
        dtype = tb_dtype(*case.code, 1)
        with rank.device.allocation(len(own)) as src, rank.device.allocation(len(own)) as dst:
            rank.device.write(src, own)
            for out in (dst, src):
                rank.check("all_reduce", src, out, case.count, dtype, case.reduction, rank.comm, None)
                rank.device.synchronize()
                wrong = reduction_cases.differences(rank.device.read(out, len(own)), case.expected)
                if wrong:
                    sys.exit(f"rank {rank.number}: {case}: {wrong} are wrong, {'in' if out == src else 'out of'} place")
    rank.check("comm_destroy", rank.comm)


def main(scenario: str, library: str, number: str, size: str, directory: str) -> None:
    globals()[scenario](Rank(library, int(number), int(size), Path(directory)))


if __name__ == "__main__":
    main(*sys.argv[1:])
