"""``torch-backend explain``: how an operator runs on a device, and what it takes to give it a kernel."""

from dataclasses import asdict
from typing import Annotated

import typer

from torch_backend.cli import _choice, _output


def explain(
    op: Annotated[str, typer.Argument(help="An operator, 'softmax', or an overload, 'aten::softmax.int'.")],
    device: Annotated[
        str | None,
        typer.Option(
            "--device", help="A name from `torch-backend list`, or a path; by default what `import torch` uses."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for programs.")] = False,
) -> None:
    """Say how an operator runs on a device, and what it would take to write a kernel for it.

    JSON: {"device": name, "overloads": [...]}, each with the attributes of torch_backend.operators.OverloadExplanation.
    """
    plugin = _choice.activate(device, f"explain {op} --device <{{}}>")
    from torch_backend import operators

    try:
        found = operators.explain(op)
    except ValueError as error:
        _output.fail(str(error), code=2)
    if as_json:
        _output.print_json({"device": plugin.name, "overloads": [asdict(entry) for entry in found]})
    else:
        print(found)
