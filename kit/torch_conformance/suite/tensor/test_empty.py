"""Memory for new tensors: its size and layout, and how it is filled for determinism."""

from collections.abc import Callable

import torch
from torch import Tensor

from torch_conformance import needs
from torch_conformance.suite.tensor._support import assert_alike, assert_values, each

EMPTY: dict[str, Callable[[str], Tensor]] = {
    "empty": lambda d: torch.empty(2, 3, device=d),
    "nothing": lambda d: torch.empty(0, 3, device=d),
    "0-d": lambda d: torch.empty((), device=d),
    "channels_last": lambda d: torch.empty(2, 3, 4, 5, device=d, memory_format=torch.channels_last),
    "channels_last_3d": lambda d: torch.empty(2, 3, 2, 4, 5, device=d, memory_format=torch.channels_last_3d),
    "strided": lambda d: torch.empty_strided((2, 3), (1, 2), device=d),
    "strided with gaps": lambda d: torch.empty_strided((2, 3), (10, 2), device=d),
    "strided overlapping": lambda d: torch.empty_strided((2, 3), (1, 1), device=d),
    "permuted": lambda d: torch.empty_permuted((2, 3, 4), (2, 0, 1), device=d),
    "like expanded": lambda d: torch.empty_like(torch.ones(3, 1, device=d).expand(3, 4)),
    "like transposed": lambda d: torch.empty_like(torch.ones(3, 4, 5, device=d).transpose(0, 2)),
    "new_empty_strided": lambda d: torch.ones(1, device=d).new_empty_strided((2, 2), (1, 2)),
    "half": lambda d: torch.empty(5, dtype=torch.float16, device=d),
}


@needs.feature("storage")
@each("factory", EMPTY, float16=["half"])
def test_layout_of_empty(device: str, factory: Callable[[str], Tensor]) -> None:
    """Uninitialized memory comes with the strides and the number of bytes it has on the CPU."""
    expected, actual = factory("cpu"), factory(device)
    assert_alike(actual, expected, device, "the new tensor")
    size, wanted = actual.untyped_storage().nbytes(), expected.untyped_storage().nbytes()
    assert size == wanted, f"the storage has {size} bytes, on the CPU {wanted}"


def test_live_tensors_do_not_share_memory(device: str) -> None:
    """What is written to one tensor is not seen in others that are alive."""
    tensors = [torch.full((count,), float(count), device=device) for count in range(1, 60)]
    tensors.extend(torch.full((100_000 + count,), float(count), device=device) for count in range(60, 64))
    for x in tensors[::3]:
        x.neg_()
    for index, x in enumerate(tensors):
        expected = float(index + 1) * (-1 if index % 3 == 0 else 1)
        assert bool((x == expected).all()), f"tensor {index} of {len(tensors)} was overwritten by another one"


@needs.feature("storage")
def test_memory_is_aligned(device: str) -> None:
    """The memory of a new tensor begins at a multiple of 64 bytes, whatever its size."""
    for size in (1, 3, 64, 100, 4097):
        x = torch.empty(size, dtype=torch.bool, device=device)
        assert x.data_ptr() % 64 == 0, f"{size} bytes were placed at {x.data_ptr():#x}"


def test_deterministic_mode_fills_empty(device: str) -> None:
    """In deterministic mode new memory is filled: with NaN, or the greatest integer."""
    torch.use_deterministic_algorithms(True)
    try:
        assert bool(torch.empty(100, device=device).isnan().all()), "torch.empty was not filled with NaN"
        assert_values(
            torch.empty_strided((3,), (1,), dtype=torch.int64, device=device), [2**63 - 1] * 3, "torch.empty_strided"
        )
        grown = torch.ones(2, device=device).resize_(50)
        assert bool(grown[2:].isnan().all()), "what resize_ added was not filled with NaN"
        assert_values(grown[:2], [1.0, 1.0], "what was there before resize_")
    finally:
        torch.use_deterministic_algorithms(False)
