"""Gradients of operators."""

import torch
from torch.testing._internal.opinfo.core import OpInfo

from torch_conformance.suite.ops._directions import DIFFERENTIABLE, try_backward
from torch_conformance.suite.ops._entries import each_operator, instantiate
from torch_conformance.suite.ops._operator_test import OperatorTest


class TestBackward(OperatorTest):
    """With every dtype that has gradients."""

    @each_operator("backward", dtypes=DIFFERENTIABLE, backward=True, quick=[torch.float32])
    def test_backward(self, device: str, dtype: torch.dtype, op: OpInfo) -> None:
        """An operator that is recorded for gradients gives the CPU's results and gradients on the device."""
        with self.trial(op, dtype, "backward", device).recorded() as trial:
            try_backward(trial)


instantiate(TestBackward, globals())
