"""Compiled graphs on devices that compile modules: inductor's loops in the dialect of codegen/kernels.

Each file builds on those after it: ``scheduling`` has what inductor asks for, ``kernel`` one kernel, ``loops`` what is
around its statements, ``vectors`` and ``groups`` how the items of a GPU share the work, ``passes`` what that is,
``reductions`` and ``operations`` what is in them, ``formulas`` those of eager operators, ``loop_ir`` what all this is
before it is text, ``dtypes`` and ``indices`` how types and places are written.
``runtime`` has what the code imports that inductor writes. ``packages`` and ``cpp_code`` do for AOTInductor what
``scheduling`` does for Python.
"""


def register(name: str) -> None:
    """Give inductor its code generation for the device ``name``. Imports inductor."""
    from torch_backend.compile.modules import packages, scheduling

    scheduling.register(name)
    packages.register(name)
