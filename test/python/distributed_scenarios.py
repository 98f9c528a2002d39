"""What two ranks do in test_distributed.py. Run as a program by every rank, which prints how each scenario went.

``RANK=0 WORLD_SIZE=2 PLACE=/tmp/x python distributed_scenarios.py NAME...``. Each scenario has a group of its own. The
last one may leave a rank dead.
"""

import json
import os
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
from torch import distributed as dist

RANK, COUNT = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
PLACE = os.environ["PLACE"]
NAME = torch.accelerator.current_accelerator().type
torch.accelerator.set_device_index(RANK % torch.accelerator.device_count())
DEVICE = torch.device(NAME, torch.accelerator.current_device_index())


def join(scenario: str, backend: str | None = None, seconds: float = 60, **options: Any) -> None:
    dist.init_process_group(
        backend,
        init_method=f"file://{PLACE}-{scenario}",
        rank=RANK,
        world_size=COUNT,
        timeout=timedelta(seconds=seconds),
        **options,
    )


def meet(scenario: str) -> None:
    """Wait on files for the other rank: the group may be broken."""
    open(f"{PLACE}-{scenario}-{RANK}", "w").close()
    while not all(os.path.exists(f"{PLACE}-{scenario}-{rank}") for rank in range(COUNT)):
        time.sleep(0.02)


def all_reduce_on_host(x: torch.Tensor) -> None:
    """Ends with the values, or the failure: wait() alone need not wait for either on an asynchronous device."""
    dist.all_reduce(x)
    x.cpu()


def raised_by(call: Callable[..., Any], *arguments: Any, **options: Any) -> Exception:
    try:
        call(*arguments, **options)
    except Exception as error:
        return error
    raise AssertionError(f"{call} raised nothing")


def refused(kind: type[Exception], text: str, call: Callable[..., Any], *arguments: Any, **options: Any) -> None:
    error = raised_by(call, *arguments, **options)
    assert isinstance(error, kind), f"{type(error)}: {error}"
    assert text in str(error), error


def names() -> None:
    for number, backend in enumerate((None, f"{NAME}ccl", f"cpu:gloo,{NAME}:{NAME}ccl")):
        join(f"names-{number}", backend)
        assert dist.group.WORLD.name() == "custom", f"{backend}: the main backend is {dist.group.WORLD.name()}"
        assert dist.group.WORLD._get_backend(DEVICE).name() == f"{NAME}ccl"
        assert dist.group.WORLD._get_backend(DEVICE).path == os.environ.get("EXPECTED_PATH", "host")
        x = torch.ones(2, device=DEVICE)
        dist.all_reduce(x)
        assert x.tolist() == [2.0, 2.0]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2).to(DEVICE))
            for _ in range(2):
                model(x).sum().backward()
        if backend and "cpu:" in backend:
            x = torch.ones(2)
            dist.all_reduce(x)
            assert x.tolist() == [2.0, 2.0]
        dist.barrier(device_ids=[DEVICE.index])
        dist.destroy_process_group()


def bad_arguments() -> None:
    join("bad_arguments")
    ones = torch.ones(4, device=DEVICE)
    other = torch.ones(4, device=f"{NAME}:{(DEVICE.index + 1) % 2}")
    group = dist.group.WORLD._get_backend(DEVICE)
    refused(ValueError, "takes tensors of one device", dist.all_gather, [ones.clone(), other], ones)
    refused(ValueError, "with BXOR", dist.all_reduce, ones, dist.ReduceOp.BXOR)
    refused(ValueError, "with AVG", dist.all_reduce, ones > 0, dist.ReduceOp.AVG)
    refused(ValueError, "the whole has 8", dist.all_gather_into_tensor, torch.ones(6, device=DEVICE), ones)
    refused(ValueError, "of one dtype", group.allgather, [[ones.clone(), ones.clone()]], [ones.int()])
    refused(ValueError, "one tensor per process", group.allreduce, [ones, ones])
    x = torch.ones(4, device=DEVICE)
    dist.all_reduce(x)  # the group still works
    assert x.tolist() == [2.0] * 4
    dist.destroy_process_group()


def rare_dtypes() -> None:
    """Gloo does not reduce these."""
    join("rare_dtypes")
    for dtype, values in (
        (torch.int16, [30000, 7]),
        (torch.uint16, [40000, 7]),
        (torch.complex64, [1 + 2j, 3]),
        (torch.float8_e5m2, [2, 3]),
    ):
        x = torch.tensor(values, device=DEVICE).to(dtype)
        dist.all_reduce(x)
        assert (
            x.cpu().to(torch.complex64).tolist() == torch.tensor(values).mul(2).to(dtype).to(torch.complex64).tolist()
        )
    x = torch.tensor([True, RANK == 0, False], device=DEVICE)
    dist.all_reduce(x)
    assert x.tolist() == [True, True, False]
    x = torch.tensor([1.0, 3.0], device=DEVICE)
    dist.all_reduce(x, dist._make_nccl_premul_sum(0.25))
    assert x.tolist() == [0.5, 1.5]
    parts = torch.tensor([1.0, 3.0], device=DEVICE)
    mine = torch.zeros(1, device=DEVICE)
    dist.reduce_scatter_tensor(mine, parts, dist._make_nccl_premul_sum(0.5))
    assert mine.item() == [1.0, 3.0][RANK]
    assert parts.tolist() == [1.0, 3.0], "the input was changed"
    dist.destroy_process_group()


def split() -> None:
    join("split", device_id=DEVICE)
    part = dist.split_group(split_ranks=[[0], [1]])
    whole = dist.split_group(split_ranks=[[0, 1]], timeout=timedelta(seconds=9))
    for group, total in ((part, 1), (whole, 2)):
        x = torch.ones(2, device=DEVICE)
        dist.all_reduce(x, group=group)
        assert x.tolist() == [total] * 2, (total, x)
    backend = dist.group.WORLD._get_backend(DEVICE)
    assert backend.options._timeout == timedelta(seconds=60)
    assert whole._get_backend(DEVICE).options._timeout == timedelta(seconds=9)
    dist.group.WORLD.set_timeout(timedelta(seconds=30))
    assert backend.options._timeout == timedelta(seconds=30)
    dist.new_group([1])  # a rank that is not in it takes part in making it
    dist.destroy_process_group()


def unawaited() -> None:
    """Tensors may go before a collective is done with them, and the group ends after its work."""
    join("unawaited")
    kept = torch.zeros(1 << 16, device=DEVICE)
    for _ in range(20):
        dist.all_reduce(torch.ones(1 << 16, device=DEVICE), async_op=True)
        last = dist.all_reduce(kept, async_op=True)
    last.wait()
    assert kept.sum().item() == 0
    dist.all_reduce(kept, async_op=True)
    dist.destroy_process_group()


def issued_at_once() -> None:
    """A collective is issued while the device is busy: only its wait() waits for the work before it."""
    join("issued_at_once")
    x, other = torch.zeros(100, device=DEVICE), torch.zeros(100, device=DEVICE)
    dist.all_reduce(x)
    torch.accelerator.synchronize()
    for _ in range(3000):  # each takes the time of xcpu's option delay_us
        x.copy_(other)
    work = dist.all_reduce(x, async_op=True)
    assert not work.is_completed()
    assert not torch.accelerator.current_stream().query(), "the device was not busy: this shows nothing"
    work.wait()
    torch.accelerator.synchronize()
    assert work.is_completed()
    dist.destroy_process_group()


def detail() -> None:
    """With TORCH_DISTRIBUTED_DEBUG=DETAIL calls that differ between ranks are named, as on the CPU."""
    dist.set_debug_level(dist.DebugLevel.DETAIL)
    try:
        join("detail")
        x = torch.ones(4, device=DEVICE)
        dist.all_reduce(x)
        assert x.tolist() == [2.0] * 4
        refused(RuntimeError, "mismatch", dist.all_reduce, torch.ones(4 + RANK, device=DEVICE))
        meet("detail")
        dist.destroy_process_group()
    finally:
        dist.set_debug_level(dist.DebugLevel.OFF)


def time_out() -> None:
    """A rank does not come: the other one is told so after the group's time-out."""
    join("time_out")
    x = torch.ones(1000, device=DEVICE)
    dist.all_reduce(x)
    backend = dist.group.WORLD._get_backend(DEVICE)
    assert str(backend.get_error()) == "ErrorType.SUCCESS"
    if RANK == 0:
        dist.group.WORLD.set_timeout(timedelta(seconds=1))
        error = raised_by(all_reduce_on_host, x)
        assert isinstance(error, dist.DistBackendError), error
        assert str(error).startswith("all_reduce failed on rank 0 of 2: "), error
        assert "imed out" in str(error), error
        assert str(backend.get_error()) == "ErrorType.COMM_ERROR"
    meet("time_out")
    dist.destroy_process_group()


def abort() -> None:
    """abort() in another thread ends a wait for a rank that does not come; later calls are refused."""
    join("abort")
    x = torch.ones(10, device=DEVICE)
    dist.all_reduce(x)
    if RANK == 0:
        dist.group.WORLD.set_timeout(timedelta(seconds=15))  # what the transport still does ends with it
        threading.Timer(0.3, dist.group.WORLD.abort).start()
        start = time.monotonic()
        refused(dist.DistBackendError, "rank 0 of 2: the process group was aborted", all_reduce_on_host, x)
        assert time.monotonic() - start < 12, "the wait ended with its time-out"
        refused(RuntimeError, f"'{NAME}ccl' was aborted and does no more work", dist.all_reduce, x)
    meet("abort")
    dist.destroy_process_group()


def killed() -> None:
    """A rank dies: the other one is told so within the group's time-out."""
    join("killed", seconds=40)
    x = torch.ones(1000, device=DEVICE)
    dist.all_reduce(x)
    if RANK == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    start = time.monotonic()
    error = raised_by(lambda: [all_reduce_on_host(x) for _ in range(2)])
    assert isinstance(error, dist.DistBackendError), error
    assert str(error).startswith("all_reduce failed on rank 0 of 2: "), error
    assert "Another rank may have ended" in str(error)
    assert time.monotonic() - start < 60


def kit() -> None:
    """The kit's collectives with as many ranks as there are: the kit itself has pairs."""
    from torch_backend.testing.suite.distributed import _work

    join("kit")
    _work.all_reduce("SUM", "float32")
    _work.average("bfloat16")
    for work in (
        _work.broadcast,
        _work.all_gather,
        _work.reduce_scatter,
        _work.reduce_to_one,
        _work.gather_and_scatter,
        _work.all_to_all,
        _work.strided_tensors,
        _work.batch,
        _work.receive_from_any,
        _work.coalesced,
        _work.future,
        _work.stream_waits,
        _work.part_of_the_ranks,
    ):
        work()
    _work.data_parallel(2)
    dist.destroy_process_group()


def main() -> None:
    for name in sys.argv[1:]:
        scenario: Callable[[], None] = globals()[name]
        try:
            scenario()
            how = "good"
        except BaseException:
            how = traceback.format_exc()
        print(json.dumps([name, how]), flush=True)
        if how != "good":
            os._exit(1)  # the other ranks may wait for this one
    os._exit(0 if "killed" not in sys.argv else 3)  # what was killed left a group that cannot end


if __name__ == "__main__":
    main()
