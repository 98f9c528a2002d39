"""Elementwise operators on values where kernels go wrong: zeros of both signs, poles, tails, infinities, overflow."""

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing._comparison import default_tolerances
from torch.testing._internal.opinfo.core import BinaryUfuncInfo, OpInfo, SampleInput, UnaryUfuncInfo

from torch_conformance.suite.ops._compare import compare
from torch_conformance.suite.ops._entries import each_operator, full_name, instantiate
from torch_conformance.suite.ops._operator_test import OperatorTest
from torch_conformance.suite.ops._samples import tensors
from torch_conformance.suite.ops._trial import Trial

_TENS = [10.0**k for k in range(-30, 31)]
_BOTH_SIGNS = [0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 7.0, 10.0, 100.25, 1e-3, 1e-10, 1e-30, 1e5, 1e10, 1e30, float("inf")]
# Sixteenths, which all dtypes have: with other numbers a result beside a pole depends on how they are rounded.
FLOATS = (
    [k / 16 for k in range(-320, 321)],
    [*_TENS, *(-x for x in _TENS)],
    [0.0, -0.0, float("inf"), -float("inf"), float("nan")],
)
FLOAT_PAIRS = [*_BOTH_SIGNS, *(-x for x in _BOTH_SIGNS), float("nan")]

CONVERSIONS = {"byte", "char", "short", "int", "long"}
"""Entries that mean nothing for numbers that the result's dtype does not have; level tensor converts others."""

SUMS = {"mvlgamma", "polygamma"}
"""Entries that add terms of both signs, in the dtype of their results."""

TERMS = 16.0
"""What the sizes of these terms add up to at most, where they cancel."""

OVERFLOWS = {"special.zeta": 1e6}
"""From where on the CPU gives NaN for finite results, as factors of them overflow."""

EXACT = {"nextafter"}
"""Entries whose results differ from wrong ones by less than rounding."""

BITS = {"bitwise_left_shift", "bitwise_right_shift", "__rlshift__", "__rrshift__"}
"""Entries whose second argument is a number of bits: others mean nothing."""


def _whole_numbers(dtype: torch.dtype) -> list[int]:
    limits = torch.iinfo(dtype)
    near_zero = [0, 1, 2, 3, 5, 7, 8, 10, 100, -1, -2, -3, -7, -8, -100]
    return [x for x in near_zero if x >= limits.min] + [limits.max, limits.max - 1, limits.min + 1]


def _tensor(values: Sequence[float], dtype: torch.dtype) -> Tensor:
    return torch.tensor(values, dtype=torch.float64 if dtype.is_floating_point else dtype).to(dtype)


def _samples(op: OpInfo, dtype: torch.dtype) -> Iterator[SampleInput]:
    if isinstance(op, BinaryUfuncInfo):
        values = FLOAT_PAIRS if dtype.is_floating_point else _whole_numbers(dtype)
        if op.name in OVERFLOWS:
            values = [x for x in values if not abs(x) > OVERFLOWS[op.name]]
        second = range(9) if "polynomial" in op.name else range(torch.iinfo(dtype).bits) if op.name in BITS else values
        left, right = (_tensor(x, dtype) for x in zip(*product(values, second), strict=True))
        yield SampleInput(left, args=(right,))
        if not dtype.is_floating_point:  # the CPU may refuse all for a zero
            yield SampleInput(left[right != 0], args=(right[right != 0],))
        return
    for values in FLOATS if dtype.is_floating_point else [_whole_numbers(dtype)]:
        x = _tensor(values, dtype)
        yield SampleInput(x, kwargs=op.sample_kwargs("cpu", dtype, x)[0])


def _try(trial: Trial, sample: SampleInput) -> None:
    case = trial.case(sample)
    answer = trial.on_host(trial.op, case)
    if answer.error is not None or not trial.has_values(case):
        return
    trial.count()
    actual, expected = trial.on_device(trial.op, case), answer.result
    compare(actual, expected, trial.device, trial.tolerance, case.what, values=False)
    for ours, theirs, better in zip(
        *map(tensors, (actual, expected, _in_float64(trial, sample, expected))), strict=True
    ):
        _compare(trial, sample, ours.cpu(), theirs, better)


def _in_float64(trial: Trial, sample: SampleInput, expected: Any) -> Any:
    """What the CPU computes with more digits: its own code for vectors is wrong at some of the values."""
    if not trial.dtype.is_floating_point or trial.op.name in EXACT:
        return expected
    double = sample.transform(lambda x: x.double() if isinstance(x, Tensor) else x)
    answer = trial.on_host(trial.op, trial.case(double))
    return expected if answer.error is not None else answer.result


def _compare(trial: Trial, sample: SampleInput, actual: Tensor, expected: Tensor, better: Tensor) -> None:
    rtol, atol = default_tolerances(expected.dtype)
    if trial.op.name in EXACT or not (expected.is_floating_point() or expected.is_complex()):
        rtol = atol = 0.0
    else:
        rtol, atol = max(rtol, trial.tolerance.rtol), max(atol, trial.tolerance.atol)
        atol = max(atol, rtol * TERMS) if trial.op.name in SUMS else atol
    right = [torch.isclose(actual, x.to(actual.dtype), rtol, atol, equal_nan=True) for x in (expected, better)]
    wrong = (~(right[0] | right[1])).nonzero().flatten().tolist()
    if wrong:
        first = wrong[0]
        given = ", ".join(str(x[first].item()) for x in (sample.input, *sample.args))
        pytest.fail(
            f"{full_name(trial.op)}({given}) of {trial.dtype} is {actual[first].item()}, on the CPU it is "
            f"{expected[first].item()}; {len(wrong)} of {expected.numel()} special values have wrong results, the last "
            f"for {', '.join(str(x[wrong[-1]].item()) for x in (sample.input, *sample.args))}"
        )


class TestSpecialValues(OperatorTest):
    """Not subnormals, which devices may take for zeros."""

    @each_operator(
        "special values",
        select=lambda op: isinstance(op, UnaryUfuncInfo | BinaryUfuncInfo) and op.name not in CONVERSIONS,
        dtypes=(torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.uint8),
        quick=[torch.float32],
    )
    def test_special_values(self, device: str, dtype: torch.dtype, op: OpInfo) -> None:
        """An elementwise operator gives the CPU's results for zeros, poles, tails, large numbers, infinities, NaN."""
        with self.trial(op, dtype, "special values", device).recorded() as trial, torch.no_grad():
            for sample in _samples(op, dtype):
                _try(trial, sample)


instantiate(TestSpecialValues, globals())
