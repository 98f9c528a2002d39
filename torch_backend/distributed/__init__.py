"""torch.distributed for every device: process groups that exchange the device's tensors.

Nothing here has to be called. While a device is active, ``torch.distributed.init_process_group()`` uses the backend
that :func:`backend_name` names for the device's tensors, and so does ``init_process_group("<name>ccl")``, or
``init_process_group("cpu:gloo,<name>:<name>ccl")`` in programs that exchange CPU tensors as well.

A device library's own collectives (``ccl.1``) do the work where it has them: on a stream, which alone waits in
``Work.wait()`` on an asynchronous device. Others are served by Gloo: without a copy where the host can use the device's
memory, through page-locked memory elsewhere. The host then waits in ``Work.wait()``, since it is the host that does the
work; on an asynchronous device, ``Work.block_current_stream()`` lets only the stream wait.

Importing this package imports neither torch nor torch.distributed.
"""

from torch_backend.distributed.registration import backend_name, register

__all__ = ["backend_name", "register"]
