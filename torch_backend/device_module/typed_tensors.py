"""The names that ``tensor.type()`` answers: ``torch.<name>.FloatTensor`` and the like, to compare with and to call."""

from typing import Any

import torch

from torch_backend.device_module._utils import _device_type

__all__ = [
    "BFloat16Tensor",
    "BoolTensor",
    "ByteTensor",
    "CharTensor",
    "DoubleTensor",
    "FloatTensor",
    "HalfTensor",
    "IntTensor",
    "LongTensor",
    "ShortTensor",
]


class _TensorType(type):
    """A kind of tensors: those on the device, with one dtype."""

    dtype: torch.dtype

    def __instancecheck__(cls, instance: object) -> bool:
        """Whether ``instance`` is such a tensor."""
        return (
            isinstance(instance, torch.Tensor)
            and instance.dtype is cls.dtype
            and instance.device.type == _device_type()
        )

    def __call__(cls, *arguments: Any, device: Any = None) -> torch.Tensor:
        """A new tensor: of sizes (not initialized), or with the values of a sequence or tensor."""
        where = torch.device(_device_type()) if device is None else torch.device(device)
        if all(isinstance(size, int) for size in arguments):
            return torch.empty(arguments or (0,), dtype=cls.dtype, device=where)
        if len(arguments) == 1 and isinstance(arguments[0], torch.Size):
            return torch.empty(arguments[0], dtype=cls.dtype, device=where)
        if len(arguments) != 1:
            raise TypeError(f"{cls.__name__} takes sizes, or one sequence or tensor, but got {arguments!r}.")
        return torch.as_tensor(arguments[0], dtype=cls.dtype, device=where).clone()


def _make(name: str, dtype: torch.dtype) -> _TensorType:
    return _TensorType(name, (), {"dtype": dtype, "__doc__": f"Tensors of the device with the dtype {dtype}."})


BFloat16Tensor = _make("BFloat16Tensor", torch.bfloat16)
BoolTensor = _make("BoolTensor", torch.bool)
ByteTensor = _make("ByteTensor", torch.uint8)
CharTensor = _make("CharTensor", torch.int8)
DoubleTensor = _make("DoubleTensor", torch.float64)
FloatTensor = _make("FloatTensor", torch.float32)
HalfTensor = _make("HalfTensor", torch.float16)
IntTensor = _make("IntTensor", torch.int32)
LongTensor = _make("LongTensor", torch.int64)
ShortTensor = _make("ShortTensor", torch.int16)
