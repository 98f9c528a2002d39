"""Results of operators are what torch.compile and torch.export expect."""

from typing import Any

import torch
from torch import Tensor
from torch.testing._internal.opinfo.core import OpInfo, SampleInput

from torch_backend.testing import needs
from torch_backend.testing.suite.ops._entries import each_operator, instantiate
from torch_backend.testing.suite.ops._operator_test import OperatorTest
from torch_backend.testing.suite.ops._promises import Promises
from torch_backend.testing.suite.ops._samples import arguments, tensors

MOST = 3


def _by_channels(value: Any) -> Any:
    """An image, or a volume, with its elements ordered by channels; whatever else it is."""
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    if not isinstance(value, Tensor) or value.dim() not in formats or value.layout is not torch.strided:
        return value
    return value.detach().contiguous(memory_format=formats[value.dim()]).requires_grad_(value.requires_grad)


def _run(op: OpInfo, sample: SampleInput) -> dict[str, str]:
    """The operators that return otherwise than tracing has it, in the call and in its backward pass."""
    with Promises() as promises:
        result = op(sample.input, *sample.args, **sample.kwargs)
        outputs = [x for x in tensors(result) if x.requires_grad]
        leaves = [x for x in tensors(arguments(sample)) if x.requires_grad]
        if outputs and leaves:
            seeds = [torch.ones_like(x) for x in outputs]
            torch.autograd.grad(outputs, leaves, seeds, allow_unused=True)
    return promises.broken


class TestPromises(OperatorTest):
    """With and without gradients; images also by channels."""

    pytestmark = needs.feature("compile")

    @each_operator("promises", dtypes=(torch.float32,))
    def test_promises(self, device: str, dtype: torch.dtype, op: OpInfo) -> None:
        """Dtypes, shapes, strides and sharing of results are those of tracing; where the CPU's are not, need not be."""
        with self.trial(op, dtype, "promises", device, most=MOST).recorded() as trial:
            for sample in trial.samples(requires_grad=op.supports_autograd):
                for variant in (sample, sample.transform(_by_channels)):
                    case = trial.case(variant)
                    answer = trial.on_host(lambda *_, case=case, **__: _run(op, case.host), case)
                    if answer.error is not None:
                        continue
                    broken = trial.on_device(lambda *_, case=case, **__: _run(op, case.device), case)
                    trial.count()
                    for overload, difference in broken.items():
                        if overload in answer.result:
                            trial.leave_out(f"tracing is wrong about {overload} on the CPU too")
                        else:
                            self.fail(f"{case.what}: {overload} returned {difference}")


instantiate(TestPromises, globals())
