"""Run the tests of test/tests.toml: ``tests.py PART...``; ``test`` and ``more`` are several; ``--list`` prints rows.

All rows run, whatever the first ones say. How long each took comes at the end, before the last line of the last one.
"""

import argparse
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10, where pytest brings it
    import tomli as tomllib

ROOT = Path(__file__).parents[1]
SETTINGS = {"DEVICE": os.environ.get("DEVICE", "xcpu"), "BUILD": os.environ.get("BUILD", "build/make")}
JOBS = os.environ.get("JOBS") or str(os.cpu_count())
TOOLS = {
    # Threads of OpenMP in several processes that wait for each other's cores double the processor time. A process runs
    # neighbours, as far as it goes, so that what a file prepares for its tests is prepared once.
    "pytest": f"OMP_NUM_THREADS=1 {sys.executable} -m pytest -q -m 'not long' --numprocesses {JOBS} --dist worksteal",
    "kit": f"{sys.executable} -m torch_backend check --jobs {JOBS}",
    "any-device": f"{sys.executable} -m torch_conformance check --jobs {JOBS}",
    "ctest": f"ctest --test-dir {SETTINGS['BUILD']} --output-on-failure --no-tests=error --parallel {JOBS}",
    "chaos": f"{sys.executable} -W ignore test/chaos",
    "simulation": f"{sys.executable} -m torch_conformance.simulation",
    "variants": f"{sys.executable} -m torch_conformance.variants",
    "make": "make --no-print-directory",
}
SUMMARY = re.compile(r"\d+ (passed|failed|error)")


@dataclass(frozen=True)
class Row:
    """One call of a test runner.

    Attributes:
        typed: the environment, one of the tools, and its arguments.
        about: the paths whose changes it tests.
        before: what has to have run once: it builds a simulated driver.
        optional: what is missing where the device does not work and the row is left out for it; "": it fails there.
    """

    part: str
    name: str
    typed: str
    about: tuple[str, ...] = ()
    before: str = ""
    optional: str = ""


def _read(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text(encoding="utf-8"))


TABLE = _read(ROOT / "test" / "tests.toml")


def rows() -> list[Row]:
    """All of them; in each part the core's come first."""
    found = list(_rows_of("", TABLE))
    for project in sorted(path.parent for path in ROOT.glob("backends/*/pyproject.toml")):
        here = f"backends/{project.name}"
        about = (*TABLE["touched"]["vendors"].split(), here)
        found.append(Row("vendors", f"Tests of {here}", f"make test-vendor-{project.name}", about))
        if (project / "test" / "tests.toml").is_file():
            found += _rows_of(here, _read(project / "test" / "tests.toml"))
    return found


def _rows_of(here: str, table: dict[str, Any]) -> Iterator[Row]:
    for part, listed in table.items():
        if part in ("touched", "first") or not isinstance(listed, dict):
            continue
        about = (*TABLE["touched"].get(part, "").split(), *([here] if here else []))
        optional = table.get("optional", "") if part in (*TABLE["test"], *TABLE["more"]) else ""
        for name, typed in listed.items():
            text = Template(f"{table.get('environment', '')} {typed}").substitute(SETTINGS, HERE=ROOT / here)
            yield Row(part, Template(name).substitute(SETTINGS), text, about, table.get("before", ""), optional)


def changed(base: str) -> list[str]:
    """The files that differ from where this branch has left ``base``."""

    def lines(*command: str) -> list[str]:
        done = subprocess.run(["git", *command], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
        return done.stdout.splitlines()

    (fork,) = lines("merge-base", base, "HEAD")
    return lines("diff", "--name-only", fork) + lines("ls-files", "--others", "--exclude-standard")


def touch(paths: list[str], places: Iterable[str]) -> bool:
    """Whether one of ``paths`` is, or is in, one of ``places``."""
    return any(f"{path}/".startswith(f"{place}/") for path in paths for place in places)


def nearest(paths: list[str]) -> list[Row]:
    """A row of those of test/python that a change is tested by first: what is changed itself, and by its folders."""
    files = [path for path in paths if re.fullmatch(r"test/(python|codegen)/test_\w+\.py", path)]
    for folder, names in TABLE["first"].items():
        if touch(paths, [folder]):
            files += [f"test/python/test_{name}.py" for name in names.split()]
    there = [path for path in dict.fromkeys(files) if (ROOT / path).is_file()]
    typed = f"TORCH_BACKEND={SETTINGS['DEVICE']} pytest {' '.join(there)}"
    return [Row("changed", "Python near the change", typed)] if there else []


def spelled(typed: str) -> tuple[dict[str, str], list[str]]:
    """The environment, and the command, of what a row says."""
    words = [each for word in shlex.split(typed) for each in _braces(word)]
    tool = next(number for number, word in enumerate(words) if word in TOOLS)
    before = [*words[:tool], *shlex.split(TOOLS[words[tool]])]
    settings = [word for word in before if re.match(r"[A-Z0-9_]+=", word)]
    return dict(word.split("=", 1) for word in settings), [*before[len(settings) :], *words[tool + 1 :]]


def _braces(word: str) -> list[str]:
    """``a{b,c}d`` is abd and acd, as in a shell."""
    match = re.fullmatch(r"(.*)\{(.*)\}(.*)", word)
    return [f"{match[1]}{choice}{match[3]}" for choice in match[2].split(",")] if match else [word]


class Runner:
    """Runs rows, and remembers how long each took."""

    def __init__(self) -> None:
        """Nothing has run."""
        self.times: list[str] = []
        self.failed = False
        self.last_line = ""
        self._known: dict[str, bool] = {}

    def run(self, row: Row) -> None:
        """Run it, unless what it needs is not there."""
        print(f"\n== {row.part}: {row.name}", flush=True)
        begun = time.monotonic()
        outcome = self._outcome(row)
        self.failed |= outcome == "failed"
        self.times.append(f"{time.monotonic() - begun:7.0f} s  {outcome:8}  {row.part}: {row.name}")
        print(self.times[-1], flush=True)

    def _outcome(self, row: Row) -> str:
        environment, command = spelled(row.typed)
        if row.before and not self._once(row.before, *spelled(row.before)):
            return "failed"
        device = environment.get("TORCH_BACKEND")
        # Without this, a device that cannot be activated would only skip the tests that need one.
        info = [sys.executable, "-m", "torch_backend", "info"]
        if device and not self._once(str(environment), environment, info, quiet=True):
            print(row.optional or f"{device} does not work")
            return "left out" if row.optional else "failed"
        return "passed" if self._call(environment, command, quiet="test/chaos" in command) else "failed"

    def _once(self, key: str, environment: dict[str, str], command: list[str], quiet: bool = False) -> bool:
        if key not in self._known:
            self._known[key] = self._call(environment, command, quiet)
        return self._known[key]

    def _call(self, environment: dict[str, str], command: list[str], quiet: bool) -> bool:
        """Whether it succeeds. ``quiet``: what it prints is shown if it does not."""
        process = subprocess.Popen(
            command, cwd=ROOT, env=os.environ | environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        assert process.stdout is not None
        printed = bytearray()
        while text := os.read(process.stdout.fileno(), 65536):
            printed += text
            if not quiet:
                sys.stdout.buffer.write(text)
                sys.stdout.flush()
        succeeded = process.wait() == 0
        lines = printed.decode(errors="replace").splitlines()
        self.last_line = next((line for line in reversed(lines) if SUMMARY.search(line)), self.last_line)
        if quiet and not succeeded:
            print("\n".join(lines))
        return succeeded


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="+", metavar="PART")
    parser.add_argument("--since", metavar="COMMIT", help="first the rows that the changes since then touch")
    parser.add_argument("--list", action="store_true", help="print the rows, and run none")
    arguments = parser.parse_args()
    parts = [part for name in arguments.parts for part in (TABLE[name] if name in ("test", "more") else [name])]
    chosen = sorted((row for row in rows() if row.part in parts), key=lambda row: parts.index(row.part))
    if missing := set(parts) - {row.part for row in chosen}:
        parser.error(
            f"no rows for {', '.join(sorted(missing))}; there are {', '.join(sorted({x.part for x in rows()}))}"
        )
    if arguments.since:
        paths = changed(arguments.since)
        not_asked = {"vendors", *TABLE["more"]} - set(parts)
        others = [row for row in rows() if row.part in not_asked and touch(paths, row.about)]
        chosen = nearest(paths) + sorted(chosen + others, key=lambda row: not touch(paths, row.about))
    if arguments.list:
        print("\n".join(f"{row.part}: {row.name}: {' '.join(row.typed.split())}" for row in chosen))
        return
    runner = Runner()
    for row in chosen:
        runner.run(row)
    print("\nSeconds of each row", *runner.times, "", runner.last_line, sep="\n")
    sys.exit(runner.failed)


if __name__ == "__main__":
    main()
