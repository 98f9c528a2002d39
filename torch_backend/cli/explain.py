"""``torch-backend explain``: how an operator runs on a device, and what it takes to give it a kernel."""

from dataclasses import asdict

import click

from torch_backend.cli import _choice, _output


@click.command(short_help="Say how an operator runs on a device.")
@click.argument("op")
@_choice.device_option
@_output.json_option
def explain(op: str, device: str | None, as_json: bool) -> None:
    """Say how an operator runs on a device, and what it would take to write a kernel for it.

    OP is an operator, 'softmax', or an overload, 'aten::softmax.int'.

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
