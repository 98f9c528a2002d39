"""PyTorch's database of operators, OpInfo, through torch.compile with its default backend.

A script as well: `TORCH_BACKEND=... python compiled_operators.py DTYPE... [--only PART OF A NAME]` prints what differs,
and how many do not.
"""

import argparse
import os
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree

SAMPLES = 2
RANDOM = ("dropout", "bernoulli", "multinomial", "normal", "rand", "uniform", "cauchy", "exponential", "geometric")
LIMITS = {torch.float32: (1e-3, 1e-4), torch.float16: (2e-2, 5e-3), torch.int64: (0, 0)}
"""rtol and atol: the graph adds in another order, and rounds to half types less often."""


def entries(dtype: torch.dtype) -> list[Any]:
    """Those whose results are determined, and that take ``dtype``."""
    return [op for op in op_db if dtype in op.dtypes and not any(word in op.name for word in RANDOM)]


def _moved(value: Any, device: str) -> Any:
    def one(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            return leaf.detach().to(device).requires_grad_(leaf.requires_grad)
        return device if isinstance(leaf, (str, torch.device)) and str(leaf) == "cpu" else leaf

    return pytree.tree_map(one, value)


def _results(op: Any, sample: Any, device: str, compiled: bool) -> Any:
    arguments = _moved([sample.input, *sample.args], device)
    options = _moved(sample.kwargs, device)

    def call(arguments: Any, options: Any) -> Any:
        return op.op(*arguments, **options)

    results = (torch.compile(call) if compiled else call)(arguments, options)
    sums = [leaf.sum() for leaf in pytree.tree_leaves(results) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
    if sums:
        sum(sums).backward()  # type: ignore[union-attr]
    leaves = [leaf for leaf in pytree.tree_leaves(arguments) if isinstance(leaf, torch.Tensor)]
    tensors = [leaf for leaf in pytree.tree_leaves(results) if isinstance(leaf, torch.Tensor)]
    return [
        leaf.detach().to_dense().cpu() for leaf in tensors + [leaf.grad for leaf in leaves if leaf.grad is not None]
    ]


def _samples(op: Any, dtype: torch.dtype) -> Iterator[Any]:
    torch.manual_seed(0)
    with_gradient = op.supports_autograd and dtype.is_floating_point and dtype in op.backward_dtypes
    for number, sample in enumerate(op.sample_inputs("cpu", dtype, requires_grad=with_gradient)):
        if number == SAMPLES:
            return
        yield sample


def difference(op: Any, dtype: torch.dtype, device: str) -> str | None:
    """What is not on ``device`` as eager mode has it on the CPU; "" if code compiled for the CPU differs too."""
    rtol, atol = LIMITS[dtype]
    for sample in _samples(op, dtype):
        torch._dynamo.reset()
        try:
            expected = _results(op, sample, "cpu", compiled=False)
        except Exception:
            return ""
        try:
            got = _results(op, sample, device, compiled=True)
            torch.testing.assert_close(got, expected, rtol=rtol, atol=atol, equal_nan=True, check_stride=False)
        except Exception as error:
            try:
                torch._dynamo.reset()
                other = _results(op, sample, "cpu", compiled=True)
                torch.testing.assert_close(other, expected, rtol=rtol, atol=atol, equal_nan=True, check_stride=False)
            except Exception:
                return ""
            return f"{type(error).__name__}: {str(error).strip()}"
    return None


def main() -> None:
    """Print what differs."""
    parser = argparse.ArgumentParser()
    parser.add_argument("dtypes", nargs="+")
    parser.add_argument("--only", default="")
    parser.add_argument("--part", default="0/1", help="N/M: every M-th, beginning with number N")
    options = parser.parse_args()
    device = os.environ["TORCH_BACKEND"]
    part, parts = map(int, options.part.split("/"))
    torch.set_num_threads(1)
    for name in options.dtypes:
        dtype = getattr(torch, name)
        same = skipped = 0
        different: list[str] = []
        for op in [op for op in entries(dtype) if options.only in op.formatted_name][part::parts]:
            found = difference(op, dtype, device)
            same += found is None
            skipped += found == ""
            if found:
                different.append(op.formatted_name)
                print(f"{name} {op.formatted_name}: {' '.join(found.split())[:400]}", flush=True)
        print(f"{name}: {same} same, {len(different)} different, {skipped} not compiled on the CPU either", flush=True)
        print(f"{name} different: {different}", flush=True)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
