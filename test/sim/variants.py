"""Whether a simulation and the conformance kit notice faults of a device library: ``python test/sim/variants.py npu``.

``variants.toml`` of the simulation lists them, each an edit of the device's sources: a call that is missing, an order
or a flag that is wrong. Each is applied to a copy, built, and tried on the tests of the kit that it names. It is caught
if they fail, or if the simulation refuses a call that it does not refuse the unedited library, which has to pass all of
these tests. Prints a table of what caught what.

The copies are in ``build/variants``, one for each job, in which only what a variant edits is compiled again.
"""

import argparse
import filecmp
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from simulation import ROOT, build, libraries
from torch_conformance.levels import SUITE

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

LISTS = {tomllib.loads(path.read_text())["device"]: path for path in Path(__file__).parent.glob("*/variants.toml")}
"""The list of variants for each device with one."""

SECONDS = 300  # for the tests of one variant
_FAILED = re.compile(r"^(?:FAILED|ERROR) \S*?([^/\s]+\.py::[^\s\[]+)", re.MULTILINE)


@dataclass(frozen=True)
class Variant:
    """One edit; the unedited library has none.

    Attributes:
        name: says what is wrong.
        tests: paths in the kit's suite, with a test's name behind them if one is enough.
        file: in the device's folder.
        old: what is there once, and is replaced by ``new``.
        environment: more of it, for what an option turns on.
    """

    name: str
    tests: tuple[str, ...]
    file: str = ""
    old: str = ""
    new: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)

    def apply(self, folder: Path) -> None:
        """Edit the copy in ``folder``. Raises ValueError if the text is not there, or more than once."""
        if not self.file:
            return
        path = folder / self.file
        text = path.read_text()
        if (times := text.count(self.old)) != 1:
            raise ValueError(f"'{self.name}': {self.file} has {self.old!r} {times} times; it has to be there once")
        path.write_text(text.replace(self.old, self.new))


@dataclass(frozen=True)
class Simulated:
    """A device whose driver is simulated, with the variants of its library."""

    name: str
    environment: Mapping[str, str]
    variants: tuple[Variant, ...]


def read(name: str) -> Simulated:
    """The device and its variants."""
    content = tomllib.loads(LISTS[name].read_text())
    variants = tuple(Variant(**{**entry, "tests": tuple(entry["tests"])}) for entry in content["variant"])
    return Simulated(name, content["environment"], variants)


def build_library(device: Simulated, variant: Variant, name: str) -> Path:
    """The library of a variant, in the copy of the sources that is called ``name``. Other files keep their times."""
    copy = ROOT / "build" / "variants" / device.name / name
    for folder in (device.name, "common"):
        for source in (ROOT / "backends" / folder).iterdir():
            target = copy / "backends" / folder / source.name
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.is_file() and not (target.exists() and filecmp.cmp(source, target, shallow=False)):
                shutil.copyfile(source, target)
    if not (copy / "include").exists():
        (copy / "include").symlink_to(ROOT / "include")
    variant.apply(copy / "backends" / device.name)
    build(copy / "backends" / device.name, copy / "build", copy)
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


def try_on(library: Path, variant: Variant, device: Simulated, simulation: Path) -> Outcome:
    """Run a variant's tests on its library."""
    with tempfile.TemporaryDirectory() as scratch:
        log = Path(scratch) / "refusals"
        values = {key: text.format(simulation=simulation, log=log) for key, text in device.environment.items()}
        values |= variant.environment
        inherited = {key: text for key, text in os.environ.items() if not key.startswith("TORCH_BACKEND")}
        command = [sys.executable, "-m", "pytest", "-q", "-rfE", "-c", SUITE / "pytest.ini", "-p", "no:cacheprovider"]
        command += ["-p", "torch_conformance.pytest_plugin", "--device", library, "--run-dir", scratch]
        process = subprocess.Popen(
            [*command, *(SUITE / test for test in variant.tests)],
            env=inherited | values,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            said, _ = process.communicate(timeout=SECONDS)
            code = process.returncode
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            said, code = f"{process.communicate()[0]}\nFAILED /does_not_end.py::after_{SECONDS}_s", 1
        refused = log.read_text().splitlines() if log.exists() else []
    failed = tuple(dict.fromkeys(_FAILED.findall(said)))
    if code < 0 or (code != 0 and not failed):
        last = (said.strip().splitlines() or [""])[-1]
        failed = (f"the process ended with {code}: {last}",)
    return Outcome(failed, tuple(dict.fromkeys(refused)))


def main() -> int:
    """Returns 0 if every variant was caught."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("device", choices=LISTS)
    parser.add_argument("--only", default="", help="variants whose name, or file, has this")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    device = read(options.device)
    chosen = [variant for variant in device.variants if options.only in f"{variant.name}\n{variant.file}"]
    simulation = libraries(device.name)

    def outcome(variant: Variant) -> Outcome:
        return try_on(build_library(device, variant, threading.current_thread().name), variant, device, simulation)

    alive = 0
    with ThreadPoolExecutor(options.jobs, thread_name_prefix="job") as pool:
        library = build_library(device, Variant("unedited", ()), "unedited")
        unedited: list[Variant] = []
        for variant in chosen:
            for test in variant.tests:
                tried = Variant("unedited", (test,), environment=variant.environment)
                unedited += [tried] if tried not in unedited else []
        good = list(pool.map(lambda tried: try_on(library, tried, device, simulation), unedited))
        for tried, found in zip(unedited, good, strict=True):
            if found.failed:
                print(f"The unedited library fails in {tried.tests[0]}: {found.caught_by}")
                return 1
        before = {line for found in good for line in found.refused}
        print("| what is wrong | caught by |\n|---|---|", flush=True)
        for variant, found in zip(chosen, pool.map(outcome, chosen), strict=True):
            new = Outcome(found.failed, tuple(line for line in found.refused if line not in before))
            alive += not new.caught_by
            print(f"| {variant.name} | {new.caught_by or 'NOTHING'} |", flush=True)
    print(f"\n{len(chosen) - alive} of {len(chosen)} were caught.")
    return 1 if alive or not chosen else 0


if __name__ == "__main__":
    sys.exit(main())
