"""Arguments that an operator refuses."""

from functools import partial

import torch
from torch.testing._internal.opinfo.core import OpInfo

from torch_conformance import needs
from torch_conformance.suite.ops._entries import each_operator, instantiate
from torch_conformance.suite.ops._operator_test import OperatorTest


def _has_wrong_calls(op: OpInfo) -> bool:
    return op.error_inputs_func is not None or op.error_inputs_sparse_func is not None


class TestErrors(OperatorTest):
    """PyTorch's list of wrong calls."""

    @needs.feature("torch_backend")
    @each_operator("errors", select=_has_wrong_calls, any_one=True)
    def test_errors(self, device: str, dtype: torch.dtype, op: OpInfo) -> None:
        """An operator refuses wrong arguments with the exception that the CPU raises, and its words."""
        with self.trial(op, dtype, "errors", device).recorded() as trial:
            for wrong in trial.error_inputs("cpu"):
                case = trial.case(wrong.sample_input)
                answer = trial.on_host(op, case)
                if answer.error is not None:
                    call = partial(trial.on_device, op, case)
                    trial.expect_error(answer.error, call, case.what, in_words=True)

    @each_operator("errors", select=_has_wrong_calls, any_one=True)
    def test_errors_of_pytorch(self, device: str, dtype: torch.dtype, op: OpInfo) -> None:
        """An operator refuses what PyTorch's own test has for the device, with the exception and text asked there."""
        with self.trial(op, dtype, "errors", device).recorded() as trial:
            for wrong in trial.error_inputs(device):
                trial.expect_refusal(wrong)


instantiate(TestErrors, globals())
