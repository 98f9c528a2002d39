"""What the tests of this level share: comparisons with the CPU that name what differs, and tables of cases."""

import re
import subprocess
import textwrap
from collections.abc import Callable, Collection, Mapping
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor

from torch_conformance import modules, needs, routes
from torch_conformance.features import FEATURES
from torch_conformance.routes import has
from torch_conformance.sources import Seen
from torch_conformance.synchronization import synchronize

DTYPES = (
    *("bool", "uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64"),
    *("float16", "bfloat16", "float32", "float64", "complex32", "complex64", "complex128"),
    *("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"),
)
"""Every dtype that a device can declare."""

TOLERANCE = {torch.float16: 1e-2, torch.bfloat16: 2e-2}
"""How far results that were computed may be from the CPU's, relative to them or to one; 1e-4 for other dtypes."""


# ---- cases ----


def dtypes(*names: str) -> list[Any]:
    """Parameters, one per dtype, that a device without the dtype leaves out."""
    quiet = pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
    return [pytest.param(getattr(torch, name), id=name, marks=[needs.dtype(name), quiet]) for name in names]


every_dtype = pytest.mark.parametrize("dtype", dtypes(*DTYPES))
"""Run the test once with each dtype that the device has."""


def each(argument: str, table: Mapping[str, Any], **needing: Collection[str]) -> pytest.MarkDecorator:
    """Run the test once with each value of the table; its key is the case's name.

    ``complex64=["a"]`` says that a device without the dtype leaves out case "a", and ``index=["b"]`` that one without
    the feature leaves out case "b".
    """
    marks = {name: needs.feature(name) if name in FEATURES else needs.dtype(name) for name in needing}
    parameters = [
        pytest.param(value, id=key, marks=[mark for name, mark in marks.items() if key in needing[name]])
        for key, value in table.items()
    ]
    return pytest.mark.parametrize(argument, parameters)


def evaluate(code: str, **names: Any) -> Any:
    """The value of an expression: tests that are parametrized with one are named after it."""
    return eval(code, {"torch": torch, **names})


def numbers(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """A CPU tensor of small whole numbers, neighbours different."""
    return (torch.arange(torch.Size(shape).numel()) % 113).reshape(shape).to(dtype)


# ---- the device ----


def current_index(device: str) -> object:
    """Which device of this name is the current one; None where nobody says."""
    if has("accelerator"):
        return torch.accelerator.current_device_index()
    current = getattr(getattr(torch, device, None), "current_device", None)
    return current() if current is not None else None


def address(x: Tensor) -> int:
    """Where the tensor's memory begins; 0 on devices whose tensors do not say."""
    return x.data_ptr() if has("storage") else 0


def shown(x: Tensor) -> str:
    """What repr() says of the tensor's device: of the CPU, nothing."""
    return "" if x.is_cpu else f"device='{x.device}'"


# ---- comparisons ----


def _comparable(x: Tensor) -> Tensor:
    """The values on the CPU, in a dtype that compares."""
    x = x.detach().cpu().resolve_conj().resolve_neg()
    if x.is_complex():
        return x.to(torch.complex128)
    if x.is_floating_point():
        return x.to(torch.float64)
    return x.contiguous().view(torch.int64) if x.dtype is torch.uint64 else x.to(torch.int64)


def difference(actual: Tensor, expected: Tensor, tolerance: float = 0.0) -> str | None:
    """How the values differ, in words; None if they do not. NaN is NaN."""
    if actual.shape != expected.shape:
        return f"the shape is {tuple(actual.shape)}, not {tuple(expected.shape)}"
    got, wanted = _comparable(actual), _comparable(expected)
    if wanted.is_floating_point() or wanted.is_complex():
        wrong = ~torch.isclose(got, wanted, rtol=tolerance, atol=tolerance, equal_nan=True)
    else:
        wrong = got != wanted
    count = int(wrong.sum())
    if count == 0:
        return None
    where = tuple(wrong.nonzero()[0].tolist())
    return (
        f"element {list(where)} is {got[where].item()}, not {wanted[where].item()} ({count} of {wrong.numel()} wrong)"
    )


def assert_equal(actual: Tensor, expected: Tensor, what: str) -> None:
    """The values are the same, wherever they are."""
    problem = difference(actual, expected)
    assert problem is None, f"{what}: {problem}"


def assert_values(actual: Tensor, expected: object, what: str) -> None:
    """The values are these, a list or a number."""
    values = actual.tolist()
    assert values == expected, f"{what}: the values are {values}, not {expected}"


def _has_strides(x: Tensor) -> bool:
    """Whether PyTorch says which: of views it does, of new results torch_backend. CUDA's nonzero has others."""
    return has("torch_backend") or (has("storage") and x._is_view())


def assert_alike(actual: Tensor, expected: Tensor, device: str, what: str = "the result") -> None:
    """``actual`` is on the device; dtype, shape, strides, conj and neg bit are those of ``expected``."""
    assert actual.device.type == device, f"{what} is on {actual.device}, not on {device}"
    for attribute, one, other in (
        ("dtype", actual.dtype, expected.dtype),
        ("shape", tuple(actual.shape), tuple(expected.shape)),
        *([("strides", actual.stride(), expected.stride())] if _has_strides(actual) else []),
        ("conj bit", actual.is_conj(), expected.is_conj()),
        ("neg bit", actual.is_neg(), expected.is_neg()),
    ):
        assert one == other, f"{what} has {attribute} {one}, on the CPU it has {other}"


def assert_same(actual: Tensor, expected: Tensor, device: str, what: str = "the result") -> None:
    """``actual`` is on the device, and all else about it is as in ``expected``, which is on the CPU."""
    assert_alike(actual, expected, device, what)
    assert_equal(actual, expected, what)


def assert_close(actual: Tensor, expected: Tensor, device: str, what: str = "the result") -> None:
    """``actual`` is on the device, and is ``expected`` up to rounding and strides."""
    assert actual.device.type == device, f"{what} is on {actual.device}, not on {device}"
    assert actual.dtype == expected.dtype, f"{what} has dtype {actual.dtype}, on the CPU it has {expected.dtype}"
    problem = difference(actual, expected, TOLERANCE.get(expected.dtype, 1e-4))
    assert problem is None, f"{what}: {problem}"


def outcome(function: Callable[[str], Any], device: str) -> Any:
    """What ``function`` returns, or the type of what it raises with the start of the message."""
    try:
        result = function(device)
        synchronize(device)  # an asynchronous operator may raise only here
        return result
    except (RuntimeError, IndexError, TypeError, ValueError) as error:
        return type(error), str(error)[:60]


def assert_same_outcome(
    function: Callable[[str], Any], device: str, what: str = "the result", messages: bool = True
) -> None:
    """``function(device)`` returns what it returns for the CPU, or raises what it raises there.

    ``messages``: whether the message has to start as on the CPU; a kernel's own may not. Only torch_backend promises
    that any does.
    """
    expected, actual = outcome(function, "cpu"), outcome(function, device)
    if isinstance(expected, Tensor):
        assert isinstance(actual, Tensor), f"{what}: on the CPU a tensor, on {device} {actual}"
        assert_same(actual, expected, device, what)
        return
    messages = messages and has("torch_backend")
    if not messages and isinstance(expected, tuple) and isinstance(actual, tuple):
        expected, actual = expected[0], actual[0]
    assert actual == expected, f"{what}: on the CPU {expected}, on {device} {actual}"


def raises(*errors: type[Exception], says: str) -> Any:
    """As pytest.raises. PyTorch's tests do not compare what the error says: only torch_backend's devices have to."""
    return pytest.raises(errors, match=says if has("torch_backend") else None)


def check_refused(uses: Mapping[str, Callable[[], Any]], what: str, says: str) -> None:
    """Each use raises RuntimeError, because of ``what``. The operator it is about is the last that it calls.

    PyTorch's fallback to the CPU sees copies of the operands, so it cannot see where they lie. If it serves an operator
    that does not raise, the test ends as not offered once all uses were tried. torch_backend's own fallback does see.
    """
    if not has("overlaps"):
        needs.not_offered(str(routes.active().lacks("feature", "overlaps")))
    blind = []
    for name, use in uses.items():
        result, error, fallback = attempt(use)
        if error is None:
            assert fallback, f"{name}: {what}, and no error is raised: it gives {result}"
            blind.append(fallback)
        elif has("torch_backend"):
            assert re.search(says, str(error)), f"{name}: {what}, and the error does not say {says!r}: {error}"
    if blind:
        needs.not_offered(f"PyTorch's fallback to the CPU, which serves {blind[0]}, does not see that {what}")


def attempt(use: Callable[[], Any]) -> tuple[Any, RuntimeError | None, str | None]:
    """What it gives or raises, and the last operator that it calls if PyTorch's fallback to the CPU serves it."""
    result, error = None, None
    noted = nullcontext(Seen()) if has("torch_backend") else routes.of_this_process().calls().noted()
    with noted as seen:
        try:
            result = use()
        except RuntimeError as raised:
            error = raised
    if isinstance(result, Tensor):
        try:
            result.cpu()  # an asynchronous operator may raise only here
        except RuntimeError as raised:
            error = raised
    last = seen.calls[-1] if seen.calls else None
    return result, error, last.op if last is not None and last.source == "fallback" else None


def tensors_of(value: Any) -> list[Tensor]:
    """One tensor, or a sequence of them, as a list."""
    return [value] if isinstance(value, Tensor) else list(value)


# ---- processes ----


def in_fresh_process(code: str, *arguments: object) -> str:
    """What the code prints in a new process with the run's device active as ``device``; ``arguments`` are its argv."""
    start = """
        import sys
        from torch_conformance import routes
        device = routes.activate(routes.parse(sys.argv.pop(1))).name
        import torch
    """
    process = subprocess.run(
        [
            *modules.interpreter(),
            "-c",
            textwrap.dedent(start) + textwrap.dedent(code),
            routes.text_of(routes.of_this_process()),
            *map(str, arguments),
        ],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert process.returncode == 0, f"A new process with the device ended with {process.returncode}: {process.stderr}"
    return process.stdout
