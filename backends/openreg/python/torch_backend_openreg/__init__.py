"""openreg: devices whose memory and executor live in other processes. See README.md."""

from .device import OpenReg

__all__ = ["OpenReg"]
