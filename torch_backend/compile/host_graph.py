"""Graphs of devices whose memory the host can access: Inductor's code for the CPU, on the device's memory."""


def register(name: str) -> None:
    """Let Inductor compile for the device ``name``."""
    raise ImportError("host graphs")
