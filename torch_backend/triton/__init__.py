"""The Triton compiler of a device: what its vendor says of it, and what Triton and PyTorch's compiler make of that.

A :class:`TritonBackend` names a driver and a compiler. :func:`register`, or an entry point in the group
``torch_backend.triton`` that has the device's name, gives it to a device. ``@triton.jit`` kernels are then launched on
the current stream, and ``torch.compile`` writes Triton. :class:`torch_backend.triton.driver.DeviceDriver` has what a
driver says of every device. Importing this package imports neither torch nor triton.
"""

from torch_backend.triton.declaration import ENTRY_POINT_GROUP, TritonBackend, register
from torch_backend.triton.service import is_declared, on_import, problem

__all__ = ["ENTRY_POINT_GROUP", "TritonBackend", "is_declared", "on_import", "problem", "register"]
