"""Copies in every direction, checked byte by byte against the copy that the CPU makes."""

from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from torch_conformance import needs, routes
from torch_conformance.suite.tensor._support import current_index
from torch_conformance.synchronization import synchronize


class Direction(NamedTuple):
    """The indices of the devices that hold destination and source; None is the host."""

    dst: int | None
    src: int | None


every_direction = pytest.mark.parametrize(
    "direction",
    [
        pytest.param(Direction(0, None), id="H2D"),
        pytest.param(Direction(None, 0), id="D2H"),
        pytest.param(Direction(0, 0), id="D2D"),
        pytest.param(Direction(1, 0), id="peer", marks=needs.devices(2)),
        pytest.param(Direction(0, 1), id="peer back", marks=needs.devices(2)),
        pytest.param(Direction(1, None), id="H2D second", marks=needs.devices(2)),
        pytest.param(Direction(None, 1), id="D2H second", marks=needs.devices(2)),
    ],
)


def place(x: Tensor, index: int | None, device: str) -> Tensor:
    """A tensor like ``x``, gaps and strides included, on the device with this index (or the host)."""
    where = "cpu" if index is None else f"{device}:{index}"
    whole = x.untyped_storage()
    storage = torch.UntypedStorage(whole.nbytes(), device=where)
    storage.copy_(whole)
    moved = torch.empty(0, dtype=x.dtype, device=where)
    moved.set_(storage, x.storage_offset(), x.shape, x.stride())
    if x.is_conj():
        moved = moved.conj()
    return torch._neg_view(moved) if x.is_neg() else moved


def memory_of(x: Tensor, dtype: torch.dtype) -> Tensor:
    """The whole memory of the tensor, gaps included, on the CPU."""
    return torch.empty(0, dtype=dtype).set_(x.untyped_storage().cpu())


def describe(x: Tensor) -> str:
    """What a copy depends on, in words."""
    bits = "".join(f", {bit}" for bit, there in (("conj", x.is_conj()), ("neg", x.is_neg())) if there)
    return f"{x.dtype} {list(x.shape)} with strides {list(x.stride())} at offset {x.storage_offset()}{bits}"


def assert_memory(actual: Tensor, expected: Tensor, dtype: torch.dtype, what: str) -> None:
    """The tensors' memories hold the same numbers of this dtype."""
    got, wanted = memory_of(actual, dtype), memory_of(expected, dtype)
    same = (got == wanted) | ((got != got) & (wanted != wanted))  # NaN is NaN
    if same.all():
        return
    places = same.logical_not().nonzero().flatten()
    first, last = int(places[0]), int(places[-1])
    raise AssertionError(
        f"{what}: {places.numel()} of {got.numel()} elements of {dtype} in the storage are wrong, "
        f"from {first} to {last}; the first is {got[first].item()}, not {wanted[first].item()}"
    )


def check_copy(
    dst: Tensor, src: Tensor, direction: Direction, device: str, non_blocking: bool = False, exact: bool = True
) -> None:
    """Copying the likes of ``dst`` and ``src``, which are on the host, changes exactly the memory it changes there.

    Unless ``exact``, zeros are the same whatever their sign, which in a neg or conj view both stand for zero, and NaN
    whatever its bits. Not offered on a device whose tensors have no storages, in which the gaps would lie.
    """
    if not routes.has("storage"):
        needs.not_offered(str(routes.active().lacks("feature", "storage")))
    to, from_ = place(dst, direction.dst, device), place(src, direction.src, device)
    case = f"copy of {describe(src)} into {describe(dst)}"
    current = current_index(device)
    assert to.copy_(from_, non_blocking=non_blocking) is to, f"{case}: copy_ does not return its destination"
    synchronize(device, 0)
    if direction.dst == 1 or direction.src == 1:
        synchronize(device, 1)
    dst.copy_(src)
    assert_memory(to, dst, torch.uint8 if exact else dst.dtype, case)
    assert_memory(from_, src, torch.uint8, f"the source after a {case}")
    now = current_index(device)
    assert now == current, f"{case} leaves device {now} as the current one instead of {current}"
