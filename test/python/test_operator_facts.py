"""What codegen/operators.yaml says of meta kernels is so, and nothing is missing: PyTorch's own samples show it."""

import contextlib
import sys
from collections import defaultdict
from pathlib import Path

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_any, tree_leaves, tree_map_only

sys.path.insert(0, str(Path(__file__).parents[2]))

from codegen import operators

SAMPLES = 4  # of each dtype
DTYPES = {torch.float32, torch.complex64, torch.bfloat16}
NOT_SEEN = {  # what no sample shows of listed operators
    "_linalg_solve_ex": "seen with other versions of torch",
    "linalg_lu_solve": "seen with other versions of torch",
    "native_group_norm": "statistics are float32 where the input is bfloat16 and the weights are not",
    "nonzero_static": "results are stored by rows",
}
NOT_FORESEEN = {torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output, torch.Tag.nondeterministic_seeded}


def as_meta(tensor):
    meta = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")
    meta = torch._conj(meta) if tensor.is_conj() else meta
    return torch._neg_view(meta) if tensor.is_neg() else meta


def described(tensor):
    # No element is reached by the stride of a dimension of one, and an empty tensor has none.
    reached = [
        stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if size > 1 and tensor.numel()
    ]
    return (tensor.shape, reached, tensor.dtype, tensor.is_conj(), tensor.is_neg())


def without_strides(description):
    return description[:1] + description[2:]


def laid_out_otherwise(tensor):
    """The same values by channels, or, of matrices, by columns."""
    if tensor.layout is not torch.strided or tensor.dim() < 2:
        return tensor
    if tensor.dim() in (4, 5):
        return tensor.contiguous(memory_format=torch.channels_last if tensor.dim() == 4 else torch.channels_last_3d)
    return tensor.mT.contiguous().mT


def wider_after_the_first():
    """Makes all floating tensors but the first double."""
    met = []

    def change(tensor):
        met.append(tensor)
        return tensor.double() if tensor.is_floating_point() and len(met) > 1 else tensor

    return change


def is_asked(func, args):
    """Whether the core asks the meta kernel about such a call: new tensors from plain ones."""
    schema = func._schema
    new_tensors = all(str(result.type) in ("Tensor", "List[Tensor]") for result in schema.returns)
    return (
        func.namespace == "aten"
        and bool(schema.returns)
        and new_tensors
        and all(result.alias_info is None for result in schema.returns)
        and not NOT_FORESEEN & set(func.tags)
        and not tree_any(lambda x: isinstance(x, torch.device | torch.Generator), args)
        and tree_any(lambda x: isinstance(x, torch.Tensor), args)
        and not tree_any(lambda x: isinstance(x, torch.Tensor) and x.layout is not torch.strided, args)
    )


class Compare(TorchDispatchMode):
    """Counts the calls of each operator below autograd, and those whose results are other than its meta kernel says."""

    def __init__(self):
        super().__init__()
        self.calls = defaultdict(int)
        self.differ = defaultdict(list)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if is_asked(func, (args, kwargs)):
            meta_args, meta_kwargs = tree_map_only(torch.Tensor, as_meta, (args, kwargs))
            try:
                foreseen = func(*meta_args, **meta_kwargs)
            except Exception:
                return result  # nothing is foreseen: the caller waits
            name = func._schema.name.removeprefix("aten::")
            self.calls[name] += 1
            pairs = [
                (described(real), described(meta))
                for real, meta in zip(tree_leaves(result), tree_leaves(foreseen), strict=True)
                if isinstance(real, torch.Tensor) and isinstance(meta, torch.Tensor)
            ]
            self.differ[name] += [(real, meta) for real, meta in pairs if real != meta]
        return result


@pytest.fixture(scope="module")
def compared():
    compare = Compare()
    for info in op_db:
        for dtype in DTYPES & info.supported_dtypes("cpu"):
            # Not sample_inputs(), which looks through the call stack for the test's name.
            samples = info.sample_inputs_func(info, "cpu", dtype, requires_grad=False)
            for _, sample in zip(range(SAMPLES), samples, strict=False):
                for change in (lambda tensor: tensor, laid_out_otherwise, wider_after_the_first()):
                    call = (sample.input, sample.args, sample.kwargs)
                    given, args, kwargs = tree_map_only(torch.Tensor, change, call)
                    with compare, torch.no_grad(), contextlib.suppress(Exception):  # a library that is not here
                        info.op(given, *args, **kwargs)
    return compare


def test_meta_kernels_that_lie_are_listed(compared):
    # Of other strides alone the caller learns nothing wrong: results are copied to where they were foreseen.
    known = operators.read()
    unlisted = {
        name: (real, meta)
        for name, pairs in compared.differ.items()
        for real, meta in pairs
        if without_strides(real) != without_strides(meta) and name not in known.meta_differs | known.tried
    }
    assert not unlisted


def test_listed_operators_differ_still(compared):
    known = operators.read()
    called = {name for name in known.meta_differs | known.tried if compared.calls[name]}
    assert len(called) > 10
    assert {name for name in called if not compared.differ[name]} == called & set(NOT_SEEN)
