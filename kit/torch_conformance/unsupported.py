"""Errors by which PyTorch says that a device has no kernel for something that no device has to have.

PyTorch has operators on sparse, nested and quantized tensors for some devices and not for others, CUDA among them, and
documents its wide unsigned dtypes as supported in a few operators alone (torch.dtype). A test that ends with such an
error is not offered, and the reason names the operator.
"""

import re

_LAYOUT = re.compile(r"Could not run '(\S+)' with arguments from the '((?:Sparse|NestedTensor|Quantized)\w*)' backend")
_DTYPE = re.compile(r"\"(\w+)\" not implemented for '(UInt(?:16|32|64)|QU?Int\w+)'")


def reason(error: BaseException) -> str | None:
    """What the device has no kernel for; None if the error says something else, or that a kernel is missing."""
    if not isinstance(error, NotImplementedError):
        return None
    if match := _LAYOUT.search(str(error)):
        return f"there is no kernel of {match[1]} for {match[2]}"
    if match := _DTYPE.search(str(error)):
        return f"the kernel {match[1]} has no {match[2].lower()}"
    return None
