"""Every operator that PyTorch says takes sparse inputs gives on the device what it gives on the CPU.

One test is one operator with one layout, in float32, with gradients: ``pytest test_sparse_ops.py -k "mul and csr"``.
"""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from test_ops import draws_random_numbers, full_name, moved, tensors
from torch import Tensor
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo, SampleInput

pytestmark = [
    pytest.mark.usefixtures("backend"),
    pytest.mark.filterwarnings("ignore"),  # the samples provoke them
]

SAMPLES = 20  # at most so many of an operator are tried

LAYOUTS: dict[torch.layout, Callable[[Tensor], Tensor]] = {
    torch.sparse_coo: Tensor.to_sparse,
    torch.sparse_csr: Tensor.to_sparse_csr,
    torch.sparse_csc: Tensor.to_sparse_csc,
    torch.sparse_bsr: lambda x: x.to_sparse_bsr((2, 2)),
    torch.sparse_bsc: lambda x: x.to_sparse_bsc((2, 2)),
}

CASES = [
    pytest.param(op, layout, id=f"{full_name(op)}-{str(layout).removeprefix('torch.sparse_')}")
    for layout in LAYOUTS
    for op in op_db
    if op.supports_sparse_layout(layout) and torch.float32 in op.supported_dtypes("cpu")
]


def samples(op: OpInfo, layout: torch.layout) -> Iterator[SampleInput]:
    """PyTorch's sparse samples; where it has none (elementwise operators), strided ones made sparse."""
    torch.default_generator.manual_seed(0)
    try:
        given = list(op.sample_inputs_sparse(layout, "cpu", torch.float32, requires_grad=op.supports_autograd))
    except NotImplementedError:
        given = []
    yield from given
    if given:
        return
    for sample in op.sample_inputs_func(op, "cpu", torch.float32, False):
        x = sample.input
        if isinstance(x, Tensor) and x.dim() >= 2 and x.numel() > 0 and x.size(-1) % 2 == x.size(-2) % 2 == 0:
            sample.input = LAYOUTS[layout](x * (x > 0)).requires_grad_(op.supports_autograd)
            yield sample


def evaluate(op: OpInfo, sample: SampleInput) -> tuple[Any, list[Tensor | None]]:
    """The result and, where there are such, the gradients of the inputs."""
    result = op(sample.input, *sample.args, **sample.kwargs)
    inputs = [leaf for leaf in tensors((sample.input, sample.args, sample.kwargs)) if leaf.requires_grad]
    outputs = [leaf for leaf in tensors(result) if leaf.requires_grad]
    if not inputs or not outputs:
        return result, []
    seeds = [torch.ones_like(output) for output in outputs]
    return result, list(torch.autograd.grad(outputs, inputs, seeds, allow_unused=True))


def check(actual: Any, expected: Any, name: str) -> None:
    for one, other in zip(tensors(actual), tensors(expected), strict=True):
        assert one.device.type == name
        assert (one.dtype, one.layout, one.shape) == (other.dtype, other.layout, other.shape)
        torch.testing.assert_close(one.detach().cpu(), other.detach(), equal_nan=True, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("op", "layout"), CASES)
def test_operator(name: str, op: OpInfo, layout: torch.layout) -> None:
    tried = 0
    for sample in itertools.islice(samples(op, layout), SAMPLES):
        with torch.no_grad():
            try:
                expected = op(sample.input, *sample.args, **sample.kwargs)
            except (RuntimeError, NotImplementedError):
                continue  # what the CPU lacks
            tried += 1
            on_device = moved(sample, op, name)
            actual = op(on_device.input, *on_device.args, **on_device.kwargs)
            if draws_random_numbers(op, sample):
                assert (actual.device.type, actual.layout, actual.shape) == (name, expected.layout, expected.shape)
                continue
            check(actual, expected, name)
        try:
            _, gradients = evaluate(op, sample)
        except (RuntimeError, NotImplementedError):
            continue
        check(evaluate(op, moved(sample, op, name))[1], gradients, name)
    if tried == 0:
        pytest.skip("the CPU has no kernel for any sample")
