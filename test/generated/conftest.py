"""Kernels that a device compiles, against PyTorch's on the CPU.

The device is xcpu with modules unless TORCH_BACKEND names another; nothing may fall back to the CPU.
"""

import os
from collections.abc import Callable
from typing import Any

import pytest

os.environ.setdefault("TORCH_BACKEND", "xcpu")
if os.environ["TORCH_BACKEND"] == "xcpu":
    os.environ.setdefault("TORCH_BACKEND_XCPU_MODULES", "1")

import torch  # after what it reads at import

import torch_backend

DEVICE = os.environ["TORCH_BACKEND"]
# Convolutions are compared with those of whole factors. PyTorch's helpers for tests forbid to set it later.
torch.backends.cudnn.allow_tf32 = False


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--large", action="store_true", help="tests that take minutes and gigabytes")


@pytest.fixture(scope="session", autouse=True)
def nothing_falls_back() -> None:
    """A call that the device cannot serve raises."""
    torch_backend.fallback.set_policy(None, "error")


def values(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Normally distributed numbers of the CPU, the same in every dtype but for its rounding."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(dtype)


def to_device(value: Any) -> Any:
    """A copy of every tensor in ``value`` on the device, with the same strides."""
    if isinstance(value, torch.Tensor):
        value, needs_gradient = value.detach(), value.requires_grad
        covered = torch.as_strided(value, (value.untyped_storage().nbytes() // value.element_size(),), (1,), 0)
        there = torch.as_strided(covered.to(DEVICE), value.shape, value.stride(), value.storage_offset())
        return there.requires_grad_(needs_gradient)
    if isinstance(value, (list, tuple)):
        return type(value)(map(to_device, value))
    if isinstance(value, dict):
        return {key: to_device(entry) for key, entry in value.items()}
    return value


def to_host(value: Any) -> Any:
    """A copy of every tensor in ``value`` on the CPU."""
    if isinstance(value, torch.Tensor):
        return value.detach().cpu()
    return type(value)(map(to_host, value)) if isinstance(value, (list, tuple)) else value


Check = Callable[..., None]


@pytest.fixture
def check() -> Check:
    """``check(function, *arguments, rtol=None, atol=None, exact=False, **keywords)``: the same on the device as on the
    CPU: values, dtype and shape of every result, and of every argument that the function wrote."""

    def run(function: Callable[..., Any], *arguments: Any, exact: bool = False, **options: Any) -> None:
        limits = {"rtol": 0, "atol": 0} if exact else {name: options.pop(name, None) for name in ("rtol", "atol")}
        there, there_options = to_device(arguments), to_device(options)
        result = to_host(function(*there, **there_options))
        expected = function(*arguments, **options)
        as_tuple = lambda value: value if isinstance(value, (list, tuple)) else (value,)  # noqa: E731
        for got, wanted in zip(as_tuple(result), as_tuple(expected), strict=True):
            torch.testing.assert_close(got, wanted, equal_nan=True, **limits)
        for got, wanted in zip(to_host(there), arguments, strict=True):
            if isinstance(wanted, torch.Tensor):
                torch.testing.assert_close(got, wanted.detach(), equal_nan=True, **limits)

    return run
