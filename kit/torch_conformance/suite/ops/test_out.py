"""Results that are written to tensors of the caller: ``out=``."""

import torch
from torch.testing._internal.opinfo.core import OpInfo
from torch.utils._pytree import tree_map

from torch_conformance import needs
from torch_conformance.suite.ops._entries import each_operator, instantiate
from torch_conformance.suite.ops._operator_test import OperatorTest
from torch_conformance.suite.ops._out_tensors import (
    MakeOut,
    empty,
    garbage,
    larger,
    of_other_dtype,
    results_of,
    try_out,
    try_overlaps,
    with_gaps,
)
from torch_conformance.suite.ops._samples import tensors

DTYPES = (torch.float32, torch.complex64, torch.int64, torch.bool)

MOST = 10
"""Samples of an operator: what happens to out= depends little on them."""


def _takes_out(op: OpInfo) -> bool:
    return bool(op.supports_out)


class TestOut(OperatorTest):
    """``out=`` tensors of the right and of the wrong kind."""

    @each_operator("out", select=_takes_out, dtypes=DTYPES)
    def test_out(self, device: str, dtype: torch.dtype, op: OpInfo) -> None:
        """An out= tensor of the result's shape gets the result in its own memory and is what the operator returns."""
        self._try_with(op, dtype, device, garbage)

    @each_operator("out", select=_takes_out, dtypes=DTYPES)
    def test_out_with_gaps(self, device: str, dtype: torch.dtype, op: OpInfo) -> None:
        """An out= tensor with gaps between its elements keeps its strides and gets the result."""
        self._try_with(op, dtype, device, with_gaps)

    @each_operator("out", select=_takes_out, dtypes=DTYPES)
    def test_out_empty(self, device: str, dtype: torch.dtype, op: OpInfo) -> None:
        """An empty out= tensor is resized to the result, or refused where the CPU refuses it."""
        self._try_with(op, dtype, device, empty)

    @each_operator("out", select=_takes_out, dtypes=DTYPES[:1])
    def test_out_of_wrong_shape(self, device: str, dtype: torch.dtype, op: OpInfo) -> None:
        """An out= tensor of the wrong shape is resized or refused as on the CPU."""
        self._try_with(op, dtype, device, larger)

    @each_operator("out", select=_takes_out, dtypes=DTYPES)
    def test_out_of_wrong_dtype(self, device: str, dtype: torch.dtype, op: OpInfo) -> None:
        """An out= tensor of another dtype gets the converted result or is refused as on the CPU."""
        self._try_with(op, dtype, device, of_other_dtype)

    # torch.lu copies its results to out= in Python, which works between devices.
    @needs.feature("memory of its own")
    @each_operator("out", select=lambda op: _takes_out(op) and op.name != "lu", dtypes=DTYPES[:1])
    def test_out_on_the_cpu(self, device: str, dtype: torch.dtype, op: OpInfo) -> None:
        """A result of device tensors is not written to an out= tensor on the CPU."""
        with self.trial(op, dtype, "out", device, most=MOST).recorded() as trial, torch.no_grad():
            for case, results in results_of(trial):
                if any(x.numel() == 0 for x in tensors(results)) or not tensors(case.device.input):
                    continue
                if trial.on_host(op, case, out=tree_map(lambda x: garbage(x, "cpu"), results)).error is not None:
                    continue  # an entry whose out= is not like its results
                out = tree_map(lambda x: garbage(x, "cpu"), results)
                error = RuntimeError("all tensors have to be on one device")
                what = f"{case.what} with out= on the CPU"
                trial.expect_error(error, lambda case=case, out=out: trial.on_device(op, case, out=out), what)

    @needs.feature("overlaps")
    # The CPU's narrow_copy writes past an element that is repeated.
    @each_operator("out", select=lambda op: _takes_out(op) and op.name != "narrow_copy", dtypes=DTYPES[:1])
    def test_out_that_overlaps(self, device: str, dtype: torch.dtype, op: OpInfo) -> None:
        """An out= tensor that shares memory with an argument or itself is refused where the CPU refuses it."""
        with self.trial(op, dtype, "out", device, most=MOST).recorded() as trial:
            try_overlaps(trial)

    def _try_with(self, op: OpInfo, dtype: torch.dtype, device: str, make: MakeOut) -> None:
        with self.trial(op, dtype, "out", device, most=MOST).recorded() as trial:
            try_out(trial, make)


instantiate(TestOut, globals())
