"""Calls that end the CPU's process, hang it, or have it write outside of its memory: none of them is made."""

from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor
from torch.testing._internal.opinfo.core import OpInfo
from torch.utils._pytree import tree_leaves
from torch_conformance.suite.ops._samples import tensors

LARGEST_DEGREE = 10**6
"""Of a polynomial, or dimension, whose computation takes as many steps."""

LARGEST_PLACE = 10**6
"""In images, that reflection brings into them."""

Arguments = list[Any]


def _numbers(args: Arguments) -> list[float]:
    given = [x.double().abs().max().item() if isinstance(x, Tensor) and x.numel() else x for x in tree_leaves(args)]
    return [abs(x) for x in given if isinstance(x, (int, float))]


def _smallest_whole_number(args: Arguments) -> bool:
    whole = [x for x in tensors(args) if x.dtype in (torch.int32, torch.int64)]
    return any(bool((x == torch.iinfo(x.dtype).min).any()) for x in whole)


def _has_strided_batches(args: Arguments) -> bool:
    return any(
        x.stride(dim) != x.stride(dim + 1) * x.shape[dim + 1] for x in tensors(args)[1:] for dim in range(x.dim() - 3)
    )


def _is_no_class(args: Arguments) -> bool:
    return args[0].dim() == 0 or bool((args[1] >= args[0].shape[-1]).any())


def _is_large(x: Tensor) -> bool:
    return not bool((x.abs() < LARGEST_PLACE).all())


def _is_no_bag(args: Arguments) -> bool:
    offsets = [x for x in tensors(args[2:]) if not x.is_floating_point()]
    return True in [x for x in args if isinstance(x, bool)] and any(x.numel() < 2 for x in offsets)


FATAL: dict[str, Callable[[Arguments], bool]] = {
    # oneMKL 2024.2, of several dimensions
    "fft.*": lambda args: any(x.dim() > 1 and max(x.shape) > 64 for x in tensors(args)),
    "*stft": lambda args: any(x.dim() > 1 and max(x.shape) > 64 for x in tensors(args)),
    # oneMKL, which refuses them and leaves its workspace as it was
    "linalg.eig*": lambda args: any(not bool(x.isfinite().all()) for x in tensors(args)),
    # places that no mode brought into the image
    "grid_sampler_*": lambda args: not {args[2], args[3]} <= {0, 1, 2} or (args[3] == 2 and _is_large(args[1])),
    # a size of tensors that have none
    "_chunk_cat": lambda args: any(x.dim() == 0 for x in tensors(args)),
    # it is its own opposite
    "linalg.matrix_power": lambda args: bool(args[1] == -(2**63)),
    # divided by -1
    "lcm": _smallest_whole_number,
    "mvlgamma*": lambda args: any(x > LARGEST_DEGREE for x in _numbers(args[1:])),
    "special.*polynomial*": lambda args: any(x > LARGEST_DEGREE for x in _numbers(args[1:])),
    # read and written outside of what was given, without a look at lengths
    "*segment_reduce*": lambda args: any(x is True for x in args),
    "*native_batch_norm*": lambda args: not args[-3] and (len(args) < 8 or args[3] is None or args[4] is None),
    # batches of out are taken to lie one stride apart
    "tri[lu]": _has_strided_batches,
    "lu_unpack": lambda args: args[1].shape != (*args[0].shape[:-2], min(args[0].shape[-2:], default=0)),
    "nn.functional.ctc_loss": _is_no_class,
    "nn.functional.embedding_bag": _is_no_bag,
    "nn.functional.scaled_dot_product_attention": lambda args: args[1].shape[:-1] != args[2].shape[:-1],
}
"""Patterns of entries, and of which arguments, keywords behind them, it is so."""


def is_fatal(op: OpInfo, args: list[Any], kwargs: dict[str, Any]) -> bool:
    """Whether the CPU would not return from the call."""
    given = [*args, *kwargs.values()]
    try:
        return any(fnmatchcase(op.name, pattern) and fatal(given) for pattern, fatal in FATAL.items())
    except (AttributeError, IndexError, TypeError, RuntimeError):  # of another kind: refused
        return False
