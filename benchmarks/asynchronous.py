"""An asynchronous device: what enqueueing and waiting take, against calls of native CPU that compute at once.

A device that runs inline has nothing to show here, but for xcpu, which is made asynchronous in a process of its own.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import torch

from benchmarks import training
from benchmarks.result import Row, time_row
from benchmarks.timer import Comparison, Work, compare

NATIVE = torch.device("cpu")


def run(device: torch.device) -> list[Row]:
    """Microseconds of one call; a training step in milliseconds."""
    if "ASYNC" not in torch.get_device_module(device).get_device_properties().capabilities:
        return _run_xcpu() if device.type == "xcpu" else []
    with torch.no_grad():
        rows = [time_row(name, compare(work(device), work(NATIVE)), "us") for name, work in WAITS.items()]
        rows.append(time_row("add, enqueued", _enqueue(_add(device), _add(NATIVE)), "us"))
    step = compare(training.transformer(device), training.transformer(NATIVE), rounds=101, round_s=0.002)
    return [*rows, time_row("transformer encoder layer", step, "ms")]


def _run_xcpu() -> list[Row]:
    environment = os.environ | {"TORCH_BACKEND": "xcpu", "TORCH_BACKEND_XCPU_ASYNC": "1"}
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "results.json"
        command = [sys.executable, "-m", "benchmarks", "asynchronous", "--json", str(results)]
        subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)
        return [Row(**row) for row in json.loads(results.read_text(encoding="utf-8"))["results"]["asynchronous"]]


def _add(device: torch.device) -> Work:
    return partial(torch.add, torch.ones(4, 4, device=device), torch.ones(4, 4, device=device))


def _item_ready(device: torch.device) -> Work:
    return torch.ones((), device=device).item


def _item_after_add(device: torch.device) -> Work:
    x = torch.ones((), device=device)
    return lambda: torch.add(x, x).item()


def _cpu_ready(device: torch.device) -> Work:
    x = torch.ones(4, 4, device=device)
    return x.cpu if device != NATIVE else x.clone


def _cpu_after_add(device: torch.device) -> Work:
    add = _add(device)
    return lambda: add().cpu()  # type: ignore[attr-defined]


def _event_after_add(device: torch.device) -> Work:
    add = _add(device)
    if device == NATIVE:
        return add
    event = torch.Event(device)

    def work() -> None:
        add()
        event.record()
        event.synchronize()

    return work


WAITS = {
    "item, ready": _item_ready,
    "item, after add": _item_after_add,
    "cpu(), ready, against clone": _cpu_ready,
    "cpu(), after add": _cpu_after_add,
    "event, after add": _event_after_add,
}


def _enqueue(on_device: Work, native: Work, rounds: int = 301, calls: int = 100) -> Comparison:
    """What the calling thread needs for a call that it does not wait for."""
    device_s: list[float] = []
    native_s: list[float] = []
    for _ in range(rounds):
        for work, seconds in ((on_device, device_s), (native, native_s)):
            torch.accelerator.synchronize()
            start = time.perf_counter()
            for _ in range(calls):
                work()
            seconds.append((time.perf_counter() - start) / calls)
    ratio = statistics.median(ours / theirs for ours, theirs in zip(device_s, native_s, strict=True))
    return Comparison(statistics.median(device_s), statistics.median(native_s), ratio)
