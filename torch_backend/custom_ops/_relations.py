"""Checks of declared operators together: names, and backwards that are operators."""

from collections.abc import Callable, Mapping

import torch

from torch_backend.custom_ops._declaration import BackwardOperator, Operator
from torch_backend.custom_ops._faults import Faults, Path
from torch_backend.custom_ops._sources import listed, results, type_of
from torch_backend.operators import schemas


def check_together(operators: list[tuple[Path, Operator]], faults: Faults) -> None:
    """Add what is wrong between the operators of one document, each with its place in it."""
    _check_names(operators, faults)
    _check_backward_operators(operators, faults)


def _check_names(operators: list[tuple[Path, Operator]], faults: Faults) -> None:
    seen = set()
    for path, operator in operators:
        if operator.overload in seen:
            faults.add((*path, "func"), operator.overload, "it is declared twice.")
        seen.add(operator.overload)


def _check_backward_operators(operators: list[tuple[Path, Operator]], faults: Faults) -> None:
    declared = {operator.overload: operator.schema for _, operator in operators}
    follows = {
        operator.overload: operator.backward.operator
        for _, operator in operators
        if isinstance(operator.backward, BackwardOperator)
    }
    for path, operator in operators:
        if not isinstance(operator.backward, BackwardOperator):
            continue

        def fault(key: str, message: str, path: Path = path, name: str = operator.overload) -> None:
            faults.add((*path, "backward", key), name, message)

        name = operator.backward.operator
        try:
            schema = declared.get(name) or schemas.find(name)._schema
        except ValueError as error:
            fault("operator", f"{error} The backward operator has to be declared too.")
            continue
        cycle = _cycle(operator.overload, follows)
        if cycle:
            fault("operator", f"its backward comes back to itself: {' -> '.join(cycle)}.")
        _check_mapping(operator, operator.backward, schema, fault)


def _cycle(start: str, follows: Mapping[str, str]) -> list[str]:
    chain = [start]
    while (following := follows.get(chain[-1])) is not None:
        chain.append(following)
        if following == start:
            return chain
        if following in chain[:-1]:
            return []  # a cycle that start only leads to
    return []


def _check_mapping(
    operator: Operator,
    backward: BackwardOperator,
    schema: torch.FunctionSchema,
    fault: Callable[[str, str], None],
) -> None:
    names = [argument.name for argument in schema.arguments]
    for unknown in backward.arguments.keys() - set(names):
        fault("arguments", f"{backward.operator} has no argument '{unknown}'; it has {listed(names)}.")
    for argument in schema.arguments:
        source = backward.arguments.get(argument.name, argument.name)
        source_type = type_of(source, operator.schema)
        if source_type is None:
            if argument.name not in backward.arguments and not argument.has_default_value():
                fault(
                    "arguments",
                    f"nothing is given to '{argument.name}' of {backward.operator}: write arguments: "
                    f"{{{argument.name}: ...}} with an argument of the operator, grad or output.",
                )
        elif "List" in source_type and "Tensor" in source_type:
            fault("arguments", f"'{source}' is a list of tensors, which only a backward function can have.")
        elif source_type not in (str(argument.type), str(argument.type).removeprefix("Optional[").removesuffix("]")):
            fault(
                "arguments",
                f"'{argument.name}' of {backward.operator} is a {argument.type}, '{source}' a {source_type}.",
            )
    if [str(result.type) for result in schema.returns] != ["Tensor"] * len(backward.gradients):
        fault(
            "gradients",
            f"there are {len(backward.gradients)} of them, but {backward.operator} returns {results(schema)}; name "
            "the input of every result.",
        )
