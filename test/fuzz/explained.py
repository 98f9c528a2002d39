"""Differences that PyTorch leaves to devices: the rows of ``explained.yaml``, each with its reason."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import torch
import yaml
from cases import Case
from differences import Difference
from torch import Tensor
from torch.testing._internal.opinfo.core import BinaryUfuncInfo, UnaryUfuncInfo
from torch.utils._pytree import tree_leaves
from torch_conformance.suite.ops._samples import tensors

FILE = Path(__file__).with_suffix(".yaml")


@dataclass(frozen=True)
class Row:
    """Differences and why they are none.

    Attributes:
        operators: patterns of entries.
        reason: why.
        kinds, forms: of differences and calls; nothing means all.
        given: what has to be so of the arguments, as in GIVEN; nothing means whatever they are.
        text: a regular expression for what differs.
    """

    operators: tuple[str, ...]
    reason: str
    kinds: tuple[str, ...] = ()
    forms: tuple[str, ...] = ()
    given: str = ""
    text: str = ""

    def matches(self, case: Case, found: Difference) -> bool:
        """Whether the row is about the difference."""
        return (
            any(fnmatchcase(case.op.full_name, each) for each in self.operators)
            and (not self.kinds or found.kind in self.kinds)
            and (not self.forms or case.form in self.forms)
            and (not self.given or GIVEN[self.given](case))
            and bool(re.search(self.text, found.text))
        )


class Explanations:
    """The list."""

    def __init__(self) -> None:
        given: list[dict[str, Any]] = yaml.safe_load(FILE.read_text()) or []
        self.rows = [Row(**{key: tuple(v) if isinstance(v, list) else v for key, v in row.items()}) for row in given]

    def of(self, case: Case, found: Difference) -> int | None:
        """Which row explains the difference."""
        return next((i for i, row in enumerate(self.rows) if row.matches(case, found)), None)


def _not_finite(case: Case) -> bool:
    return any(not bool(x.isfinite().all()) for x in tensors((case.args, case.kwargs)))


def _large(case: Case) -> bool:
    found = [x for x in tensors((case.args, case.kwargs)) if x.is_floating_point() or x.is_complex()]
    return any(bool((x.abs().double() > torch.finfo(x.dtype).max ** 0.5).any()) for x in found)


def _large_complex(case: Case) -> bool:
    return case.dtype.is_complex and _large(case)


def _out_of_range(case: Case) -> bool:
    found = [x for x in tensors((case.args, case.kwargs)) if x.is_floating_point() or x.is_complex()]
    small = any(bool(((x != 0) & (x.abs().double() < torch.finfo(x.dtype).tiny ** 0.5)).any()) for x in found)
    return small or case.special_gradients or _not_finite(case) or _large(case)


def _is_singular(case: Case) -> bool:
    x = case.args[0]
    diagonal = torch.linalg.cholesky_ex(x)[0].diagonal(0, -2, -1).abs()
    limit = (x.shape[-1] * torch.finfo(x.dtype).eps) ** 0.5
    return bool((diagonal.amin(-1) <= limit * diagonal.amax(-1)).any())


def _share(some: Any, others: Any) -> bool:
    memory, other = ({x.untyped_storage()._cdata for x in tensors(at)} for at in (some, others))
    return bool(memory & other)


def _out_is_argument(case: Case) -> bool:
    return _share(case.args, case.kwargs.get("out")) and not isinstance(case.op, (UnaryUfuncInfo, BinaryUfuncInfo))


def _falls(x: Tensor) -> bool:
    return x.dim() == 1 and not x.dtype.is_floating_point and bool((x.diff() < 0).any())


def _overlaps(x: Tensor) -> bool:
    numbers = torch.arange(x.untyped_storage().nbytes() // x.element_size())
    return bool(numbers.as_strided(x.shape, x.stride(), x.storage_offset()).unique().numel() < x.numel())


def _share_memory(case: Case) -> bool:
    given = tensors((case.args, case.kwargs))
    return len({x.untyped_storage()._cdata for x in given}) < len(given)


def _few_parameters(case: Case) -> bool:
    x, *parameters = [each for each in case.args if isinstance(each, Tensor)]
    return x.dim() > 1 and any(each.numel() < x.shape[1] for each in parameters)


def _wide_out(case: Case) -> bool:
    wide = (torch.float64, torch.complex128)
    return all(x.dtype in wide for x in tensors(case.kwargs["out"])) and case.args[0].dtype not in wide


GIVEN: dict[str, Callable[[Case], bool]] = {
    "not finite": _not_finite,
    "not finite, or gradients are not": lambda case: case.special_gradients or _not_finite(case),
    "complex numbers, or their gradients, that are not finite": lambda case: (
        case.dtype.is_complex and (case.special_gradients or _not_finite(case))
    ),
    "larger than a square may be": _large,
    "out is an argument": _out_is_argument,
    "half numbers": lambda case: case.args[0].dtype in (torch.float16, torch.bfloat16),
    "a negative view": lambda case: case.args[0].is_neg(),
    "a matrix without full rank": lambda case: bool(
        (torch.linalg.matrix_rank(case.args[0]) < min(case.args[0].shape[-2:])).any()
    ),
    "images of one column": lambda case: any(
        tuple(x)[-1:] == (1,)
        for x in (case.args[0].shape, *case.args[1:], *case.kwargs.values())
        if isinstance(x, (list, tuple))
    ),
    "out is a negative view": lambda case: any(x.is_neg() for x in tensors(case.kwargs.get("out"))),
    "no elements": lambda case: not case.args[0].numel(),
    "no dimensions": lambda case: not case.args[0].dim(),
    "out of range": _out_of_range,
    "a complex number that is out of range": lambda case: case.dtype.is_complex and _out_of_range(case),
    "half precision": lambda case: case.dtype is torch.float16,
    "a factor is not finite": lambda case: any(
        isinstance(x, (float, complex)) and not abs(x) < float("inf") for x in case.kwargs.values()
    ),
    "not sorted": lambda case: False in (case.kwargs.get("sorted"), *case.args[4:]),
    "singular": _is_singular,
    "scale_grad_by_freq": lambda case: bool(case.kwargs.get("scale_grad_by_freq")),
    "offsets that fall": lambda case: any(map(_falls, tensors((case.args[1:], case.kwargs)))),
    "arguments that share memory": _share_memory,
    "fewer parameters than channels": _few_parameters,
    "out is wider": _wide_out,
    "not positive definite": lambda case: bool(case.op.op(*case.args, **case.kwargs)[1].any()),
    "a complex number is larger than a square may be": _large_complex,
    "self is another argument": lambda case: _share(case.args[0], case.args[1:]),
    "a dimension is expanded": lambda case: any(
        stride == 0 for x in tensors(case.args) for stride, size in zip(x.stride(), x.shape, strict=True) if size > 1
    ),
    "vectors of one element": lambda case: case.args[0].shape[-1:] == (1,),
    "a whole number of more than 32 bits": lambda case: any(
        type(x) is int and not -(2**31) <= x < 2**31 for x in tree_leaves((case.args, case.kwargs))
    ),
    "a diagonal that is not real": lambda case: (
        case.args[0].is_complex() and bool(case.args[0].diagonal(0, -2, -1).imag.any())
    ),
    "weights written twice": lambda case: case.kwargs.get("max_norm") is not None and _overlaps(case.args[0]),
    "written twice": lambda case: any(map(_overlaps, tensors(case.kwargs.get("out", case.args[:1])))),
}
"""What may be said of arguments."""
