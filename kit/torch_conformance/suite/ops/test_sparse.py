"""Operators on sparse tensors."""

import unittest
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.testing._internal.opinfo.core import OpInfo, SampleInput

from torch_conformance.suite.ops._entries import each_operator, instantiate
from torch_conformance.suite.ops._operator_test import OperatorTest
from torch_conformance.suite.ops._samples import seed, tensors
from torch_conformance.suite.ops._trial import Answer, Case, Trial

TO_LAYOUT: dict[torch.layout, Callable[[Tensor], Tensor]] = {
    torch.sparse_coo: Tensor.to_sparse,
    torch.sparse_csr: Tensor.to_sparse_csr,
    torch.sparse_csc: Tensor.to_sparse_csc,
    torch.sparse_bsr: lambda x: x.to_sparse_bsr((2, 2)),
    torch.sparse_bsc: lambda x: x.to_sparse_bsc((2, 2)),
}


def _takes(layout: torch.layout) -> Any:
    return each_operator(
        str(layout).removeprefix("torch."), select=lambda op: op.supports_sparse_layout(layout), dtypes=(torch.float32,)
    )


class TestSparse(OperatorTest):
    """With float32 values."""

    @_takes(torch.sparse_coo)
    def test_sparse_coo(self, device: str, dtype: torch.dtype, op: OpInfo) -> None:
        """An operator on coordinate (COO) tensors gives the CPU's results and gradients on the device."""
        self._try(op, dtype, device, torch.sparse_coo)

    @_takes(torch.sparse_csr)
    def test_sparse_csr(self, device: str, dtype: torch.dtype, op: OpInfo) -> None:
        """An operator on compressed row (CSR) tensors gives the CPU's results and gradients on the device."""
        self._try(op, dtype, device, torch.sparse_csr)

    @_takes(torch.sparse_csc)
    def test_sparse_csc(self, device: str, dtype: torch.dtype, op: OpInfo) -> None:
        """An operator on compressed column (CSC) tensors gives the CPU's results and gradients on the device."""
        self._try(op, dtype, device, torch.sparse_csc)

    @_takes(torch.sparse_bsr)
    def test_sparse_bsr(self, device: str, dtype: torch.dtype, op: OpInfo) -> None:
        """An operator on block row (BSR) tensors gives the CPU's results and gradients on the device."""
        self._try(op, dtype, device, torch.sparse_bsr)

    @_takes(torch.sparse_bsc)
    def test_sparse_bsc(self, device: str, dtype: torch.dtype, op: OpInfo) -> None:
        """An operator on block column (BSC) tensors gives the CPU's results and gradients on the device."""
        self._try(op, dtype, device, torch.sparse_bsc)

    def _try(self, op: OpInfo, dtype: torch.dtype, device: str, layout: torch.layout) -> None:
        part = str(layout).removeprefix("torch.")
        with self.trial(op, dtype, part, device).recorded() as trial:
            for sample in _sparse_samples(op, dtype, layout, trial.most):
                case = trial.case(sample)
                with torch.no_grad():
                    answer = trial.on_host(op, case)
                    if answer.error is not None:
                        continue
                    trial.compare(case, trial.on_device(op, case), answer)
                _try_gradients(trial, case)


def _sparse_samples(op: OpInfo, dtype: torch.dtype, layout: torch.layout, most: int) -> Iterator[SampleInput]:
    """PyTorch's sparse samples; where it has none (elementwise operators), strided ones made sparse."""
    seed()
    try:
        given = list(op.sample_inputs_sparse(layout, "cpu", dtype, requires_grad=op.supports_autograd))
    except (NotImplementedError, unittest.SkipTest):
        given = list(_made_sparse(op, dtype, layout))
    yield from given[:most]


def _made_sparse(op: OpInfo, dtype: torch.dtype, layout: torch.layout) -> Iterator[SampleInput]:
    for sample in op.sample_inputs_func(op, "cpu", dtype, False):
        x = sample.input
        if isinstance(x, Tensor) and x.dim() >= 2 and x.numel() > 0 and x.size(-1) % 2 == x.size(-2) % 2 == 0:
            sample.input = TO_LAYOUT[layout](x * (x > 0)).requires_grad_(op.supports_autograd)
            yield sample


def _try_gradients(trial: Trial, case: Case) -> None:
    answer = trial.on_host(lambda *args, **kwargs: _gradients(trial.op, args, kwargs), case)
    if answer.error is not None or not answer.result:
        return
    actual = trial.on_device(lambda *args, **kwargs: _gradients(trial.op, args, kwargs), case)
    case.what = f"the gradients of {case.what}"
    trial.compare(case, actual, Answer(answer.result))


def _gradients(op: OpInfo, args: Any, kwargs: Any) -> list[Tensor | None]:
    """The gradients of the arguments, nothing if there are none."""
    outputs = [leaf for leaf in tensors(op(*args, **kwargs)) if leaf.requires_grad]
    leaves = [leaf for leaf in tensors((args, kwargs)) if leaf.requires_grad]
    if not outputs or not leaves:
        return []
    return list(torch.autograd.grad(outputs, leaves, [torch.ones_like(x) for x in outputs], allow_unused=True))


instantiate(TestSparse, globals())
