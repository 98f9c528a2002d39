"""Notes that a device's Python side keeps on tensors: how the values are laid out, scaled, or placed.

::

    from torch_backend import metadata

    metadata.attach(x, {"format": "NC16HW16", "scale": [0.5, 0.25]})
    metadata.read(x)["format"]

A note is a dict of what JSON can say. It belongs to one tensor of the device, and not to its storage: it stays when the
tensor's values change. It goes along with

- ``torch.save`` and ``torch.load``, also with ``weights_only=True``, and ``pickle``;
- what is the same tensor to PyTorch: ``x.detach()``, ``x.data``, ``torch.nn.Parameter(x)``;
- a tensor that torch.multiprocessing sends to another process.

It does not go along with results of operators, copies and views among them: what a note means for those only the
operator knows, which attaches one to its result. What ``copy.deepcopy`` makes is such a copy. Copies to other devices
(``x.cpu()``, ``torch.load(map_location="cpu")``) and sparse, nested and quantized tensors have none. Other extensions
use the same place (``c10::BackendMeta``); what they have attached is left alone. Flags of other code, which
``torch._utils.set_tensor_metadata(x, {"name": True})`` sets, go along as notes do, next to them.

An extension that saves what is there in its own way (``TensorBackendMetaRegistry``) registers that before the first
note or flag is attached or loaded; after that PyTorch refuses its registration.
"""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

__all__ = ["attach", "read", "remove"]


def attach(tensor: "torch.Tensor", note: Mapping[str, Any]) -> None:
    """Keep ``note`` on ``tensor``, in place of what was there. Later changes of the dict are not seen.

    Raises ValueError unless the tensor is a strided one on the active device, TypeError if the note is no dict with
    strings for keys or holds what JSON cannot say, and RuntimeError if another extension saves such tensors in its own
    way, or has attached something to this one.
    """
    import torch

    from torch_backend import _C

    name = torch._C._get_privateuse1_backend_name()
    if tensor.device.type != name or tensor.layout is not torch.strided or tensor.is_nested or tensor.is_quantized:
        raise ValueError(
            f"A note is kept on strided tensors of the active device ({name}); this is a "
            f"{'quantized' if tensor.is_quantized else tensor.layout} tensor on {tensor.device}."
        )
    if not isinstance(note, Mapping) or not all(isinstance(key, str) for key in note):
        raise TypeError(f"A note is a dict whose keys are strings; got {note!r}.")
    if not _C.save_tensor_metadata():
        raise RuntimeError(
            f"An extension saves what is attached to tensors of {name} in its own way. Use that extension's functions."
        )
    try:
        text = json.dumps(dict(note), allow_nan=True)
    except (TypeError, ValueError) as error:
        raise TypeError(f"A note holds dicts, lists, strings, numbers, booleans and None: {error}.") from error
    _C.set_tensor_metadata(tensor, text)


def read(tensor: "torch.Tensor") -> dict[str, Any]:
    """What :func:`attach` has kept on ``tensor``, as a new dict; empty if nothing. Tuples come back as lists."""
    from torch_backend import _C

    text = _C.tensor_metadata(tensor)
    note: dict[str, Any] = json.loads(text) if text is not None else {}
    return note


def remove(tensor: "torch.Tensor") -> None:
    """Forget the note on ``tensor``, if there is one."""
    from torch_backend import _C

    if _C.tensor_metadata(tensor) is not None:
        _C.set_tensor_metadata(tensor, None)
