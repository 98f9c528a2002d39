"""Drivers that a vendor has not finished."""

import interpreting_backend
from triton.backends.compiler import GPUTarget

from torch_backend.triton.driver import DeviceDriver


class Half(DeviceDriver):
    def get_current_target(self):
        return GPUTarget("interpreted", "host", 32)


class Fails(interpreting_backend.Driver):
    def __init__(self):
        raise OSError("no such chip")


class Inactive(interpreting_backend.Driver):
    @classmethod
    def is_active(cls):
        return False


class Elsewhere(interpreting_backend.Driver):
    def get_current_target(self):
        return GPUTarget("elsewhere", "host", 32)
