"""Every operator that PyTorch has sample inputs for gives on the device what it gives on the CPU.

Results are compared with device, dtype, shape, strides and values; for float32 in-place and out= variants too, for
float32 and float64 gradients. One test is one operator with one dtype:
``pytest test_ops.py -k "linalg_lu and complex64"``.
"""

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing._internal.common_device_type import toleranceOverride
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo, SampleInput
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

pytestmark = [
    pytest.mark.usefixtures("backend"),
    pytest.mark.filterwarnings("ignore"),  # the samples provoke them
]

# At most so many samples of an operator are tried.
SAMPLES = {
    torch.float32: 40,
    torch.bfloat16: 8,
    torch.float16: 4,
    torch.float64: 4,
    torch.complex64: 16,
    torch.int64: 8,
    torch.int32: 4,
    torch.uint8: 4,
    torch.bool: 8,
}

GRADIENTS = (torch.float32, torch.float64)

# Their values are whatever was in memory.
UNINITIALIZED = {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"}

# A device may get there by other operators than the CPU does, with other roundings in between.
LIMITS = {
    torch.float32: {"rtol": 1e-4, "atol": 1e-4},
    torch.bfloat16: {"rtol": 1.6e-2, "atol": 1.6e-2},
    torch.float16: {"rtol": 1e-2, "atol": 2e-2},
}

# Sparse samples or results: test_sparse_ops.py compares these.
SPARSE = {"sparse.mm.reduce", "sparse.sampled_addmm", "to_sparse"}

# Arguments that are on the CPU whatever the device is, as PyTorch documents.
HOST_ARGUMENTS = {"tensor_split": (0,)}

# The result depends on memory outside the sample's tensor, which does not move with it.
READS_OUTSIDE = {"as_strided.partial_views"}

Case = tuple[OpInfo, torch.dtype]


def full_name(op: OpInfo) -> str:
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else str(op.name)


CASES = [
    pytest.param(op, dtype, id=f"{full_name(op)}-{str(dtype).removeprefix('torch.')}")
    for op in op_db
    for dtype in SAMPLES
    if dtype in op.supported_dtypes("cpu")
    and full_name(op) not in SPARSE | READS_OUTSIDE
    and not op.name.startswith("jiterator")  # compiled for CUDA
]


def samples(op: OpInfo, dtype: torch.dtype) -> Iterator[SampleInput]:
    torch.default_generator.manual_seed(0)
    requires_grad = dtype in GRADIENTS and op.supports_autograd
    # Not op.sample_inputs(), which looks through the call stack for the test's name.
    yield from itertools.islice(op.sample_inputs_func(op, "cpu", dtype, requires_grad), SAMPLES[dtype])


def tolerance(op: OpInfo, dtype: torch.dtype) -> dict[str, float]:
    """What PyTorch's own comparison of a device with the CPU allows, if it has a rule for this operator."""
    limits = LIMITS.get(dtype, {})
    for decorator in op.get_decorators("TestCommon", "test_compare_cpu", "cpu", dtype, {}):
        if isinstance(decorator, toleranceOverride) and dtype in decorator.d:
            limits = {"rtol": decorator.d[dtype].rtol, "atol": decorator.d[dtype].atol}
    return limits


def tensors(value: Any) -> list[Tensor]:
    return [leaf for leaf in tree_flatten(value)[0] if isinstance(leaf, Tensor)]


def inputs_of(sample: SampleInput) -> tuple[Any, ...]:
    return sample.input, sample.args, sample.kwargs


def names_a_device(value: Any) -> bool:
    return isinstance(value, Tensor) or value in (torch.device("cpu"), "cpu")


def moved(sample: SampleInput, op: OpInfo, name: str) -> SampleInput:
    """The sample on the device: tensors with their strides, and arguments that are devices."""

    def move(value: Any) -> Any:
        if isinstance(value, Tensor):
            return value.detach().to(name).requires_grad_(value.requires_grad)
        return torch.device(name) if names_a_device(value) else value

    stay = HOST_ARGUMENTS.get(op.name, ())
    args = tuple(arg if index in stay else tree_map(move, arg) for index, arg in enumerate(sample.args))
    return SampleInput(tree_map(move, sample.input), args=args, kwargs=tree_map(move, sample.kwargs))


class RandomDraws(TorchDispatchMode):
    """Notices whether an operator inside draws from the CPU's generator."""

    def __init__(self) -> None:
        super().__init__()
        self.any = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if torch.Tag.nondeterministic_seeded not in func.tags:
            return func(*args, **(kwargs or {}))
        before = torch.get_rng_state()
        result = func(*args, **(kwargs or {}))
        self.any |= not torch.equal(before, torch.get_rng_state())
        return result


def call(function: Callable[..., Any], sample: SampleInput, **kwargs: Any) -> Any:
    torch.default_generator.manual_seed(1)
    return function(sample.input, *sample.args, **sample.kwargs, **kwargs)


def layout(x: Tensor) -> list[int]:
    """The strides that matter."""
    return [stride for size, stride in zip(x.shape, x.stride(), strict=True) if size > 1 and x.numel() > 0]


def check(actual: Any, expected: Any, name: str, values: bool, **limits: float) -> None:
    for one, other in zip(tensors(actual), tensors(expected), strict=True):
        assert one.device.type == name
        assert (one.dtype, one.shape, layout(one)) == (other.dtype, other.shape, layout(other))
        assert one.requires_grad == other.requires_grad
        if values:
            torch.testing.assert_close(one.detach().cpu(), other.detach(), equal_nan=True, **limits)


def check_gradients(actual: Any, device_case: Any, expected: Any, host_case: Any, name: str, **limits: float) -> None:
    outputs = [(one, other) for one, other in zip(tensors(actual), tensors(expected), strict=True) if one.requires_grad]
    inputs = zip(tensors(device_case), tensors(host_case), strict=True)
    leaves = [(one, other) for one, other in inputs if one.requires_grad]
    if not outputs or not leaves:
        return
    seeds = [torch.linspace(0.5, 1.5, other.numel()).view_as(other).to(other.dtype) for _, other in outputs]
    try:
        want = torch.autograd.grad([o for _, o in outputs], [o for _, o in leaves], seeds, allow_unused=True)
    except RuntimeError:
        return  # not differentiable for this sample
    got = torch.autograd.grad(
        [o for o, _ in outputs], [o for o, _ in leaves], [seed.to(name) for seed in seeds], allow_unused=True
    )
    for one, other in zip(got, want, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            assert one.device.type == name
            torch.testing.assert_close(one.cpu(), other, equal_nan=True, **limits)


def draws_random_numbers(op: OpInfo, sample: SampleInput) -> bool:
    with RandomDraws() as draws, contextlib.suppress(RuntimeError):
        call(op, sample)
    return draws.any


OPERATORS = {full_name(op): op for op in op_db}


@functools.cache
def may_draw_random_numbers(operator: str) -> bool:
    op = OPERATORS[operator]
    dtype = next(dtype for dtype in SAMPLES if dtype in op.supported_dtypes("cpu"))
    return any(draws_random_numbers(op, sample) for sample in samples(op, dtype))


def cases_of(op: OpInfo, dtype: torch.dtype, name: str) -> Iterator[tuple[SampleInput, SampleInput, bool]]:
    """The sample on the host, the sample on the device, and whether the values of results can be compared."""
    for sample in samples(op, dtype):
        if not any(names_a_device(leaf) for leaf in tree_flatten(inputs_of(sample))[0]):
            continue  # a factory, which makes a tensor of the CPU
        random = may_draw_random_numbers(full_name(op)) and draws_random_numbers(op, sample)
        yield sample, moved(sample, op, name), not random and op.name not in UNINITIALIZED


def on_host(function: Callable[..., Any], sample: SampleInput, **kwargs: Any) -> Any:
    """What the CPU makes of the sample; None if it cannot."""
    try:
        return call(function, sample, **kwargs)
    except (RuntimeError, NotImplementedError):
        return None


@pytest.mark.parametrize(("op", "dtype"), CASES)
def test_operator(name: str, op: OpInfo, dtype: torch.dtype) -> None:
    limits = tolerance(op, dtype)
    for sample, on_device, comparable in cases_of(op, dtype, name):
        expected = on_host(op, sample)
        if expected is None:
            continue
        state = torch.get_rng_state()
        actual = op(on_device.input, *on_device.args, **on_device.kwargs)
        assert torch.equal(torch.get_rng_state(), state), "the CPU's generator was used"
        check(actual, expected, name, values=comparable, **limits)
        if dtype in GRADIENTS and comparable:
            check_gradients(actual, inputs_of(on_device), expected, inputs_of(sample), name, **limits)


IN_PLACE = [
    case for case in CASES if case.values[0].inplace_variant and case.values[1] in (torch.float32, torch.cfloat)
]


@pytest.mark.parametrize(("op", "dtype"), IN_PLACE)
def test_in_place(name: str, op: OpInfo, dtype: torch.dtype) -> None:
    limits = tolerance(op, dtype)
    for sample, on_device, comparable in cases_of(op, dtype, name):
        for case in (sample, on_device):
            case.input = tree_map(lambda leaf: leaf.detach().clone() if isinstance(leaf, Tensor) else leaf, case.input)
        with torch.no_grad():
            if on_host(op.inplace_variant, sample) is None:
                continue  # e.g. the input is smaller than the result
            result = call(op.inplace_variant, on_device)
        assert result is on_device.input
        check(result, sample.input, name, values=comparable, **limits)


OUT = [case for case in CASES if case.values[0].supports_out and case.values[1] is torch.float32]


@pytest.mark.parametrize(("op", "dtype"), OUT)
def test_out(name: str, op: OpInfo, dtype: torch.dtype) -> None:
    for sample, on_device, comparable in cases_of(op, dtype, name):
        with torch.no_grad():
            functional = on_host(op, sample)
            if not isinstance(functional, Tensor):
                continue
            expected, out = (torch.empty(0, dtype=functional.dtype, device=device) for device in ("cpu", name))
            if on_host(op, sample, out=expected) is None:
                continue  # e.g. an out= that must have its size
            result = call(op, on_device, out=out)
        assert result is out
        check(out, expected, name, values=comparable, **tolerance(op, dtype))
