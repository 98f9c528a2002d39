"""Every optimizer of torch.optim, in every form it has, against its plain loop on the CPU.

Both sides get the same gradients, so that a difference is the optimizer's own.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.optim.optimizer import _get_capturable_supported_devices
from torch.utils._foreach_utils import _get_fused_kernels_supported_devices
from torch_conformance import needs
from torch_conformance.suite.training._models import mlp, vectors
from torch_conformance.suite.training._training import adam, batches, fused_or_not_offered, model_of, moved, step

STEPS = 4
SHAPES = ((6, 5), (4, 8), (3, 3))
FORMS = {"loop": {"foreach": False}, "foreach": {"foreach": True}, "fused": {"fused": True}}
OPTIMIZERS: dict[str, Any] = {
    name: kind
    for name, kind in vars(torch.optim).items()
    if isinstance(kind, type) and issubclass(kind, torch.optim.Optimizer) and kind is not torch.optim.Optimizer
}
# LBFGS takes a closure and SparseAdam sparse gradients: they have tests of their own.
SPECIAL = {"LBFGS", "SparseAdam"}

# Besides its defaults, what an optimizer does in another way.
OPTIONS: dict[str, dict[str, dict[str, Any]]] = {
    "SGD": {
        "momentum": {"momentum": 0.9, "dampening": 0.1, "weight_decay": 0.1},
        "nesterov": {"momentum": 0.9, "nesterov": True},
        "maximize": {"maximize": True},
    },
    "Adam": {
        "amsgrad": {"amsgrad": True, "weight_decay": 0.1},
        "maximize": {"maximize": True},
        "capturable": {"capturable": True},
        "tensor-rate": {"lr": torch.tensor(0.01), "capturable": True},
    },
    "AdamW": {"amsgrad": {"amsgrad": True}, "tensor-rate": {"lr": torch.tensor(0.01), "capturable": True}},
    "Adagrad": {"decays": {"lr_decay": 0.1, "weight_decay": 0.1}},
    "Adadelta": {"decay": {"weight_decay": 0.1, "rho": 0.7}},
    "Adamax": {"decay": {"weight_decay": 0.1}},
    "NAdam": {"decoupled": {"weight_decay": 0.1, "decoupled_weight_decay": True}},
    "RAdam": {"decoupled": {"weight_decay": 0.1, "decoupled_weight_decay": True}},
    "RMSprop": {"centered": {"momentum": 0.5, "centered": True, "weight_decay": 0.1}},
    "Rprop": {"maximize": {"maximize": True}},
    "ASGD": {"decays": {"lambd": 0.1, "weight_decay": 0.1}},
    "Adafactor": {"decay": {"weight_decay": 0.1}},
    "Muon": {"plain": {"nesterov": False, "weight_decay": 0.0}},
}


def _has(name: str, option: str) -> bool:
    return option in inspect.signature(OPTIMIZERS[name]).parameters


def _cases() -> Iterator[Any]:
    for name in sorted(OPTIMIZERS.keys() - SPECIAL):
        # An optimizer without forms is a loop.
        forms = {form: choice for form, choice in FORMS.items() if _has(name, form if form == "fused" else "foreach")}
        # Muon computes in bfloat16.
        marks = [needs.dtype("bfloat16")] if name == "Muon" else []
        for form, choice in (forms or {"loop": {}}).items():
            yield pytest.param(name, choice, {}, id=f"{name}-{form}", marks=marks)
            for label, options in OPTIONS.get(name, {}).items():
                thorough = [*marks, pytest.mark.thorough]
                yield pytest.param(name, choice, options, id=f"{name}-{form}-{label}", marks=thorough)


def _supported(device: str, options: Mapping[str, Any]) -> None:
    """Ends the test if PyTorch has not got an option for the device, of which it keeps lists."""
    lists = {
        "fused": _get_fused_kernels_supported_devices,
        "capturable": _get_capturable_supported_devices,
    }
    for option, devices in lists.items():
        if options.get(option) and device not in devices():
            needs.not_offered(f"torch.optim has {option}=True for {', '.join(devices())}, not for {device}")


def _made(name: str, parameters: list[Tensor], options: dict[str, Any]) -> torch.optim.Optimizer:
    optimizer = fused_or_not_offered(lambda: OPTIMIZERS[name](parameters, **({"lr": 0.01} | options)))
    assert isinstance(optimizer, torch.optim.Optimizer)
    return optimizer


def _copied(options: dict[str, Any]) -> dict[str, Any]:
    return {key: value.clone() if isinstance(value, Tensor) else value for key, value in options.items()}


def _start(device: str) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=generator).to(device).requires_grad_() for shape in SHAPES]


def _gradients() -> list[list[Tensor | None]]:
    generator = torch.Generator().manual_seed(1)
    steps: list[list[Tensor | None]] = [
        [torch.randn(shape, generator=generator) for shape in SHAPES] for _ in range(STEPS)
    ]
    steps[1][2] = None  # a parameter that took no part in this step
    return steps


def _stepped(device: str, make: Callable[[list[Tensor]], torch.optim.Optimizer]) -> list[Tensor]:
    parameters = _start(device)
    optimizer = make(parameters)
    for gradients in _gradients():
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = None if gradient is None else gradient.to(device)
        optimizer.step()
    return [parameter.detach().cpu() for parameter in parameters]


def _assert_same_parameters(actual: list[Tensor], expected: list[Tensor], tolerance: float) -> None:
    for index, (left, right) in enumerate(zip(actual, expected, strict=True)):
        torch.testing.assert_close(
            left,
            right,
            rtol=tolerance,
            atol=tolerance / 10,
            msg=lambda text, index=index: f"parameter {index} after {STEPS} steps differs from the CPU's: {text}",
        )


@pytest.mark.parametrize(("name", "form", "options"), list(_cases()))
def test_steps_follow_the_cpu(device: str, name: str, form: dict[str, bool], options: dict[str, Any]) -> None:
    """Given the same gradients, an optimizer makes the same steps as its plain loop on the CPU."""
    _supported(device, form | options)
    actual = _stepped(device, lambda parameters: _made(name, parameters, form | _copied(options)))
    plain = {key: False for key in ("foreach", "fused") if _has(name, key)}
    on_cpu = _copied(options) | plain | ({"capturable": False} if _has(name, "capturable") else {})
    expected = _stepped("cpu", lambda parameters: _made(name, parameters, on_cpu))
    for parameter, start in zip(expected, _start("cpu"), strict=True):
        assert not torch.equal(parameter, start)
    _assert_same_parameters(actual, expected, tolerance=1e-2 if name == "Muon" else 1e-4)


def test_lbfgs(device: str) -> None:
    """L-BFGS, which evaluates its loss many times a step, reaches the minimum that it reaches on the CPU."""
    results = []
    for where in ("cpu", device):
        generator = torch.Generator().manual_seed(0)
        matrix, right_side = (torch.randn(5, size, generator=generator).to(where) for size in (3, 1))
        x = torch.zeros(3, 1, device=where, requires_grad=True)
        optimizer = torch.optim.LBFGS([x], line_search_fn="strong_wolfe")

        def closure(a: Tensor = matrix, b: Tensor = right_side, x: Tensor = x) -> float:
            x.grad = None
            loss = (a @ x - b).square().sum()
            loss.backward()
            return loss.item()

        for _ in range(3):
            optimizer.step(closure)
        results.append(x.detach().cpu())
    torch.testing.assert_close(results[1], results[0], rtol=1e-3, atol=1e-4)


@needs.feature("sparse")
def test_sparse_adam(device: str) -> None:
    """SparseAdam updates the embeddings that took part in the step, as on the CPU, and no other."""
    results = []
    for where in ("cpu", device):
        weight = torch.ones(6, 3).to(where).requires_grad_()
        optimizer = torch.optim.SparseAdam([weight], lr=0.1)
        for indices in ([1, 4, 1], [4, 5]):
            optimizer.zero_grad()
            tokens = torch.tensor(indices, device=where)
            F.embedding(tokens, weight, sparse=True).square().sum().backward()
            assert weight.grad is not None
            assert weight.grad.is_sparse
            optimizer.step()
        results.append(weight.detach().cpu())
    torch.testing.assert_close(results[1], results[0])
    assert torch.equal(results[1][[0, 2, 3]], torch.ones(3, 3)), "embeddings that took no part were updated"


def test_state_is_on_the_device(device: str) -> None:
    """What an optimizer remembers of the gradients lies on the device of its parameters."""
    model = model_of(mlp).to(device)
    optimizer = adam(model.parameters())
    step(model, optimizer, moved(batches(vectors, 1)[0], device))
    states = list(optimizer.state.values())
    assert len(states) == len(list(model.parameters()))
    for key in ("exp_avg", "exp_avg_sq"):
        assert {state[key].device.type for state in states} == {device}


def test_parameter_groups(device: str) -> None:
    """Groups of parameters with rates of their own are stepped with these."""
    weights = [torch.ones(3, device=device, requires_grad=True) for _ in range(3)]
    optimizer = torch.optim.SGD([{"params": weights[:1], "lr": 0.5}, {"params": weights[1:], "lr": 0.25}], lr=0.1)
    for weight in weights:
        weight.grad = torch.ones(3, device=device)
    optimizer.step()
    assert [weight.tolist() for weight in weights] == [[0.5] * 3, [0.75] * 3, [0.75] * 3]


def test_zero_grad(device: str) -> None:
    """zero_grad removes gradients, or with set_to_none=False sets them to zero where they lie."""
    weights = [torch.ones(1000, device=device, requires_grad=True) for _ in range(3)]
    optimizer = torch.optim.SGD(weights, lr=0.1)
    gradients = [torch.full((1000,), 7.0, device=device) for _ in weights]
    for weight, gradient in zip(weights, gradients, strict=True):
        weight.grad = gradient
    optimizer.zero_grad(set_to_none=False)
    for gradient in gradients:
        assert not gradient.any(), "gradients are not zero after zero_grad(set_to_none=False)"
    optimizer.zero_grad()
    assert all(weight.grad is None for weight in weights)
