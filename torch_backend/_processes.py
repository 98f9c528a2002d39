"""Sending what lies on the device to another process, which PyTorch cannot, and has to say so."""

from multiprocessing.reduction import ForkingPickler
from typing import Any


def refuse_to_send(name: str) -> None:
    """Let torch.multiprocessing say what to do with a tensor or storage of the device ``name``.

    It passes handles of shared memory, and would fail with "_share_fd_: only available on CPU".
    """
    import torch
    from torch.multiprocessing import reductions

    def check(value: torch.Tensor | torch.UntypedStorage) -> None:
        if value.device.type == name:
            what = "tensor" if isinstance(value, torch.Tensor) else "storage"
            raise RuntimeError(
                f"A {what} on {value.device} cannot be sent to another process: processes do not share the memory of "
                f"{name}. Send {what}.cpu(), and move it to {name} where it is received."
            )

    def reduce_tensor(tensor: torch.Tensor) -> Any:
        check(tensor)
        return reductions.reduce_tensor(tensor)  # type: ignore[no-untyped-call]

    def reduce_storage(storage: torch.UntypedStorage) -> Any:
        check(storage)
        return reductions.reduce_storage(storage)  # type: ignore[no-untyped-call]

    for kind in (torch.Tensor, torch.nn.Parameter):
        ForkingPickler.register(kind, reduce_tensor)
    ForkingPickler.register(torch.UntypedStorage, reduce_storage)
