"""What tracing says of an operator's results, and what the results are.

torch.compile and torch.export work out the results of every operator on tensors without memory (fake tensors), and rely
on them: on dtypes, shapes, strides, and on which tensors share memory.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map_only

_NOT_WORKED_OUT = frozenset({torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output, torch.Tag.inplace_view})
"""Operators whose results depend on values, or that change what their arguments are."""


class Promises(TorchDispatchMode):
    """Compares what every operator that is called inside returns with what tracing says it will.

    Attributes:
        broken: by overload, in what the first results differed that did.
    """

    def __init__(self) -> None:
        super().__init__()
        self.broken: dict[str, str] = {}

    def __torch_dispatch__(
        self, func: Any, types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        arguments = args, kwargs or {}
        # Before the call, which may change the arguments.
        promised = _promised(func, *arguments)
        result = func(*args, **(kwargs or {}))
        if promised is not None:
            difference = _difference((arguments, result), promised)
            if difference is not None:
                self.broken.setdefault(str(func), difference)
        return result


def _promised(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Arguments and results as tracing sees them; None where it cannot follow, or need not."""
    if func.namespace != "aten" or not _NOT_WORKED_OUT.isdisjoint(func.tags):
        return None
    if not all(map(_is_plain, _tensors((args, kwargs)))):
        return None
    try:
        with FakeTensorMode(shape_env=ShapeEnv()) as mode:
            fake: Callable[[Tensor], Any] = lambda tensor: mode.from_tensor(tensor, static_shapes=True)  # noqa: E731
            fakes = tree_map_only(Tensor, fake, (args, kwargs))
            return fakes, func(*fakes[0], **fakes[1])
    except Exception:  # it says so as it likes
        return None


def _difference(actual: Any, promised: Any) -> str | None:
    """In what they differ, arguments and results each."""
    ours, theirs = _tensors(actual), _tensors(promised)
    if len(ours) != len(theirs):
        return f"{len(ours)} tensors, where tracing has {len(theirs)}"
    for index, (one, other) in enumerate(zip(ours, theirs, strict=True)):
        if not (_is_plain(one) and other.layout is torch.strided):
            continue
        for what, of in _VISIBLE.items():
            if of(one) != of(other):
                return f"{what} {of(one)}, where tracing has {of(other)}"
        if one.numel() > 0 and _first_sharing(ours, index) != _first_sharing(theirs, index):
            return "sharing memory with other tensors than tracing has it"
    return None


def _strides(tensor: Tensor) -> list[int]:
    """Those that mean something."""
    if tensor.numel() == 0:
        return []
    return [stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if size > 1]


_VISIBLE: dict[str, Callable[[Tensor], Any]] = {
    "dtype": lambda tensor: tensor.dtype,
    "shape": lambda tensor: list(tensor.shape),
    "strides": _strides,
    "conjugate bit": lambda tensor: tensor.is_conj(),
}


def _first_sharing(tensors: list[Tensor], index: int) -> int:
    """The first of the tensors with the storage of this one."""
    storages = [tensor.untyped_storage()._cdata if _is_plain(tensor) else None for tensor in tensors]
    return storages.index(storages[index])


def _tensors(value: Any) -> list[Tensor]:
    return [leaf for leaf in tree_flatten(value)[0] if isinstance(leaf, Tensor)]


def _is_plain(tensor: Tensor) -> bool:
    return tensor.layout is torch.strided and not (tensor.is_nested or tensor.is_quantized)
