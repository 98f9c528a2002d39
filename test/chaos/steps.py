"""What the threads do: small pieces of work of every kind, each of which checks its values against the CPU."""

import copy
import functools
import io
import random
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


class WrongValueError(AssertionError):
    """The device's values are not the CPU's."""


class Place:
    """Where one thread works: its device for this step, another one, and random numbers of its own."""

    def __init__(self, name: str, seed: int) -> None:
        self.module: Any = getattr(torch, name)
        self.name = name
        self.random = random.Random(seed)
        self.generator = torch.Generator().manual_seed(seed)
        self.streams: dict[int, Any] = {}
        self.move()

    def move(self) -> None:
        """To any device; the other one is the same where there is only one."""
        count = self.module.device_count()
        self.index = self.random.randrange(count)
        self.device = torch.device(self.name, self.index)
        self.other = torch.device(self.name, (self.index + self.random.randrange(1, max(count, 2))) % count)

    def side_stream(self) -> Any:
        if self.index not in self.streams:
            self.streams[self.index] = self.module.Stream(self.device)
        return self.streams[self.index]

    def numbers(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self.generator)

    def integers(self, high: int, *shape: int) -> Tensor:
        return torch.randint(high, shape, generator=self.generator)

    def size(self) -> int:
        """Of one dimension: mostly small, so that threads take each other's blocks."""
        return self.random.choice((1, 7, 33, 64, 200, 1024, 5000))

    def check(self, actual: Tensor, expected: Tensor, **tolerance: float) -> None:
        try:
            torch.testing.assert_close(actual.detach().cpu(), expected.detach(), **tolerance)
        except AssertionError as error:
            raise WrongValueError(str(error)) from None


# ---- operators ----


def pointwise(place: Place) -> None:
    x, y = place.numbers(place.size()), place.numbers(1)
    a, b = x.to(place.device), y.to(place.device)
    place.check(((a + b) * a - b.exp()).tanh() + 1, ((x + y) * x - y.exp()).tanh() + 1)


def strided(place: Place) -> None:
    x = place.numbers(9, 31)
    a = x.to(place.device)
    place.check((a.t()[::2] * 2).contiguous(), (x.t()[::2] * 2).contiguous())
    place.check(a[:, 3:17].clone().double(), x[:, 3:17].double())


def in_place(place: Place) -> None:
    x = place.numbers(place.size())
    a = x.to(place.device)
    for turn in range(4):
        a.mul_(0.5).add_(turn)
        x.mul_(0.5).add_(turn)
    place.check(a, x)


def data_dependent(place: Place) -> None:
    x = place.integers(40, place.size())
    a = x.to(place.device)
    place.check(torch.unique(a), torch.unique(x))
    place.check(torch.nonzero(a > 20), torch.nonzero(x > 20))
    place.check(a[a > 20], x[x > 20])


def sort_backward(place: Place) -> None:
    x = place.numbers(place.size()).requires_grad_()
    a = x.detach().to(place.device).requires_grad_()
    weight = place.numbers(x.numel())
    (x.sort(stable=True).values * weight).sum().backward()
    (a.sort(stable=True).values * weight.to(place.device)).sum().backward()
    place.check(a.grad, x.grad)


def indexing(place: Place) -> None:
    x, rows = place.numbers(20, 8), place.integers(20, 11)
    a, index = x.to(place.device), rows.to(place.device)
    place.check(a[index], x[rows])
    place.check(a.index_add(0, index, a[:11]), x.index_add(0, rows, x[:11]), rtol=1e-5, atol=1e-5)
    place.check(a.gather(0, index[:, None].expand(11, 8)), x.gather(0, rows[:, None].expand(11, 8)))
    place.check(a.scatter(0, index[:1, None].expand(1, 8), 3.0), x.scatter(0, rows[:1, None].expand(1, 8), 3.0))


def reductions(place: Place) -> None:
    x = place.numbers(17, place.random.choice((3, 65)))
    a = x.to(place.device)
    place.check(a.sum(0), x.sum(0), rtol=1e-4, atol=1e-4)
    place.check(a.softmax(1), x.softmax(1))
    place.check(a.topk(2).values, x.topk(2).values)
    place.check(a.cumsum(1), x.cumsum(1), rtol=1e-4, atol=1e-4)
    if a.max().item() != x.max().item():
        raise WrongValueError("max().item()")


def linear_algebra(place: Place) -> None:
    x = place.numbers(12, 12).double() + 12 * torch.eye(12)
    a = x.to(place.device)
    place.check(a @ a, x @ x)
    place.check(torch.linalg.solve(a, a[:, :3]), torch.linalg.solve(x, x[:, :3]))
    place.check(torch.linalg.svdvals(a), torch.linalg.svdvals(x))


def random_numbers(place: Place) -> None:
    n = place.size()
    place.check(torch.randperm(n, device=place.device).sort().values, torch.arange(n))
    drawn = torch.bernoulli(torch.full((n,), 0.5, device=place.device))
    place.check((drawn == 0) | (drawn == 1), torch.ones(n, dtype=torch.bool))
    kept = F.dropout(torch.ones(n, device=place.device), 0.5)
    place.check((kept == 0) | (kept == 2), torch.ones(n, dtype=torch.bool))


# ---- copies and streams ----


def across_devices(place: Place) -> None:
    x = place.numbers(place.size(), 3)
    a = x.to(place.device)
    place.check(a.to(place.other).to(place.device), x)
    place.check((a.to(place.other) + 1).t().to(place.device), (x + 1).t())


def pinned(place: Place) -> None:
    x = place.numbers(place.size()).pin_memory()
    a = x.to(place.device, non_blocking=True)
    out = torch.empty_like(x, pin_memory=True)
    out.copy_(a * 2, non_blocking=True)
    event = place.module.Event()
    event.record()
    event.synchronize()
    place.check(out, x * 2)


def side_stream(place: Place) -> None:
    x = place.numbers(place.size())
    side, here = place.side_stream(), place.module.current_stream()
    a = x.to(place.device)
    side.wait_stream(here)
    with place.module.stream(side):
        b = (a + 1) * 2
    a.record_stream(side)
    del a
    scratch = torch.zeros_like(x, device=place.device)  # must not be what the side stream reads
    here.wait_stream(side)
    b.record_stream(here)
    place.check(b, (x + 1) * 2)
    place.check(scratch, torch.zeros_like(x))


def grown_storage(place: Place) -> None:
    x = place.numbers(place.size())
    a = x.to(place.device)
    n = a.numel()
    a.resize_(2 * n)
    a[n:] = 5
    place.check(a[:n], x)
    place.check(a[n:], torch.full((n,), 5.0))


def serialized(place: Place) -> None:
    x = place.numbers(place.size())
    file = io.BytesIO()
    torch.save(x.to(place.device), file)
    file.seek(0)
    place.check(torch.load(file), x)


def cache(place: Place) -> None:
    """Rarely: what is cached goes back to the device while others work."""
    if place.random.randrange(8) == 0:
        place.module.memory.empty_cache()
    statistics = place.module.memory_stats(place.index)
    if statistics["allocated_bytes.all.current"] < 0:
        raise WrongValueError("allocated bytes are negative")


def queries(place: Place) -> None:
    """What is asked of a device between two pieces of work."""
    module = place.module
    first, second = module.Event(enable_timing=True), module.Event(enable_timing=True)
    first.record()
    x = torch.ones(place.size(), device=place.device)
    second.record()
    module.current_stream().query()
    second.query()
    second.synchronize()
    if first.elapsed_time(second) < 0:
        raise WrongValueError("elapsed time is negative")
    free, total = module.mem_get_info(place.index)
    if not 0 <= free <= total:
        raise WrongValueError(f"{free} of {total} bytes are free")
    module.can_device_access_peer(place.index, place.other.index)
    x.cpu().is_pinned(place.name)
    module.synchronize(place.index)


# ---- training ----


def compare_training(place: Place, model: nn.Module, inputs: Tensor, loss: Callable[[Tensor], Tensor]) -> None:
    """A step forward and backward, and one of an optimizer, on both."""
    twin = copy.deepcopy(model).to(place.device)
    for each, values in ((model, inputs), (twin, inputs.to(place.device))):
        optimizer = torch.optim.AdamW(each.parameters(), lr=0.01)
        loss(each(values)).backward()
        optimizer.step()
    for expected, actual in zip(model.parameters(), twin.parameters(), strict=True):
        place.check(actual.grad, expected.grad, rtol=1e-3, atol=1e-4)


def seeded(place: Place, make: Callable[[], nn.Module]) -> nn.Module:
    """Parameters from the thread's own generator: the default ones belong to all threads."""
    model = make()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(0.3 * place.numbers(*parameter.shape))
    return model


def perceptron(place: Place) -> None:
    model = seeded(place, lambda: nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 4)))
    labels = place.integers(4, 8)
    compare_training(place, model, place.numbers(8, 16), lambda out: F.cross_entropy(out, labels.to(out.device)))


def convolution(place: Place) -> None:
    model = seeded(
        place, lambda: nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten())
    )
    compare_training(place, model, place.numbers(3, 2, 8, 8), lambda out: out.square().mean())


def transformer(place: Place) -> None:
    model = seeded(place, lambda: nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True))
    compare_training(place, model, place.numbers(2, 5, 8), lambda out: out.square().mean())


def checkpointed(place: Place) -> None:
    layer = seeded(place, lambda: nn.Linear(8, 8))
    x = place.numbers(4, 8)
    compare_training(
        place,
        nn.Sequential(layer, nn.Tanh()),
        x,
        lambda out: checkpoint(lambda y: (y * 2).sin().sum(), out, use_reentrant=False),
    )


def autocast(place: Place) -> None:
    x, w = place.numbers(8, 16), place.numbers(16, 4)
    with torch.autocast(place.name, dtype=torch.bfloat16):
        result = x.to(place.device) @ w.to(place.device)
    if result.dtype is not torch.bfloat16:
        raise WrongValueError(f"autocast returned {result.dtype}")
    place.check(result.float(), (x.bfloat16() @ w.bfloat16()).float(), rtol=2e-2, atol=2e-1)


@functools.cache
def compiled_layer(device: torch.device) -> Callable[[Tensor, Tensor], Tensor]:
    """Compiled for training on ``device`` when it is returned."""

    def layer(x: Tensor, weight: Tensor) -> Tensor:
        return F.gelu(x @ weight).softmax(-1).cumsum(0)

    compiled: Callable[[Tensor, Tensor], Tensor] = torch.compile(layer, fullgraph=True, dynamic=False)
    weight = torch.zeros(8, 12, device=device, requires_grad=True)
    compiled(torch.zeros(16, 8, device=device), weight).sum().backward()
    return compiled


def compiled_device(name: str, index: int) -> torch.device:
    """One of a few, as each takes seconds to compile for."""
    return torch.device(name, index % 4)


def compile_layers(name: str) -> None:
    """To be called before there are threads: eager optimizers of others would believe that they are being compiled, and
    Dynamo compiles what another thread is compiling, until its limit for one function is reached."""
    for index in range(getattr(torch, name).device_count()):
        compiled_layer(compiled_device(name, index))


def compiled(place: Place) -> None:
    device = compiled_device(place.name, place.index)
    layer = compiled_layer(device)
    x, weight = place.numbers(16, 8), place.numbers(8, 12).requires_grad_()
    a, twin = x.to(device), weight.detach().to(device).requires_grad_()
    expected = F.gelu(x @ weight).softmax(-1).cumsum(0)
    result = layer(a, twin)
    expected.square().sum().backward()
    result.square().sum().backward()
    place.check(a, x)
    place.check(result, expected, rtol=1e-4, atol=1e-5)
    place.check(twin.grad, weight.grad, rtol=1e-3, atol=1e-4)


STEPS: tuple[Callable[[Place], None], ...] = (
    pointwise,
    strided,
    in_place,
    data_dependent,
    sort_backward,
    indexing,
    reductions,
    linear_algebra,
    random_numbers,
    across_devices,
    pinned,
    side_stream,
    grown_storage,
    serialized,
    cache,
    queries,
    perceptron,
    convolution,
    transformer,
    checkpointed,
    autocast,
    compiled,
)


def take(place: Place, step: Callable[[Place], None]) -> None:
    """One step, on a device that is chosen for it."""
    place.move()
    with place.module.device(place.index):
        step(place)
