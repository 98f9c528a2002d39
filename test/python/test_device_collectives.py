"""Process groups over a device library's own collectives (ccl.1): what it leaves out, what waits, and how it fails.

What holds for every process group is in test_distributed.py.
"""

import os
import threading
from datetime import timedelta
from pathlib import Path

import pytest
import torch
from distributed_ranks import ASYNC, DEVICE_COLLECTIVES, expect_good, run_ranks
from fixtures import BuildPlugin, RunPython, in_process
from torch_conformance.threads import in_numbered_threads

import torch_backend
from torch_backend import _C

REQUIRED = "send recv"
REQUIRED_ONLY = "CCL_SIZE=offsetof(tb_ccl_table, group_begin)"


@pytest.fixture(scope="session")
def less(build_plugin: BuildPlugin) -> dict[str, dict[str, str]]:
    """The environment for xcpu with less of ccl.1."""

    def device(*switches: str) -> dict[str, str]:
        path = build_plugin(*switches, source="less.c", over="xcpu")
        return {"TORCH_BACKEND_PATH": str(path), **DEVICE_COLLECTIVES}

    return {
        "required": device(REQUIRED_ONLY) | {"EXPECTED_SLOTS": REQUIRED},
        "refusing": device("CCL_REFUSES") | {"EXPECTED_SLOTS": REQUIRED},
        "no abort": device("CCL_WITHOUT_ABORT"),
    }


def run(scenarios: str, place: Path, count: int, env: dict[str, str]) -> None:
    said = run_ranks(tuple(scenarios.split()), place, count, env)
    for scenario in scenarios.split():
        expect_good(scenario, said)


@pytest.mark.parametrize("mode", [{}, ASYNC], ids=["sync", "async"])
def test_all_slots(tmp_path: Path, mode: dict[str, str]) -> None:
    """A library with all slots does the work by itself."""
    more = " host_goes_on" if mode else " bad_arguments"
    run(
        "slots crossing callbacks empty reductions not_connected monitored" + more,
        tmp_path,
        2,
        DEVICE_COLLECTIVES | mode,
    )


@pytest.mark.parametrize("mode", [{}, ASYNC], ids=["sync", "async"])
@pytest.mark.parametrize("device", ["required", "refusing"])
def test_from_sends_and_receives(
    tmp_path: Path, less: dict[str, dict[str, str]], device: str, mode: dict[str, str]
) -> None:
    """Without groups of calls, every send waits for its receive: nothing may wait in a circle."""
    run("slots rare_dtypes crossing empty reductions", tmp_path, 2, less[device] | mode)


def test_four_ranks_from_sends_and_receives(tmp_path: Path, less: dict[str, dict[str, str]]) -> None:
    run("crossing empty reductions kit", tmp_path, 4, less["required"] | ASYNC)


def test_without_abort(tmp_path: Path, less: dict[str, dict[str, str]]) -> None:
    """A library that cannot abort: on a synchronous device every wait ends all the same."""
    run("time_out abort not_connected", tmp_path, 2, less["no abort"])


def test_the_host_can_be_picked(tmp_path: Path) -> None:
    picked = {"TORCH_BACKEND_COLLECTIVES": "host", "EXPECTED_PATH": "host"}
    run("rare_dtypes", tmp_path, 2, DEVICE_COLLECTIVES | picked)


@in_process({})
def test_what_is_picked_must_be_there() -> None:
    torch_backend.activate("xcpu")
    for picked, error in (("device", "offers none"), ("gloo", "it can be 'device' or 'host'")):
        os.environ["TORCH_BACKEND_COLLECTIVES"] = picked
        with pytest.raises((RuntimeError, ValueError), match=error):
            torch.distributed.init_process_group(store=torch.distributed.HashStore(), rank=0, world_size=1)


def test_a_table_without_required_slots(run_python: RunPython, build_plugin: BuildPlugin) -> None:
    path = build_plugin("CCL_SIZE=offsetof(tb_ccl_table, recv)", source="less.c", over="xcpu")
    run_python(
        """
        import torch, torch_backend
        for _ in range(2):
            try:
                torch_backend.activate("xcpu")
            except ValueError as error:
                assert "ccl.1" in str(error) and "the required slot recv is not set" in str(error), error
            else:
                raise AssertionError
            assert torch_backend.active() is None
        """,
        env={"TORCH_BACKEND": "none", "TORCH_BACKEND_PATH": path, **DEVICE_COLLECTIVES},
    )


@in_process(
    {"TORCH_BACKEND": "xcpu", "TORCH_BACKEND_XCPU_DEVICES": "2", "TORCH_BACKEND_XCPU_ASYNC": "1"} | DEVICE_COLLECTIVES
)
def test_threads_as_ranks() -> None:
    """Ranks may be threads of one process, each with a device of its own."""
    store = torch.distributed.HashStore()
    sums: dict[int, float] = {}

    def rank(number: int) -> None:
        torch.accelerator.set_device_index(number)
        backend = _C.DeviceBackend("xcpuccl", store, number, 2, timedelta(seconds=60))
        x = torch.full((1000,), number + 1.0, device="xcpu")
        backend.allreduce([x]).wait()
        sums[number] = x.sum().item()

    in_numbered_threads(2, rank)
    assert sums == {0: 3000.0, 1: 3000.0}, sums


@in_process({"TORCH_BACKEND": "xcpu", "TORCH_BACKEND_XCPU_DEVICES": "2"} | DEVICE_COLLECTIVES)
def test_callbacks_of_a_failure_hold_nobody_up() -> None:
    """Whoever fails a work does not run the callbacks of its future: they may wait for what comes after."""
    store, both = torch.distributed.HashStore(), threading.Barrier(2)
    go_on, called = threading.Event(), threading.Event()
    seen: list[bool] = []

    def callback(_: object) -> None:
        seen.append(go_on.wait(30))
        called.set()

    def rank(number: int) -> None:
        torch.accelerator.set_device_index(number)
        backend = _C.DeviceBackend("xcpuccl", store, number, 2, timedelta(seconds=60))
        x = torch.ones(1000, device="xcpu")
        backend.allreduce([x]).wait()
        both.wait()
        if number == 0:
            work = backend.allreduce([x])  # the other rank does not come
            work.get_future().add_done_callback(callback)
            backend.abort()
            go_on.set()
            assert called.wait(30)
        both.wait()

    in_numbered_threads(2, rank)
    assert seen == [True], seen
