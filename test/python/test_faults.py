"""Every slot of the device fails in every way while a workload runs: the error is right, and nothing else breaks.

One process per mode of xcpu does all the work and prints one line of JSON per case; the tests read the lines. Each slot
has a device of its own there, which is lost at the end of the slot's cases.
"""

import functools
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from fixtures import ROOT, SUPPORT, clean_environment

from torch_backend import _C
from torch_backend.abi import Status, header
from torch_backend.files import installed, patience

MIB = 2**20
PACKAGES = [Path(__file__).parent, SUPPORT]  # of the processes that import this file
HEADER = (Path(installed.include_dir()) / "torch_backend" / "device.h").read_text()
TABLES = HEADER[HEADER.index("typedef struct tb_core_table") : HEADER.index("} tb_kernel_table;")]
# First module_image, which is asked for nothing once all images are on disk.
MODULE_SLOTS = ["module_image", "module_load", "module_function", "module_launch"]
OFFERED = re.findall(r"X\((\w+)\)", (ROOT / "backends" / "cpu" / "fault.h").read_text())
SLOTS = MODULE_SLOTS + [x.name for x in header.installed_declarations().slots("tb_core_table") if x.name in OFFERED]
# More than a device gets to, one at a time.
FUNCTIONS = ["abs", "neg", "square", "sqrt", "exp2", "expm1", "sin", "cos", "tanh", "sigmoid", "erf", "floor", "ceil"]
FUNCTIONS += ["trunc", "sign", "reciprocal", "rsqrt"]
STATUSES = {status.name: int(status) for status in Status if status != Status.OK}


def about(slot: str) -> str:
    """What the header says about the slot: the comment before it, which pairs share."""
    before = TABLES[: TABLES.index(f"(*{slot})")]
    return re.sub(r"\n *\*", "", before[before.rindex("/*") : before.rindex("*/")])


HAVE_DEFAULT = {slot for slot in SLOTS if "Default: " in about(slot) and "Required iff" not in about(slot)}
HAVE_DEFAULT.add("module_load")  # what has no image runs on the CPU
# event_elapsed is asked when both events are known to be complete.
MAY_BE_NOT_READY = {slot for slot in SLOTS if "TB_STATUS_NOT_READY" in about(slot)} - {"event_elapsed"}
CLEAN_UP = {"memory_free", "event_destroy", "stream_destroy"}  # called where nothing can be thrown: failures are logged
KEEPS_NOTHING = {"module_image"}  # without an image the source is compiled again

MODES: dict[str, dict[str, str]] = {
    "async": {"TORCH_BACKEND_XCPU_ASYNC": "1"},
    "protected": {"TORCH_BACKEND_XCPU_PROTECT": "1"},
    "modules": {"TORCH_BACKEND_XCPU_ASYNC": "1", "TORCH_BACKEND_XCPU_MODULES": "1"},
}
STREAM_SLOTS = {slot for slot in SLOTS if slot.startswith(("stream_", "event_"))} | {"device_synchronize"}
NOT_REACHED = {
    "device_count": "asked when the device is activated: see test/cpp/core/device_api_test.cpp",
    "device_properties": "asked when the driver starts: see test/cpp/core/device_api_test.cpp",
    "initialize": "called when the driver starts: see test/cpp/core/device_api_test.cpp",
    "ipc_export": "needs another process: see test_processes.py",
    "ipc_import": "needs another process: see test_processes.py",
    "ipc_close": "needs another process: see test_processes.py",
    "address_reserve": "needs expandable_segments: see test_expandable_segments.py",
    "address_release": "needs expandable_segments: see test_expandable_segments.py",
    "memory_commit": "needs expandable_segments: see test_expandable_segments.py",
    "memory_decommit": "needs expandable_segments: see test_expandable_segments.py",
    "stream_destroy": "streams of the pool live until the process ends",
}


def reached(mode: str) -> set[str]:
    """The slots of xcpu that the workload gets to in this mode."""
    slots = set(SLOTS) - set(NOT_REACHED)
    if mode == "modules":
        slots -= {"stream_host_function"}  # no kernel runs on the host
    else:
        slots -= set(MODULE_SLOTS)
    if mode == "protected":
        slots -= STREAM_SLOTS
    return slots if mode == "protected" else slots - {"memory_map", "memory_unmap"}


# ---- the workload, which runs in a process of its own ----


@functools.cache
def compiled() -> Callable[[torch.Tensor], torch.Tensor]:
    """A graph for each device, whose result is larger than what the allocator keeps in pieces."""
    torch._dynamo.config.recompile_limit = 64
    return torch.compile(lambda x: (x.t() @ x).sum() + torch.zeros(MIB, device=x.device), fullgraph=True)


class Workload:
    """Steps that use device `index`; each leaves nothing behind that another one needs."""

    def __init__(self, index: int, other: int) -> None:
        self.backend: Any = getattr(torch, "xcpu")  # noqa: B009  # unknown to mypy
        self.index, self.other = index, other
        self.device = torch.device("xcpu", index)
        self.host = torch.arange(12, dtype=torch.float32).view(3, 4)
        self.pinned = self.host.pin_memory()
        self.x = self.host.to(self.device)
        self.functions = list(FUNCTIONS)

    def steps(self) -> dict[str, Callable[[], object]]:
        names = [name for name in vars(Workload) if name.startswith("step_")]
        return {name.removeprefix("step_"): getattr(self, name) for name in names}

    def run(self) -> dict[str, tuple[str, int | None, str]]:
        """What the steps raise: type, error code and text."""
        errors = {}
        for name, step in self.steps().items():
            try:
                with self.backend.device(self.index):
                    step()
                self.backend.synchronize(self.index)  # what is asynchronous fails here
            except Exception as error:
                errors[name] = (type(error).__name__, getattr(error, "error_code", None), str(error))
        return errors

    def step_copy_in(self) -> None:
        self.x.copy_(self.host)

    def step_copy_out(self) -> None:
        assert torch.equal(self.x.cpu(), self.host)

    def step_copy_pinned(self) -> None:
        self.x.copy_(self.pinned, non_blocking=True)

    def step_copy_within(self) -> None:
        assert torch.equal(self.x.clone().cpu(), self.host)

    def step_copy_strided(self) -> None:
        torch.empty(4, 3, device=self.device).copy_(self.x.t())

    def step_copy_rows(self) -> None:
        assert torch.equal(self.x[:, 1:3].cpu(), self.host[:, 1:3])

    def step_convert(self) -> None:
        assert torch.equal(self.x.to(torch.float64).cpu(), self.host.double())

    def step_copy_to_peer(self) -> None:
        peer = self.x.to(torch.device("xcpu", self.other))
        self.backend.synchronize(self.other)
        assert torch.equal(peer.cpu(), self.host)

    def step_allocate(self) -> None:
        torch.empty(30 * MIB, dtype=torch.uint8, device=self.device)

    def step_compute(self) -> None:
        assert torch.equal((self.x + self.x).cpu(), self.host * 2)

    def step_compute_anew(self) -> None:
        """A function that was not computed on the device yet: where the device compiles, it compiles that."""
        function = getattr(torch, self.functions.pop())
        torch.testing.assert_close(function(self.x).cpu(), function(self.host))

    def step_compute_compiled(self) -> None:
        result = compiled()(self.x)
        assert torch.equal(result.cpu(), (self.host.t() @ self.host).sum().expand(MIB))

    def step_read(self) -> None:
        assert self.x.sum().item() == self.host.sum()

    def step_fill(self) -> None:
        assert torch.full((1000,), 2.0, device=self.device).zero_().eq(0).all()

    def step_draw(self) -> None:
        torch.rand(4, device=self.device)

    def step_stream(self) -> None:
        stream, here = self.backend.Stream(), self.backend.current_stream()
        stream.wait_stream(here)
        with self.backend.stream(stream):
            y = self.x + 1
        y.record_stream(here)
        here.wait_stream(stream)
        del y
        stream.query()
        stream.synchronize()

    def step_event(self) -> None:
        start, end = self.backend.Event(enable_timing=True), self.backend.Event(enable_timing=True)
        start.record()
        end.record()
        end.synchronize()
        assert end.query() in (True, False)
        assert start.elapsed_time(end) >= 0

    def step_pin(self) -> None:
        assert self.host.pin_memory().is_pinned()

    def step_ask_whether_pinned(self) -> None:
        assert not self.host.is_pinned()

    def step_empty_cache(self) -> None:
        torch.empty(30 * MIB, dtype=torch.uint8, device=self.device)
        self.backend.empty_cache()

    def step_empty_host_cache(self) -> None:
        self.backend.empty_host_cache()

    def step_memory_info(self) -> None:
        free, total = self.backend.mem_get_info(self.index)
        assert 0 < free <= total

    def step_peer_access(self) -> None:
        assert self.backend.can_device_access_peer(self.index, self.other) in (True, False)

    # ---- between cases ----

    def calm(self) -> list[str]:
        """No fault, no work, no cache. Asynchronous failures come out once: this may take a few attempts."""
        _C.set_option("xcpu.fault", "")
        late: list[str] = []
        for _ in range(20):
            try:
                for device in (self.index, self.other):
                    if not _C.is_device_lost(device):
                        self.backend.synchronize(device)
                self.backend.empty_cache()
                self.backend.empty_host_cache()
                return late
            except Exception as error:
                late.append(str(error))
        raise AssertionError(f"failures do not end: {late}")

    def held(self) -> list[int]:
        """Bytes of tensors and of the driver, on both devices."""
        devices = [device for device in (self.index, self.other) if not _C.is_device_lost(device)]
        total = self.backend.mem_get_info(self.other)[1]
        return [
            value
            for device in devices
            for value in (self.backend.memory_allocated(device), total - self.backend.mem_get_info(device)[0])
        ]


def is_offered(slot: str) -> bool:
    """Whether xcpu can fail there, in this mode or in another one."""
    _C.set_option("xcpu.fault", f"{slot}=INTERNAL")
    try:
        torch.xcpu.mem_get_info()  # type: ignore[attr-defined]
    except torch.AcceleratorError as error:
        return "with a slot that xcpu offers" not in str(error)
    finally:
        _C.set_option("xcpu.fault", "")
    return True


def run_case(work: Workload, slot: str, status: str) -> dict[str, Any]:
    before = work.held()
    scope = f":{work.index}" if status == "DEVICE_LOST" and slot != "memory_query" else ""
    _C.set_option("xcpu.fault", f"{slot}{scope}={status}")
    errors = work.run()
    late = work.calm()
    if _C.is_device_lost(work.index):
        return {"errors": errors, "lost": lost_device(work)}
    held = work.held()
    leaked = [now - then for now, then in zip(held, before, strict=True)]
    return {"errors": errors, "late": late, "leaked": leaked, "after": work.run(), "late_after": work.calm()}


def lost_device(work: Workload) -> dict[str, Any]:
    """What is left when the device is lost: nothing on it, everything elsewhere."""
    after = work.run()
    del work.x
    elsewhere = Workload(work.other, work.other - 1)
    return {
        "after": after,
        "allocated": work.backend.memory_allocated(work.index),
        "elsewhere": elsewhere.run(),
        "late": elsewhere.calm(),
    }


def main() -> None:
    """Run every case and print it."""
    slots = [slot for slot in SLOTS if is_offered(slot)]
    last = _C.device_count() - 1
    order = sorted(STATUSES, key=lambda status: status == "DEVICE_LOST")
    for index, slot in enumerate(slots, 1):  # device 0 is not lost: memory is pinned through it
        work = Workload(index, last)
        work.run()  # the driver's first time is over
        work.calm()
        for status in order:
            print(f"{slot}={status}", file=sys.stderr, flush=True)
            print(json.dumps({"slot": slot, "status": status, **run_case(work, slot, status)}), flush=True)


# ---- the tests ----


@dataclass
class Results:
    """What the process of one mode did."""

    cases: dict[tuple[str, str], dict[str, Any]]
    log: str
    exit_code: int

    def of(self, slot: str, status: str) -> dict[str, Any]:
        if (slot, status) not in self.cases:
            began = [line for line in self.log.splitlines() if re.fullmatch(r"\w+=[A-Z_]+", line)]
            pytest.fail(f"the process ended with {self.exit_code} during {began[-1:]}: {self.log[-2000:]}")
        return self.cases[slot, status]


@pytest.fixture(scope="module", params=MODES)
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def results(mode: str, tmp_path_factory: pytest.TempPathFactory) -> Results:
    environment = clean_environment() | {"TORCH_BACKEND": "xcpu", "TORCH_BACKEND_XCPU_FAULT": ""} | MODES[mode]
    environment |= {"TORCH_BACKEND_XCPU_DEVICES": "64", "PYTHONPATH": os.pathsep.join(map(str, PACKAGES))}
    environment["TORCH_BACKEND_CACHE"] = str(tmp_path_factory.mktemp("images"))
    command = [sys.executable, "-c", "import torch, test_faults; test_faults.main()"]
    limit = patience.seconds(240)
    process = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=limit, check=False)
    lines = [json.loads(line) for line in process.stdout.splitlines()]
    cases = {(line.pop("slot"), line.pop("status")): line for line in lines}
    return Results(cases, process.stderr, process.returncode)


every_slot = pytest.mark.parametrize("slot", sorted(set.union(*map(reached, MODES))))
EARLIER = "an earlier call reported that the device is lost"
TRANSIENT = [status for status in STATUSES if status != "DEVICE_LOST"]


def expected_error(slot: str, status: str) -> tuple[str, int | None]:
    """Type and code of the exception."""
    if status == "OUT_OF_MEMORY":
        return "OutOfMemoryError", None
    return ("NotImplementedError", None) if status == "UNSUPPORTED" else ("AcceleratorError", STATUSES[status])


def explains(slot: str, status: str, text: str) -> bool:
    """Whether a message names the device or plugin, the slot, and what the plugin said."""
    said = f"{slot} fails with {status} because xcpu.fault asks for it"
    who = re.match(r"xcpu(:\d+)?(: \w+ failed: | out of memory\. )|Out of pinned host memory of xcpu:\d+: ", text)
    return said in text and who is not None


def test_process_survives(results: Results) -> None:
    assert results.exit_code == 0, results.log[-2000:]


def test_workload_gets_to_every_slot(results: Results, mode: str) -> None:
    seen = {slot for slot, status in results.cases if results.cases[slot, status]["errors"]}
    seen |= {slot for slot in CLEAN_UP if f"{slot} failed: " in results.log}
    assert reached(mode) - seen == set()
    assert {slot for slot, _ in results.cases} - set().union(*map(reached, MODES)) <= set(NOT_REACHED)


@every_slot
def test_error(results: Results, mode: str, slot: str) -> None:
    for status in STATUSES:
        errors = results.of(slot, status)["errors"]
        is_answer = (status == "UNSUPPORTED" and slot in HAVE_DEFAULT) or slot in CLEAN_UP
        is_answer |= status == "NOT_READY" and slot in MAY_BE_NOT_READY
        is_answer |= status != "DEVICE_LOST" and slot in KEEPS_NOTHING
        for step, (kind, code, text) in errors.items():
            if is_answer and status == "NOT_READY" and step == "event":
                assert (kind, code) == ("RuntimeError", None)
                assert text.startswith("Both events must be completed before"), text
                continue
            assert (kind, code) == expected_error(slot, status), (status, step, text)
            if status == "DEVICE_LOST" and EARLIER in text:
                continue
            assert not is_answer, (status, step, text)
            assert explains(slot, status, text), (status, step, text)
        explained = any(explains(slot, status, text) for _, _, text in errors.values())
        assert is_answer or slot not in reached(mode) or explained, status


@pytest.mark.parametrize("slot", sorted(CLEAN_UP - set(NOT_REACHED)))
def test_failing_cleanup_is_logged(results: Results, mode: str, slot: str) -> None:
    for status in STATUSES if slot in reached(mode) else ():
        text = rf"xcpu:\d+: {slot} failed: .* \({status}\): {slot} fails with {status} because"
        assert re.search(text, results.log), status


@every_slot
def test_nothing_leaks(results: Results, mode: str, slot: str) -> None:
    not_undone = slot in ("memory_free", "memory_unmap")  # a call that fails has done nothing
    for status in TRANSIENT:
        by_tensors, by_driver, by_tensors_there, by_driver_there = results.of(slot, status)["leaked"]
        assert (by_tensors, by_tensors_there) == (0, 0), status
        assert (by_driver, by_driver_there) == (0, 0) or (not_undone and slot in reached(mode)), status


@every_slot
def test_device_works_again(results: Results, slot: str) -> None:
    for status in TRANSIENT:
        case = results.of(slot, status)
        assert case["after"] == {}, status
        assert case["late_after"] == [], status
        assert len(case["late"]) <= 1, status  # of asynchronous work the first failure is told, once


@every_slot
def test_lost_device(results: Results, mode: str, slot: str) -> None:
    case = results.of(slot, "DEVICE_LOST")
    if slot not in reached(mode) or slot == "memory_query":  # the latter names no device that could be lost
        assert "lost" not in case
        return
    lost = case["lost"]
    for step, (kind, code, text) in lost["after"].items():
        assert (kind, code) == ("AcceleratorError", STATUSES["DEVICE_LOST"]), (step, text)
        assert re.match(rf"xcpu:\d+: [\w:.]+ failed: device lost \(DEVICE_LOST\): {EARLIER}", text), text
    assert set(lost["after"]) == {name.removeprefix("step_") for name in vars(Workload) if name.startswith("step_")}
    assert lost["allocated"] == 0
    assert (lost["elsewhere"], lost["late"]) == ({}, [])
