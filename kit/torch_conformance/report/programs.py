"""A program for a failed test of an operator that shows the failure without the kit."""

from torch_conformance.report.findings import DeviceDescription
from torch_conformance.results import Result

_PROGRAM = """\
import {modules}
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_leaves, tree_map_only

torch.manual_seed(0), random.seed(0), numpy.random.seed(0)
op = next(op for op in op_db if op.full_name == {op!r})
for host in op.sample_inputs_func(op, "cpu", torch.{dtype}, requires_grad={grad}):
    leaf = lambda x: x.detach().to({device!r}).requires_grad_(x.requires_grad)
    sample = host.transform(lambda x: leaf(x) if isinstance(x, torch.Tensor) else x)
    print(op.full_name, host, flush=True)
    try:
        expected = op(host.input, *host.args, **host.kwargs)
    except Exception as error:
        print("The CPU refuses it:", error)
        continue
    actual = op(sample.input, *sample.args, **sample.kwargs)
    torch.testing.assert_close(tree_map_only(torch.Tensor, torch.Tensor.cpu, actual), expected, equal_nan=True)
"""

_BACKWARD = """\
    if not (isinstance(expected, torch.Tensor) and expected.requires_grad):
        continue
    gradients = []
    for out, of in (actual, sample), (expected, host):
        leaves = [x for x in tree_leaves((of.input, of.args, of.kwargs)) if getattr(x, "requires_grad", False)]
        found = torch.autograd.grad(out.abs().sum(), leaves, allow_unused=True)
        gradients.append([None if x is None else x.cpu() for x in found])
    torch.testing.assert_close(*gradients, equal_nan=True)
"""

_OF_DRAWS = "drew random numbers"
"""What a failure says that is not about values, which the program compares."""

_PARTS = {"forward": "", "backward": _BACKWARD}


def program_for(result: Result, device: DeviceDescription, imports: tuple[str, ...]) -> str:
    """A program that calls the operator with the test's samples on the CPU and on the device; empty if there is none.

    ``imports``: the modules that bring the device to PyTorch.
    """
    end = _PARTS.get(str(result.facts.get("part")))
    if end is None or _OF_DRAWS in result.message:
        return ""
    start = ""
    if device.is_library:
        start = f'import os\nos.environ["TORCH_BACKEND"] = {(device.path or device.name)!r}\n'
    modules = ", ".join(["random", "numpy", "torch", *imports])
    fields = {"op": result.facts["op"], "dtype": result.facts["dtype"], "device": device.name}
    return start + _PROGRAM.format(modules=modules, grad=bool(end), **fields) + end
