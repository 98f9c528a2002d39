"""``operators.yaml``: what we know about operators that their schemas do not tell."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import yaml

SHIPPED = Path(__file__).parent / "operators.yaml"


@dataclass(frozen=True)
class Operators:
    """One field per section of the file, which says what each is."""

    typed: Mapping[str, list[str]] = field(default_factory=dict)
    draws_few: frozenset[str] = frozenset()
    not_pointwise: frozenset[str] = frozenset()
    beyond_the_iterator: frozenset[str] = frozenset()
    meta_differs: frozenset[str] = frozenset()
    tried: frozenset[str] = frozenset()
    suggested_format: frozenset[str] = frozenset()
    writes_out_at_once: frozenset[str] = frozenset()
    resizes: frozenset[str] = frozenset()
    one_dtype: frozenset[str] = frozenset()
    host_arguments: Mapping[str, list[str]] = field(default_factory=dict)
    result_in_columns: frozenset[str] = frozenset()
    numbers_do_not_wrap: frozenset[str] = frozenset()
    numbers: Mapping[str, Mapping[str, list[str]]] = field(default_factory=dict)
    results: Mapping[str, list[str]] = field(default_factory=dict)
    shared_by_layouts: Mapping[str, list[str]] = field(default_factory=dict)
    hand_written: tuple[str, ...] = ()

    @property
    def hot(self) -> list[str]:
        """The names of ``typed``."""
        return [name for names in self.typed.values() for name in names]

    @property
    def hand_written_overloads(self) -> frozenset[str]:
        """``hand_written`` without the schemas' arguments."""
        return frozenset(schema.split("(", 1)[0] for schema in self.hand_written)


def read(path: Path = SHIPPED) -> Operators:
    """Sections that are left out are empty. An unknown one raises TypeError."""
    sections: dict[str, Any] = yaml.safe_load(path.read_text())  # type: ignore[no-untyped-call]
    for name in (each.name for each in fields(Operators) if each.default == frozenset()):
        sections[name] = frozenset(sections.get(name, ()))
    return Operators(**{**sections, "hand_written": tuple(sections.get("hand_written", ()))})


def _of_arguments(arguments: Mapping[str, list[str]]) -> list[str]:
    return [f"{name} {argument}" for name, all_ in arguments.items() for argument in all_]


def _result_facts(operators: Operators) -> dict[str, list[str]]:
    return {f"k{rule.title().replace('_', '')}Result": names for rule, names in operators.results.items()}


def facts(operators: Operators, checked_overloads: Iterable[str]) -> dict[str, list[str]]:
    """What ``OperatorFacts.cpp`` looks up: the names, sorted, for which a fact holds. Facts as C++ names them."""
    layouts = operators.shared_by_layouts
    elementwise = layouts.get("sparse_elementwise", [])
    elementwise = [*elementwise, *(f"{name}_" for name in elementwise)]
    facts = {
        "kWrapperChecksDevices": checked_overloads,
        "kMetaDiffers": operators.meta_differs,
        "kTried": operators.tried,
        "kSuggestedFormat": operators.suggested_format,
        "kWritesOutAtOnce": operators.writes_out_at_once,
        "kOneDtype": operators.one_dtype,
        "kHostArgument": _of_arguments(operators.host_arguments),
        "kResultInColumns": operators.result_in_columns,
        "kNumbersDoNotWrap": operators.numbers_do_not_wrap,
        "kNumberIsNoOperand": _of_arguments(operators.numbers.get("no_operand", {})),
        "kWideNumber": _of_arguments(operators.numbers.get("wide", {})),
        "kLowerBound": _of_arguments(operators.numbers.get("lower_bound", {})),
        "kUpperBound": _of_arguments(operators.numbers.get("upper_bound", {})),
        **_result_facts(operators),
        "kSharedSparse": [*layouts.get("sparse", []), *elementwise],
        "kSharedSparseCompressed": [*layouts.get("sparse_compressed", []), *elementwise],
        "kSharedNested": layouts.get("nested", []),
        "kSharedQuantized": layouts.get("quantized", []),
    }
    return {fact: sorted(set(names)) for fact, names in facts.items()}
