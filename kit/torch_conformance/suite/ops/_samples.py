"""PyTorch's samples of an operator, and the same on the device."""

import itertools
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy
import torch
from torch import Tensor
from torch.testing._internal.common_utils import noncontiguous_like
from torch.testing._internal.opinfo.core import OpInfo, SampleInput
from torch.utils._pytree import tree_flatten, tree_map

from ._entries import full_name

MOST = {torch.float32: 40, torch.complex64: 16}
MOST_OF_OTHERS = 8
MOST_QUICKLY = 2

SLOW = {"grid_sampler_3d": 6}
"""Samples of operators that take the CPU seconds."""

HOST_ARGUMENTS = {"tensor_split": (0,)}
"""Arguments that are on the CPU whatever the device is, as PyTorch documents."""

READS_ALL_MEMORY = frozenset(
    {
        *("as_strided", "as_strided.partial_views", "as_strided_copy", "as_strided_scatter"),
        "torch.ops.aten._scaled_dot_product_flash_attention_for_cpu",
    }
)
"""Entries that read all memory of a tensor's storage, not only its elements: the last if a query's rows have gaps."""


def seed() -> None:
    """Start all generators that PyTorch's samples are drawn from."""
    torch.default_generator.manual_seed(0)
    random.seed(0)
    numpy.random.seed(0)


def most_samples(dtype: torch.dtype, *, quick: bool) -> int:
    """How many samples of an operator are tried with a dtype."""
    return MOST_QUICKLY if quick else MOST.get(dtype, MOST_OF_OTHERS)


def samples(op: OpInfo, dtype: torch.dtype, most: int, *, requires_grad: bool = False) -> Iterator[SampleInput]:
    """At most so many samples, on the CPU."""
    seed()
    # Not op.sample_inputs(), which looks through the call stack for the test's name.
    given = op.sample_inputs_func(op, "cpu", dtype, requires_grad)
    most = min(most, SLOW.get(full_name(op), most))
    chosen = itertools.islice(filter(_names_the_device, given), most)
    return map(_with_leaves, chosen) if requires_grad else chosen


def _with_leaves(sample: SampleInput) -> SampleInput:
    """The sample with tensors of its own to have gradients: some of PyTorch's are views of others."""

    def leaf(value: Any) -> Any:
        return value.detach().requires_grad_(value.requires_grad) if isinstance(value, Tensor) else value

    return sample.transform(leaf)


def tensors(value: Any) -> list[Tensor]:
    """The tensors in a result or in arguments."""
    return [leaf for leaf in tree_flatten(value)[0] if isinstance(leaf, Tensor)]


def arguments(sample: SampleInput) -> tuple[Any, ...]:
    """All arguments of a sample."""
    return sample.input, sample.args, sample.kwargs


def plain_arguments(sample: SampleInput) -> list[Any]:
    """The arguments that are not tensors."""
    return [leaf for leaf in tree_flatten(arguments(sample))[0] if not isinstance(leaf, Tensor)]


def _names_the_device(sample: SampleInput) -> bool:
    """Whether the operator can know which device is meant: a factory may be asked for a tensor of the CPU."""
    return any(_is_of_device(leaf) for leaf in tree_flatten(arguments(sample))[0])


def _is_of_device(value: Any) -> bool:
    return isinstance(value, Tensor) or value in (torch.device("cpu"), "cpu")


def moved(sample: SampleInput, op: OpInfo, device: str) -> SampleInput:
    """The sample on the device: tensors with their strides and with what they share, and arguments that are devices."""
    move = _Move(device, sample, whole=full_name(op) in READS_ALL_MEMORY)
    stay = HOST_ARGUMENTS.get(op.name, ())
    args = tuple(arg if index in stay else tree_map(move, arg) for index, arg in enumerate(sample.args))
    kept = {"output_process_fn_grad": sample.output_process_fn_grad}
    return SampleInput(tree_map(move, sample.input), args=args, kwargs=tree_map(move, sample.kwargs), **kept)


class _Move:
    """Moves the arguments of one sample."""

    def __init__(self, device: str, sample: SampleInput, *, whole: bool) -> None:
        self._device = device
        self._whole = whole
        self._done: dict[int, Tensor] = {}
        self._memory: dict[tuple[int, torch.dtype], Tensor] = {}
        distinct = {id(x): x for x in tensors(arguments(sample)) if _has_plain_memory(x)}
        self._uses = Counter(_address(x) for x in distinct.values())

    def __call__(self, value: Any) -> Any:
        if not isinstance(value, Tensor):
            return torch.device(self._device) if _is_of_device(value) else value
        if value.is_meta:
            return value
        if id(value) not in self._done:
            self._done[id(value)] = self._moved(value.detach()).requires_grad_(value.requires_grad)
        return self._done[id(value)]

    def _moved(self, x: Tensor) -> Tensor:
        if not _has_plain_memory(x):
            return x.to(self._device)
        is_alone = self._uses[_address(x)] == 1 and not self._whole
        if is_alone and torch.ops.aten.is_non_overlapping_and_dense(x):
            return x.to(self._device)
        key = _address(x), x.dtype
        if key not in self._memory:
            self._memory[key] = torch.empty(0, dtype=x.dtype).set_(x.untyped_storage()).to(self._device)
        return self._memory[key].as_strided(x.size(), x.stride(), x.storage_offset())


def _has_plain_memory(x: Tensor) -> bool:
    """Whether the elements of ``x`` lie in its storage as its strides say."""
    return x.layout is torch.strided and not (x.is_nested or x.is_meta or x.is_conj() or x.is_neg())


def _address(x: Tensor) -> int:
    return x.untyped_storage().data_ptr()


def with_gaps(value: Any) -> Any:
    """Arguments with the same values, in which strided tensors have gaps of NaN between their elements."""

    def spread(leaf: Any) -> Any:
        is_strided = isinstance(leaf, Tensor) and leaf.layout is torch.strided
        return noncontiguous_like(leaf) if is_strided else leaf

    return tree_map(spread, value)


LAID_OUT_AS_ON_CUDA = frozenset({"nn.functional.conv_transpose3d"})
"""Entries that ask PyTorch for a device's layout of results of channels_last images, and the CPU has another."""


def arranged(sample: SampleInput) -> Iterator[SampleInput]:
    """The sample with gaps in its tensors, and, if some are images or volumes, with these channels last."""
    yield sample.transform(with_gaps)
    if any(x.layout is torch.strided and x.dim() in _CHANNELS_LAST for x in tensors(arguments(sample))):
        yield sample.transform(_channels_last)


_CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


def _channels_last(value: Any) -> Any:
    def lay_out(leaf: Any) -> Any:
        is_image = isinstance(leaf, Tensor) and leaf.layout is torch.strided and leaf.dim() in _CHANNELS_LAST
        return leaf.contiguous(memory_format=_CHANNELS_LAST[leaf.dim()]) if is_image else leaf

    return tree_map(lay_out, value)


def summary(sample: SampleInput) -> str:
    """The arguments in short: "(float32[3, 4], 2, dim=0)"."""
    parts = [_short(sample.input), *map(_short, sample.args)]
    parts += [f"{key}={_short(value)}" for key, value in sample.kwargs.items()]
    return f"({', '.join(parts)})"


def _short(value: Any) -> str:
    if isinstance(value, Tensor):
        name = str(value.dtype).removeprefix("torch.")
        strides = (
            "" if value.layout is not torch.strided or value.is_contiguous() else f" strides {list(value.stride())}"
        )
        return f"{name}{list(value.shape)}{strides}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_short, value))}]"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
