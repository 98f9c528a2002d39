"""The collectives of xcpu (xcpu.ccl=1): between processes, when they fail, and what they say then.

What every device's collectives have to do is tested by the conformance kit.
"""

import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from fixtures import RunPython, clean_environment

from torch_backend.files import installed, patience

CCL = {"TORCH_BACKEND_XCPU_CCL": "1"}
ASYNC = {**CCL, "TORCH_BACKEND_XCPU_ASYNC": "1", "TORCH_BACKEND_XCPU_DELAY_US": "300"}
KILLED = -9

RunRanks = Callable[..., list[str]]


@pytest.fixture
def run_ranks(tmp_path: Path) -> RunRanks:
    """Run a scenario of collective_scenarios.py in a process for each rank; what each printed."""

    def run(scenario: str, size: int, env: Mapping[str, str], killed: int | None = None) -> list[str]:
        script = Path(__file__).parent / "collective_scenarios.py"
        command = [sys.executable, script, scenario, installed.reference_library("xcpu")]
        ranks = [
            subprocess.Popen(
                [*command, str(rank), str(size), tmp_path],
                env=clean_environment() | dict(env),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank in range(size)
        ]
        try:
            said = [rank.communicate(timeout=patience.seconds(120)) for rank in ranks]
        finally:
            for rank in ranks:
                rank.kill()
        for number, (rank, (out, errors)) in enumerate(zip(ranks, said, strict=True)):
            expected = KILLED if number == killed else 0
            assert rank.returncode == expected, f"rank {number} ended with {rank.returncode}: {out}{errors}"
        return [out for out, _ in said]

    return run


@pytest.mark.parametrize("env", [CCL, ASYNC], ids=["sync", "async"])
def test_a_killed_rank_is_noticed(run_ranks: RunRanks, env: Mapping[str, str]) -> None:
    said = run_ranks("killed", 3, env, killed=1)
    for number in (0, 2):
        facts, text, again = said[number].splitlines()
        assert facts == "False True 6"  # no name in /dev/shm, within 2 s, and comm_query_error says INTERNAL
        # Whoever notices first tells the other one.
        noticed = (
            r"(rank [02] has failed: )?the process of rank 1 \(pid \d+\) has ended without destroying its communicator"
        )
        assert re.search(noticed, text), text
        assert again.partition(": ")[2] == text.partition(": ")[2]


@pytest.mark.parametrize("env", [CCL, ASYNC], ids=["sync", "async"])
def test_disagreements_are_named(run_ranks: RunRanks, env: Mapping[str, str]) -> None:
    said = [text.splitlines() for text in run_ranks("disagreements", 2, env)]
    pairs = [
        ("recv of 1000 elements of float32", "send of 900 elements of float32"),
        ("all_reduce of 10 elements of float32, sum", "all_reduce of 10 elements of int32, sum"),
        ("all_reduce of 10 elements of float32, sum", "all_reduce of 10 elements of float32, max"),
        ("all_reduce of 0 elements of float32, sum", "all_reduce of 7 elements of float32, sum"),
        ("all_reduce of 10 elements of float32, sum", "broadcast of 10 elements of float32, root 1"),
    ]
    for number, calls in enumerate(pairs):
        failures = [lines[2 * number] for lines in said]
        statuses = [int(lines[2 * number + 1]) for lines in said]
        assert any(failures), f"nobody noticed {calls}"
        for rank, text in enumerate(failures):
            # A send whose message fits into the buffer is over before its rank learns of the failure.
            assert statuses[rank] in (4, 6), (rank, calls)
            for call in calls:
                assert not text or call in text


def test_a_rank_that_ends_in_order_has_sent_what_it_sent(run_ranks: RunRanks) -> None:
    said = run_ranks("leaves", 2, CCL)
    assert said[0].startswith("True recv failed with INTERNAL: "), said[0]
    assert "rank 0 waits for rank 1, which has destroyed its communicator or ended" in said[0]


def test_reductions_are_those_of_torch(run_ranks: RunRanks) -> None:
    run_ranks("all_dtypes", 3, CCL)


@pytest.mark.parametrize("ends", ["in order", "crash"])
def test_nobody_waits_for_ranks_when_one_has_gone(run_ranks: RunRanks, ends: str) -> None:
    said = run_ranks("gives_up", 2, {**CCL, "ENDS": ends})[0]
    how = {
        "in order": "rank 0 waits for rank 1, which has destroyed its communicator or ended",
        "crash": r"the process of rank 1 \(pid \d+\) has ended without destroying its communicator",
    }[ends]
    assert re.fullmatch(f"comm_create failed with INTERNAL: comm_create: {how}; rank 2 has not come\n", said)


PRELUDE = """
    import ctypes, threading, time
    from torch_backend.abi import DeviceError, DeviceLibrary, DTypeCode, Reduction, tb_dtype
    from torch_backend.files import installed
    library = DeviceLibrary.open(installed.reference_library("xcpu"))
    library.initialize()
    device, other = library.devices
    table = library.tables["ccl.1"]
    FLOAT = tb_dtype(DTypeCode.FLOAT, 32, 1)
    BYTE = tb_dtype(DTypeCode.UINT, 8, 1)
    unique_id = ctypes.create_string_buffer(table.unique_id_bytes)

    def call(slot, *arguments):
        status = library.noted(getattr(table, slot)(*arguments))
        return f"{status} {library.error_text()}" if status else "ok"

    def connect(size=2):
        '''Communicators of all ranks, in one thread.'''
        call("unique_id_create", unique_id)
        comms = [ctypes.c_void_p() for _ in range(size)]
        call("group_begin")
        for rank, comm in enumerate(comms):
            call("comm_create", rank % 2, size, rank, unique_id, ctypes.byref(comm))
        print(call("group_end"))
        return comms
"""


def test_the_table_is_an_option(run_python: RunPython) -> None:
    code = """
        from torch_backend.files import installed
        from torch_backend.abi import DeviceLibrary
        print(list(DeviceLibrary.open(installed.reference_library("xcpu")).tables))
    """
    assert run_python(code).stdout == "[]\n"
    assert run_python(code, env=CCL).stdout == "['ccl.1']\n"


def test_bad_arguments_are_explained(run_python: RunPython) -> None:
    code = (
        PRELUDE
        + """
    comms = connect()
    comm = ctypes.c_void_p()
    data = device.allocate(64)
    print(call("comm_create", 0, 65, 0, unique_id, ctypes.byref(comm)))
    print(call("comm_create", 0, 2, 2, unique_id, ctypes.byref(comm)))
    print(call("comm_create", 0, 2, 0, b"x" * 64, ctypes.byref(comm)))
    print(call("send", data, 1, FLOAT, 2, comms[0], None))
    print(call("send", data, 1, FLOAT, 0, comms[0], None))
    print(call("broadcast", data, data, 1, FLOAT, -1, comms[0], None))
    print(call("all_reduce", data, data, 1, tb_dtype(DTypeCode.COMPLEX, 64, 1), Reduction.MAX, comms[0], None))
    print(call("all_reduce", data, data, 1, tb_dtype(DTypeCode.FLOAT8_E8M0FNU, 8, 1), 0, comms[0], None))
    print(call("group_end"))
    call("unique_id_create", unique_id)
    call("group_begin")
    call("comm_create", 0, 3, 0, unique_id, ctypes.byref(comm))
    print(call("comm_create", 0, 3, 0, unique_id, ctypes.byref(comm)))
    print(call("comm_create", 0, 2, 1, unique_id, ctypes.byref(comm)))
    """
    )
    assert run_python(code, env=CCL).stdout.splitlines() == [
        "ok",
        "4 comm_create: 65 ranks; 1 to 64 are possible",
        "4 comm_create: rank 2 of 2",
        "4 comm_create: the unique id is not one of unique_id_create of this device; all 64 bytes of it have to reach "
        "every rank",
        "4 send: to rank 2 of a communicator of 2 ranks",
        "4 rank 0 sends itself 1 messages and receives 0 of them; both have to be in one group (group_begin, "
        "group_end)",
        "4 broadcast: root -1 of a communicator of 2 ranks",
        "2 all_reduce: no reduction 3 (TB_REDUCE_*) of elements of complex64",
        "2 all_reduce: no reduction 0 (TB_REDUCE_*) of elements of float8_e8m0fnu",
        "4 group_end: this thread has not called group_begin",
        "4 comm_create: rank 0 of 3 has joined already",
        "4 comm_create: 2 ranks, but another rank says 3",
    ]


@pytest.mark.parametrize("env", [CCL, ASYNC], ids=["sync", "async"])
def test_one_thread_serves_several_communicators(run_python: RunPython, env: Mapping[str, str]) -> None:
    code = (
        PRELUDE
        + """
    SIZE = 3_000_000
    comms = connect()
    a, b = device.allocate(SIZE), other.allocate(SIZE)
    device.fill(a, b"\\1", SIZE)
    other.fill(b, b"\\2", SIZE)
    device.synchronize()
    other.synchronize()
    call("group_begin")
    call("group_begin")  # inner groups change nothing
    call("all_reduce", a, a, SIZE, BYTE, Reduction.SUM, comms[0], None)
    print(call("group_end"))
    call("all_reduce", b, b, SIZE, BYTE, Reduction.SUM, comms[1], None)
    print(call("group_end"))
    device.synchronize()
    other.synchronize()
    print(device.read(a, SIZE) == other.read(b, SIZE) == b"\\3" * SIZE)

    # A rank's message to itself.
    device.fill(a, b"\\5", 10)
    device.synchronize()
    call("group_begin")
    call("send", a, 10, BYTE, 0, comms[0], None)
    call("recv", a + 10, 10, BYTE, 0, comms[0], None)
    print(call("group_end"))
    device.synchronize()
    print(device.read(a, 21) == b"\\5" * 20 + b"\\3")
    for comm in comms:
        print(call("comm_destroy", comm))
    """
    )
    assert run_python(code, env=env).stdout.split() == ["ok", "ok", "ok", "True", "ok", "True", "ok", "ok"]


def test_calls_on_several_streams_keep_their_order(run_python: RunPython) -> None:
    """The second call, on a stream that is free, waits for the first, whose stream is not."""
    code = (
        PRELUDE
        + """
    comms = connect()
    data = [d.allocate(64) for d in (device, device, other, other)]
    for number, (d, address) in enumerate(zip((device, device, other, other), data)):
        d.fill(address, bytes([number]), 64)
        d.synchronize()
    held = threading.Event()
    with device.stream() as first, device.stream() as second:
        device.host_function(lambda: held.wait(0.3), first)
        print(call("send", data[0], 64, BYTE, 1, comms[0], first))
        print(call("send", data[1], 64, BYTE, 1, comms[0], second))
        time.sleep(0.1)
        print(device.is_idle(second))
        for address in data[2:]:
            call("recv", address, 64, BYTE, 0, comms[1], None)
        other.synchronize()
        print(other.read(data[2], 1), other.read(data[3], 1))
        device.synchronize(first)
        device.synchronize(second)

        # One group on two streams is one piece of work.
        call("group_begin")
        call("send", data[0], 64, BYTE, 1, comms[0], first)
        call("send", data[1], 64, BYTE, 1, comms[0], second)
        print(call("group_end"))
        for address in data[2:]:
            call("recv", address, 64, BYTE, 0, comms[1], None)
        other.synchronize()
        device.synchronize(first)
        device.synchronize(second)
    """
    )
    said = run_python(code, env=ASYNC).stdout.splitlines()
    assert said == ["ok", "ok", "ok", "False", r"b'\x00' b'\x01'", "ok"]


def test_injected_faults_reach_collectives(run_python: RunPython) -> None:
    """UNSUPPORTED does nothing, and any other status ends the communicator, which its peer learns."""
    code = (
        PRELUDE
        + """
    comms = connect()
    data = device.allocate(64)
    print(call("all_reduce", data, data, 1, FLOAT, Reduction.SUM, comms[0], None))
    print(call("comm_query_error", comms[0]))
    print(call("send", data, 1, FLOAT, 1, comms[0], None))
    print(call("send", data, 1, FLOAT, 1, comms[0], None))
    print(call("recv", data, 2, FLOAT, 1, comms[0], None))
    print(call("comm_query_error", comms[1]))
    """
    )
    env = {**CCL, "TORCH_BACKEND_XCPU_FAULT": "all_reduce=UNSUPPORTED,send:0=INTERNAL@2"}
    fault = "send fails with INTERNAL because xcpu.fault asks for it (call 2)"
    assert run_python(code, env=env).stdout.splitlines() == [
        "ok",
        "2 all_reduce fails with UNSUPPORTED because xcpu.fault asks for it (call 1)",
        "ok",
        "ok",
        f"6 {fault}",
        f"6 {fault}",
        f"6 rank 0 has failed: {fault}",
    ]


def test_a_process_that_ends_early_leaves_no_memory(run_python: RunPython) -> None:
    """Of ranks that never all met, too."""
    code = (
        PRELUDE
        + """
    call("unique_id_create", unique_id)
    call("group_begin")
    print(call("comm_create", 0, 2, 0, unique_id, ctypes.byref(ctypes.c_void_p())))
    print(unique_id.value.decode())
    """
    )
    created, name = run_python(code, env=CCL).stdout.splitlines()
    assert created == "ok"
    assert not Path(f"/dev/shm{name}").exists()


def test_an_abort_of_a_rank_that_is_done_is_no_failure_of_others(run_python: RunPython) -> None:
    code = (
        PRELUDE
        + """
    comms = connect(3)
    data = device.allocate(64)
    device.fill(data, b"\\7", 64)
    print(call("send", data, 8, BYTE, 1, comms[0], None))
    print(call("comm_abort", comms[0]))
    print(call("comm_query_error", comms[1]))
    print(call("recv", data + 8, 8, BYTE, 0, comms[1], None))
    print(call("send", data, 8, BYTE, 1, comms[0], None))
    print(call("recv", data, 8, BYTE, 0, comms[2], None))
    """
    )
    assert run_python(code, env=CCL).stdout.splitlines() == [
        "ok",
        "ok",
        "ok",
        "ok",
        "ok",
        "6 rank 0 of 3 was aborted (comm_abort)",
        "6 rank 2 waits for rank 0, which has destroyed its communicator or ended",
    ]
