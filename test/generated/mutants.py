"""How many defects of generated kernels the conformance kit notices: ``python test/generated/mutants.py --sample 100``.

Each mutant is one change at one place of a skeleton, a function or an expression of codegen/kernels, made on the way
to the compiler (mutating_compiler.py) of xcpu with modules. What runs are tests of the kit's levels 2, 3 and 7, until
one fails: of a quick run, those that were the first to need a kernel with that place; then, without ``--quick``,
those of special values, all of the operators among the first (of at most OPERATORS), and level 2. Not counted are
places that no kernel has, which the preprocessor leaves out on this device, that do not compile when they are
changed, or where no result differs, of which ``equivalent_mutants.yaml`` has a list. What is printed as alive may
still be caught: by tests of another operator that has the same place.

The first run finds out which test needs which kernel (ten minutes of processor time); ``build/mutants`` keeps it.
"""

import argparse
import json
import os
import random
import re
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch  # each child has it then
import yaml

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "build" / "mutants"
KERNELS = ROOT / "codegen" / "kernels"
SUITE = ROOT / "kit" / "torch_conformance" / "suite"
LEVELS = [str(SUITE / "tensor"), str(SUITE / "ops")]
GRAPHS = str(SUITE / "compile")

CPU_SECONDS = 900
"""Of one mutant's tests. One that never ends is noticed by what it costs."""

OPERATORS = 6
"""Of how many operators all tests run, of those that need a place which many kernels have."""

REPLACEMENTS = {
    "+": "-", "-": "+", "*": "+", "/": "*", "%": "/", "<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=",
    "!=": "==", "&&": "||", "||": "&&", "<<": ">>", ">>": "<<", "&": "|", "|": "&", "^": "&",
    "+=": "-=", "-=": "+=", "*=": "+=", "/=": "*=", "=": "+=",
}  # fmt: skip
"""Binary operators, which the formatter puts between blanks, and what is put in their place."""

_PLACE = re.compile(
    r"(?<=[\w)\]] )(?P<operator>[-+*/]=?|[%&|^]|<<|>>|[<>=!]=|[<>=]|&&|\|\|)(?= [\w(\-!*~])"
    r"|(?P<number>(?<![.\w])\d+(?!\w))"
)


_BOUNDS = {"<", "<=", ">", ">="}
_CHOICE = re.compile(r"([\w.\[\]+ ]+?) [<>]=? ([\w.\[\]+ ]+?) \? (\1 : \2|\2 : \1)")


@dataclass(frozen=True)
class Mutant:
    """One change: ``before`` is a whole line of a kernel, or an expression."""

    origin: str
    before: str
    after: str

    def __str__(self) -> str:
        begin = next((i for i, (a, b) in enumerate(zip(self.before, self.after, strict=False)) if a != b), 0)
        return f"{self.origin}: {self.before.strip()[:100]} -> {self.after[max(begin - 12, 0) : begin + 16].strip()}"


def changes(line: str) -> Iterator[str]:
    """The line with one place changed."""
    code = line.partition("//")[0]
    for place in _PLACE.finditer(code):
        if place["operator"] == "=" and re.search(r"\b(const|int|Index|[iu]\d+|f\d+|T) \w+ $", code[: place.start()]):
            continue  # a declaration
        if place["operator"] in _BOUNDS and _CHOICE.search(code):
            continue  # either of two equal values
        new = REPLACEMENTS[place["operator"]] if place["operator"] else str(int(place["number"]) + 1)
        yield line[: place.start()] + new + line[place.end() :]


def of_texts() -> Iterator[Mutant]:
    """Those of skeletons, functions and what all kernels share."""
    files = [*KERNELS.glob("skeletons/*.c"), *KERNELS.glob("functions/*.h"), KERNELS / "preludes" / "common.h"]
    for path in sorted(files):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            is_code = line.strip() and not re.match(r"\s*(//|#(?!define)|typedef)", line)
            if is_code and len(line.strip()) > 12:  # shorter lines are at many places
                yield from (Mutant(f"{path.name}:{number}", line, after) for after in changes(line))


def of_expressions() -> Iterator[Mutant]:
    """Those of the tables."""

    def strings(value: object) -> Iterator[str]:
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict):
            for each in value.values():
                yield from strings(each)
        elif isinstance(value, list):
            for each in value:
                yield from strings(each)

    table = yaml.safe_load((KERNELS / "pointwise.yaml").read_text())  # type: ignore[no-untyped-call]
    for name, value in table.items():
        if name != "missing":
            for text in sorted(set(strings(value))):
                yield from (Mutant(f"pointwise.yaml {name}", f"= {text};", f"= {after};") for after in changes(text))


def equivalent() -> set[tuple[str, str]]:
    """Lines before and after changes that make no difference."""
    listed = yaml.safe_load(Path(__file__).with_name("equivalent_mutants.yaml").read_text())  # type: ignore[no-untyped-call]
    return {(each["before"], each["after"]) for each in listed}


def environment(log: Path, mutant: Mutant | None, cache: str) -> dict[str, str]:
    """Of a process that tests a mutant."""
    compiler = f"{sys.executable} -S -E {Path(__file__).parent / 'mutating_compiler.py'}"
    return {
        "CXX": compiler,
        "MUTANTS_FOLDER": str(FOLDER),
        "MUTANTS_LOG": str(log),
        "MUTANT": json.dumps({"before": mutant.before, "after": mutant.after} if mutant else None),
        "TORCH_BACKEND_CACHE": cache,
        "TORCH_BACKEND_XCPU_MODULES": "1",
        "OMP_NUM_THREADS": "1",
    }


def arguments(run_dir: str, *more: str) -> list[str]:
    """Of pytest, for the kit on xcpu."""
    plugin = ["-c", str(SUITE / "pytest.ini"), "-p", "torch_conformance.pytest_plugin", "--device", "xcpu"]
    return ["-q", *plugin, "--test-timeout", "60", "--run-dir", run_dir, *more]


def record(jobs: int) -> dict[str, list[str]]:
    """The kernels of levels 2 and 3 and of compiled graphs, and the tests that were the first to need each."""
    log = FOLDER / "record.jsonl"
    if not log.exists():
        FOLDER.mkdir(parents=True, exist_ok=True)
        partial = FOLDER / "record.partial"
        partial.unlink(missing_ok=True)
        with tempfile.TemporaryDirectory() as scratch:
            command = [sys.executable, "-m", "pytest", *arguments(scratch, "-n", str(jobs), "--quick", *LEVELS, GRAPHS)]
            subprocess.run(command, env=os.environ | environment(partial, None, scratch + "/cache"), check=True)
        partial.rename(log)
    first: dict[str, list[str]] = {}
    for line in log.read_text().splitlines():
        test, kernel, _ = json.loads(line)
        first.setdefault(kernel, []).append(str(SUITE / test.rpartition(" ")[0]))
    return first


def run(mutant: Mutant, *tests: str) -> str:
    """What became of it: killed, alive, does not compile, or unchanged: none of the tests' kernels differs."""
    with tempfile.TemporaryDirectory() as scratch:
        log = Path(scratch, "log")
        log.touch()
        child = os.fork()
        if child == 0:
            os.environ.update(environment(log, mutant, scratch + "/cache"))
            resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
            output = os.open(scratch + "/output", os.O_WRONLY | os.O_CREAT)
            os.dup2(output, 1)
            os.dup2(output, 2)
            os._exit(int(pytest.main([*arguments(scratch, "-x"), *tests])))
        _, status = os.waitpid(child, 0)
        changed = any(json.loads(line)[2] for line in log.read_text().splitlines())
        said = Path(scratch, "output").read_text(errors="replace")
        if status == 0:
            return "alive" if changed else "unchanged"
        if os.WIFEXITED(status) and os.WEXITSTATUS(status) != pytest.ExitCode.TESTS_FAILED:
            raise RuntimeError(f"{mutant}: the tests cannot be run:\n{said}")
        return "does not compile" if not changed and "module.cpp" in said and "error:" in said else "killed"


_OPERATOR = re.compile(r"::test_(?:forward|backward|out|in_place|special_values|on_other_device)_(\w+)_xcpu_")


def judge(mutant: Mutant, first: dict[str, list[str]], sources: dict[str, str]) -> str:
    """Its verdict."""
    tests = {test for kernel, text in sources.items() if mutant.before in text for test in first[kernel]}
    if not tests:
        return "no kernel"
    draw = random.Random(mutant.after)
    verdict = run(mutant, "--quick", *draw.sample(sorted(tests), len(tests)))
    if verdict != "alive":
        return verdict
    operators = sorted({name[1] for test in tests if (name := _OPERATOR.search(test))})
    some = draw.sample(operators, min(len(operators), OPERATORS))
    only = [f"--only=_{name}_xcpu_" for name in some]
    if only and (verdict := run(mutant, *only, LEVELS[1])) == "killed":
        return verdict
    if (verdict := run(mutant, str(SUITE / "ops" / "test_special_values.py"))) == "killed":
        return verdict
    return run(mutant, "--quick", LEVELS[0])


def main() -> int:
    """Print a line for each mutant that lives, and how many there were."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample", type=int, help="so many mutants, drawn at random (default: all)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="mutants with this in their origin: reduce.c, 'pointwise.yaml lerp'")
    parser.add_argument("--jobs", type=int, default=2, help="of the first run")
    chosen = parser.parse_args()
    first = record(chosen.jobs)
    sources = {path.stem: path.read_text() for path in FOLDER.glob("*.cpp") if path.stem in first}
    draw = random.Random(chosen.seed)
    known = equivalent()
    mutants = [
        mutant
        for mutant in dict.fromkeys((*of_texts(), *of_expressions()))
        if chosen.only in mutant.origin and (mutant.before.strip(), mutant.after.strip()) not in known
    ]
    if chosen.sample is not None:
        mutants = draw.sample(mutants, min(chosen.sample, len(mutants)))
    control = draw.sample(sorted({test for tests in first.values() for test in tests}), 40)
    if (verdict := run(Mutant("control", "no kernel has this", ""), "--quick", *control)) != "unchanged":
        sys.exit(f"Kernels as they are were {verdict}: {' '.join(control)}")
    counts: dict[str, int] = {}
    for mutant in mutants:
        verdict = judge(mutant, first, sources)
        counts[verdict] = counts.get(verdict, 0) + 1
        print(f"{verdict:16} {mutant}", flush=True)
    killed, alive = counts.get("killed", 0), counts.get("alive", 0)
    print(counts, f"caught: {killed} of {killed + alive}", f"torch {torch.__version__}")
    return int(killed < 0.95 * (killed + alive))


if __name__ == "__main__":
    sys.exit(main())
