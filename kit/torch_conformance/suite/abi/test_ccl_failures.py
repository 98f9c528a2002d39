"""Communicators of the table ccl.1 that fail."""

import threading
import time

from torch_backend.abi import DeviceError, DeviceLibrary, DTypeCode, Status, tb_dtype
from torch_conformance import needs
from torch_conformance.promises import promise
from torch_conformance.suite.abi._ranks import RANKS, Rank, names_of, need_slots, on_every_rank
from torch_conformance.suite.abi._support import memory

pytestmark = [needs.table("ccl.1"), needs.devices(RANKS)]

_COUNT = 1001
_BYTE = tb_dtype(DTypeCode.UINT, 8, 1)
_PENDING_SECONDS = 0.2
_ABORT_SECONDS = 5.0


@promise("comm_abort")
def test_an_abort_ends_pending_calls(library: DeviceLibrary) -> None:
    """comm_abort of another thread makes a recv fail that nobody answers, and later calls too."""
    need_slots(library, "comm_abort")
    failures: list[str] = []
    ended, judged = threading.Event(), threading.Event()

    def receive(rank: Rank) -> None:
        with memory(rank.device, _COUNT) as address:
            try:
                rank.recv(address, _COUNT, _BYTE)
                rank.device.synchronize()
                failures.append("")
            except DeviceError as error:
                failures.append(str(error))
        ended.set()

    def work(rank: Rank) -> None:
        if rank.number == 1:
            judged.wait()
            return
        try:
            abort(rank)
        finally:
            judged.set()

    def abort(rank: Rank) -> None:
        # Left behind if it does not end.
        threading.Thread(target=receive, args=(rank,), daemon=True).start()
        time.sleep(_PENDING_SECONDS)
        assert not ended.is_set(), f"a recv that nobody answers has ended: {failures}"
        rank.check("comm_abort", rank.comm)
        assert ended.wait(_ABORT_SECONDS), f"the recv has not ended {_ABORT_SECONDS:.0f} s after comm_abort"
        assert failures[0], "the recv that was aborted reports no failure"
        assert failure_of_send(rank), "a send on the communicator that was aborted reports no failure"

    def failure_of_send(rank: Rank) -> str:
        with memory(rank.device, _COUNT) as address:
            try:
                rank.send(address, _COUNT, _BYTE)
                rank.device.synchronize()
            except DeviceError as error:
                return str(error)
        return ""

    on_every_rank(library, work)


@promise("comm_abort")
def test_errors_are_reported_when_asked_for(library: DeviceLibrary) -> None:
    """comm_query_error is OK as long as nothing failed, and not OK after comm_abort."""
    need_slots(library, "comm_abort", "comm_query_error")
    start = threading.Barrier(RANKS)
    before: list[int] = []
    after: list[int] = []

    def work(rank: Rank) -> None:
        before.append(rank.status("comm_query_error", rank.comm))
        start.wait()
        rank.check("comm_abort", rank.comm)
        after.append(rank.status("comm_query_error", rank.comm))

    on_every_rank(library, work)
    assert set(before) == {Status.OK}, f"comm_query_error of new communicators returned {names_of(before)}"
    assert Status.OK not in after, f"comm_query_error after comm_abort returned {names_of(after)}"
