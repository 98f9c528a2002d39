"""``torch.nn.attention.flex_attention``: its list of devices, and autocast.

It refuses tensors of devices that its list lacks, although what it calls has kernels for all. Versions 2.11 to 2.15.
May go once the list has privateuse1.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import flex_attention


def register(name: str) -> None:
    """Let flex_attention take tensors of the device ``name``. When its module was imported."""
    validate = flex_attention._validate_device

    def validate_device(query: Tensor, key: Tensor, value: Tensor) -> None:
        if query.device.type != name:
            validate(query, key, value)

    flex_attention._validate_device = validate_device

    operator: Any = torch.ops.higher_order.flex_attention
    key: Any = torch._C._dispatch_key_parse("AutocastPrivateUse1")

    def cast(*args: Any, **kwargs: Any) -> Any:
        dtype = torch.get_autocast_dtype(name)
        tensors = (x if x.dtype is torch.float64 else x.to(dtype) for x in args[:3])
        with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(key)):
            return operator(*tensors, *args[3:], **kwargs)

    if key not in operator.py_kernels:
        operator.py_impl(key)(cast)
