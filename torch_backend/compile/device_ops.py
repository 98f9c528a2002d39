"""What the Python that Inductor writes says about the device, whoever generates its kernels."""

from torch._inductor.codegen import common
from torch._inductor.codegen.common import DeviceOpOverrides


class DeviceOps(DeviceOpOverrides):
    """Lines for a graph of one device. What C++ would say is not there: graphs are called from Python."""

    def __init__(self, name: str) -> None:
        """Of the device ``name``."""
        self.name = name

    def import_get_raw_stream_as(self, name: str) -> str:
        """A function that returns the current stream of a device, given its index."""
        return f"from torch_backend.compile.device_interface import get_raw_stream as {name}"

    def set_device(self, device_idx: int) -> str:
        """Makes the device current."""
        return f"torch.{self.name}.set_device({device_idx})"

    def synchronize(self) -> str:
        """Waits for the current device."""
        return f"torch.{self.name}.synchronize()"

    def device_guard(self, device_idx: int) -> str:
        """A context manager in which the device is current."""
        return f"torch.{self.name}.device({device_idx})"

    def current_stream(self) -> str:
        """The current device's current stream."""
        return f"torch.{self.name}.current_stream()"

    def kernel_header(self) -> str:
        """Of kernels in C++ there are none."""
        return ""


def register(name: str) -> None:
    """For the device ``name``, unless its vendor has registered some."""
    if name not in common.device_op_overrides_dict:
        common.register_device_op_overrides(name, DeviceOps(name))
