"""Structured operators: which there are, and how their classes are called."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from torchgen.api import structured
from torchgen.api.translate import translate
from torchgen.api.types import BaseCType, Binding, Expr, MutRefCType, NamedCType, NativeSignature, tensorT
from torchgen.context import native_function_manager
from torchgen.model import (
    Argument,
    BackendIndex,
    BackendMetadata,
    DispatchKey,
    NativeFunction,
    NativeFunctionsGroup,
    SchemaKind,
)

from .operators import Operators
from .typed import host_call_flags


@dataclass(frozen=True)
class Form:
    """One overload of a group: its functional, in-place or out= form."""

    overload: str  # "add.Tensor"
    operator_struct: str  # "add_Tensor", of at::_ops
    kind: str  # "functional", "inplace", "out"
    returns: str  # C++ type
    parameters: str  # C++ parameter list
    arguments: str  # ... the names, to pass on
    inputs: str  # ... those that are no outputs
    indices: str  # name of the list of indices; "" without one
    brought: str  # the arguments' names with indices that were brought from the host
    aten_call: str  # the end of AtenKernel<Op, ...: flags and function
    written: str  # names of the tensors the kernel writes; "" for the functional form
    plain: bool  # some calls need no meta function: Note [Plain calls] in csrc/ops/kernel/StructuredCall.h
    aliased: bool  # the CPU kernel is called on aliases of the tensors, by `impl`
    meta: str  # expressions for the meta function
    impl: str  # ... and for the kernel; `op` is the kernel object
    result: str  # what is returned


@dataclass(frozen=True)
class StructuredKernel:
    """A group of overloads with one kernel."""

    name: str  # "add_Tensor"
    kernel_class: str  # "at::native::structured_ufunc_add_CPU"
    headers: tuple[str, ...]
    num_outputs: int
    precomputed: bool
    pointwise: bool  # the class is a TensorIterator whose inputs are broadcast
    iterates: bool  # ... and its CPU kernel runs on whatever memory the iterator points at
    out_overload: str  # "add.out": by which a device library's kernel for the group is known
    resizes: (
        bool  # the kernel gives its outputs other sizes than the meta function, which no other kernel is then given
    )
    forms: tuple[Form, ...]


def structured_kernels(
    groups: Iterable[NativeFunctionsGroup], backends: Mapping[DispatchKey, BackendIndex], known: Operators
) -> list[StructuredKernel]:
    """Every group with a CPU kernel, sorted by name. ATen's kernels of hot operators are called typed, others boxed.

    torch has a class that implements the group only where it has a kernel: what has none for the CPU is left out.
    """
    cpu, hot = backends[DispatchKey.CPU], frozenset(known.hot)
    kernels = [
        _kernel(group, metadata, known, is_hot=str(group.functional.func.name.name) in hot)
        for group in groups
        if (metadata := cpu.get_kernel(group)) is not None
    ]
    return sorted(kernels, key=lambda kernel: kernel.name)


def _kernel(
    group: NativeFunctionsGroup, metadata: BackendMetadata, known: Operators, *, is_hot: bool
) -> StructuredKernel:
    functions = [function for function in (group.functional, group.inplace, group.out) if function is not None]
    root = group.functional.root_name
    base_name = str(group.functional.func.name.name)
    pointwise = group.out.structured_inherits == "TensorIteratorBase" and base_name not in known.not_pointwise
    iterates = pointwise and base_name not in known.beyond_the_iterator
    resizes = str(group.functional.func.name) in known.resizes
    with native_function_manager(group):
        # What iterates gets here only with operands that the iterator cannot take.
        forms = tuple(
            _form(
                group,
                function,
                pointwise=pointwise,
                iterates=iterates,
                is_hot=is_hot and not iterates,
                resizes=resizes,
            )
            for function in functions
        )
    return StructuredKernel(
        name=group.functional.func.name.unambiguous_name(),
        kernel_class=f"{metadata.cpp_namespace}::structured_{metadata.kernel}",
        headers=(f"ATen/ops/{root}_native.h", f"ATen/ops/{root}_ops.h"),
        num_outputs=len(group.out.func.returns),
        precomputed=group.out.precomputed is not None,
        pointwise=pointwise,
        iterates=iterates,
        out_overload=str(group.out.func.name),
        resizes=resizes,
        forms=forms,
    )


def _form(
    group: NativeFunctionsGroup,
    function: NativeFunction,
    *,
    pointwise: bool,
    iterates: bool,
    is_hot: bool,
    resizes: bool,
) -> Form:
    kind = function.func.kind()
    signature = NativeSignature(function.func, symint=True)
    parameters = signature.arguments()
    meta = _expressions(parameters, structured.meta_arguments(group))
    outputs = structured.out_arguments(group)
    # Outputs that are arguments too may overlap with inputs, which kernels find out by comparing storages.
    # An iterator is of the tensors that it was built from.
    # A kernel that gives outputs other sizes than its meta kernel did would do that to the aliases only.
    aliased = is_hot and kind is SchemaKind.functional and group.out.structured_inherits is None and not resizes
    aliased = aliased and all(map(_can_be_aliased, function.func.arguments.flat_all))
    context: list[Binding | Expr] = [*(_aliased(p) if aliased else p for p in parameters), *_precomputed(group)]
    for index, output in enumerate(outputs):
        name = f"aliases.output(op.result({index}))" if aliased else f"op.maybe_get_output({index})"
        context.append(Expr(name, NamedCType(output.nctype.name, MutRefCType(BaseCType(tensorT)))))
    impl = _expressions(context, structured.impl_arguments(group)) if aliased or iterates else ""
    output_names = {argument.name for argument in function.func.arguments.out}
    written, result = _results(function, kind, len(outputs))
    indices = next((a.name for a in function.func.arguments.flat_all if str(a.type) == "Tensor?[]"), "")
    brought = ["brought->toOptionalTensorList()" if p.name == indices else p.name for p in parameters]
    return Form(
        overload=str(function.func.name),
        operator_struct=function.func.name.unambiguous_name(),
        kind=kind.name,
        returns=signature.returns_type().cpp_type(),
        parameters=", ".join(parameter.defn() for parameter in parameters),
        arguments=", ".join(parameter.name for parameter in parameters),
        inputs=", ".join(p.name for p in parameters if p.name not in output_names),
        indices=indices,
        brought=", ".join(brought),
        aten_call=f"{host_call_flags(function)}>::{'call' if is_hot else 'call_boxed'}",
        written=written,
        plain=pointwise
        and kind is not SchemaKind.functional
        and all(map(_can_be_plain, function.func.arguments.flat_all)),
        aliased=aliased,
        meta=meta,
        impl=impl,
        result=result,
    )


def _can_be_plain(argument: Argument) -> bool:
    return str(argument.type) in ("Tensor", "Tensor(a!)", "Scalar")


def _can_be_aliased(argument: Argument) -> bool:
    return str(argument.type) in ("Tensor", "Tensor[]") or not argument.type.is_tensor_like()


def _aliased(parameter: Binding) -> Binding | Expr:
    assert isinstance(parameter.argument, Argument)
    kind = {"Tensor": "tensor", "Tensor[]": "list"}.get(str(parameter.argument.type))
    return Expr(f"aliases.{kind}({parameter.name})", parameter.nctype) if kind else parameter


def _expressions(context: Sequence[Binding | Expr], goals: Sequence[Binding]) -> str:
    return ", ".join(expression.expr for expression in translate(context, goals, method=False))


def _precomputed(group: NativeFunctionsGroup) -> list[Binding | Expr]:
    if group.out.precomputed is None:
        return []
    elements = [*group.out.precomputed.replace.values(), group.out.precomputed.add]
    return [
        Expr(f"precompute.{argument.name}", structured.argument_type(argument, binds=argument.name))
        for arguments in elements
        for argument in arguments
    ]


def _results(function: NativeFunction, kind: SchemaKind, num_outputs: int) -> tuple[str, str]:
    """The written tensors' names, and the returned expression."""
    if kind is SchemaKind.functional:
        moved = [f"std::move(op.result({index}))" for index in range(num_outputs)]
        return "", moved[0] if num_outputs == 1 else f"std::make_tuple({', '.join(moved)})"
    names = ["self"] if kind is SchemaKind.inplace else [argument.name for argument in function.func.arguments.out]
    return ", ".join(names), names[0] if len(names) == 1 else f"std::forward_as_tuple({', '.join(names)})"
