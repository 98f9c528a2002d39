"""Operator overloads by name, and whether a Python function fits an operator's schema."""

import difflib
import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch._ops import OpOverload

Schema = torch.FunctionSchema
Function = Callable[..., Any]


def find(overload: str) -> OpOverload:
    """The operator overload called ``overload``, as in "aten::add.Tensor" or "aten::relu".

    Raises ValueError, with similar names, if there is none.
    """
    known = torch._C._dispatch_get_all_op_names()
    if overload not in known:
        raise ValueError(_unknown(overload, known))
    namespace, _, rest = overload.partition("::")
    name, _, overload_name = rest.partition(".")
    packet = getattr(getattr(torch.ops, namespace), name)
    found: OpOverload = getattr(packet, overload_name or "default")
    return found


def _unknown(overload: str, known: list[str]) -> str:
    if "::" not in overload:
        official = f"aten::{overload}"
        others = [official] if official in known else [n for n in known if n.partition("::")[2] == overload]
        return f"'{overload}' has no namespace; write for example '{(others or [official])[0]}'."
    packet = overload.partition(".")[0]
    overloads = sorted(name for name in known if name.partition(".")[0] == packet)
    if overloads:
        return f"There is no overload '{overload}'; {packet} has {', '.join(overloads)}."
    near = difflib.get_close_matches(overload, known, n=3, cutoff=0.75)
    hint_text = f" Did you mean {' or '.join(near)}?" if near else ""
    return f"There is no operator '{overload}' in torch {torch.__version__}.{hint_text}"


def is_composite(op: OpOverload) -> bool:
    """Whether ``op`` is made of other operators for every device, gradients included."""
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(op._name, "CompositeImplicitAutograd"))


def writes(argument: torch.Argument) -> bool:
    """Whether the operator writes to this argument."""
    return argument.alias_info is not None and bool(argument.alias_info.is_write)


def is_mutating(schema: Schema) -> bool:
    """Whether the operator writes to any argument."""
    return any(writes(argument) for argument in schema.arguments)


def positional(schema: Schema) -> list[torch.Argument]:
    """The arguments that a call may give by position."""
    return [argument for argument in schema.arguments if not argument.kwarg_only]


def complete(schema: Schema, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """A kernel's arguments with those that the dispatcher leaves out, because they have the schema's default value."""
    missing = positional(schema)[len(args) :]
    full = dict(kwargs)
    for argument in schema.arguments:
        if argument.kwarg_only and argument.name not in full:
            full[argument.name] = argument.default_value
    return (*args, *(full.pop(argument.name, argument.default_value) for argument in missing)), full


def misfits(function: Function, schema: Schema) -> list[str]:
    """Why ``function`` cannot be called with the arguments of ``schema``; empty if it can.

    Positional arguments are given by position and may be called otherwise; keyword-only ones are given by name.
    """
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # builtins have none
        return []
    by_position = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    takes_any = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    takes_any_name = any(p.kind is p.VAR_KEYWORD for p in parameters)
    wanted = positional(schema)
    names = [argument.name for argument in wanted]
    faults = []
    if len(by_position) < len(wanted) and not takes_any:
        absent = ", ".join(f"'{name}'" for name in names[len(by_position) :])
        faults.append(f"it takes {len(by_position)} positional arguments, the operator has {len(wanted)} (no {absent})")
    for index, (parameter, name) in enumerate(zip(by_position, names, strict=False)):
        if parameter.name in names and names.index(parameter.name) != index:
            faults.append(f"its argument {index + 1} is '{parameter.name}', the operator's is '{name}'")
    rest = {p.name: p for p in by_position[len(wanted) :] if p.kind is not p.POSITIONAL_ONLY}
    rest |= {p.name: p for p in parameters if p.kind is p.KEYWORD_ONLY}
    keywords = [argument.name for argument in schema.arguments if argument.kwarg_only]
    for name in keywords:
        if name not in rest and not takes_any_name:
            faults.append(f"it does not take the keyword argument '{name}'")
    for name, parameter in rest.items():
        if name not in keywords and parameter.default is parameter.empty:
            faults.append(f"the operator has no argument '{name}'")
    return faults


def differences(schema: Schema, other: Schema) -> list[str]:
    """Why a call of ``schema`` is no call of ``other``; empty if it is. Positional arguments may have other names."""
    own, others = schema.arguments, other.arguments
    if len(own) != len(others):
        return [f"{schema.name} has {len(own)} arguments, {other.name} has {len(others)}"]
    faults = []
    for index, (a, b) in enumerate(zip(own, others, strict=True)):
        if a.kwarg_only != b.kwarg_only or (a.kwarg_only and a.name != b.name):
            faults.append(f"argument {index + 1} is {_place(a)} of {schema.name} and {_place(b)} of {other.name}")
        elif _type(a) != _type(b):
            faults.append(f"'{a.name}' is a {_type(a)}, '{b.name}' of {other.name} a {_type(b)}")
        elif (a.has_default_value(), a.default_value) != (b.has_default_value(), b.default_value):
            faults.append(f"the default of '{a.name}' is {_default(a)}, in {other.name} {_default(b)}")
    if [str(r.type) for r in schema.returns] != [str(r.type) for r in other.returns]:
        results = [", ".join(str(r.type) for r in s.returns) or "nothing" for s in (schema, other)]
        faults.append(f"{schema.name} returns {results[0]}, {other.name} {results[1]}")
    return faults


def _type(argument: torch.Argument) -> str:
    # The schema's own type where torch tells it: for `type`, a ScalarType is an int.
    return str(getattr(argument, "real_type", argument.type))


def _place(argument: torch.Argument) -> str:
    return f"the keyword-only '{argument.name}'" if argument.kwarg_only else f"the positional '{argument.name}'"


def _default(argument: torch.Argument) -> str:
    return repr(argument.default_value) if argument.has_default_value() else "not given"


def check_fits(function: Function, schema: Schema) -> None:
    """Raise TypeError if ``function`` cannot be called with the arguments of ``schema``."""
    faults = misfits(function, schema)
    if faults:
        raise TypeError(f"{describe(function)} does not fit {schema}: {'; '.join(faults)}.")


def describe(function: Function) -> str:
    """The function's name and where it is written."""
    name = getattr(function, "__qualname__", repr(function))
    code = getattr(inspect.unwrap(function), "__code__", None)
    return f"{name}()" if code is None else f"{name}() ({code.co_filename}:{code.co_firstlineno})"
