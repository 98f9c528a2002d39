"""torch_backend.autocast: the device's own policies for single operators."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from fixtures import RunPython

import torch_backend
from torch_backend import autocast

LOW = torch.bfloat16
seen: list[tuple[torch.dtype | None, ...]] = []


def record(x: torch.Tensor, y: Any) -> torch.Tensor:
    tensors = y if isinstance(y, list) else [y]
    seen.append(tuple(None if t is None else t.dtype for t in (x, *tensors)))
    return x.clone()


@pytest.fixture(scope="module", autouse=True)
def library(name: str) -> Iterator[None]:
    declarations: list[dict[str, Any]] = [
        {"func": "tbamp::pair(Tensor x, Tensor? y) -> Tensor", "kernel": record, "meta": {"like": "x"}},
        {"func": "tbamp::some(Tensor x, Tensor?[] y) -> Tensor", "kernel": record, "meta": {"like": "x"}},
        {"func": "tbamp::many(Tensor x, Tensor[] y) -> Tensor", "kernel": record, "meta": {"like": "x"}},
        {"func": "tbamp::low(Tensor x, Tensor y) -> Tensor", "kernel": record, "meta": {"like": "x"},
         "autocast": "lower_precision_fp"},
        {"func": "tbamp::write(Tensor(a!) x) -> ()", "kernel": lambda x: x.add_(1)},
    ]  # fmt: skip
    with torch_backend.load_operators(declarations):
        yield


@pytest.fixture
def x(name: str) -> torch.Tensor:
    seen.clear()
    return torch.ones(2, 2, device=name)


def test_official_operator(name: str, x: torch.Tensor) -> None:
    def dtypes() -> tuple[torch.dtype, torch.dtype]:
        with torch.autocast(name, dtype=LOW):
            return torch.nn.functional.linear(x, x).dtype, torch.sin(x.to(LOW)).dtype

    assert dtypes() == (LOW, LOW)
    with autocast.set_policy("aten::linear", "fp32") as policy:
        assert (policy.overload, policy.policy) == ("aten::linear", "fp32")
        assert dtypes() == (torch.float32, LOW)
        with autocast.set_policy("aten::sin", "fp32"):
            assert dtypes() == (torch.float32, torch.float32)
        assert torch.nn.functional.linear(x.to(LOW), x.to(LOW)).dtype is LOW  # only under autocast
    assert dtypes() == (LOW, LOW)


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("lower_precision_fp", (LOW, LOW)),
        ("fp32", (torch.float32, torch.float32)),
        ("promote", (torch.float32, torch.float32)),
        ("fallthrough", (torch.float32, LOW)),
    ],
)
@pytest.mark.parametrize("op", ["pair", "some", "many"])
def test_policies(name: str, x: torch.Tensor, policy: Any, expected: Any, op: str) -> None:
    function = getattr(torch.ops.tbamp, op)
    y = x.to(LOW)
    with autocast.set_policy(f"tbamp::{op}", policy), torch.autocast(name, dtype=LOW):
        function(x, y if op == "pair" else [y])
        function(y, y if op == "pair" else [y])
    same = torch.float32 if policy == "fp32" else LOW
    assert seen == [expected, (same, same)]


def test_what_is_not_cast(name: str, x: torch.Tensor) -> None:
    with autocast.set_policy("tbamp::pair", "lower_precision_fp"), autocast.set_policy("tbamp::some", "promote"):
        with torch.autocast(name, dtype=LOW):
            torch.ops.tbamp.pair(x, None)
            torch.ops.tbamp.pair(x, x.double())
            torch.ops.tbamp.pair(x, x.int())
            torch.ops.tbamp.pair(x, torch.ones(()))  # on the CPU
            torch.ops.tbamp.some(x.to(LOW), [None, x])
    assert seen == [
        (LOW, None),
        (LOW, torch.float64),
        (LOW, torch.int32),
        (LOW, torch.float32),
        (torch.float32, None, torch.float32),
    ]


def test_declared_policy_with_gradients(name: str, x: torch.Tensor) -> None:
    assert autocast.policies()["tbamp::low"] == "lower_precision_fp"
    with torch.autocast(name, dtype=LOW):
        torch.ops.tbamp.low(x, x)
    assert seen == [(LOW, LOW)]
    weight = torch.ones(2, 2, device=name, requires_grad=True)
    with autocast.set_policy("aten::linear", "fp32"), torch.autocast(name, dtype=LOW):
        torch.nn.functional.linear(x.to(LOW), weight).sum().backward()
    assert weight.grad is not None
    assert weight.grad.dtype is torch.float32


def test_compiled(name: str, x: torch.Tensor) -> None:
    def step(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast(name, dtype=LOW):
            return torch.nn.functional.linear(x, x)

    with autocast.set_policy("aten::linear", "fp32"):
        assert torch.compile(step, backend="aot_eager", fullgraph=True)(x).dtype is torch.float32


def test_latest_holds(name: str, x: torch.Tensor) -> None:
    first = autocast.set_policy("tbamp::pair", "fp32")
    second = autocast.set_policy("tbamp::pair", "fallthrough")
    assert autocast.policies()["tbamp::pair"] == "fallthrough"
    first.remove()
    assert autocast.policies()["tbamp::pair"] == "fallthrough"
    second.remove()
    second.remove()
    assert "tbamp::pair" not in autocast.policies()
    assert "tbamp::pair" not in torch_backend.operators.registrations()["AutocastPrivateUse1"]


def test_listing(name: str) -> None:
    defaults = autocast.default_policies()
    known = {"mm": "lower_precision_fp", "exp": "fp32", "pow.Tensor_Scalar": "fp32", "addcmul": "promote"}
    known |= {"softmax.int": "fp32_set_opt_dtype", "norm.ScalarOpt_dim": "fp32_set_opt_dtype"}
    assert {op: defaults[f"aten::{op}"] for op in known} == known
    registered = set(torch_backend.operators.registrations()["AutocastPrivateUse1"])
    refused = {"aten::binary_cross_entropy"}  # under autocast it is an error
    assert set(defaults) | refused == registered - {op for op in registered if op.startswith("tbamp::")}
    with autocast.set_policy("aten::mm", "fp32"):
        assert autocast.policies()["aten::mm"] == "fp32"
        assert autocast.default_policies() == defaults
    assert autocast.policies()["aten::mm"] == "lower_precision_fp"


@pytest.mark.parametrize(
    ("overload", "policy", "message"),
    [
        (
            "aten::linear",
            "fp64",
            "'fp64' is no autocast policy. There are lower_precision_fp, fp32, promote, fallthrou",
        ),
        ("aten::linearx", "fp32", "Did you mean aten::linear"),
        ("tbamp::write", "fp32", "writes to its arguments and cannot have the autocast policy 'fp32'"),
    ],
)
def test_wrong_use(overload: str, policy: Any, message: str) -> None:
    before = autocast.policies()
    with pytest.raises(ValueError, match=message):
        autocast.set_policy(overload, policy)
    assert autocast.policies() == before


def test_before_activation(run_python: RunPython, name: str) -> None:
    process = run_python(
        f"""
        import torch, torch_backend
        torch_backend.autocast.set_policy("aten::linear", "fp32")
        torch_backend.autocast.set_policy("aten::mm", "fp32").remove()
        torch_backend.activate("{name}")
        x = torch.ones(2, 2, device="{name}")
        with torch.autocast("{name}", dtype=torch.bfloat16):
            print(torch.nn.functional.linear(x, x).dtype, (x @ x).dtype)
        """,
        warnings=["error"],
    )
    assert process.stdout == "torch.float32 torch.bfloat16\n"
