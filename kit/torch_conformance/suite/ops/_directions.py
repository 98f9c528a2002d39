"""An operator's results and gradients on the device, against the CPU's: what tests of a trial are made of."""

from typing import Any

import torch
from torch import Tensor

from ._samples import arguments, tensors
from ._trial import Case, Trial
from ._undetermined import FACTORS, STATISTICS, determined

DIFFERENTIABLE = (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.complex64, torch.complex128)


def try_forward(trial: Trial) -> None:
    """Fail unless all samples have the CPU's results without gradients, and leave their arguments as the CPU does."""
    largest: Case | None = None
    with torch.no_grad():
        for case in trial.cases():
            answer = trial.on_host(trial.op, case)
            if answer.error is not None:
                continue
            actual = trial.on_device(trial.op, case)
            trial.compare(case, actual, answer)
            trial.compare_arguments(case)
            largest = case if largest is None else max(largest, case, key=Case.size)
        if largest is not None:
            trial.time_against_fallback(largest)


def try_backward(trial: Trial) -> None:
    """Fail unless all samples that are recorded for gradients have the CPU's results and gradients."""
    for case in trial.cases(requires_grad=True):
        answer = trial.on_host(trial.op, case)
        if answer.error is not None:
            continue
        expected = _gradients(trial, case, answer.result, answer.result, on_device=False)
        if not expected:
            continue
        with trial.unwatched():
            actual = trial.on_device(trial.op, case)
        trial.compare(case, actual, answer)
        gradients = _gradients(trial, case, actual, answer.result, on_device=True)
        _compare_gradients(trial, case, gradients, expected)


def _gradients(trial: Trial, case: Case, outputs: Any, of_host: Any, *, on_device: bool) -> list[Tensor | None]:
    """The gradients of the arguments, nothing if there are none."""
    if trial.op.name in FACTORS | STATISTICS:
        outputs, of_host = (determined(trial.op, case.host, value) for value in (outputs, of_host))
    pairs = zip(tensors(outputs), tensors(of_host), strict=True)
    ends = [(ours, theirs) for ours, theirs in pairs if theirs.requires_grad]
    leaves = [leaf for leaf in tensors(arguments(case.device if on_device else case.host)) if leaf.requires_grad]
    if not ends or not leaves:
        return []
    seeds = [seed_of(theirs) for _, theirs in ends]
    if not on_device:
        return trial.gradients_on_host([ours for ours, _ in ends], leaves, seeds)
    return trial.gradients_on_device([ours for ours, _ in ends], leaves, [seed.to(trial.device) for seed in seeds])


def seed_of(output: Tensor) -> Tensor:
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
