"""``list``: which tests there are, and which every device has to pass."""

from dataclasses import asdict

import click

from torch_conformance import fingerprint, inventory
from torch_conformance.cli import output
from torch_conformance.features import FEATURES
from torch_conformance.levels import LEVELS
from torch_conformance.levels import find as find_level
from torch_conformance.routes.pytorch import InPyTorch


@click.command("list", short_help="List the tests.")
@click.option("--device", default="cpu", show_default=True, help="The device that tests are made for.")
@click.option("--module", "modules", multiple=True, help="What to import, which brings the device. Repeatable.")
@click.option("--level", help="Only this level: number or name.")
@click.option("--must-pass", is_flag=True, help="Only what every device has to pass.")
@click.option("--features", is_flag=True, help="List what devices may be without, and who says so, instead.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON for programs, with what tests prove and need.")
def list_tests(
    device: str, modules: tuple[str, ...], level: str | None, must_pass: bool, features: bool, as_json: bool
) -> None:
    """List the tests of the levels that need torch, with a hash of the suite: reports with the same hash had these.

    A device has to pass a test that needs nothing which devices may be without: no feature, no table, no second device.
    Tests of a dtype are for the devices that have it. The names of some tests have the device's in them.
    """
    if features:
        for feature in FEATURES.values():
            print(f"{feature.name}: {feature.means}\n    {feature.source}")
        return
    try:
        levels = LEVELS if level is None else (find_level(level),)
        found = inventory.of_suite(InPyTorch(device, modules), levels)
    except ValueError as error:
        output.fail(str(error), code=2)
    entries = [entry for entry in found if entry.must_pass or not must_pass]
    if as_json:
        tests = [{**asdict(entry), "level": entry.level.name, "must_pass": entry.must_pass} for entry in entries]
        output.print_json({"version": 1, "suite": fingerprint.of_suite(), "tests": tests})
        return
    print(f"# suite {fingerprint.of_suite()}")
    for each in levels:
        here = [entry for entry in entries if entry.level == each]
        everything = sum(entry.level == each for entry in found)
        if everything:
            print(f"# level {each.number} {each.name}: {len(here)} of {everything} tests")
            for entry in here:
                print(entry.test)
