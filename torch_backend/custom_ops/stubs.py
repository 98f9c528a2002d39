"""Type stubs for declared operators, for editors and type checkers."""

import inspect
import os
from collections.abc import Sequence
from textwrap import indent

from torch_backend.custom_ops import _parse, _yaml_file
from torch_backend.custom_ops._declaration import Operator
from torch_backend.custom_ops._signatures import signature


def stubs(files: Sequence[str | os.PathLike[str]]) -> str:
    """The text of a .pyi file with the operators that YAML files declare, which have to be of one namespace.

    Nothing is registered or imported, so that the kernels need not be there. Raises what
    :func:`torch_backend.load_operators` raises, and ValueError for several namespaces.
    """
    operators: list[Operator] = []
    for file in files:
        data, faults = _yaml_file.read(file)
        operators += _parse.parse(data, faults, resolve=False)
    namespaces = sorted({operator.namespace for operator in operators})
    if len(namespaces) > 1:
        raise ValueError(
            f"A stub file is a module, and a module is one namespace; these are {', '.join(namespaces)}. Write one "
            "stub file for each, from YAML files of their own."
        )
    names = list(dict.fromkeys(operator.name for operator in operators))
    functions = [_function([o for o in operators if o.name == name]) for name in names]
    header = f'"""The custom operators {namespaces[0]}::*. Written by torch-backend stubs; do not edit."""\n'
    body = "\n".join(functions)
    modules = ("collections.abc", "torch", "typing")
    imports = "".join(f"import {module}\n" for module in modules if f"{module}." in body)
    return f"{header}\n{imports}\n{body}"


def _function(overloads: list[Operator]) -> str:
    decorator = "@typing.overload\n" if len(overloads) > 1 else ""
    return "".join(f"{decorator}def {operator.name}{_signature(operator)}:{_body(operator)}" for operator in overloads)


def _signature(operator: Operator) -> str:
    return str(signature(operator.schema)).replace("torch._C.", "torch.")  # by their public names


def _body(operator: Operator) -> str:
    if not operator.doc:
        return " ...\n"
    text = operator.doc.replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
    lines = inspect.cleandoc(text).splitlines()
    if len(lines) == 1:
        return f'\n    """{lines[0]}"""\n'
    return '\n    """' + indent("\n".join(lines), "    ").lstrip() + '\n    """\n'
