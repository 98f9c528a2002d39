"""What a backward can be given: "grad", "grad.1", "output", "output.1", or an argument of the forward by name."""

import re
from collections.abc import Sequence
from typing import Any

import torch

_RESULT = re.compile(r"(grad|output)(?:\.(\d+))?")


def result_of(source: Any) -> tuple[str, int] | None:
    """Whether ``source`` is a gradient or an output, as ("grad", 1); None if it can only be an argument's name."""
    match = _RESULT.fullmatch(source) if isinstance(source, str) else None
    return None if match is None else (match.group(1), int(match.group(2) or 0))


def type_of(source: Any, schema: torch.FunctionSchema) -> str | None:
    """The type of an argument, a gradient or an output of a forward; None if it has no such thing."""
    for argument in schema.arguments:
        if argument.name == source:
            return str(argument.type)
    result = result_of(source)
    if result is None or result[1] >= len(schema.returns):
        return None
    return str(schema.returns[result[1]].type)


def results(schema: torch.FunctionSchema) -> str:
    """The types of an operator's results, for messages."""
    return listed([str(result.type) for result in schema.returns]) or "nothing"


def listed(names: Sequence[str]) -> str:
    """For messages."""
    return ", ".join(names)
