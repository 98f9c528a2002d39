"""Custom operators of a device, each from one declaration.

A declaration says what an operator's schema is and where its kernel, meta function and gradients are; the rest
(FakeTensor, autograd, autocast, torch.compile, a Python function with signature and docstring) follows. See
:func:`load_operators` for the keys.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import torch  # noqa: F401  # see Note [Import order] in torch_backend/devices/autoload.py

from torch_backend.custom_ops import _parse, _yaml_file
from torch_backend.custom_ops._faults import DeclarationError, Fault, Faults
from torch_backend.custom_ops._register import OperatorLibrary

__all__ = ["DeclarationError", "Fault", "OperatorLibrary", "define_operator", "load_operators"]

Declarations = Mapping[str, Any] | Sequence[Mapping[str, Any]]


def load_operators(declarations: str | os.PathLike[str] | Declarations) -> OperatorLibrary:
    """Register the operators of a YAML file, or of data with the same keys.

    The file is a list of operators::

        - func: "acme::scale(Tensor x, float factor=2.0) -> Tensor"
          kernel: acme_kernels:scale                # or plugin: the device library has it in its table kernels.1
          meta: {like: x}                           # or module:function
          backward:
            operator: acme::scale_backward          # (Tensor g, float factor) -> Tensor; gets arguments by name, or:
            arguments: {g: grad}                    # grad, grad.1, output, output.1, or an argument of the forward
            gradients: [x]                          # what its results are the gradients of
          autocast: lower_precision_fp              # or fp32, promote, fallthrough
          reroute: aten::something                  # or a list: official operators that run as this one
          doc: Multiplies by a factor.

    ``func`` and ``kernel`` are required, and ``meta`` if the operator returns anything. ``backward`` may also be
    ``module:function``, or ``{function: module:function, save: [x, output]}`` for a function that wants
    ``ctx.saved_tensors``, or with ``setup_context`` in place of ``save``; see :func:`torch.library.register_autograd`.
    The operators that backwards lead to must not come in a circle. ``vmap: module:function`` is a rule for
    :func:`torch.library.register_vmap`; without one torch.vmap calls the operator slice by slice and warns.
    ``meta: {like: x, dtype: float32}`` is for another dtype. In Python, a function may stand where the file names one.

    Functions are called with all arguments of the schema, the keyword-only ones by name. The operators can be called
    as ``torch.ops.acme.scale`` and, with a signature and docstring, as ``torch_backend.ops.acme.scale`` and
    ``torch.<name>.ops.acme.scale``. Before a device is active, what needs one waits.

    Raises DeclarationError, which lists all faults with file, line and operator; ImportError without pyyaml; OSError if
    the file cannot be read. Nothing is registered then.
    """
    if isinstance(declarations, (str, os.PathLike)):
        data, faults = _yaml_file.read(declarations)
    else:
        data, faults = declarations, Faults()
    return OperatorLibrary(_parse.parse(data, faults, resolve=True))


def define_operator(func: str, **declaration: Any) -> OperatorLibrary:
    """Register one operator: ``define_operator("acme::scale(Tensor x) -> Tensor", kernel=scale, meta={"like": "x"})``.

    The keys are those of :func:`load_operators`, and so are the errors.
    """
    return load_operators({"func": func, **declaration})
