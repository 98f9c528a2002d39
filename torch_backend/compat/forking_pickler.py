"""``ForkingPickler``'s reducers of tensors: torch.multiprocessing sends the device's as CUDA's, without a copy.

PyTorch's own reducers know CUDA's memory and the CPU's; those for other devices are ours to register, and leave every
other tensor to PyTorch's. All versions up to 2.15. May go once PyTorch asks the device to share a storage.

PyTorch sends a tensor as its storage and its geometry; all that is ours is the storage. Who keeps the memory, and until
when, is in Note [Lending memory to other processes] in csrc/memory/ipc/LoanBook.h.
"""

import os
import threading
import warnings
from collections.abc import Callable
from multiprocessing import util
from multiprocessing.reduction import ForkingPickler
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import torch

    from torch_backend.devices.loading import OptionValue

_lock = threading.Lock()  # one thread at a time receives, so that a storage that two receive is one
_watched_process: int | None = None


class Place(NamedTuple):
    """Where a process that receives a tensor finds its device, should it have none yet.

    Attributes:
        name: the device.
        path: what :func:`torch_backend.load` takes.
        options: what the sender gave to its library.
    """

    name: str
    path: str
    options: "dict[str, OptionValue]"


def register(place: Place) -> None:
    """Let torch.multiprocessing send tensors and storages of the device at ``place``, or say why it cannot."""
    import torch
    from torch.multiprocessing import reductions

    name = place.name

    def reduce_tensor(tensor: torch.Tensor) -> Any:
        if tensor.device.type != name:
            return reductions.reduce_tensor(tensor)  # type: ignore[no-untyped-call]
        _check_can_share("tensor", tensor.device)
        reduced = reductions.reduce_tensor(tensor)  # type: ignore[no-untyped-call]
        plain = tensor.layout is torch.strided and not tensor.is_nested
        metadata = torch._utils.get_tensor_metadata(tensor) if plain else {}  # type: ignore[no-untyped-call]
        return (_rebuild_with_metadata, (*reduced, metadata)) if metadata else reduced

    def reduce_storage(storage: torch.UntypedStorage) -> Any:
        if storage.device.type != name:
            return reductions.reduce_storage(storage)  # type: ignore[no-untyped-call]
        _check_can_share("storage", storage.device)
        return _reduce_storage(storage, place)

    for kind in (torch.Tensor, torch.nn.Parameter):
        ForkingPickler.register(kind, reduce_tensor)
    ForkingPickler.register(torch.UntypedStorage, reduce_storage)


def _shares_memory(index: int) -> bool:
    from torch_backend import _C

    return "IPC" in _C.device_properties(index).capabilities


def _check_can_share(what: str, device: "torch.device") -> None:
    if not _shares_memory(device.index):
        raise RuntimeError(
            f"A {what} on {device} cannot be sent to another process: processes do not share the memory of "
            f"{device.type}. Send {what}.cpu(), and move it to {device.type} where it is received."
        )


# ---- the sender's side ----


def _reduce_storage(storage: "torch.UntypedStorage", place: Place) -> Any:
    from torch.multiprocessing import reductions

    from torch_backend import _C

    if storage.nbytes() == 0:
        return _rebuild_empty_storage, (str(storage.device),)
    _watch_the_end()
    message = _C.lend_storage(storage)
    reductions.shared_cache[_key(message)] = reductions.StorageWeakRef(storage)  # type: ignore[no-untyped-call]
    return _rebuild_storage, (place, message)


def _watch_the_end() -> None:
    """Say so if this process ends while others need what it has sent."""
    global _watched_process
    if _watched_process == os.getpid():
        return
    _watched_process = process = os.getpid()

    def end() -> None:
        from torch_backend import _C

        if os.getpid() == process and (count := _C.num_lent()) > 0:
            warnings.warn(
                f"This process ends while {count} tensors that it has sent to other processes are on their way, or in "
                "use there. Let it live until they are released.",
                stacklevel=2,
            )

    # Unlike atexit also in processes that multiprocessing has forked, and after it has flushed queues (-5) and waited
    # for processes that this one has started (0).
    util.Finalize(None, end, exitpriority=-100)


# ---- the receiver's side ----


def _key(message: bytes) -> tuple[object, ...]:
    """What names a storage, whichever message brings it."""
    from torch_backend import _C

    lender, device, segment, offset, size, _ = _C.describe_storage_message(message)
    return ("torch_backend", lender, device, segment, offset, size)


def _rebuild_storage(place: Place, message: bytes) -> "torch.UntypedStorage":
    from torch.multiprocessing import reductions

    from torch_backend import _C

    _require_device(place)
    lender, device, _, _, _, address = _C.describe_storage_message(message)
    if not _shares_memory(device):
        raise RuntimeError(
            f"A tensor on {place.name}:{device} was sent to this process, whose {place.name} does not share its memory "
            "with other processes. Give it the options, or environment variables, of the process that has sent it."
        )
    with _lock:
        key = _key(message)
        storage = reductions.storage_from_cache(None, key)  # type: ignore[no-untyped-call]
        # In the sending process a storage may have got other memory since.
        if storage is not None and (lender != os.getpid() or storage.data_ptr() == address):
            _C.acknowledge_storage(message)
        else:
            storage = _C.borrow_storage(message)
            reductions.shared_cache[key] = reductions.StorageWeakRef(storage)  # type: ignore[no-untyped-call]
    received: torch.UntypedStorage = storage
    return received


def _require_device(place: Place) -> None:
    """Activate the sender's device, unless a device is active, and start its driver."""
    import torch

    import torch_backend

    active = torch_backend.active()
    if active is None:
        try:
            active = torch_backend.activate(torch_backend.load(place.path, place.options))
        except Exception as error:
            raise RuntimeError(
                f"A tensor on {place.name} was sent to this process, in which that device could not be activated: "
                f"{error} Activate it where the process begins, or set TORCH_BACKEND={place.name} in the environment."
            ) from error
    if active.name != place.name:
        raise RuntimeError(
            f"A tensor on {place.name} was sent to this process, whose device is {active.name}: it cannot have both."
        )
    torch.get_device_module(place.name).init()


def _rebuild_empty_storage(device: str) -> "torch.UntypedStorage":
    import torch

    return torch.UntypedStorage(0, device=device)  # type: ignore[no-untyped-call]


def _rebuild_with_metadata(
    rebuild: "Callable[..., torch.Tensor]", arguments: tuple[Any, ...], metadata: dict[str, bool]
) -> "torch.Tensor":
    import torch

    tensor = rebuild(*arguments)
    with torch.no_grad():
        torch._utils.set_tensor_metadata(tensor, metadata)  # type: ignore[no-untyped-call]
    return tensor
