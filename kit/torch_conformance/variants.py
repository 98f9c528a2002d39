"""Whether a simulation and the conformance kit notice faults of a device library.

``python -m torch_conformance.variants PROJECT``: ``variants.toml`` of the project lists them, each an edit of the
device's sources: a call that is missing, an order or a flag that is wrong. Each is applied to a copy, built, and tried
on the tests of the kit that it names. It is caught if they fail, or if the simulation refuses a call that it does not
refuse the unedited library, which has to pass all of these tests. Prints a table of what caught what.

The copies are in ``build/variants`` of the project, one for each job, in which only what a variant edits is compiled
again.
"""

import argparse
import contextlib
import filecmp
import functools
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from torch_conformance.levels import SUITE
from torch_conformance.simulation import build, libraries
from torch_conformance.trials import Trials

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SECONDS = 300  # for the tests of one variant


@dataclass(frozen=True)
class Variant:
    """One edit; the unedited library has none.

    Attributes:
        name: says what is wrong.
        tests: paths in the kit's suite, with a test's name behind them if one is enough.
        file: in the project's ``csrc``.
        old: what is there once, and is replaced by ``new``.
        environment: more of it, for what an option turns on.
    """

    name: str
    tests: tuple[str, ...]
    file: str = ""
    old: str = ""
    new: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)

    def edited(self, folder: Path) -> str:
        """The file with the edit. Raises ValueError if the text is not there, or more than once."""
        text = (folder / self.file).read_text()
        if (times := text.count(self.old)) != 1:
            raise ValueError(f"'{self.name}': {self.file} has {self.old!r} {times} times; it has to be there once")
        return text.replace(self.old, self.new)

    def apply(self, folder: Path) -> None:
        """Edit the copy in ``folder``."""
        if self.file:
            (folder / self.file).write_text(self.edited(folder))


@dataclass(frozen=True)
class Simulated:
    """A device whose driver is simulated, with the variants of its library."""

    project: Path
    environment: Mapping[str, str]
    variants: tuple[Variant, ...]

    def check(self) -> None:
        """Raise ValueError if a variant cannot be made, has the name of another, or names tests that are not there."""
        names = set()
        for variant in self.variants:
            variant.edited(self.project / "csrc")
            missing = [test for test in variant.tests if not (SUITE / test.partition("::")[0]).is_file()]
            if missing or variant.name in names:
                raise ValueError(f"'{variant.name}' is there twice, or its tests are not: {missing}")
            names.add(variant.name)


def read(project: Path) -> Simulated:
    """The device and its variants."""
    content = tomllib.loads((project / "variants.toml").read_text())
    variants = tuple(
        Variant(name, tuple(tests or entry["tests"]), entry["name"], old, new, entry.get("environment", {}))
        for entry in content["file"]
        for name, old, new, *tests in entry["variants"]
    )
    return Simulated(project, content["environment"], variants)


def build_library(device: Simulated, variant: Variant, name: str) -> Path:
    """The library of a variant, in the copy of the sources that is called ``name``. Other files keep their times."""
    copy = device.project / "build" / "variants" / name
    for source in (device.project / "CMakeLists.txt", *(device.project / "csrc").iterdir()):
        target = copy / source.relative_to(device.project)
        target.parent.mkdir(parents=True, exist_ok=True)
        if not (target.exists() and filecmp.cmp(source, target, shallow=False)):
            shutil.copyfile(source, target)
    variant.apply(copy / "csrc")
    build(copy, copy / "build", copy)
    return next((copy / "build").glob("libtorch_backend_*.so"))


@dataclass(frozen=True)
class Outcome:
    """What a variant's tests have shown."""

    failed: tuple[str, ...]
    refused: tuple[str, ...]

    @property
    def caught_by(self) -> str:
        """For the table; empty if nothing has caught it."""
        parts = []
        if self.refused:
            parts.append(f"the simulation: {self.refused[0]}")
        if self.failed:
            more = f" and {len(self.failed) - 1} more" if len(self.failed) > 1 else ""
            parts.append(f"the kit: {self.failed[0]}{more}")
        return "; ".join(parts)


def try_on(library: Path, variant: Variant, device: Simulated, simulation: Path, trials: Trials) -> Outcome:
    """Run a variant's tests on its library."""
    with tempfile.TemporaryDirectory() as scratch:
        log = Path(scratch) / "refusals"
        values = {key: text.format(simulation=simulation, log=log) for key, text in device.environment.items()}
        trial = trials.run(library, variant.tests, {**values, **variant.environment}, seconds=SECONDS)
        refused = log.read_text().splitlines() if log.exists() else []
    failed = tuple(dict.fromkeys(test.partition("[")[0] for test in trial.failed))
    if trial.code < 0 or (trial.code != 0 and not failed):
        last = (trial.said.strip().splitlines() or [""])[-1]
        failed = (f"the process ended with {trial.code}: {last}",)
    return Outcome(failed, tuple(dict.fromkeys(refused)))


def main() -> int:
    """Returns 0 if every variant was caught."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("project", type=Path, help="the project's folder")
    parser.add_argument("--only", default="", help="variants whose name, or file, has this")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    device = read(options.project.resolve())
    chosen = [variant for variant in device.variants if options.only in f"{variant.name}\n{variant.file}"]
    simulation = libraries(device.project)
    own = threading.local()  # of a job

    def start() -> None:
        own.trials = Trials(Path(scratch, threading.current_thread().name))
        end.callback(own.trials.close)

    @functools.cache
    def unedited(test: str, environment: tuple[tuple[str, str], ...]) -> Outcome:
        return try_on(
            library, Variant("unedited", (test,), environment=dict(environment)), device, simulation, own.trials
        )

    def verdict(variant: Variant) -> str:
        """What caught it, for the table; empty if nothing has."""
        good = {test: unedited(test, tuple(variant.environment.items())) for test in variant.tests}
        if wrong := [
            f"the unedited library fails in {test}: {found.caught_by}" for test, found in good.items() if found.failed
        ]:
            raise RuntimeError(wrong[0])
        edited = build_library(device, variant, threading.current_thread().name)
        found = try_on(edited, variant, device, simulation, own.trials)
        before = {line for each in good.values() for line in each.refused}
        return Outcome(found.failed, tuple(line for line in found.refused if line not in before)).caught_by

    alive = 0
    with contextlib.ExitStack() as end, ThreadPoolExecutor(options.jobs, "job", start) as pool:
        scratch = end.enter_context(tempfile.TemporaryDirectory())
        library = build_library(device, Variant("unedited", ()), "unedited")
        print("| what is wrong | caught by |\n|---|---|", flush=True)
        for variant, caught_by in zip(chosen, pool.map(verdict, chosen), strict=True):
            alive += not caught_by
            print(f"| {variant.name} | {caught_by or 'NOTHING'} |", flush=True)
    print(f"\n{len(chosen) - alive} of {len(chosen)} were caught.")
    return 1 if alive or not chosen else 0


if __name__ == "__main__":
    sys.exit(main())
