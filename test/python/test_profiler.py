"""torch.profiler on the device: what it records, how rows and times are joined, and what the legacy profiler gives."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from fixtures import BuildPlugin, RunPython
from torch.profiler import ProfilerActivity, profile, record_function, schedule

from torch_backend.files import installed

pytestmark = pytest.mark.skipif(not torch.autograd.kineto_available(), reason="this torch was built without Kineto")
ACTIVITIES = [ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]
SHARED = """
import json, os, tempfile, torch
from torch.profiler import profile, ProfilerActivity
def trace(work):
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]) as p:
        work()
        torch.accelerator.synchronize()
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "trace.json")
        p.export_chrome_trace(path)
        return p, json.load(open(path))
def of(t, cat):
    return [e for e in t["traceEvents"] if e.get("cat") == cat]
"""


def events(prof: profile, path: Path) -> list[dict[str, Any]]:
    prof.export_chrome_trace(str(path))
    found: list[dict[str, Any]] = json.loads(path.read_text())["traceEvents"]
    return found


def of_category(trace: list[dict[str, Any]], category: str) -> list[dict[str, Any]]:
    return [event for event in trace if event.get("cat") == category]


def test_a_call_its_work_and_its_operator_are_linked(name: str, tmp_path: Path) -> None:
    """A copy has a row of the device, with its bytes; a flow leads there from the call, and ids to the operator."""
    host = torch.randn(4096)
    torch.empty(1, device=name)
    with profile(activities=ACTIVITIES) as prof:
        host.to(name)
        torch.accelerator.synchronize()
    trace = events(prof, tmp_path / "trace.json")
    (copy,) = of_category(trace, "gpu_memcpy")
    assert copy["name"] == "Memcpy HtoD (Pageable -> Device)"
    assert (copy["pid"], copy["tid"], copy["args"]["bytes"]) == (0, 0, host.nbytes)
    (call,) = (e for e in of_category(trace, "privateuse1_runtime") if e["name"] == "memory_copy")
    assert call["args"]["correlation"] == copy["args"]["correlation"]
    # Unlike any that a profiler of CUDA's, which a torch for CUDA has besides, counts.
    flows = {e["ph"]: e for e in of_category(trace, "ac2g") if e["id"] == copy["args"]["correlation"] | 1 << 31}
    assert flows["s"]["pid"] == call["pid"]
    assert flows["f"]["pid"] == 0
    operator = {e["args"].get("External id"): e["name"] for e in of_category(trace, "cpu_op")}
    assert operator[copy["args"]["External id"]] in {"aten::copy_", "aten::_copy_from", "aten::_to_copy"}
    names = [e["args"]["name"] for e in trace if e["ph"] == "M" and e["name"] == "process_name" and e["pid"] == 0]
    assert names[-1].startswith(f"{name}:0"), "the device's rows have another name than the device"


def test_key_averages_have_the_devices_times(name: str) -> None:
    """An operator's device time is that of the work it has launched."""
    x = torch.randn(64, 64, device=name)
    with profile(activities=ACTIVITIES) as prof:
        for _ in range(3):
            x.cpu()
        torch.accelerator.synchronize()
    averages = {event.key: event for event in prof.key_averages() if "DtoH" in event.key or event.key == "aten::to"}
    (work,) = (event for key, event in averages.items() if "DtoH" in key)
    assert work.count == 3
    assert work.self_device_time_total > 0
    assert averages["aten::to"].device_time_total == pytest.approx(work.self_device_time_total)
    assert f"Self {name.upper()}" in prof.key_averages().table()


def test_a_range_is_shown_on_the_device(name: str, tmp_path: Path) -> None:
    """A range of record_function lies on the device's row too, around the work that was enqueued in it."""
    host = torch.randn(100)
    with profile(activities=ACTIVITIES) as prof:
        with record_function("outer"), record_function("inner"):
            host.to(name)
        host.to(name)
        torch.accelerator.synchronize()
    trace = events(prof, tmp_path / "trace.json")
    first, second = sorted(of_category(trace, "gpu_memcpy"), key=lambda event: event["ts"])
    for label in ("outer", "inner"):
        (span,) = (e for e in of_category(trace, "gpu_user_annotation") if e["name"] == label)
        assert span["ts"] <= first["ts"] + 0.001
        assert span["ts"] + span["dur"] < second["ts"] + second["dur"]


def test_the_memory_of_the_device_is_recorded(name: str) -> None:
    """profile_memory shows what operators allocate on the device."""
    with profile(activities=ACTIVITIES, profile_memory=True) as prof:
        torch.empty(1 << 20, dtype=torch.uint8, device=name)
    assert sum(event.self_device_memory_usage for event in prof.key_averages() if event.key == "aten::empty") == 1 << 20


def test_schedule_and_stacks(name: str, tmp_path: Path) -> None:
    """A schedule's active steps are recorded, each cycle for itself; with_stack and record_shapes do no harm."""
    cycles: list[list[dict[str, Any]]] = []
    host = torch.randn(16)
    with profile(
        activities=ACTIVITIES,
        schedule=schedule(wait=1, warmup=1, active=2, repeat=2),
        with_stack=True,
        record_shapes=True,
        on_trace_ready=lambda prof: cycles.append(events(prof, tmp_path / f"{len(cycles)}.json")),
    ) as prof:
        for _ in range(8):
            host.to(name)
            prof.step()
    assert [len(of_category(trace, "gpu_memcpy")) for trace in cycles] == [2, 2]


def test_only_what_was_asked_for(name: str, tmp_path: Path) -> None:
    """Without PrivateUse1 among the activities nothing is shown of the device, and times are the CPU's."""
    with profile(activities=[ProfilerActivity.CPU]) as prof:
        torch.ones(3, device=name).add(1).cpu()
    trace = events(prof, tmp_path / "trace.json")
    assert not [e for e in trace if e.get("cat") in {"kernel", "gpu_memcpy", "gpu_memset"}]
    assert of_category(trace, "cpu_op")


def test_the_profiler_without_kineto(name: str) -> None:
    """The legacy profiler times operators by events of the device."""
    x = torch.randn(32, 32, device=name)
    with torch.autograd.profiler.profile(use_device=name, use_kineto=False) as prof:
        x.add(1)
        torch.accelerator.synchronize()
    (add,) = (event for event in prof.function_events if event.name == "aten::add")
    assert add.device_time >= 0
    assert add.cpu_time_total > 0


def test_streams_have_rows_and_kernels_their_times(run_python: RunPython) -> None:
    """On an asynchronous device: a row per stream with its id, CPU kernels by the host's clock, copies by events."""
    run_python(
        SHARED
        + """
x = torch.randn(64, 64, device="xcpu:1")
streams = [torch.Stream(device="xcpu:1") for _ in range(2)]
def work():
    for stream in streams:
        with stream:
            y = x.mm(x).sum()
            torch.empty_like(x).copy_(x)
        stream.synchronize()
p, t = trace(work)
kernels, copies = of(t, "kernel"), of(t, "gpu_memcpy")
assert {e["tid"] for e in kernels} == {s.stream_id for s in streams}, kernels
assert {e["pid"] for e in kernels + copies} == {1}
assert {e["name"] for e in kernels} == {"aten::mm [CPU kernel]", "aten::sum.dim_IntList [CPU kernel]"}, kernels
assert {e["args"]["measured by"] for e in kernels} == {"host clock"}
assert {e["args"]["measured by"] for e in copies} == {"device events"}
assert sorted(t["xcpu_measured_by"]) == ["device events", "host clock"]
calls = {e["args"]["correlation"]: e for e in of(t, "privateuse1_runtime")}
for stream in streams:  # in order, and after the calls
    row = sorted((e for e in kernels + copies if e["tid"] == stream.stream_id), key=lambda e: e["args"]["correlation"])
    assert len(row) == 3, row
    for before, after in zip(row, row[1:]):
        assert before["ts"] + before["dur"] <= after["ts"] + 100, (before, after)
    for e in row:
        assert e["ts"] + e["dur"] >= calls[e["args"]["correlation"]]["ts"] - 100, e
""",
        env={"TORCH_BACKEND": "xcpu", "TORCH_BACKEND_XCPU_ASYNC": "1"},
    )


def test_a_device_that_traces_itself(build_plugin: BuildPlugin, run_python: RunPython) -> None:
    """What prof.1 hands out is shown in place of what the host measures, with the calls and operators it belongs to."""
    library = build_plugin(source="faulty.c", name="faulty")
    run_python(
        SHARED
        + f"""
import torch_backend
torch_backend.activate(torch_backend.load({str(library)!r}))
x = torch.randn(1000)
x.to("xcpu")
def work():
    x.to("xcpu:1")
    torch.ones(3, device="xcpu").add_(1)
p, t = trace(work)
(copy,) = of(t, "gpu_memcpy")
assert copy["args"]["measured by"] == "device trace", copy
assert copy["args"]["bytes"] == 4000 and copy["pid"] == 1, copy
operators = {{e["args"].get("External id"): e["name"] for e in of(t, "cpu_op")}}
assert operators[copy["args"]["External id"]] == "aten::_copy_from", operators
(call,) = (e for e in of(t, "privateuse1_runtime") if e["name"] == "memory_copy")
assert call["args"]["correlation"] == copy["args"]["correlation"]
assert call["ts"] - 100 <= copy["ts"] <= call["ts"] + call["dur"] + 100, (call, copy)
assert {{e["args"]["measured by"] for e in of(t, "kernel")}} == {{"host clock"}}
p, t = trace(lambda: None)
assert not of(t, "gpu_memcpy"), "records of an earlier trace came back"
""",
        env={"TORCH_BACKEND_FAULTY_OVER": installed.reference_library("xcpu")},
    )


def test_kernels_of_the_plugin(run_python: RunPython, build_plugin: BuildPlugin) -> None:
    """A kernel of kernels.1 is shown once, by its own name, though ATen's may run in its place."""
    library = build_plugin("KERNELS", name="acme")
    run_python(
        SHARED
        + f"""
import torch_backend
torch_backend.activate(torch_backend.load({str(library)!r}))
x = torch.zeros(1, device="acme")
p, t = trace(lambda: torch.exp(x))  # its first attempt is refused for want of memory
assert [e["name"] for e in of(t, "kernel")] == ["aten::exp.out [device kernel]"], of(t, "kernel")
def fails():
    try:
        x * x
    except RuntimeError as error:
        assert "on fire" in str(error)
p, t = trace(fails)
assert not of(t, "kernel"), of(t, "kernel")
assert [e["name"] for e in of(t, "privateuse1_runtime")].count("kernel_launch") == 1
"""
    )


def test_an_operator_that_fails(name: str) -> None:
    """The user is told what is told without a profiler, and the profile goes on."""
    with profile(activities=ACTIVITIES) as prof, pytest.raises(RuntimeError, match=r"shape|size"):
        torch.ones(2, 3, device=name).mm(torch.ones(2, 3, device=name))
    assert prof.key_averages() is not None
