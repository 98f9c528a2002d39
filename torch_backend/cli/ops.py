"""``torch-backend ops``: every operator, with what serves it on a device or with what PyTorch asks of a device."""

import click

from torch_backend.cli import _choice, _needed, _output, _requirements, _sources


@click.command(short_help="List operators, and what serves each or is asked.")
@_choice.device_option
@click.option("--source", help="Only operators whose kernel comes from there, e.g. 'fallback'.")
@click.option(
    "--op",
    help="Only these: an operator, 'softmax', an overload, 'softmax.int', or a pattern, '*softmax*'. "
    "With '::' also outside of namespace aten.",
)
@click.option("--declarations", is_flag=True, help="List what PyTorch asks of a device: must, may, need not.")
@click.option("--requirement", help="With --declarations, only 'must', 'may' or 'need not'.")
@click.option(
    "--diff",
    metavar="OLD",
    help="List what PyTorch asks differently than in another version: a file that --declarations --json wrote, "
    "or the site-packages directory of another torch.",
)
@click.option(
    "--needed-for",
    metavar="SCRIPT",
    help="Run a Python script, and list the operators that a device would have to have for it. ARGUMENTS are the "
    "script's; write -- before options among them.",
)
@click.argument("arguments", nargs=-1)
@_output.json_option
def ops(
    device: str | None,
    source: str | None,
    op: str | None,
    declarations: bool,
    requirement: str | None,
    diff: str | None,
    needed_for: str | None,
    arguments: tuple[str, ...],
    as_json: bool,
) -> None:
    """List PyTorch's operators, and where each one's kernel for a device comes from.

    JSON: {"device": name, "torch": version, "counts": {source: number}, "operators": {overload: source}}; with
    --declarations that of torch_backend.declarations.Declarations.to_json, and with --diff of Difference.to_json; with
    --needed-for {"device": name, "operators": [...]}, each with the attributes of
    torch_backend.operators.NeededOperator.
    """
    if needed_for is not None:
        _needed.run(needed_for, arguments, device, as_json)
        return
    if arguments:
        _output.fail(f"{arguments[0]} is for the script of --needed-for, which is not given.", code=2)
    if declarations and diff is not None:
        _output.fail("--diff lists declarations already: leave out --declarations.", code=2)
    if not declarations and diff is None:
        if requirement is not None:
            _output.fail("--requirement is about declarations: add --declarations.", code=2)
        _sources.run(device, source, op, as_json)
        return
    for option, value in (("--device", device), ("--source", source)):
        if value is not None:
            _output.fail(f"{option} is about a device, and declarations are about PyTorch alone: leave it out.", code=2)
    if diff is None:
        _requirements.list_declarations(requirement, op, as_json)
        return
    for option, value in (("--requirement", requirement), ("--op", op)):
        if value is not None:
            _output.fail(f"{option} does not work with --diff, which lists every difference: leave it out.", code=2)
    _requirements.compare(diff, as_json)
