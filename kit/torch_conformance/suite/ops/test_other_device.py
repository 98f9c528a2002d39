"""Operators on a device that is not the current one."""

import torch
from torch.testing._internal.opinfo.core import OpInfo

from torch_conformance import needs
from torch_conformance.suite.ops._entries import each_operator, instantiate
from torch_conformance.suite.ops._operator_test import OperatorTest


class TestOtherDevice(OperatorTest):
    """Device 0 is the current one, the arguments are on device 1."""

    @needs.devices(2)
    @each_operator("other_device", dtypes=(torch.float32,))
    def test_on_other_device(self, device: str, dtype: torch.dtype, op: OpInfo) -> None:
        """An operator on tensors of another device than the current one runs, and leaves its results, there."""
        with self.trial(op, dtype, "other_device", f"{torch.device(device).type}:1", most=2).recorded() as trial:
            for case in trial.cases():
                answer = trial.on_host(op, case)
                if answer.error is None:
                    trial.compare(case, trial.on_device(op, case), answer)


instantiate(TestOtherDevice, globals())
