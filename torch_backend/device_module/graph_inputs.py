"""Which tensors a capture has read that were there before it, and whether they still are: check_input_liveness."""

import weakref
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from torch_backend.device_module._utils import _device_type


class GraphInputs(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A mode to capture in. A storage counts as gone if it is freed or resized, or another has taken its place."""

    supports_higher_order_operators = True

    def __init__(self) -> None:
        """Nothing has been read yet."""
        super().__init__()  # type: ignore[no-untyped-call]
        self._read: dict[int, tuple[weakref.ref[torch.UntypedStorage], str]] = {}
        self._made: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Remember what the operator is given, and what it makes."""
        for tensor in _on_the_device((args, kwargs)):
            address = tensor.untyped_storage().data_ptr()
            if address not in self._made and address not in self._read:
                what = f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}, read by {func}"
                self._read[address] = (weakref.ref(tensor.untyped_storage()), what)
        results = func(*args, **(kwargs or {}))
        made = (tensor.untyped_storage().data_ptr() for tensor in _on_the_device(results))
        self._made.update(address for address in made if address not in self._read)
        return results

    def check(self) -> None:
        """Raise RuntimeError if a tensor is gone, which a replay would read."""
        gone = [what for address, (storage, what) in self._read.items() if not _is_there(storage(), address)]
        if gone:
            shown = "; ".join(gone[:5]) + ("; ..." if gone[5:] else "")
            raise RuntimeError(
                f"Replaying this graph would read memory of {len(gone)} tensor(s) that were freed after the capture: "
                f"{shown}. Keep the tensors that a capture reads for as long as its graph is replayed."
            )


def _on_the_device(values: Any) -> Iterator[torch.Tensor]:
    for value in tree_leaves(values):
        if isinstance(value, torch.Tensor) and value.device.type == _device_type() and value.layout is torch.strided:
            yield value


def _is_there(storage: torch.UntypedStorage | None, address: int) -> bool:
    return storage is not None and storage.data_ptr() == address
