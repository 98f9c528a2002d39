"""Processes that start and end in every way, with work pending: nothing of them may stay.

python lifecycles.py COUNT: that many cycles, each of one kind in turn. Fails if a process does not end, if it ends in
another way than it should, or if anything is left in /dev/shm. Orphans become children of this process, which
therefore sees every one of them end.
"""

import ctypes
import gc
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

PR_SET_CHILD_SUBREAPER = 36
SECONDS = 60
SHARED = Path("/dev/shm")

Cycle = Callable[[], None]
Begun = Callable[[], object]


def _use(x: Any = None, side: Any = None) -> Any:
    """Work that is pending when this returns."""
    import torch

    x = torch.ones(1 << 16, device="xcpu") if x is None else x
    pinned = torch.ones(1 << 16).pin_memory()
    side = side or torch.Stream("xcpu:1")
    for _ in range(20):
        x = x + 1
        x.copy_(pinned, non_blocking=True)
        with side:
            torch.ones(1000, device="xcpu:1").mul_(2)
    return x


def _use_for_ever(begun: Begun) -> None:
    """There is always work pending, but a few rounds of it at most: who is to end this may be late, or stopped."""
    import torch

    side, earlier = torch.Stream("xcpu:1"), []
    x = _use(None, side)
    begun()
    while True:
        x = _use(x, side)
        later = [stream.record_event() for stream in (torch.accelerator.current_stream(), side)]
        for event in earlier:
            event.synchronize()
        earlier = later


def _activate(**options: str | int) -> None:
    import torch_backend

    torch_backend.activate("xcpu", {"async": 1, "delay_us": 20000, "ipc": 1, "ccl": 1, **options})


def _in_child(work: Callable[[], None]) -> int:
    """Start a process that does ``work`` and ends as a script does."""
    sys.stdout.flush()
    child = os.fork()
    if child:
        return child
    signal.alarm(SECONDS)
    code = 99
    try:
        work()
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException:
        import traceback

        traceback.print_exc()
    sys.exit(code)


def _expect(child: int, code: int) -> None:
    ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert ended == code, f"a process ended with {ended} in place of {code}"


# ---- one process ----


def ends_with_work_pending() -> None:
    def work() -> None:
        _activate()
        _use()

    _expect(_in_child(work), 0)


def leaves_with_work_pending() -> None:
    def work() -> None:
        _activate()
        _use()
        os._exit(3)

    _expect(_in_child(work), 3)


def ends_after_a_backward_pass() -> None:
    def work() -> None:
        import torch

        _activate(delay_us=300)
        w = torch.ones(64, 64, device="xcpu", requires_grad=True)
        (w @ w).sum().backward()
        _use()
        sys.exit(5)

    _expect(_in_child(work), 5)


def _is_killed(work: Callable[[Begun], None], how: signal.Signals = signal.SIGKILL) -> None:
    """Once ``work``, which does not end, has called what it is given."""
    reader, writer = os.pipe()
    child = _in_child(lambda: work(lambda: os.write(writer, b"!")))
    os.close(writer)
    assert os.read(reader, 1) == b"!", "the work has not begun"
    os.close(reader)
    os.kill(child, how)
    _expect(child, -how)


def _work_for_ever(begun: Begun) -> None:
    _activate()
    _use_for_ever(begun)


def is_killed_with_work_pending() -> None:
    _is_killed(_work_for_ever)


def is_terminated_with_work_pending() -> None:
    _is_killed(_work_for_ever, signal.SIGTERM)


# ---- processes that have started others ----


def _child_work(inbox: Any, outbox: Any) -> None:
    x = inbox.get()
    outbox.put(_use(x.clone()).sum().item() > 0)
    inbox.get()


def _child_for_ever(number: int, outbox: Any) -> None:
    _use_for_ever(lambda: outbox.put(number))


def _spawn_environment() -> None:
    """What processes that are started anew activate, and where they find this module."""
    os.environ["TORCH_BACKEND"] = "xcpu"
    for key, value in {"async": "1", "delay_us": "1000", "ipc": "1"}.items():
        os.environ[f"TORCH_BACKEND_XCPU_{key.upper()}"] = value


def _starts_others(method: str) -> None:
    def work() -> None:
        import lifecycles
        import torch
        import torch.multiprocessing as mp

        _spawn_environment()
        _activate(delay_us=1000)
        context = mp.get_context(method)
        inbox, outbox = context.Queue(), context.Queue()
        process = context.Process(target=lifecycles._child_work, args=(inbox, outbox))
        process.start()
        x = torch.ones(1 << 16, device="xcpu")
        inbox.put(x)
        assert outbox.get()
        _use()
        inbox.put(None)
        process.join()
        assert process.exitcode == 0, process.exitcode

    _expect(_in_child(work), 0)


def spawns_another() -> None:
    _starts_others("spawn")


def forks_another_by_a_server() -> None:
    _starts_others("forkserver")


def is_killed_as_a_parent() -> None:
    """The processes of torch.multiprocessing.spawn end with the one that has started them."""

    def work(begun: Begun) -> None:
        import lifecycles
        import torch.multiprocessing as mp

        _spawn_environment()
        outbox = mp.get_context("spawn").SimpleQueue()
        mp.spawn(lifecycles._child_for_ever, args=(outbox,), nprocs=2, join=False)
        assert sorted((outbox.get(), outbox.get())) == [0, 1]
        begun()
        signal.pause()

    _is_killed(work)


# ---- ranks ----


def _rank(store: str, number: int, after: Callable[[Any], None]) -> None:
    import torch
    import torch.distributed as dist

    _activate(delay_us=300)
    dist.init_process_group(store=dist.FileStore(store, 2), rank=number, world_size=2, timeout=timedelta(seconds=30))
    x = torch.ones(1000, device="xcpu")
    dist.all_reduce(x)
    torch.accelerator.synchronize()
    after(x)


def _ranks(first: Callable[[Any], None], second: Callable[[Any], None], codes: tuple[int, int]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        store = f"{directory}/store"
        ranks = [_in_child(lambda i=i, after=after: _rank(store, i, after)) for i, after in enumerate((first, second))]
        for rank, code in zip(ranks, codes, strict=True):
            _expect(rank, code)


def ranks_end_with_collectives_pending() -> None:
    def after(x: Any) -> None:
        import torch.distributed as dist

        for _ in range(5):
            dist.all_reduce(x, async_op=True)
        sys.exit(0)  # without destroy_process_group

    _ranks(after, after, (0, 0))


def a_rank_is_killed() -> None:
    def die(_: Any) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def wait_for_it(x: Any) -> None:
        import torch
        import torch.distributed as dist

        try:
            dist.all_reduce(x)
            torch.accelerator.synchronize()
        except RuntimeError:
            sys.exit(7)

    _ranks(die, wait_for_it, (-signal.SIGKILL, 7))


CHEAP: tuple[Cycle, ...] = (
    ends_with_work_pending,
    leaves_with_work_pending,
    ends_after_a_backward_pass,
    is_killed_with_work_pending,
    is_terminated_with_work_pending,
    ranks_end_with_collectives_pending,
    a_rank_is_killed,
)
OTHERS: tuple[Cycle, ...] = (spawns_another, is_killed_as_a_parent, forks_another_by_a_server)
"""Those that start an interpreter, which takes seconds: one after every five of the others."""


def kind_of(number: int) -> Cycle:
    """What cycle ``number`` does."""
    round_, place = divmod(number, 6)
    return OTHERS[round_ % len(OTHERS)] if place == 5 else CHEAP[(round_ * 5 + place) % len(CHEAP)]


# ---- what is left ----


def _descendants() -> str:
    lines = []
    for task in Path("/proc/self/task").glob("*/children"):
        for child in task.read_text().split():
            try:
                words = Path(f"/proc/{child}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                lines.append(f"{child}: {words.strip() or 'zombie'}")
            except OSError:
                continue
    return "; ".join(lines)


def _expect_no_processes(what: str) -> None:
    end = time.monotonic() + SECONDS
    while True:
        try:
            child, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not child:
            assert time.monotonic() < end, f"{what}: still there after {SECONDS} s: {_descendants()}"
            time.sleep(0.01)


def _is_used(name: str) -> bool:
    """Whether a process, of another test perhaps, has it mapped."""
    for maps in Path("/proc").glob("[0-9]*/maps"):
        try:
            if f"/dev/shm/{name}" in maps.read_text():
                return True
        except OSError:
            continue
    return False


def _left_in_shared_memory(before: set[str]) -> list[str]:
    """What is there and stays: a process of another test may be about to map its own, or to remove it."""
    end = time.monotonic() + 10
    while True:
        left = [name for name in sorted(set(os.listdir(SHARED)) - before) if not _is_used(name)]
        if not left or time.monotonic() > end:
            return left
        time.sleep(0.1)


def main(count: int) -> None:
    """Run ``count`` cycles."""
    import torch

    from torch_backend.files import native

    native.require()
    import torch.distributed

    import torch_backend.device_module  # noqa: F401  # once, and not in every process

    torch.set_num_threads(1)
    gc.freeze()  # a process that ends need not go through what it shares with this one
    multiprocessing.set_forkserver_preload(["torch"])
    assert ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    before = set(os.listdir(SHARED))
    for number in range(count):
        cycle = kind_of(number)
        begin = time.monotonic()
        cycle()
        _expect_no_processes(cycle.__name__)
        assert time.monotonic() - begin < SECONDS, f"{cycle.__name__} took too long"
        left = _left_in_shared_memory(before)
        assert not left, f"{cycle.__name__} has left {left} in {SHARED}"
    print(f"{count} cycles, nothing left")


if __name__ == "__main__":
    main(int(sys.argv[1]))
