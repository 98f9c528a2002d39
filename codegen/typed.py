"""Which overloads get which kind of kernel."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from torchgen.model import Argument, BackendIndex, DispatchKey, NativeFunction, SchemaKind


class CodegenError(Exception):
    """The tables ask for something the installed torch does not have."""


@dataclass(frozen=True)
class TypedKernel:
    """An overload served by ``AtenKernel<at::_ops::...>``."""

    overload: str  # "add.Tensor"
    operator_struct: str  # "add_Tensor", of at::_ops
    header: str  # "ATen/ops/add_ops.h"
    flags: str  # of csrc/ops/host/HostCall.h: "0", "kWritesOptionals"

    @property
    def name(self) -> str:
        """As of a structured kernel."""
        return self.operator_struct

    @property
    def headers(self) -> tuple[str, ...]:
        """To include."""
        return (self.header,)


def _base_name(function: NativeFunction) -> str:
    return str(function.func.name.name.base)


def _has_cpu_kernel(function: NativeFunction, cpu: BackendIndex) -> bool:
    """Also of the functional and in-place forms of structured operators, which run the out= form's kernel."""
    return function.structured_delegate is not None or cpu.has_kernel(function)


def host_call_flags(function: NativeFunction) -> str:
    """What csrc/ops/host/HostCall.h is told of an operator, a C++ expression."""
    # Batch normalization updates its running statistics in place, which older schemas do not declare.
    statistics = {argument.name for argument in function.func.arguments.flat_all if argument.annotation is None}
    if statistics & {"running_mean", "running_var"} and "backward" not in _base_name(function):
        return "kWritesOptionals"
    return "0"


def _plain_strided(function: NativeFunction) -> bool:
    """Whether every argument is one that AtenKernel can stand in for."""
    arguments: Iterable[Argument] = function.func.arguments.flat_all
    return not any(
        argument.annotation is not None
        and argument.annotation.is_write
        and argument.type.is_list_like()
        and str(argument.type) != "Tensor(a!)[]"
        and function.func.kind() is SchemaKind.out
        for argument in arguments
    )


def _is_view(function: NativeFunction) -> bool:
    return function.is_view_op or any(
        returned.annotation is not None and not returned.annotation.is_write for returned in function.func.returns
    )


def typed_kernels(
    functions: Iterable[NativeFunction],
    backends: Mapping[DispatchKey, BackendIndex],
    names: Iterable[str],
    hand_written: Collection[str] = (),
    draws_few: Collection[str] = (),
) -> list[TypedKernel]:
    """The overloads, sorted, of the operators in ``names``: functional, in-place and out, except ``hand_written`` ones.

    ``draws_few`` is what operators.yaml says.

    A name ``foo`` covers ``foo``, ``foo_`` and ``foo.out``-like overloads; ``foo_`` covers the in-place ones only.

    Raises CodegenError naming every entry the installed torch has no CPU kernel for.
    """
    wanted = set(names)
    cpu = backends[DispatchKey.CPU]
    found: set[str] = set()
    kernels: list[TypedKernel] = []
    for function in functions:
        full_name = str(function.func.name.name)
        matches = {full_name, _base_name(function)} & wanted
        if not matches or not _has_cpu_kernel(function, cpu) or _is_view(function):
            continue
        overload = str(function.func.name)
        if function.func.kind() is SchemaKind.scratch or overload in hand_written or not _plain_strided(function):
            continue
        found |= matches
        kernels.append(
            TypedKernel(
                overload=overload,
                operator_struct=function.func.name.unambiguous_name(),
                header=f"ATen/ops/{function.root_name}_ops.h",
                flags="kDrawsFew" if full_name in draws_few else host_call_flags(function),
            )
        )
    missing = sorted(wanted - found)
    if missing:
        raise CodegenError(
            "typed in codegen/operators.yaml names operators for which the installed torch has no CPU kernel of their "
            f"own, or we have one: {', '.join(missing)}. Remove them, or use the name this torch gives them."
        )
    return sorted(kernels, key=lambda kernel: kernel.overload)
