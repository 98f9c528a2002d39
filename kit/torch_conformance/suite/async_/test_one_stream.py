"""Work on one stream runs in the order it was enqueued, and whoever reads a result on the host gets it."""

from collections.abc import Callable
from types import ModuleType

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch_conformance import needs
from torch_conformance.suite.async_._support import assert_all, assert_idle, is_asynchronous, keep_busy, pinned


@needs.feature("asynchronous")
def test_enqueuing_returns_before_the_work_is_done(device: str, backend: ModuleType) -> None:
    """The host can enqueue work faster than the device does it."""
    # A busy host may be held up for longer than the work takes: then there is more of it.
    for milliseconds in (20, 100, 400):
        keep_busy(device, milliseconds)
        pending = not backend.current_stream().record_event().query()
        backend.synchronize()
        if pending:
            return
    raise AssertionError("the device is asynchronous, and 400 ms of copies were done when the last was enqueued")


def test_kernels_come_after_copies(device: str) -> None:
    """An operator on a tensor sees what a copy from the host that was enqueued before it has brought."""
    for number in range(5):
        keep_busy(device, 2)
        x = pinned(torch.full((100,), float(number))).to(device, non_blocking=True)
        y = x * 2 + 1
        y[::2] = x[::2]
        assert_all(y[::2], number, "copied elements")
        assert_all(y[1::2], number * 2 + 1, "computed elements")


def test_copies_come_after_kernels(device: str, backend: ModuleType) -> None:
    """A copy to the host brings what the operators enqueued before it have computed, and nothing later."""
    x = torch.zeros(1000, device=device)
    back = pinned(torch.full((10, 1000), -1.0))
    for row in back:
        keep_busy(device, 1)
        x += 1
        row.copy_(x, non_blocking=True)
    backend.synchronize()
    for number, row in enumerate(back):
        assert_all(row, number + 1, f"copy {number} to the host")


def test_copies_come_after_copies(device: str, backend: ModuleType) -> None:
    """Copies to the device, on it, strided ones, and back run one after the other."""
    x = torch.zeros(100, device=device)
    source, back = pinned(torch.arange(100.0)), pinned(torch.zeros(100))
    keep_busy(device)
    x.copy_(source, non_blocking=True)
    y = x.clone()
    x.zero_()
    z = torch.empty(200, device=device)[::2].copy_(y)
    back.copy_(z, non_blocking=True)
    backend.synchronize()
    assert torch.equal(back, source), "a copy on the device or back to the host was early"
    assert_all(x, 0, "a fill overtook or lost to a copy from the host")


@pytest.mark.parametrize("size", [1, 64, 4096, 1 << 20], ids=lambda size: f"{size}-bytes")
def test_copies_of_any_size_come_in_order(device: str, size: int) -> None:
    """A copy from the host comes after the fill before it and before the copy after it, however small it is."""
    x = torch.empty(size, dtype=torch.uint8, device=device)
    sources = [pinned(torch.full((size,), value, dtype=torch.uint8)) for value in (2, 3)]
    keep_busy(device)
    x.fill_(1)
    x.copy_(sources[0], non_blocking=True)
    y = x.clone()
    x.copy_(sources[1], non_blocking=True)
    assert_all(y, 2, f"what was copied after a fill and a copy of {size} bytes from the host")
    assert_all(x, 3, f"what two copies of {size} bytes from the host left")


def test_fills_come_in_order(device: str) -> None:
    """The last of several fills and copies into one tensor is what remains."""
    x = torch.empty(100_000, device=device)
    source = pinned(torch.full((100_000,), 2.0))
    for number in range(10):
        x.fill_(1)
        x.copy_(source, non_blocking=True)
        x.fill_(number)
        y = x.clone()
        x.zero_()
        assert_all(y, number, "the last fill before a copy")


READS: dict[str, Callable[[Tensor], object]] = {
    "item": Tensor.item,
    "cpu": lambda t: t.cpu().item(),
    "tolist": lambda t: t.tolist(),
    "bool": bool,
    "print": lambda t: float(repr(t)[7:9]),
    "numpy": lambda t: t.cpu().numpy()[()],
    "pageable": lambda t: torch.zeros(()).copy_(t).item(),
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_host_reads_wait(device: str, read: Callable[[Tensor], object]) -> None:
    """Reading a value on the host waits for the work that makes it."""
    x, one = torch.zeros((), device=device), pinned(torch.ones(()))
    keep_busy(device)
    x.copy_(one, non_blocking=True)
    assert read(x) == 1, "what was read is not what the last copy from the host brought"
    keep_busy(device)
    assert read(x * 0) == 0, "what was read is not what was computed"


def test_operators_that_need_values_wait(device: str) -> None:
    """Operators whose result's shape depends on values wait for the values."""
    x, values = torch.ones(4, device=device), pinned(torch.tensor([0.0, 3.0, 0.0, 5.0]))
    keep_busy(device)
    x.copy_(values, non_blocking=True)
    assert x.nonzero().flatten().tolist() == [1, 3]
    keep_busy(device)
    x += 1
    assert x[x > 1].tolist() == [4, 6]
    assert x.unique().tolist() == [1, 4, 6]
    assert torch.repeat_interleave(x, x.long()).numel() == 12
    assert torch.equal(x, x.clone())
    assert torch.allclose(x, x + 1e-9)


def test_linear_algebra_waits(device: str) -> None:
    """Operators that few devices compute themselves see the work before them, too."""
    x = torch.zeros(4, 4, device=device)
    keep_busy(device)
    x.copy_(pinned(torch.eye(4) * 2), non_blocking=True)
    inverse = torch.linalg.inv(x)
    x.copy_(pinned(torch.zeros(4, 4)), non_blocking=True)
    q, r = torch.linalg.qr(inverse + x)
    torch.testing.assert_close((q @ r).cpu(), torch.eye(4) / 2)


@needs.feature("generator")
def test_random_numbers_come_in_order(device: str, backend: ModuleType) -> None:
    """The same seed gives the same numbers, whether one waits between the draws or not."""
    draws = []
    with torch.random.fork_rng([0], device_type=device):
        for wait in (False, True):
            backend.manual_seed(8)
            parts = []
            for _ in range(5):
                parts += [torch.rand(100, device=device), F.dropout(torch.ones(100, device=device))]
                if wait:
                    backend.synchronize()
            draws.append(torch.stack(parts).cpu())
    assert torch.equal(*draws)


def test_temporaries_may_go_away(device: str) -> None:
    """A chain of operators whose intermediate results are freed at once gives what it gives on the CPU."""

    def chain(x: Tensor) -> Tensor:
        for _ in range(10):
            x = ((x * 3 - x.clone()).view(20, 50).t().contiguous().view(-1) + 1) / 2
        return x

    start = torch.linspace(0, 1, 1000)
    keep_busy(device)
    torch.testing.assert_close(chain(pinned(start).to(device, non_blocking=True)).cpu(), chain(start))


def test_resizing_keeps_what_is_on_its_way(device: str) -> None:
    """A tensor that is resized keeps values that were still being copied into it."""
    x = torch.zeros(4, device=device)
    keep_busy(device)
    x.copy_(pinned(torch.arange(4.0)), non_blocking=True)
    x.resize_(100_000)
    assert x[:4].tolist() == [0, 1, 2, 3]
    out = torch.empty(0, device=device)
    torch.add(x[:4], 1, out=out)
    assert out.tolist() == [1, 2, 3, 4]


@needs.feature("streams")
def test_synchronizing_completes_everything(device: str, backend: ModuleType) -> None:
    """After synchronize() what was enqueued is in pinned memory, and the stream says that it is done."""
    back = pinned(torch.zeros(1000))
    for number, wait in enumerate((backend.synchronize, backend.current_stream().synchronize), 1):
        x = torch.full((1000,), float(number), device=device)
        keep_busy(device)
        back.copy_(x, non_blocking=True)
        wait()
        assert_all(back, number, f"{wait.__qualname__} returned before a copy to the host was done")
        assert_idle(backend.current_stream(), f"after {wait.__qualname__}")


@needs.feature("streams")
def test_a_query_that_says_done_is_right(device: str, backend: ModuleType) -> None:
    """When the stream's query says that all is done, what was copied to pinned memory is there."""
    x, back = torch.full((1000,), 3.0, device=device), pinned(torch.zeros(1000))
    backend.synchronize()
    keep_busy(device)
    back.copy_(x, non_blocking=True)
    while not backend.current_stream().query():
        pass
    assert_all(back, 3, "query() was True before a copy to the host was done")


def test_long_queues(device: str, backend: ModuleType) -> None:
    """Thousands of small operations can be enqueued before one is waited for, and all are done."""
    count = 3000 if is_asynchronous() else 300
    x = torch.zeros(16, device=device)
    one = torch.ones(16, device=device)
    for _ in range(count):
        x.add_(one)
    assert_all(x, count, f"{count} additions of 1")
