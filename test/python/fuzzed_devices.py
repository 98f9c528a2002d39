"""Devices with mistakes that a seed chooses (test/plugins/fuzzed.c), each in a process of its own.

python fuzzed_devices.py LIBRARY FIRST COUNT [JOBS]: prints the seeds that do harm, and how many ended in which way;
fails if one does harm. Processes are forked from one that has imported torch and loaded no device.
"""

import collections
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any

# What an error may be, by name: subclasses, as UnicodeDecodeError of ValueError, were not meant.
DOCUMENTED = {"RuntimeError", "ValueError", "NotImplementedError", "AcceleratorError", "OutOfMemoryError", "IndexError"}
SECONDS = 60
ORDERLY_ENDS = 8
"""One process in so many ends as processes do."""


def _work(torch: Any, name: str) -> Iterator[tuple[str, Callable[[], object]]]:
    device = torch.device(name)
    module = getattr(torch, name)
    host = torch.arange(16.0)

    def compute() -> None:
        assert torch.equal((host.to(device) + 2 - 1).cpu(), host + 1), "wrong values"

    def streams() -> None:
        for priority in (-(2**31), -1, 0, 2**31 - 1):
            with torch.Stream(device, priority=priority):
                first, last = (torch.Event(device, enable_timing=True) for _ in range(2))
                first.record()
                compute()
                last.record()
            last.synchronize()
            first.elapsed_time(last)

    def capture() -> None:
        x = host.to(device)
        graph = module.Graph()
        with module.graph(graph):
            y = x * 2
        graph.replay()
        module.synchronize()
        del y

    def profile() -> None:
        from torch.profiler import ProfilerActivity
        from torch.profiler import profile as record

        with record(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]):
            compute()

    def draw() -> None:
        assert torch.rand(4, generator=torch.Generator(device), device=device).max() < 1

    yield "compute", compute
    yield "properties", lambda: [str(module.get_device_properties(i)) for i in range(module.device_count())]
    yield "memory", lambda: (module.mem_get_info(), module.memory_stats(), module.empty_cache())
    yield "pointer", lambda: torch.ones(3).pin_memory().is_pinned()
    yield "streams", streams
    yield "capture", capture
    yield "profile", profile
    yield "draw", draw
    yield "synchronize", module.synchronize


def _is_readable(text: str) -> bool:
    return 10 < len(text) < 10000 and all(c.isprintable() or c in "\n\t" for c in text)


def _judge(error: Exception) -> str | None:
    """What is wrong with an error; None if nothing."""
    kind = type(error).__name__
    if kind not in DOCUMENTED:
        return f"{kind}: {error}\n{''.join(traceback.format_exception(error))}"
    return None if _is_readable(str(error)) else f"{kind} cannot be read: {str(error)[:300]!r}"


def _child(library: str, seed: int) -> dict[str, Any]:
    """Use the device: where it was refused, what it was used for, and what is wrong with that."""
    import torch

    import torch_backend

    harms, failed = [], []
    try:
        plugin = torch_backend.load(library, {"seed": seed})
        [str(part) for part in (plugin, plugin.vendor, plugin.version, plugin.tables)]
        torch_backend.activate(plugin)
    except Exception as error:
        harm = _judge(error)
        return {"end": "refused", "harms": [harm] if harm else [], "said": str(error)[:200]}
    for what, step in _work(torch, plugin.name):
        try:
            step()
        except Exception as error:
            failed.append(what)
            harm = _judge(error)
            if harm:
                harms.append(f"{what}: {harm}")
    return {"end": "errors" if failed else "works", "harms": harms, "failed": failed}


def _start(library: str, seed: int) -> tuple[int, int]:
    reader, writer = os.pipe()
    child = os.fork()
    if child:
        os.close(writer)
        return child, reader
    os.close(reader)
    log = os.open(os.devnull, os.O_WRONLY)
    os.dup2(log, 1)
    os.dup2(log, 2)
    signal.alarm(SECONDS)
    try:
        result = _child(library, seed)
    except BaseException as error:
        result = {"end": "harm", "harms": [f"{type(error).__name__}: {error}"]}
    os.write(writer, json.dumps(result).encode()[:60000])
    os.close(writer)
    if seed % ORDERLY_ENDS == 0:
        sys.exit(0)  # as a process ends, which takes longer than all the rest
    os._exit(0)


def _finish(child: int, reader: int) -> dict[str, Any]:
    with os.fdopen(reader, "rb") as pipe:
        text = pipe.read()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    result: dict[str, Any] = json.loads(text) if text else {"end": "harm", "harms": ["it said nothing"]}
    if code != 0:
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        result = {"end": "harm", "harms": [*result["harms"], f"the process ended with {how}"]}
    return result


def main(library: str, first: int, count: int, jobs: int = 2) -> int:
    """Run the seeds from ``first`` on; the number of those that do harm."""
    import torch

    from torch_backend.files import native

    native.require()
    import torch._dynamo  # what operators import takes seconds: once, and not in every process
    import torch.profiler

    import torch_backend.device_module  # noqa: F401

    begin = time.monotonic()
    ends: collections.Counter[str] = collections.Counter()
    running: list[tuple[int, tuple[int, int]]] = []
    harmful = 0
    torch.set_num_threads(1)  # a pool of threads does not survive a fork

    def finish_one() -> None:
        nonlocal harmful
        seed, process = running.pop(0)
        result = _finish(*process)
        ends[result["end"]] += 1
        if result["harms"]:
            harmful += 1
            print(f"seed {seed}: {result}", flush=True)

    for seed in range(first, first + count):
        running.append((seed, _start(library, seed)))
        if len(running) >= jobs:
            finish_one()
    while running:
        finish_one()
    print(json.dumps({"ends": dict(ends), "harmful": harmful, "seconds": round(time.monotonic() - begin, 1)}))
    return harmful


if __name__ == "__main__":
    sys.exit(min(main(sys.argv[1], *map(int, sys.argv[2:])), 100))
