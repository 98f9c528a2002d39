"""From a case to a smaller one that shows the same, and to a program to paste."""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from cases import Case
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map_only

SECONDS = 10.0
MOST_SHOWN = 64
"""Elements of a tensor; of more only the size is shown."""


def shrunk(case: Case, still: Callable[[Case], bool]) -> Case:
    """Take whatever is smaller and still shows it, until nothing is."""
    end = time.monotonic() + SECONDS
    found = True
    while found:
        found = False
        for candidate in _smaller(case):
            if time.monotonic() > end:
                return case
            if still(candidate):
                case, found = candidate, True
                break
    return case


def _smaller(case: Case) -> Iterator[Case]:
    if case.form != "function" and "out" not in case.kwargs:
        yield replace(case, form="function")
    for key in case.kwargs:
        yield replace(case, kwargs={k: v for k, v in case.kwargs.items() if k != key})
    if case.special_gradients:
        yield replace(case, special_gradients=False)
    found = {id(x): x for x in tree_leaves((case.args, case.kwargs)) if isinstance(x, Tensor)}
    for size in sorted({size for x in found.values() for size in x.shape if size > 1}, reverse=True):
        for start, length in ((0, 1), (0, size // 2), (size - size // 2, size // 2), (0, size - 1), (1, size - 1)):
            yield _mapped(case, lambda x, at=(size, start, length): _narrow(x, *at))
    for x in found.values():
        yield from (_mapped(case, lambda y, x=x, new=new: new if y is x else y) for new in _simpler(x))


def _mapped(case: Case, change: Callable[[Tensor], Tensor]) -> Case:
    done: dict[int, Tensor] = {}
    args, kwargs = tree_map_only(Tensor, lambda x: done.setdefault(id(x), change(x)), (case.args, case.kwargs))
    return replace(case, args=args, kwargs=kwargs)


def _narrow(x: Tensor, size: int, start: int, length: int) -> Tensor:
    for dim, this in enumerate(x.shape):
        x = x.narrow(dim, start, length) if this == size else x
    return _compact(x)


def _compact(x: Tensor) -> Tensor:
    """In memory of its own that is as long as the strides ask."""
    if x.is_conj() or x.is_neg() or x.numel() == 0:
        return x
    length = 1 + sum((size - 1) * stride for size, stride in zip(x.shape, x.stride(), strict=True))
    return x.as_strided((length,), (1,)).clone().as_strided(x.shape, x.stride(), 0)


def _simpler(x: Tensor) -> Iterator[Tensor]:
    dense = x.resolve_conj().resolve_neg().contiguous()
    if dense.is_contiguous() and (not x.is_contiguous() or x.storage_offset() or x.is_conj() or x.is_neg()):
        yield dense.clone()
    flat, dense = dense.flatten(), dense.clone()
    if not x.is_contiguous() or bool((flat == 1).all()):
        return
    yield torch.ones_like(dense)
    parts = [slice(0, len(flat) // 2), slice(len(flat) // 2, len(flat))] if len(flat) > 16 else range(len(flat))
    for part in parts:
        if not bool((flat[part] == 1).all()):
            changed = flat.clone()
            changed[part] = 1
            yield changed.view(x.shape)


def program(case: Case) -> str:
    """A line of Python that makes the call on the CPU, after ``from math import inf, nan``."""
    arguments = [*map(_text, case.args), *(f"{key}={_text(value)}" for key, value in case.kwargs.items())]
    name = case.op.name + ("_" if case.form == "in place" else "")
    gradients = "  # and its gradients" + (", given some that are not finite" if case.special_gradients else "")
    return f"torch.{name}({', '.join(arguments)}){gradients if case.form == 'backward' else ''}"


def _text(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_text, value))}]"
    if not isinstance(value, Tensor):
        return repr(value)
    x = value.detach().resolve_conj().resolve_neg()
    before, after = ("torch._neg_view(", ")") if value.is_neg() else ("", ".conj()" if value.is_conj() else "")
    strided = f".as_strided({list(x.shape)}, {list(x.stride())}, {x.storage_offset()})"
    memory = torch.empty(0, dtype=x.dtype).set_(x.untyped_storage())
    if x.is_contiguous() and x.numel():
        memory, strided = x, ""
    if memory.numel() <= MOST_SHOWN:
        return f"{before}torch.tensor({memory.tolist()}, dtype={x.dtype}){strided}{after}"
    is_constant = bool((memory == memory.flatten()[0]).all())
    what = repr(memory.flatten()[0].item()) if is_constant else "..."
    return f"{before}torch.full({list(memory.shape)}, {what}, dtype={x.dtype}){strided}{after}"
