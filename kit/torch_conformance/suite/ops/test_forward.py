"""Results of operators."""

import torch
from torch.testing._internal.opinfo.core import OpInfo

from torch_conformance.suite.ops._directions import try_forward
from torch_conformance.suite.ops._entries import each_operator, instantiate
from torch_conformance.suite.ops._operator_test import OperatorTest


class TestForward(OperatorTest):
    """Without gradients, with every dtype."""

    @each_operator("forward", quick=[torch.float32])
    def test_forward(self, device: str, dtype: torch.dtype, op: OpInfo) -> None:
        """An operator gives the values, dtype, shape and strides that the CPU gives, and leaves its arguments alone."""
        with self.trial(op, dtype, "forward", device).recorded() as trial:
            try_forward(trial)


instantiate(TestForward, globals())
