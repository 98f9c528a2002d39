"""Read the operators of the installed torch from the ``native_functions.yaml`` that torchgen carries."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torchgen
from torchgen.gen import get_grouped_native_functions, parse_native_yaml
from torchgen.model import BackendIndex, DispatchKey, NativeFunction, NativeFunctionsGroup


def native_functions() -> tuple[list[NativeFunction], dict[DispatchKey, BackendIndex]]:
    """Every ``aten::`` overload and, per dispatch key, which of them have a kernel."""
    folder = Path(torchgen.__file__).parent / "packaged" / "ATen" / "native"
    parsed = parse_native_yaml(str(folder / "native_functions.yaml"), str(folder / "tags.yaml"))
    return list(parsed.native_functions), dict(parsed.backend_indices)


def structured_groups(functions: Sequence[NativeFunction]) -> list[NativeFunctionsGroup]:
    """The overloads that share a structured kernel: functional, in-place and out= form."""
    groups = get_grouped_native_functions(functions)
    return [group for group in groups if isinstance(group, NativeFunctionsGroup) and group.structured]
