"""``Tensor.__dlpack_device__``: ``torch.from_dlpack`` accepts tensors of a renamed device.

The method compares the device type with "privateuse1", which a renamed device never is. All versions up to 2.15. A
tensor stand-in with the device's name asks the method; once PyTorch answers, nothing is changed and this file may go.
"""

from enum import IntEnum


def replace(name: str) -> None:
    """Let the method answer for tensors of the device ``name``, if it does not."""
    import torch
    from torch.overrides import handle_torch_function, has_torch_function_unary
    from torch.utils.dlpack import DLDeviceType

    original = torch.Tensor.__dlpack_device__

    class Probe:  # all that the method looks at
        device = torch.device(name, 0)

    try:
        original(Probe())  # type: ignore[arg-type]
        return
    except ValueError:
        pass

    def __dlpack_device__(self: torch.Tensor) -> tuple[IntEnum, int]:
        if has_torch_function_unary(self):
            result: tuple[IntEnum, int] = handle_torch_function(torch.Tensor.__dlpack_device__, (self,), self)
            return result
        if self.device.type == name:
            return DLDeviceType.kDLExtDev, self.device.index or 0
        return original(self)

    __dlpack_device__.__doc__ = original.__doc__
    torch.Tensor.__dlpack_device__ = __dlpack_device__  # type: ignore[method-assign]
