"""Results of one kernel that share a storage, as q, k and v of one product do, share it on the device."""

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

MINE = torch.library.Library("shared_results", "FRAGMENT")


def halves(x: Tensor) -> tuple[Tensor, Tensor]:
    whole = x * 2
    return whole[:1], whole[1:]


def listed(x: Tensor) -> list[Tensor]:
    return list((x * 2).unbind(1))


def same(x: Tensor) -> tuple[Tensor, Tensor]:
    whole = x * 2
    return whole, whole


def part(x: Tensor) -> Tensor:
    return (x * 2)[:, 1:]


RETURNS = {halves: "(Tensor, Tensor)", listed: "Tensor[]", same: "(Tensor, Tensor)", part: "Tensor"}
for kernel, returns in RETURNS.items():
    MINE.define(f"{kernel.__name__}(Tensor x) -> {returns}")
    MINE.impl(kernel.__name__, kernel, "CPU")

CALLS: dict[str, Callable[[Tensor], Tensor | Sequence[Tensor]]] = {
    **{kernel.__name__: getattr(torch.ops.shared_results, kernel.__name__) for kernel in RETURNS},
    "q, k and v": lambda x: torch._transform_bias_rescale_qkv(x[None].repeat(1, 1, 3), x.new_ones(12), 2),
}


def described(results: Tensor | Sequence[Tensor]) -> list[tuple[object, ...]]:
    tensors = [results] if isinstance(results, Tensor) else list(results)
    storages = [tensor.untyped_storage() for tensor in tensors]
    addresses = [storage._cdata for storage in storages]
    return [
        (tensor.shape, tensor.stride(), tensor.storage_offset(), storage.nbytes(), addresses.index(storage._cdata))
        for tensor, storage in zip(tensors, storages, strict=True)
    ]


@pytest.mark.parametrize("call", CALLS)
def test_results_share_what_they_share_on_the_cpu(name: str, call: str) -> None:
    host = torch.arange(12.0).reshape(3, 4)
    expected, actual = CALLS[call](host), CALLS[call](host.to(name))
    assert described(actual) == described(expected)
    torch.testing.assert_close(actual, expected, check_device=False)
    first = actual if isinstance(actual, Tensor) else actual[0]
    first.zero_()  # the memory is the device's
    assert first.device.type == name
    assert not first.cpu().any()
