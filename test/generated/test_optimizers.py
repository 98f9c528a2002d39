"""Optimizers and operators on lists of tensors, in launches for many tensors."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from conftest import DEVICE, to_device, to_host

SHAPES = [(3,), (5, 7), (0,), (1,), (), (2, 3, 4, 5), (40_000,), *[(n + 1, 3) for n in range(45)]]


def tensors(dtype: torch.dtype = torch.float32, shapes: list[tuple[int, ...]] = SHAPES, seed: int = 0) -> Any:
    generator = torch.Generator().manual_seed(seed)
    made = [torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype) for shape in shapes]
    return [t.contiguous(memory_format=torch.channels_last) if t.dim() == 4 else t for t in made]


def train(kind: Any, device: str, dtype: torch.dtype, steps: int = 10, **options: Any) -> list[torch.Tensor]:
    parameters = [torch.nn.Parameter(t.to(device)) for t in tensors(dtype)]
    optimizer = kind(parameters, **options)
    for step in range(steps):
        for parameter, gradient in zip(parameters, tensors(dtype, seed=step + 1), strict=True):
            parameter.grad = gradient.to(device)
        optimizer.step()
    return [parameter.detach().cpu() for parameter in parameters]


ADAM: list[dict[str, Any]] = [{}, {"weight_decay": 0.1}, {"amsgrad": True, "maximize": True}]
CASES: list[tuple[Any, dict[str, Any]]] = [
    *[(torch.optim.Adam, options) for options in ADAM],
    *[(torch.optim.AdamW, options) for options in ADAM],
    (torch.optim.SGD, {"lr": 0.1}),
    (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "dampening": 0.2, "weight_decay": 0.1}),
    (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True, "maximize": True}),
    (torch.optim.Adagrad, {"lr": 0.1, "lr_decay": 0.01, "weight_decay": 0.1}),
]


@pytest.mark.parametrize(("kind", "options"), CASES)
def test_fused(kind: Any, options: dict[str, Any]) -> None:
    for dtype in (torch.float32, torch.float64):
        expected = train(kind, "cpu", dtype, **options)
        got = train(kind, DEVICE, dtype, fused=True, **options)
        torch.testing.assert_close(got, expected, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_fused_half(dtype: torch.dtype) -> None:
    for kind, options in ((torch.optim.AdamW, {"lr": 0.01}), (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9})):
        got = train(kind, DEVICE, dtype, steps=3, fused=True, **options)
        expected = train(kind, "cpu", torch.float32, steps=3, **options)
        torch.testing.assert_close([t.float() for t in got], expected, rtol=0.02, atol=0.02)


def test_learning_rate_that_is_a_tensor() -> None:
    def step(device: str) -> list[torch.Tensor]:
        self, gradients = [t.to(device) for t in tensors()], [t.to(device) for t in tensors(seed=1)]
        rate = torch.tensor(0.25, device=device)
        torch._fused_sgd_(
            self, gradients, [], weight_decay=0, momentum=0, lr=rate, dampening=0, nesterov=False, maximize=False,
            is_first_step=True,
        )  # fmt: skip
        return [t.cpu() for t in self]

    torch.testing.assert_close(step(DEVICE), step("cpu"))


@pytest.mark.parametrize(("kind", "options"), CASES[:-1])
def test_foreach(kind: Any, options: dict[str, Any]) -> None:
    """What optimizers do unless they are told otherwise."""
    expected = train(kind, "cpu", torch.float32, **options)
    torch.testing.assert_close(train(kind, DEVICE, torch.float32, **options), expected, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("found", [0.0, 1.0])
def test_scale_and_overflow(found: float) -> None:
    def step(device: str) -> list[Any]:
        self, gradients = [t.to(device) for t in tensors()], [t.to(device) for t in tensors(seed=1)]
        averages, squares = [t.to(device) for t in tensors(seed=2)], [t.abs().to(device) for t in tensors(seed=3)]
        steps = [torch.tensor(4.0, device=device) for _ in self]
        options: Any = {"weight_decay": 0.1, "maximize": False}
        scale = {"grad_scale": torch.tensor(8.0, device=device), "found_inf": torch.tensor(found, device=device)}
        torch._fused_adamw_(
            self, gradients, averages, squares, [], steps, lr=0.1, beta1=0.9, beta2=0.99, eps=1e-8, amsgrad=False,
            **options, **scale,
        )  # fmt: skip
        torch._fused_sgd_(
            self, gradients, [], momentum=0, lr=0.1, dampening=0, nesterov=False, is_first_step=True, **options, **scale
        )
        torch._fused_adagrad_(self, gradients, squares, steps, lr=0.1, lr_decay=0, eps=1e-10, **options, **scale)
        return [t.cpu() for t in (*self, *gradients, *averages, *squares)]

    torch.testing.assert_close(step(DEVICE), step("cpu"), rtol=2e-5, atol=2e-6)


LISTS: list[Callable[..., Any]] = [
    lambda f, a, b, c: f("add")(a, 0.5),
    lambda f, a, b, c: f("add")(a, b, alpha=2),
    lambda f, a, b, c: f("add")(a, [i / 8 for i in range(len(a))]),
    lambda f, a, b, c: f("sub")(a, b, alpha=0.5),
    lambda f, a, b, c: f("sub")(a, list(range(len(a)))),
    lambda f, a, b, c: f("mul")(a, 3),
    lambda f, a, b, c: f("mul")(a, b),
    lambda f, a, b, c: f("mul")(a, torch.tensor(0.75).to(a[0])),
    lambda f, a, b, c: f("div")(a, b),
    lambda f, a, b, c: f("div")(a, [i + 0.5 for i in range(len(a))]),
    lambda f, a, b, c: f("addcmul")(a, b, c, value=0.3),
    lambda f, a, b, c: f("addcdiv")(a, b, c, [i + 0.5 for i in range(len(a))]),
    lambda f, a, b, c: f("lerp")(a, b, 0.3),
    lambda f, a, b, c: f("lerp")(a, b, 0.8),
    lambda f, a, b, c: f("lerp")(a, b, -0.7),
    lambda f, a, b, c: f("maximum")(a, b),
    lambda f, a, b, c: f("clamp_max")(a, 0.25),
    lambda f, a, b, c: f("neg")(a),
    lambda f, a, b, c: f("abs")(a),
    lambda f, a, b, c: f("reciprocal")(a),
]


@pytest.mark.parametrize("call", LISTS, ids=range(len(LISTS)))
@pytest.mark.parametrize("in_place", [False, True])
def test_lists(call: Callable[..., Any], in_place: bool) -> None:
    def results(device: str, dtype: torch.dtype) -> list[torch.Tensor]:
        lists = [[t.to(device) for t in tensors(dtype, SHAPES[:12], seed)] for seed in range(3)]
        made = call(lambda name: getattr(torch, f"_foreach_{name}{'_' * in_place}"), *lists)
        return [t.cpu() for t in (*(made or ()), *lists[0])]

    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        torch.testing.assert_close(results(DEVICE, dtype), results("cpu", dtype))


@pytest.mark.parametrize("call", LISTS, ids=range(len(LISTS)))
def test_lists_give_the_bits_that_tensors_give(call: Callable[..., Any]) -> None:
    def one_by_one(name: str) -> Callable[..., list[torch.Tensor]]:
        def run(first: list[torch.Tensor], *rest: Any, **options: Any) -> list[torch.Tensor]:
            lists = zip(first, *(each if isinstance(each, list) else [each] * len(first) for each in rest), strict=True)
            function = getattr(torch, name)
            return [function(*each[:3], **options, **({"value": each[3]} if each[3:] else {})) for each in lists]

        return run

    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        lists = [to_device(tensors(dtype, SHAPES[:12], seed)) for seed in range(3)]
        got = call(lambda name: getattr(torch, f"_foreach_{name}"), *lists)
        torch.testing.assert_close(to_host(list(got)), to_host(call(one_by_one, *lists)), rtol=0, atol=0)


def test_tensors_that_begin_anywhere() -> None:
    """What is moved in vectors where it is aligned has the values that it has elsewhere."""
    sizes = [7, 1, 300_001, 0, 4, 2048, 33, 5000]
    places = [(3, 1), (2, 2), (0, 1)]  # of the first elements of lists, in turn

    def run(dtype: torch.dtype, even: int, odd: int) -> list[torch.Tensor]:
        lists: list[list[torch.Tensor]] = []
        for seed in range(4):
            made = [t.abs() for t in tensors(dtype, [(size,) for size in sizes], seed)]
            first = even if seed % 2 == 0 else odd
            lists.append([torch.cat([t.new_zeros(first), t, t.new_ones(3)]).to(DEVICE)[first:-3] for t in made])
        whole = [t._base if t._base is not None else t for each in lists for t in each]
        a, b, c, d = lists
        steps = [torch.tensor(4.0, device=DEVICE) for _ in a]
        options: Any = {"lr": 0.1, "weight_decay": 0.1, "maximize": False}
        torch._foreach_lerp_(a, b, 0.3)
        torch._foreach_mul_(b, torch.tensor(0.75, device=DEVICE, dtype=dtype))
        torch._fused_adam_(a, b, c, d, [], steps, beta1=0.9, beta2=0.99, eps=1e-8, amsgrad=False, **options)
        torch._fused_sgd_(a, b, c, momentum=0.9, dampening=0, nesterov=True, is_first_step=False, **options)
        torch._foreach_addcdiv_(b, c, d, 0.5)
        sums = torch._foreach_norm(a)
        torch.testing.assert_close(to_host(sums), [t.cpu().double().norm().to(dtype) for t in a])
        assert all(t[-3:].cpu().eq(1).all() for t in whole)
        return to_host([t for each in lists for t in each])

    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        expected = run(dtype, 0, 0)
        for even, odd in places:
            torch.testing.assert_close(run(dtype, even, odd), expected, rtol=0, atol=0)


def test_lists_of_several_dtypes() -> None:
    mixed = [*tensors(torch.float32, SHAPES[:4]), *tensors(torch.float64, SHAPES[:4]), *tensors(torch.float16, [(9,)])]
    there = to_device(mixed)
    torch._foreach_mul_(there, 2)
    torch._foreach_add_(there, [float(i) for i in range(len(there))])
    torch._foreach_copy_(there[:3], there[:3])
    expected = [t * 2 + i for i, t in enumerate(mixed)]
    torch.testing.assert_close([t.cpu() for t in there], expected)
    torch._foreach_zero_(there)
    assert all(t.cpu().abs().sum() == 0 for t in there)
    powers = torch._foreach_pow(0.5, [torch.tensor(3.0, device=DEVICE)])
    assert powers[0].item() == 0.125


@pytest.mark.parametrize("order", [1, 2, 2.0, float("inf")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_norms(order: float, dtype: torch.dtype) -> None:
    shapes = [shape for shape in SHAPES if 0 not in shape or order != float("inf")]
    made = tensors(dtype, [*shapes, (200_000,)])
    got = torch._foreach_norm(to_device(made), order)
    expected = [torch.linalg.vector_norm(t.double(), order).to(dtype) for t in made]
    torch.testing.assert_close([t.cpu() for t in got], expected)
    made[0][1] = float("nan")
    got = torch._foreach_norm(to_device(made), order)
    assert got[0].cpu().isnan()
    assert not got[1].cpu().isnan()


def test_state_can_be_saved() -> None:
    model = torch.nn.Linear(3, 3).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, 0.5)
    optimizer.step()
    other = torch.optim.AdamW(copy.deepcopy(model).parameters(), fused=True)
    other.load_state_dict(optimizer.state_dict())
    assert [s["step"].item() for s in other.state_dict()["state"].values()] == [1, 1]
