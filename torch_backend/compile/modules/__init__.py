"""Compiled graphs on devices that compile modules: inductor's loops in the dialect of codegen/kernels.

``kernel`` has the loops of one kernel, ``operations`` what is computed in them, ``scheduling`` what inductor asks for,
and ``runtime`` what the code imports that inductor writes.
"""


def register(name: str) -> None:
    """Give inductor its code generation for the device ``name``. Imports inductor."""
    from torch_backend.compile.modules import scheduling

    scheduling.register(name)
