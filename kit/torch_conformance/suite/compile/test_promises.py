"""Fake tensors, by which tracing knows results before they are there: what they say of an operator comes true."""

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
    UnsupportedOperatorException,
)
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo, SampleInput
from torch.utils._pytree import tree_leaves
from torch_conformance import needs
from torch_conformance.suite.tensor._support import each

pytestmark = [needs.dtype("float32"), pytest.mark.thorough]

OPERATORS: dict[str, OpInfo] = {op.full_name: op for op in op_db if torch.float32 in op.dtypes}

EMPTY_ON_CPU = frozenset({"native_batch_norm", "_native_batch_norm_legit"})
"""In evaluation the CPU saves no statistics and CUDA does, see native_batch_norm_helper in torch/_decomp. A device
without a kernel of its own is as the CPU, of which the fake tensor does not know."""

MOST = 2
"""So many samples of each operator."""

NOT_TRACED = (
    DataDependentOutputException,
    DynamicOutputShapeException,
    NotImplementedError,
    UnsupportedOperatorException,
)


@each("op", OPERATORS)
@pytest.mark.filterwarnings("ignore")
def test_results_are_what_tracing_expects(device: str, op: OpInfo) -> None:
    """A result has the shape, the strides and the dtype of its fake tensor, if on the CPU it has."""
    compared = 0
    for number, sample in enumerate(_samples(op, device)):
        try:
            actual = _call(op, sample)
        except Exception:  # whether the device has the operator is for level ops
            continue
        promised = _promised(op, sample)
        if promised is None:
            continue
        compared += 1
        differences = _differences(op, actual, promised)
        if differences:
            native = _samples(op, "cpu")[number]
            on_cpu = _promised(op, native)
            kept = on_cpu is None or not _differences(op, _call(op, native), on_cpu)
            assert not kept, "\n".join(differences)
    if compared == 0:
        needs.not_offered("PyTorch has no fake result of the operator, or the device has not the operator")


def _samples(op: OpInfo, device: str) -> list[SampleInput]:
    torch.manual_seed(0)
    return list(itertools.islice(op.sample_inputs_func(op, device, torch.float32, False), MOST))


def _call(op: OpInfo, sample: SampleInput) -> list[Any]:
    torch.manual_seed(0)
    return tree_leaves(op(sample.input, *sample.args, **sample.kwargs))


def _promised(op: OpInfo, sample: SampleInput) -> list[Any] | None:
    """The fake results; None if PyTorch makes none."""
    mode = FakeTensorMode()
    fake = sample.transform(lambda value: mode.from_tensor(value) if isinstance(value, Tensor) else value)
    try:
        with mode:
            return _call(op, fake)
    except NOT_TRACED:
        return None
    except (AssertionError, RuntimeError) as error:
        return [error]


def _differences(op: OpInfo, actual: list[Any], promised: list[Any]) -> list[str]:
    if len(actual) != len(promised) or any(isinstance(one, Exception) for one in promised):
        return [f"{len(actual)} results, promised: {promised}"]
    return [
        f"result {number} is {_kind(one)}, promised: {_kind(other)}"
        for number, (one, other) in enumerate(zip(actual, promised, strict=True))
        if _kind(one) != _kind(other)
        and not (op.full_name in EMPTY_ON_CPU and isinstance(one, Tensor) and one.numel() == 0)
    ]


def _kind(value: object) -> str:
    """All that a fake tensor says. The stride of a dimension of one element means nothing."""
    if not isinstance(value, Tensor):
        return type(value).__name__
    text = f"{value.dtype} {list(value.shape)} on {value.device.type}"
    if value.layout is not torch.strided:
        return f"{text}, {value.layout}"
    if value.numel() == 0:
        return text
    return f"{text}, strides {[s if size > 1 else 'any' for size, s in zip(value.shape, value.stride(), strict=True)]}"
