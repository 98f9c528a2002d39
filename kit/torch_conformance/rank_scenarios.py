"""What ranks do to test collectives. Run as a program by every rank, which prints how each scenario went.

``RANK=0 WORLD_SIZE=2 PLACE=/tmp/x python rank_scenarios.py NAME...``. Each scenario has a group of its own. The
last one may leave a rank dead.
"""

import functools
import inspect
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
    """All ranks join a group. On a busy machine Gloo may lose a connection that it is making: all try again then."""
    for attempt in range(3):
        place = f"{scenario}.{attempt}"
        try:
            dist.init_process_group(
                backend,
                init_method=f"file://{PLACE}-{place}",
                rank=RANK,
                world_size=COUNT,
                timeout=timedelta(seconds=seconds),
                **options,
            )
        except RuntimeError as error:
            if "connectFullMesh failed" not in str(error) or attempt == 2:
                raise
            open(f"{PLACE}-{place}-lost", "w").close()
        meet(f"{place}-joined")
        if not os.path.exists(f"{PLACE}-{place}-lost"):
            break
        if dist.is_initialized():
            dist.destroy_process_group()
        dist.distributed_c10d._world.group_count = 0  # of a rank that failed: it is part of the keys in the store
    if dist.get_debug_level() != dist.DebugLevel.DETAIL:  # which puts another backend in front
        assert dist.group.WORLD._get_backend(DEVICE).path == os.environ.get("EXPECTED_PATH", "host")


def meet(scenario: str) -> None:
    """Wait on files for the other rank: the group may be broken."""
    open(f"{PLACE}-{scenario}-{RANK}", "w").close()
    deadline = time.monotonic() + 60
    while not all(os.path.exists(f"{PLACE}-{scenario}-{rank}") for rank in range(COUNT)):
        assert time.monotonic() < deadline, f"another rank has not come to {scenario} within a minute"
        time.sleep(0.02)


def all_reduce_on_host(x: torch.Tensor) -> None:
    """Ends with the values, or the failure: wait() alone need not wait for either on an asynchronous device."""
    dist.all_reduce(x)
    torch.accelerator.synchronize()


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
    ours, as_for_cuda = (None, f"{NAME}ccl", f"cpu:gloo,{NAME}:{NAME}ccl"), ("gloo", f"cpu:gloo,{NAME}:gloo", "nccl")
    for number, backend in enumerate((*ours, *as_for_cuda)):
        join(f"names-{number}", backend)
        assert dist.group.WORLD.name() == "custom", f"{backend}: the main backend is {dist.group.WORLD.name()}"
        assert dist.group.WORLD._get_backend(DEVICE).name() == f"{NAME}ccl"
        x = torch.ones(2, device=DEVICE)
        dist.all_reduce(x)
        assert x.tolist() == [2.0, 2.0]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2).to(DEVICE))
            for _ in range(2):
                model(x).sum().backward()
        x = torch.ones(2)
        if backend and "gloo" in backend:
            dist.all_reduce(x)
            assert x.tolist() == [2.0, 2.0]
        else:
            refused(RuntimeError, "No backend type associated with device type cpu", dist.all_reduce, x)
        dist.barrier(device_ids=[DEVICE.index])
        dist.destroy_process_group()


def bound() -> None:
    """Groups of every name within groups of every name that are bound to a device; one of them saves a checkpoint."""
    from torch.distributed import checkpoint

    names = (None, "nccl", f"{NAME}ccl", "gloo", f"cpu:gloo,{NAME}:{NAME}ccl", f"cpu:gloo,{NAME}:gloo")
    for number, backend in enumerate(names):
        join(f"bound-{number}", backend, device_id=DEVICE)
        for part in ("the whole", *names):
            group = dist.group.WORLD if part == "the whole" else dist.new_group(backend=part)
            said = f"{part} of {backend}"
            assert group._get_backend(DEVICE).name() == f"{NAME}ccl", said
            on_cpu = "gloo" in str(backend if part in ("the whole", None) else part)
            for x in (torch.ones(2, device=DEVICE), *((torch.ones(2),) if on_cpu else ())):
                dist.all_reduce(x, group=group)
                assert x.tolist() == [COUNT] * 2, said
            dist.barrier(group)
            if part == "gloo":
                state = {"x": torch.ones(3, device=DEVICE)}
                checkpoint.async_save(state, checkpoint_id=f"{PLACE}-bound-{number}", process_group=group).result()
                state["x"].zero_()
                checkpoint.load(state, checkpoint_id=f"{PLACE}-bound-{number}")
                assert state["x"].tolist() == [1.0] * 3, said
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
    if 'torch.device("cuda")' in inspect.getsource(dist.split_group):  # torch 2.11
        refused(RuntimeError, "device type cuda", dist.split_group, split_ranks=[[0], [1]])
        dist.destroy_process_group()
        return
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
        refused(dist.DistBackendError, "does no more work: it was aborted", dist.all_reduce, x)
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


def slots() -> None:
    """Which slots of ccl.1 did the work: what the library has is used, and what it has not is built from the rest."""
    join("slots", device_id=DEVICE)
    backend = dist.group.WORLD._get_backend(DEVICE)
    used: dict[str, int] = {}

    def calls(work: Callable[[], Any]) -> set[str]:
        nonlocal used
        work()
        torch.accelerator.synchronize()
        before, used = used, backend.slot_calls()
        return {slot for slot, number in used.items() if number > before.get(slot, 0)} - {"comm_create"}

    calls(dist.barrier)
    expected = set(os.environ["EXPECTED_SLOTS"].split()) if "EXPECTED_SLOTS" in os.environ else None
    x = torch.ones(1 << 16, device=DEVICE)
    parts = torch.ones(COUNT * 4, device=DEVICE)
    for native, work in (
        ("all_reduce", lambda: dist.all_reduce(x)),
        ("all_reduce", lambda: dist.all_reduce(x, dist.ReduceOp.AVG)),
        ("broadcast", lambda: dist.broadcast(x, 1)),
        ("reduce", lambda: dist.reduce(x, 1)),
        ("all_gather", lambda: dist.all_gather_into_tensor(parts, torch.ones(4, device=DEVICE))),
        ("reduce_scatter", lambda: dist.reduce_scatter_tensor(torch.empty(4, device=DEVICE), parts)),
        ("all_to_all", lambda: dist.all_to_all_single(parts.clone(), parts)),
    ):
        by = calls(work)
        assert by <= (expected or {native}), f"{native} was done by {by}"
        assert by, f"{native} was done by no slot"
    bits = torch.full((1 << 16,), 5 + RANK, device=DEVICE, dtype=torch.int32)
    by = calls(lambda: dist.all_reduce(bits, dist.ReduceOp.BXOR))
    assert by & {"all_to_all", "send", "recv"}, f"BXOR, which the library does not know, was done by {by}"
    assert bits.unique().tolist() == [5 ^ 6]
    dist.destroy_process_group()
    refused(dist.DistBackendError, "does no more work: it was destroyed", backend.allreduce, [x])


def crossing() -> None:
    """Large messages that all ranks send before they receive: a send does not stand before a receive."""
    join("crossing")
    size = 1 << 20
    before, after = (RANK - 1) % COUNT, (RANK + 1) % COUNT
    for _ in range(2):
        x = torch.zeros(size, device=DEVICE)
        works = [dist.isend(torch.full((size,), float(RANK), device=DEVICE), after), dist.irecv(x, before)]
        y = torch.full((100,), float(RANK), device=DEVICE)
        dist.all_reduce(y)  # nor before a collective
        assert y.sum().item() == 100 * sum(range(COUNT))
        for work in works:
            assert work is not None
            work.wait()
        assert x.sum().item() == size * before
    dist.destroy_process_group()


def tags() -> None:
    """Over Gloo messages are told apart by their tags, in whatever order they come, and however many there are."""
    join("tags")
    count = 80
    works = [dist.isend(torch.full((3,), float(tag), device=DEVICE), 1, tag=tag) for tag in range(count) if RANK == 0]
    x = torch.zeros(3, device=DEVICE)
    for tag in reversed(range(count if RANK else 0)):
        dist.recv(x, 0, tag=tag)
        assert x.tolist() == [tag] * 3
    for work in works:
        assert work is not None
        work.wait()
    dist.destroy_process_group()


def callbacks() -> None:
    """A callback of a future may call collectives, and wait for them, and so may theirs."""
    join("callbacks")
    for _ in range(5):
        x = torch.ones(100, device=DEVICE)
        work = dist.all_reduce(x, async_op=True)

        def again(done: Any) -> torch.Tensor:
            inner = dist.all_reduce(done.value()[0] * 2, async_op=True)
            return inner.get_future().then(last).wait()

        def last(done: Any) -> torch.Tensor:
            y = done.value()[0]
            dist.all_reduce(y)
            return y

        y = work.get_future().then(again).wait()
        assert y.sum().item() == 100 * 2 * COUNT**3
    dist.destroy_process_group()


def empty() -> None:
    """Tensors without elements, and ranks that get nothing."""
    join("empty")
    x, y = torch.empty(0, device=DEVICE), torch.empty(0, device=DEVICE)
    dist.all_reduce(x)
    dist.broadcast(x, 0)
    dist.reduce(x, 0)
    dist.all_gather([torch.empty(0, device=DEVICE) for _ in range(COUNT)], x)
    dist.reduce_scatter_tensor(y, x)
    dist.all_to_all_single(y, x)
    rows = torch.full((3, 2), float(RANK), device=DEVICE)  # rank 0 gets all
    got = torch.zeros(3 * COUNT if RANK == 0 else 0, 2, device=DEVICE)
    sent = [3 if rank == 0 else 0 for rank in range(COUNT)]
    dist.all_to_all_single(got, rows, [3 if RANK == 0 else 0] * COUNT, sent)
    assert got.sum().item() == (6 * sum(range(COUNT)) if RANK == 0 else 0)
    x = torch.full((COUNT - 1,), float(RANK), device=DEVICE)  # less than one for each rank
    dist.all_reduce(x, dist.ReduceOp.MAX)
    assert x.unique().tolist() == [COUNT - 1]
    dist.destroy_process_group()


def reductions() -> None:
    """Every operator, on as many elements as make the ranks share the work, and on a few."""
    join("reductions")
    for count in (5, 30011):
        values = [torch.arange(count) % 5 + 1 + rank for rank in range(COUNT)]
        together: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
            "SUM": lambda t: t.sum(0),
            "AVG": lambda t: t.sum(0) // COUNT,
            "PRODUCT": lambda t: t.prod(0),
            "MIN": lambda t: t.amin(0),
            "MAX": lambda t: t.amax(0),
            "BAND": lambda t: functools.reduce(torch.bitwise_and, t),
            "BOR": lambda t: functools.reduce(torch.bitwise_or, t),
            "BXOR": lambda t: functools.reduce(torch.bitwise_xor, t),
        }
        for name, combine in together.items():
            expected = combine(torch.stack(values))
            for dtype in (torch.int64, torch.uint8, torch.float32):
                if dtype.is_floating_point and name in ("BAND", "BOR", "BXOR", "AVG"):
                    continue
                x = values[RANK].to(DEVICE, dtype)
                whole = torch.cat([x] * COUNT)
                operation = getattr(dist.ReduceOp, name)
                part = torch.empty_like(x)
                dist.reduce_scatter_tensor(part, whole, operation)
                one = x.clone()
                dist.reduce(one, COUNT - 1, operation)
                dist.all_reduce(x, operation)
                what = f"{name} of {count} {dtype}"
                assert torch.equal(x.cpu(), expected.to(dtype)), what
                assert torch.equal(part.cpu(), expected.to(dtype)), f"reduce_scatter with {what}"
                assert RANK != COUNT - 1 or torch.equal(one.cpu(), expected.to(dtype)), f"reduce with {what}"
    dist.destroy_process_group()


def host_goes_on() -> None:
    """On an asynchronous device wait() lets the stream wait for the collective and not the host."""
    join("host_goes_on", device_id=DEVICE)
    x = torch.ones(1000, device=DEVICE)
    dist.all_reduce(x)
    torch.accelerator.synchronize()
    if RANK == 0:
        work = dist.all_reduce(x, async_op=True)
        work.wait()
        y = x * 2
        assert not work.is_completed(), "it is complete before the other rank has come"
        refused(dist.DistBackendError, "is not complete after 50 ms", work.wait, timedelta(milliseconds=50))
        meet("host_goes_on")
        assert y.sum().item() == 1000 * 2 * 4
        assert work.is_completed()
        assert work.is_success()
    else:
        meet("host_goes_on")  # rank 0 has come from its wait()
        dist.all_reduce(x)
    work = dist.barrier(async_op=True, device_ids=[DEVICE.index])
    work.wait()
    assert work.is_completed(), "the host has not waited for a barrier"
    dist.destroy_process_group()


def monitored() -> None:
    """monitored_barrier names the ranks that do not come."""
    join("monitored")
    backend = dist.group.WORLD._get_backend(DEVICE)
    backend.monitored_barrier(timedelta(seconds=30))
    if RANK == 0:
        refused(RuntimeError, "waiting for rank 1 of 2", backend.monitored_barrier, timedelta(seconds=0.5))
    meet("monitored")
    dist.destroy_process_group()


def not_connected() -> None:
    """A rank that does not come at all: the first collective names it."""
    join("not_connected")
    x = torch.ones(3, device=DEVICE)
    if RANK == 0:
        dist.group.WORLD.set_timeout(timedelta(seconds=1))
        error = raised_by(all_reduce_on_host, x)
        assert isinstance(error, dist.DistBackendError), error
        assert str(error).startswith("all_reduce failed on rank 0 of 2: timed out after 1000 ms"), error
        refused(dist.DistBackendError, "does no more work: all_reduce failed", dist.broadcast, x, 0)
    meet("not_connected")
    dist.destroy_process_group()


def shared_attention() -> None:
    """Attention of DTensors that ranks share by heads or by batch exchanges nothing, and is that of whole tensors."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor
    from torch.distributed.tensor.debug import CommDebugMode

    join("shared_attention")
    mesh = init_device_mesh(NAME, (COUNT,))
    attend = torch.nn.functional.scaled_dot_product_attention
    masks = (None, (8, 8), (2, 1, 8, 8), (1, 4, 8, 8), (2, 4, 8, 8), (1, 1, 8, 8))
    cases = [(dim, shape, 4, 0) for dim in (0, 1) for shape in masks]
    cases += [(1, None, 2, 0), (0, None, 1, 0), (1, None, 1, 6), (2, None, 4, 6)]  # what needs the whole gathers it
    for dim, shape, heads, exchanges in cases:
        generator = torch.Generator().manual_seed(1)
        sizes = ((2, 4, 8, 16), (2, heads, 8, 16), (2, heads, 8, 16))
        whole = [torch.randn(size, generator=generator, requires_grad=True) for size in sizes]
        mask = None if shape is None else torch.randn(shape, generator=generator)
        expected = attend(*whole, attn_mask=mask, is_causal=mask is None, enable_gqa=heads < 4)
        expected.square().sum().backward()
        parts = [distribute_tensor(x.detach().to(DEVICE), mesh, [Shard(dim)]).requires_grad_() for x in whole]
        bias = None if mask is None else distribute_tensor(mask.to(DEVICE), mesh, [Replicate()])
        what = f"sharded by dimension {dim}, mask of {shape}, {heads} heads of keys"
        with CommDebugMode() as exchanged:
            y = attend(*parts, attn_mask=bias, is_causal=mask is None, enable_gqa=heads < 4)
            y.square().sum().backward()
        assert exchanged.get_total_counts() == exchanges, f"{what}: {exchanged.get_comm_counts()}"
        torch.testing.assert_close(y.full_tensor().cpu(), expected, msg=lambda text, what=what: f"{what}: {text}")
        for part, x in zip(parts, whole, strict=True):
            torch.testing.assert_close(part.grad.full_tensor().cpu(), x.grad, rtol=1e-4, atol=1e-4)
    dist.destroy_process_group()


def context_parallel() -> None:
    """context_parallel passes keys and values around the ranks, which have parts of a sequence; and back."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import experimental
    from torch.distributed.tensor.experimental._attention import context_parallel_unshard

    join("context_parallel")
    mesh = init_device_mesh(NAME, (COUNT,))
    attend = torch.nn.functional.scaled_dot_product_attention
    for dtype, tolerance in ((torch.float32, 1e-4), (torch.bfloat16, 0.1)):
        generator = torch.Generator().manual_seed(2)
        whole = [torch.randn(2, 4, 16, 8, generator=generator).to(dtype).requires_grad_() for _ in range(3)]
        expected = attend(*whole, is_causal=True)
        expected.float().square().sum().backward()
        buffers = [x.detach().to(DEVICE) for x in whole]
        with experimental.context_parallel(mesh, buffers=buffers, buffer_seq_dims=[2] * 3):
            assert buffers[0].shape == (2, 4, 16 // COUNT, 8)
            parts = [x.clone().requires_grad_() for x in buffers]
            y = torch.nn.functional.scaled_dot_product_attention(*parts, is_causal=True)
            y.float().square().sum().backward()
            mask = torch.zeros(1, 1, 8, 16, device=DEVICE)
            refused(
                NotImplementedError,
                "context_parallel was asked for scaled_dot_product_attention with a mask",
                lambda parts=parts, mask=mask: torch.nn.functional.scaled_dot_product_attention(*parts, attn_mask=mask),
            )
            found = context_parallel_unshard(mesh, [y.detach(), *(x.grad for x in parts)], [2] * 4)
        for part, x in zip(found, (expected.detach(), *(x.grad for x in whole)), strict=True):
            torch.testing.assert_close(part.cpu(), x, rtol=tolerance, atol=tolerance)
        assert torch.nn.functional.scaled_dot_product_attention is attend
    dist.destroy_process_group()


def hooks() -> None:
    """DistributedDataParallel's hooks that send gradients in half precision."""
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    join("hooks")
    for hook in (default_hooks.bf16_compress_hook, default_hooks.fp16_compress_hook, default_hooks.allreduce_hook):
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 2, device=DEVICE))
        model.register_comm_hook(None, hook)
        model(torch.full((4, 3), float(RANK + 1), device=DEVICE)).sum().backward()
        assert model.module.weight.grad.dtype == torch.float32
        assert model.module.weight.grad.unique().tolist() == [4 * sum(range(1, COUNT + 1)) / COUNT], hook.__name__
    dist.destroy_process_group()


def saved_meanwhile() -> None:
    """async_save saves what the tensors held when it was called, whatever is written to them meanwhile."""
    from torch.distributed import checkpoint
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    join("saved_meanwhile", f"cpu:gloo,{NAME}:{NAME}ccl")
    mesh = init_device_mesh(NAME, (COUNT,))
    x = torch.arange(1 << 14, dtype=torch.float32)
    state = {"shared": distribute_tensor(x.to(DEVICE), mesh, [Shard(0)]), "own": torch.ones(3, device=DEVICE)}
    for _ in range(200):
        state["own"].add_(1)  # the device has work to do when it is called
    saving = checkpoint.async_save(state, checkpoint_id=f"{PLACE}-saved")
    for value in state.values():
        value.zero_()
    saving.result()
    loaded = {"shared": distribute_tensor(torch.zeros_like(x, device=DEVICE), mesh, [Shard(0)]), "own": torch.zeros(3)}
    checkpoint.load(loaded, checkpoint_id=f"{PLACE}-saved")
    assert torch.equal(loaded["shared"].full_tensor().cpu(), x)
    assert loaded["own"].tolist() == [201.0] * 3
    dist.destroy_process_group()


def symmetric_memory() -> None:
    """There is none: the call says so, and the group goes on."""
    import torch.distributed._symmetric_memory as symmetric

    join("symmetric_memory")
    error = raised_by(lambda: symmetric.rendezvous(symmetric.empty(4, device=DEVICE), dist.group.WORLD))
    assert NAME in str(error), error
    x = torch.ones(2, device=DEVICE)
    dist.all_reduce(x)
    assert x.tolist() == [COUNT] * 2
    dist.destroy_process_group()


def kit() -> None:
    """The kit's collectives with as many ranks as there are: the kit itself has pairs."""
    from torch_conformance.suite.distributed import _work

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
