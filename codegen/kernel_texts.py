"""The compiled kernels: their texts and tables (codegen/kernels) as C++ that the core is built with."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from torchgen.model import Argument, BaseTy, BaseType, ListType, NativeFunction, OptionalType, Type

from .complex import complex_text

_KERNELS = Path(__file__).parent / "kernels"
_CLASSES = ("floating", "integral", "boolean", "complex")


@dataclass(frozen=True)
class PointwiseEntry:
    """One row of the table of elementwise operators; see csrc/ops/compiled/engine/KernelText.h."""

    overload: str
    variant: str | None
    parameters: str
    floating: str | None
    integral: str | None
    boolean: str | None
    complex: str | None
    floating_texts: str
    integral_texts: str
    num_outputs: int
    kinds: str


@dataclass(frozen=True)
class ReductionEntry:
    """One row of the table of reductions; see csrc/ops/compiled/engine/KernelText.h."""

    name: str
    operators: str
    text: str
    num_inputs: int
    num_outputs: int
    num_numbers: int
    of_output: bool
    counts: bool
    complex: str | None


def texts() -> dict[str, str]:
    """Preludes and skeletons by name."""
    files = [*(_KERNELS / "preludes").glob("*.h"), *(_KERNELS / "skeletons").glob("*.c"), *_function_files()]
    return {file.stem: file.read_text() for file in sorted(files)}


@cache
def _document() -> Mapping[str, object]:
    text = (_KERNELS / "pointwise.yaml").read_text()
    return dict(yaml.safe_load(text))  # type: ignore[no-untyped-call]


def pointwise_table() -> dict[str, object]:
    """The expressions of each operator, as they are written down."""
    return {name: value for name, value in _document().items() if name != "missing"}


def missing_pointwise() -> dict[str, list[str]]:
    """The operators that have no entry, with wildcards, by the reason."""
    missing = _document().get("missing", {})
    assert isinstance(missing, Mapping)
    return dict(missing)


def pointwise_entries(functions: Sequence[NativeFunction]) -> list[PointwiseEntry]:
    """The table, in its order. An operator that the installed torch does not have is left out."""
    by_name = {str(function.func.name): function for function in functions}
    return [
        row for name, value in pointwise_table().items() if name in by_name for row in _entries(by_name[name], value)
    ]


def _function_files() -> list[Path]:
    return sorted((_KERNELS / "functions").glob("*.h"))


@cache
def _defined_functions() -> Mapping[str, frozenset[str]]:
    """The functions of each file."""
    return {file.stem: _functions_in(file) for file in _function_files()}


def _functions_in(file: Path) -> frozenset[str]:
    return frozenset(re.findall(r"^TB_DEVICE \w+ (\w+)\(", file.read_text(), re.MULTILINE))


@cache
def _complex_functions() -> frozenset[str]:
    return _functions_in(_KERNELS / "preludes" / "complex.h") | {"tb_real"}


def _known_calls(bodies: Iterable[str | None], known: frozenset[str]) -> set[str]:
    called = {name for body in bodies for name in re.findall(r"\b(tb_\w+)\(", body or "")}
    if unknown := called - known:
        raise ValueError(f"pointwise.yaml: there is no {', '.join(sorted(unknown))}")
    return called


def _texts(*bodies: str | None) -> str:
    """The files with the functions that the bodies call."""
    called = _known_calls(bodies, frozenset().union(*_defined_functions().values()))
    return " ".join(name for name, functions in _defined_functions().items() if called & functions)


def _entries(function: NativeFunction, value: object) -> Iterator[PointwiseEntry]:
    if isinstance(value, Mapping) and all("=" in key for key in value):
        for variant, expressions in value.items():
            yield entry(function, variant, expressions)
    else:
        yield entry(function, None, value)


def entry(function: NativeFunction, variant: str | None, value: object) -> PointwiseEntry:
    """One row. Throws ValueError if the expressions do not fit the operator."""
    arguments = function.func.arguments
    inputs = [argument for argument in arguments.flat_all if argument not in arguments.out]
    outputs = len(function.func.returns)
    names = ["out"] if outputs == 1 else [f"out{i}" for i in range(outputs)]
    by_class = {
        kind: expressions
        for kinds, expressions in (value.items() if isinstance(value, Mapping) else [("floating integral", value)])
        for kind in kinds.split()
    }
    if "complex" in by_class:
        calls = complex_text(str(by_class["complex"]))
        _known_calls([calls], _complex_functions())
        by_class["complex"] = calls
    if unknown := set(by_class) - set(_CLASSES):
        raise ValueError(f"pointwise.yaml: {function.func.name} has {', '.join(sorted(unknown))}")
    bodies = {kind: _body(by_class.get(kind), names) for kind in _CLASSES}
    parameters = [parameter for argument in inputs for parameter in _parameters(argument)]
    counts = any(body and re.search(r"\bnumel\b", body) for body in bodies.values())
    if counts:
        parameters.append("i64 numel")
    return PointwiseEntry(
        overload=f"aten::{function.func.name}",
        variant=variant,
        parameters=", ".join([*parameters, *(f"TB_PRIVATE T* {name}" for name in names)]),
        floating_texts=_texts(bodies["floating"]),
        integral_texts=_texts(bodies["integral"], bodies["boolean"]),
        num_outputs=outputs,
        kinds="".join(_kind(argument) for argument in inputs) + ("#" if counts else ""),
        **bodies,
    )


def _body(expressions: object, names: Sequence[str]) -> str | None:
    if not expressions:
        return None if expressions is None else ""
    each = expressions if isinstance(expressions, list) else [expressions]
    return " ".join(f"*{name} = {expression};" for name, expression in zip(names, each, strict=True))


def _element(type_: Type) -> tuple[BaseTy, bool]:
    """The type, and whether it may be None."""
    if isinstance(type_, OptionalType):
        return _element(type_.elem)[0], True
    if isinstance(type_, ListType) or not isinstance(type_, BaseType):
        raise ValueError(f"pointwise.yaml: an argument of type {type_}")
    return type_.name, False


def _kind(argument: Argument) -> str:
    if argument.annotation is not None and argument.annotation.is_write:
        return "w"
    if argument.name in ("condition", "mask"):
        return "m"
    base, optional = _element(argument.type)
    is_tensor = base is BaseTy.Tensor or (base is BaseTy.Scalar and argument.name in ("self", "other"))
    letter = {BaseTy.str: "s", BaseTy.int: "i", BaseTy.SymInt: "i", BaseTy.bool: "i"}.get(
        base, "t" if is_tensor else "n"
    )
    return letter.upper() if optional else letter


def _parameters(argument: Argument) -> Iterator[str]:
    kind = _kind(argument)
    if kind in "sS":
        return
    if kind.isupper():
        yield f"int has_{argument.name}"
    yield f"{'i64' if kind in 'iI' else 'T'} {argument.name}"


def reduction_entries() -> list[ReductionEntry]:
    """The table of reductions, in its order."""
    table = yaml.safe_load((_KERNELS / "reductions.yaml").read_text())  # type: ignore[no-untyped-call]
    return [_reduction(name, value) for name, value in table.items()]


_REDUCTION_KEYS = {"operators", "computes", "inputs", "numbers", "state", "step", "merge", "finish", "complex"}


def _reduction(name: str, value: Mapping[str, Any]) -> ReductionEntry:
    if unknown := set(value) - _REDUCTION_KEYS:
        raise ValueError(f"reductions.yaml: {name} has {', '.join(sorted(unknown))}")
    state = {field: text.split(maxsplit=1) for field, text in value["state"].items()}
    inputs = value.get("inputs", ["x"])
    numbers = value.get("numbers", [])
    finish = value["finish"] if isinstance(value["finish"], list) else [value["finish"]]
    results = [next(iter(result.items())) for result in finish]
    pointers = ", ".join(f"TB_PRIVATE F{i}* p_{field}" for i, field in enumerate(state))
    values = ", ".join(f"F{i} {field}" for i, field in enumerate(state))
    others = ", ".join(f"F{i} b_{field}" for i, field in enumerate(state))
    load = " ".join(f"F{i} {field} = *p_{field};" for i, field in enumerate(state))
    keep = " ".join(f"*p_{field} = {field};" for field in state)
    with_numbers = "".join(f", T {number}" for number in numbers)
    lines = [texts()[text] for text in _texts(value["step"]).split()]
    lines += [f"#define FIELDS {len(state)}"]
    lines += [f"typedef {type_} F{i};" for i, (type_, _) in enumerate(state.values())]
    lines += [
        f"TB_DEVICE void tb_init({pointers}) {{",
        *(f"  *p_{field} = ({type_}){initial};" for field, (type_, initial) in state.items()),
        "}",
        f"TB_DEVICE void tb_step({', '.join(f'T {one}' for one in inputs)}, Index i{with_numbers}, {pointers}) {{",
        f"  {load} {value['step']}; {keep}",
        "}",
        f"TB_DEVICE void tb_merge({others}, {pointers}) {{",
        f"  {load} {value['merge']}; {keep}",
        "}",
        f"TB_DEVICE void tb_finish({values}, i64 n{with_numbers}, "
        + ", ".join(f"TB_PRIVATE {type_}* out{i}" for i, (type_, _) in enumerate(results))
        + ") {",
        *(f"  *out{i} = {expression};" for i, (_, expression) in enumerate(results)),
        "}",
        "#define FINISHED " + " ".join(f"{type_} r{i};" for i, (type_, _) in enumerate(results)),
    ]
    return ReductionEntry(
        name=name,
        operators=" ".join(f"aten::{operator}" for operator in value.get("operators", [])),
        text="\n".join(lines) + "\n",
        num_inputs=len(inputs),
        num_outputs=len(results),
        num_numbers=len(numbers),
        of_output=value.get("computes") == "output",
        counts="Index" in str(value["state"]),
        complex=value.get("complex"),
    )
