"""Which device a subcommand is about: any that PyTorch has."""

from collections.abc import Callable
from pathlib import Path

import click

from torch_conformance import device_profile
from torch_conformance.routes.pytorch import InPyTorch


def device_options(command: Callable[..., None]) -> Callable[..., None]:
    """``--device``, ``--module`` and ``--profile``, for :func:`route_of`."""
    options = (
        click.option("--device", "name", metavar="NAME", help="The device, as torch.device names it."),
        click.option(
            "--module", "modules", multiple=True, help="What to import, which brings the device to PyTorch. Repeatable."
        ),
        click.option(
            "--profile",
            "profile_file",
            type=click.Path(path_type=Path),
            help="What the device's makers say of it, a TOML file.",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def route_of(
    name: str | None, modules: tuple[str, ...], profile_file: Path | None, *, strict: bool = False
) -> InPyTorch:
    """The device that the options name. Raises ValueError if they name none, and what reading the profile raises."""
    said = device_profile.read(profile_file) if profile_file is not None else device_profile.Profile()
    torch_name = name or said.device
    if torch_name is None:
        raise ValueError("Which device? Give --device NAME, or a --profile that has one.")
    return InPyTorch(torch_name, modules or said.modules, said, strict)
