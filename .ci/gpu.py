"""``make gpu``: what a machine with a GPU tells of a device of torch_backend in ten minutes, the most telling first.

    python .ci/gpu.py [--device xcuda] [--against cuda] [--wheels DIR] [--out DIR] [--seconds 570] [--quick] [PART ...]

The machine is bare: Python with torch, no package index. Wheels are taken from a folder, or torch_backend, the kit and
the device's project are built here. Each part has a limit of its own and stops no other; what it found is written when
it ends, to ``report.json`` and ``report.md``, with one JSON file for each part that measures or tests, which
``torch-conformance compare`` compares with those of another day. Times are given as times of the other device's, with
what is aimed at.
"""

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from pathlib import Path

ROOT = Path(__file__).parents[1]
PROJECTS = {"xcuda": "backends/cuda", "ocl": "backends/opencl"}

# How many times as long as the other device's a call may take: the first pattern of PART: NAME that matches holds.
AIMS = (
    ("calls: *", 1.1),
    ("kernels: mm, *", 1.02),
    ("kernels: *cop*", 1.02),
    ("kernels: *attention*", 1.43),
    ("kernels: *sort*", 1.5),
    ("kernels: topk*", 1.5),
    ("kernels: *", 1.11),
    ("models: *", 1.18),
)

_FACTS = """
import os, platform, sys, torch
print(sys.version.split()[0], platform.machine(), os.cpu_count(), "processors")
print("torch", torch.__version__, "CUDA", torch.version.cuda, "cuDNN", torch.backends.cudnn.version())
for index in range(torch.cuda.device_count()):
    print(torch.cuda.get_device_properties(index))
"""

_SMOKE = """
import sys, torch, torch_backend
device = sys.argv[1]
x = torch.arange(1000.0, device=device)
assert (x * 2).sum().item() == 999000
assert abs(x.softmax(0).sum().item() - 1) < 1e-5
ones = torch.ones(64, 64, device=device)
assert (ones @ ones).sum().item() == 64**3
print(torch.randn(3, 3, device=device))
"""


@dataclass(frozen=True)
class Part:
    """One thing that is run.

    Attributes:
        name: what it is called on the command line.
        seconds: that it may take.
        command: what is run, in an empty folder.
        result: the JSON file that it writes as it goes, if it does.
        other: whether it is of the device that is compared with, in a process without torch_backend: PyTorch's autograd
            serves one accelerator of a process.
    """

    name: str
    seconds: float
    command: list[str]
    result: Path | None = None
    other: bool = False


@dataclass(frozen=True)
class Outcome:
    """How a part ended. ``code``: of the process; None if its time was over."""

    name: str
    code: int | None
    seconds: float
    said: str


def parts(arguments: argparse.Namespace, site: Path) -> Iterator[Part]:
    """All of them, the most telling first."""
    python, device, out = sys.executable, arguments.device, arguments.out
    yield Part("facts", 40, [python, "-c", _FACTS])
    yield Part("install", 300, ["bash", "-ec", _installation(arguments, site)])
    yield Part("doctor", 60, [python, "-m", "torch_backend", "doctor", device])
    yield Part("smoke", 60, [python, "-c", _SMOKE, device])
    measure = [python, "-m", "torch_conformance", "measure", *(["--quick"] if arguments.quick else []), "--device"]
    ours = [device, "--module", "torch_backend"]
    together = [*ours, "--against", arguments.against]
    for name, part, seconds, which in (
        ("models", "models", 120, ours),
        ("other_models", "models", 80, [arguments.against]),
        ("kernels", "kernels", 120, together),
        ("calls", "calls", 40, together),
    ):
        file = out / f"{name}.json"
        yield Part(name, seconds, [*measure, *which, part, "--json", str(file)], file, which[0] != device)
    jobs = str(min(12, os.cpu_count() or 1))
    check = [python, "-m", "torch_backend", "check", device, "--quick", "--jobs", jobs, "--json"]
    for name, seconds, more in (("abi", 60, ["--level", "abi"]), ("kit", 400, [])):
        file = out / f"{name}.json"
        yield Part(name, seconds, [*check, str(file), *more], file)


def _installation(arguments: argparse.Namespace, site: Path) -> str:
    """What puts torch_backend, the kit and the device's project into ``site``."""
    pip = f"'{sys.executable}' -m pip install --quiet --no-index --no-deps --no-compile --target '{site}'"
    if arguments.wheels is not None:
        return f"{pip} '{arguments.wheels}'/*.whl"
    settings = f"cd '{ROOT}'; export PYTHONPATH='{site}' CMAKE_BUILD_PARALLEL_LEVEL={os.cpu_count()}"
    folders = [".", "kit", *filter(None, [PROJECTS.get(arguments.device)])]
    return "\n".join([settings, *(f"{pip} --no-build-isolation ./{folder}" for folder in folders)])


def run(part: Part, left: float, environment: dict[str, str], folder: str) -> Outcome:
    """Run a part, at most so long. Ends all that it has started."""
    started = time.monotonic()
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(
            part.command, cwd=folder, env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
        code: int | None = None
        try:
            code = process.wait(min(part.seconds, left))
        except subprocess.TimeoutExpired:
            process.terminate()  # which the kit understands, and tells what it has
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        log.seek(0)
        said = log.read()
    return Outcome(part.name, code, round(time.monotonic() - started, 1), said)


def aim(part: str, name: str) -> float:
    """How many times as long as the other device's it may take."""
    return next(most for pattern, most in AIMS if fnmatchcase(f"{part}: {name}", pattern))


def page(arguments: argparse.Namespace, outcomes: list[Outcome], results: dict[str, Path]) -> str:
    """The report as Markdown."""
    lines = [
        f"# {arguments.device} against {arguments.against}, {time.strftime('%Y-%m-%d %H:%M')}, {platform.node()}",
        "",
    ]
    lines += ["| part | ended | seconds |", "|---|---|---:|"]
    for each in outcomes:
        ended = "time was over" if each.code is None else "well" if each.code == 0 else f"with {each.code}"
        lines.append(f"| {each.name} | {ended} | {each.seconds} |")
    contents = {name: _read(file) for name, file in results.items()}
    others = {(row["part"], row["name"]): row for row in contents.pop("other_models", {}).get("rows", [])}
    for name, content in contents.items():
        if "rows" in content:
            lines += ["", f"## {name}", "", "| | time | times the other's | aim | |", "|---|---:|---:|---:|---|"]
            lines += [_row(row, others.get((row["part"], row["name"]), row), arguments) for row in content["rows"]]
        elif "levels" in content:
            lines += ["", f"## {name}", "", "| level | passed | failed | not offered |", "|---|---:|---:|---:|"]
            for level in content["levels"]:
                counts = level["counts"]
                failed = sum(counts[kind] for kind in ("failed", "crashed", "hung"))
                lines.append(f"| {level['name']} | {counts['passed']} | {failed} | {counts['not offered']} |")
    for each in outcomes:
        lines += ["", f"## What {each.name} said", "", "```text", *each.said.strip().splitlines()[-60:], "```"]
    return "\n".join(lines) + "\n"


def _read(file: Path) -> dict:  # type: ignore[type-arg]
    try:
        return dict(json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError):  # it was ended before there was any
        return {}


def _row(row: dict, other_row: dict, arguments: argparse.Namespace) -> str:  # type: ignore[type-arg]
    ours, other = row["times"].get(arguments.device), other_row["times"].get(arguments.against)
    if ours is None:
        return f"| {row['name']} | {row['errors'].get(arguments.device, '-')} | | | |"
    time_text = f"{ours['median'] * 1e6:,.1f} us"
    if other is None:
        return f"| {row['name']} | {time_text} | - | | {other_row['errors'].get(arguments.against, '')} |"
    ratio, most = ours["median"] / other["median"], aim(row["part"], row["name"])
    return f"| {row['name']} | {time_text} | {ratio:.2f} | {most} | {'' if ratio <= most else 'slower'} |"


def main() -> int:
    """Run the parts; 0 if all ended well."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="xcuda")
    parser.add_argument("--against", default="cuda", help="the torch name of the device that it is compared with")
    parser.add_argument("--wheels", type=Path, help="a folder with wheels to install; else they are built here")
    parser.add_argument("--out", type=Path, default=Path("build/gpu"), help="where the reports go")
    parser.add_argument("--seconds", type=float, default=570, help="that all parts may take")
    parser.add_argument("--quick", action="store_true", help="small sizes, to try this on a machine without a GPU")
    parser.add_argument(
        "parts", nargs="*", help="facts install doctor smoke models other_models kernels calls abi kit; default: all"
    )
    arguments = parser.parse_args()
    arguments.out = arguments.out.resolve()
    arguments.out.mkdir(parents=True, exist_ok=True)
    arguments.wheels = arguments.wheels and arguments.wheels.resolve()
    site = arguments.out / "site"
    everything = list(parts(arguments, site))
    if unknown := set(arguments.parts) - {part.name for part in everything}:
        parser.error(
            f"there is no part {sorted(unknown)[0]!r}; there are {', '.join(part.name for part in everything)}"
        )
    path = os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}
    environment["TORCH_BACKEND"] = arguments.device
    without = {**environment, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    del without["TORCH_BACKEND"]
    started, outcomes, results = time.monotonic(), [], {}
    with tempfile.TemporaryDirectory() as folder:  # where no package lies that only looks like torch_backend
        for part in everything:
            left = arguments.seconds - (time.monotonic() - started)
            if (arguments.parts and part.name not in arguments.parts) or left < 10:
                continue
            outcome = run(part, left, without if part.other else environment, folder)
            outcomes.append(outcome)
            if part.result is not None:
                results[part.name] = part.result
            print(
                f"== {part.name}: {outcome.code}, {outcome.seconds} s",
                *outcome.said.splitlines()[-12:],
                sep="\n",
                flush=True,
            )
            report = {
                "device": arguments.device,
                "against": arguments.against,
                "parts": [asdict(each) for each in outcomes],
            }
            (arguments.out / "report.json").write_text(json.dumps(report, indent=1), encoding="utf-8")
            (arguments.out / "report.md").write_text(page(arguments, outcomes, results), encoding="utf-8")
    print(arguments.out / "report.md")
    return int(any(outcome.code != 0 for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
