"""Gradients of operators."""

from typing import Any

import torch
from torch import Tensor
from torch.testing._internal.opinfo.core import OpInfo

from torch_backend.testing.suite.ops._entries import each_operator, instantiate
from torch_backend.testing.suite.ops._operator_test import OperatorTest
from torch_backend.testing.suite.ops._samples import arguments, tensors
from torch_backend.testing.suite.ops._trial import Case, Trial

DIFFERENTIABLE = (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.complex64, torch.complex128)


class TestBackward(OperatorTest):
    """With every dtype that has gradients."""

    @each_operator("backward", dtypes=DIFFERENTIABLE, backward=True, quick=[torch.float32])
    def test_backward(self, device: str, dtype: torch.dtype, op: OpInfo) -> None:
        """An operator that is recorded for gradients gives the CPU's results and gradients on the device."""
        with self.trial(op, dtype, "backward", device).recorded() as trial:
            for case in trial.cases(requires_grad=True):
                answer = trial.on_host(op, case)
                if answer.error is not None:
                    continue
                expected = _gradients(trial, case, answer.result, answer.result, on_device=False)
                if not expected:
                    continue
                with trial.unwatched():
                    actual = trial.on_device(op, case)
                trial.compare(case, actual, answer)
                gradients = _gradients(trial, case, actual, answer.result, on_device=True)
                _compare_gradients(trial, case, gradients, expected)


def _gradients(trial: Trial, case: Case, outputs: Any, of_host: Any, *, on_device: bool) -> list[Tensor | None]:
    """The gradients of the arguments, nothing if there are none."""
    pairs = zip(tensors(outputs), tensors(of_host), strict=True)
    ends = [(ours, theirs) for ours, theirs in pairs if theirs.requires_grad]
    leaves = [leaf for leaf in tensors(arguments(case.device if on_device else case.host)) if leaf.requires_grad]
    if not ends or not leaves:
        return []
    seeds = [_seed(theirs) for _, theirs in ends]
    if not on_device:
        return trial.gradients_on_host([ours for ours, _ in ends], leaves, seeds)
    return trial.gradients_on_device([ours for ours, _ in ends], leaves, [seed.to(trial.device) for seed in seeds])


def _seed(output: Tensor) -> Tensor:
    """A gradient of ``output`` whose elements differ, so that a mix-up shows."""
    if output.layout is not torch.strided:
        return output.detach().clone()
    return torch.linspace(0.5, 1.5, output.numel()).view(output.shape).to(output.dtype)


def _compare_gradients(trial: Trial, case: Case, gradients: list[Tensor | None], expected: list[Tensor | None]) -> None:
    for index, (one, other) in enumerate(zip(gradients, expected, strict=True)):
        which = f"{case.what}: the gradient of differentiable argument {index}"
        states = ["missing" if x is None else "there" for x in (one, other)]
        assert states[0] == states[1], f"{which} is {states[0]}, on the CPU it is {states[1]}"
        if one is not None and other is not None:
            trial.compare_gradient(case, one, other, which)


instantiate(TestBackward, globals())
