"""Dtypes that PyTorch's kernels for CUDA take and those for the CPU do not: programs are written for both."""

import copy
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo, SampleInput
from torch.utils._pytree import tree_map

from torch_conformance import needs
from torch_conformance.suite.ops._directions import try_backward, try_forward
from torch_conformance.suite.ops._entries import each_operator, instantiate
from torch_conformance.suite.ops._operator_test import OperatorTest
from torch_conformance.suite.ops._random_draws import draws_random_numbers
from torch_conformance.suite.ops._samples import moved
from torch_conformance.suite.ops._trial import Answer, Case, Trial

WIDER = {torch.float16: torch.float32, torch.bfloat16: torch.float32, torch.bool: torch.int64}
"""What the CPU computes in instead."""


def _histc(x: Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Tensor:
    """Of whole numbers, for which ends are cut and places are quotients."""
    low, high, values = int(min), int(max), x.flatten().tolist()
    if low == high and values:
        low, high = sorted(values)[0], sorted(values)[-1]
    low, high = (low - 1, high + 1) if low == high else (low, high)
    counts = torch.zeros(bins, dtype=torch.int64)
    for value in values:
        if low <= value <= high:
            counts[sorted(((value - low) * bins // (high - low), bins - 1))[0]] += 1
    return counts


def _nansum(x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    return x.masked_fill(x.isnan(), 0).sum(*args, **kwargs)


def _nanmean(x: Tensor, *args: Any, dtype: torch.dtype | None = None, **kwargs: Any) -> Tensor:
    return _nansum(x, *args, dtype=dtype, **kwargs) / x.isnan().logical_not().sum(*args, **kwargs)


REFERENCES = {"histc": _histc, "nansum": _nansum, "nanmean": _nanmean}
"""Entries that have no wider dtype."""


def _of_cuda_alone() -> Iterator[OpInfo]:
    """PyTorch's list with the dtypes that only CUDA has. Entries without any of the CPU are about CUDA's libraries."""
    for op in op_db:
        entry = copy.copy(op)
        entry.dtypes = set(op.dtypesIfCUDA or ()) - set(op.dtypes)
        entry.backward_dtypes = {x for x in op.backward_dtypesIfCUDA or () if x.is_floating_point or x.is_complex}
        if entry.dtypes and op.dtypes:
            yield entry


class _WideTrial(Trial):
    """Compares with what the CPU computes in a wider dtype; PyTorch's meta kernels tell which dtype results have."""

    def case(self, sample: SampleInput) -> Case:
        found = super().case(sample)
        found.is_random = draws_random_numbers(self.op, sample.transform(self._wide))
        return found

    def on_host(self, function: Callable[..., Any], case: Case, **kwargs: Any) -> Answer:
        def run(*arguments: Any, **keywords: Any) -> Any:
            given, named = tree_map(self._wide, (arguments, keywords))
            meta = moved(case.host, self.op, "meta")
            kinds = function(meta.input, *meta.args, **meta.kwargs)
            results = REFERENCES.get(self.op.name, function)(*given, **named)
            return tree_map(lambda x, kind: x.to(kind.dtype), results, kinds)

        return super().on_host(run, case, **kwargs)

    def _wide(self, value: Any) -> Any:
        is_narrow = isinstance(value, Tensor) and value.dtype is self.dtype
        return value.to(WIDER.get(self.dtype, self.dtype)) if is_narrow else value


class TestDtypesOfCuda(OperatorTest):
    """With every dtype that CUDA has beside the CPU's."""

    @needs.feature("torch_backend")
    @each_operator("dtypes of CUDA", entries=_of_cuda_alone())
    def test_dtypes_of_cuda(self, device: str, dtype: torch.dtype, op: OpInfo) -> None:
        """An operator takes the dtypes that it takes on CUDA, and gives what the CPU gives in a wider one."""
        trial = _WideTrial(op, dtype, "dtypes of CUDA", device, most=8)
        with trial.recorded():
            try_forward(trial)
            if dtype in op.backward_dtypes:
                try_backward(trial)


instantiate(TestDtypesOfCuda, globals())
