"""What is changed about the arguments of a call: sizes, layouts, values, dtypes, and what they share."""

from collections.abc import Callable
from random import Random
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.testing._internal.common_utils import noncontiguous_like
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_map_only, tree_unflatten

Values: TypeAlias = tuple[list[Any], dict[str, Any]]

EDGES = (0, 1, 1, 2, 3, 4, 7, 8, 16, 31, 32, 33, 64, 65, 127, 255, 256, 257, 1023, 1024, 1025)
LONG = (1 << 16) + 3
NUMBERS = (0, 1, -1, 2, 3, -2, 0.5, -0.0, 1e-45, 65504.0, 65520.0, 3e38, float("inf"), -float("inf"), float("nan"))
WHOLE = (0, 1, -1, 2, 3, -2, 7, 127, 128, 255, 256)
LIMITS = (2**31 - 1, -(2**31), 2**31, 2**63 - 1, -(2**63), 2**53 + 1)
DTYPES = (
    *(torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.int32, torch.int16),
    *(torch.int8, torch.uint8, torch.bool, torch.complex64),
)
MOST_ELEMENTS = 1 << 17


def special(dtype: torch.dtype) -> list[Any]:
    """The values where kernels go wrong."""
    if dtype is torch.bool:
        return [False, True]
    if not (dtype.is_floating_point or dtype.is_complex):
        limits = torch.iinfo(dtype)
        return [limits.min, limits.max, limits.max - 1, 0, 1, 2, *([-1] if limits.min else [])]
    limits = torch.finfo(dtype)
    sizes = (limits.max, limits.tiny, limits.tiny / 4, limits.eps, 0.0, 0.5, 1.0, 2.0, 1.5, 88.5, 1e4)
    return [float("nan"), float("inf"), -float("inf"), *sizes, *(-x for x in sizes)]


def with_specials(random: Random, x: Tensor) -> Tensor:
    """The tensor with special values in a few places, or in all; its strides stay."""
    if x.numel() == 0:
        return x
    values = special(x.dtype)
    if random.random() < 0.3:  # of one or two kinds: sums of all kinds are NaN
        values = random.sample(values, min(2, len(values)))
    number = x.numel() if random.random() < 0.1 and x.numel() <= 4096 else random.choice((1, 1, 2, 5))
    places = torch.tensor([random.randrange(x.numel()) for _ in range(number)])
    value = (
        (lambda: complex(random.choice(values), random.choice(values)))
        if x.is_complex()
        else lambda: random.choice(values)
    )
    chosen = torch.tensor([value() for _ in range(number)], dtype=x.dtype)
    changed = x.reshape(-1).index_put((places,), chosen).view(x.shape)
    return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype).copy_(changed) if _is_dense(x) else changed


def _is_dense(x: Tensor) -> bool:
    return bool(torch.ops.aten.is_non_overlapping_and_dense(x))


def laid_out(random: Random, x: Tensor) -> Tensor:
    """The same values, if they allow it, with other strides, offsets, overlaps, or the bits of lazy negation."""
    way = random.randrange(9)
    if x.dim() == 0 or x.numel() == 0 or way == 0:
        base = torch.zeros(x.numel() + 7, dtype=x.dtype)
        return base[3 : 3 + x.numel()].view(x.shape).copy_(x)
    if way == 1:
        return noncontiguous_like(x)
    if way == 2 and x.dim() in (4, 5):
        return x.contiguous(memory_format=torch.channels_last if x.dim() == 4 else torch.channels_last_3d)
    if way == 3:
        dim = random.randrange(x.dim())
        return x.narrow(dim, 0, 1).expand(x.shape)
    if way == 4 and x.dim() > 1:  # rows overlap
        strides = torch.empty(x.shape).stride()
        return x.contiguous().as_strided(x.shape, (strides[1], *strides[1:]))
    if way == 5 and x.is_complex():
        return x.resolve_conj().conj()
    if way == 6 and x.dtype.is_floating_point:
        return torch._neg_view(x)
    if way == 7:
        padded = torch.ones([2 * size + 1 for size in x.shape], dtype=x.dtype)
        return padded[tuple(slice(1, None, 2) for _ in x.shape)].copy_(x) if padded.numel() <= MOST_ELEMENTS else x
    one, other = random.randrange(x.dim()), random.randrange(x.dim())
    return x.transpose(one, other).contiguous().transpose(one, other)


def _one_tensor(change: Callable[[Random, Tensor], Tensor]) -> Callable[[Random, Values], Values]:
    """A change of one tensor, among those of the call, or of all that are one object."""

    def changed(random: Random, values: Values) -> Values:
        floats = [x for x in tree_leaves(values) if isinstance(x, Tensor) and x.dtype.is_floating_point]
        # Whole numbers beside floats are mostly indices, which nearly all values of chance are out of range for.
        found = [x for x in tree_leaves(values) if isinstance(x, Tensor)]
        among = floats if floats and random.random() < 0.9 else found
        if not among:
            return values
        chosen = random.choice(among)
        new = change(random, chosen)
        return tree_map_only(Tensor, lambda x: new if x is chosen else x, values)

    return changed


def other_layout(random: Random, values: Values) -> Values:
    """Of one tensor, or of all."""
    if random.random() < 0.2:
        return tree_map_only(Tensor, lambda x: laid_out(random, x), values)
    return _one_tensor(laid_out)(random, values)


def other_size(random: Random, values: Values) -> Values:
    """All dimensions of one size, and mostly the whole numbers that say that size, get another one."""
    sizes = sorted({size for x in tree_leaves(values) if isinstance(x, Tensor) for size in x.shape})
    if not sizes:
        return values
    old, new = random.choice(sizes), LONG if random.random() < 0.01 else random.choice(EDGES)
    if not old:
        return values

    def resized(x: Tensor) -> Tensor:
        for dim, size in enumerate(x.shape):
            if size == old and x.numel() // old * new <= MOST_ELEMENTS:
                x = x.index_select(dim, torch.arange(new) % old)
        return x

    follow = random.random() < 0.7 and old > 1
    same = lambda x: new if follow and type(x) is int and x == old else x  # noqa: E731
    return tree_map(lambda x: resized(x) if isinstance(x, Tensor) else same(x), values)


def without_dimensions(random: Random, values: Values) -> Values:
    """One tensor with a dimension less, or none."""
    take = lambda _, x: x if x.dim() == 0 or x.numel() == 0 else x[0] if random.random() < 0.5 else x.flatten()[0]  # noqa: E731
    return _one_tensor(take)(random, values)


def other_dtype(random: Random, values: Values) -> Values:
    """Of one tensor."""
    return _one_tensor(lambda _, x: x.to(random.choice(DTYPES)))(random, values)


def shared(random: Random, values: Values) -> Values:
    """One tensor in place of another, or the two as overlapping views."""
    leaves, spec = tree_flatten(values)
    places = [i for i, x in enumerate(leaves) if isinstance(x, Tensor) and x.numel() > 0]
    if len(places) < 2:
        return values
    one, other = random.sample(places, 2)
    x = leaves[one]
    if random.random() < 0.5 or x.dim() == 0:
        leaves[other] = x
    else:
        base = torch.cat([x[:1], x])
        leaves[one], leaves[other] = base[1:], base[:-1]
    result: Values = tree_unflatten(leaves, spec)
    return result


def other_number(random: Random, values: Values) -> Values:
    """One of the numbers among the arguments, or a tensor after the first, becomes a special one."""
    leaves, spec = tree_flatten(values)
    numbers = [i for i, x in enumerate(leaves) if type(x) in (int, float, bool, complex)]
    tensors = [i for i, x in enumerate(leaves[1:], 1) if isinstance(x, Tensor)]
    if tensors and (not numbers or random.random() < 0.3):
        leaves[random.choice(tensors)] = random.choice((*NUMBERS, *WHOLE, True))
    elif numbers:
        place = random.choice(numbers)
        old = leaves[place]
        if type(old) is bool:
            leaves[place] = not old
        elif type(old) is int:
            leaves[place] = random.choice(LIMITS if random.random() < 0.15 else (*WHOLE, old + 1, old - 1, -old))
        else:
            leaves[place] = random.choice(NUMBERS)
    result: Values = tree_unflatten(leaves, spec)
    return result


special_values = _one_tensor(with_specials)

CHANGES: tuple[Callable[[Random, Values], Values], ...] = (
    *(other_size, other_size, without_dimensions, other_dtype, special_values, special_values, special_values),
    *(other_number, other_number, other_layout, other_layout, shared),
)
"""In the order in which they keep what earlier ones did."""


def changed(random: Random, values: Values) -> Values:
    """The arguments after some of the changes."""
    number = random.choice((0, 1, 1, 2, 2, 3))
    for change in sorted(random.choices(CHANGES, k=number), key=CHANGES.index):
        values = change(random, values)
    return values
