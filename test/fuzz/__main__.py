"""Calls of PyTorch's operators by chance, on a device and on the CPU: ``python test/fuzz --device xcpu --minutes 30``.

Operators, dtypes, layouts, sizes, special values, forms and gradients are drawn; what differs is made small and printed
as a line of Python, unless ``explained.yaml`` says why it may differ. ``--case NAME`` makes one call again.
"""

import argparse
import collections
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

PATIENCE = 120
"""Seconds for a call, twice on the CPU and shrunk, until it hangs; four times that to compile it."""
EACH_PROCESS = 3000
"""Cases of a process, so that nothing grows for hours."""
EXPLAINED = Path(__file__).with_name("explained.yaml")
ENOUGH = 20_000
"""Calls after which explanations that explained nothing are named."""


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python test/fuzz", description=__doc__)
    parser.add_argument("--device", default=os.environ.get("TORCH_BACKEND", "xcpu"))
    parser.add_argument("--minutes", type=float, default=10.0, help="end after so long")
    parser.add_argument("--count", type=int, default=sys.maxsize, help="... or after so many calls")
    parser.add_argument("--seed", default="0")
    parser.add_argument("--only", nargs="*", default=["*"], metavar="PATTERN", help="of entries of PyTorch's list")
    parser.add_argument("--compile", action="store_true", help="through torch.compile, on both sides")
    parser.add_argument(
        "--import", dest="imports", nargs="*", default=[], metavar="MODULE", help="what breaks the device"
    )
    parser.add_argument("--case", help="only this one, by its name")
    parser.add_argument("--json", type=Path, help="write all figures there")
    return parser.parse_args()


@dataclass
class Result:
    """What happened until the time was over."""

    calls: int = 0
    seconds: float = 0.0
    forms: collections.Counter[str] = field(default_factory=collections.Counter)
    raised: int = 0
    fallbacks: collections.Counter[str] = field(default_factory=collections.Counter)
    explained: collections.Counter[int] = field(default_factory=collections.Counter)
    differences: list[dict[str, Any]] = field(default_factory=list)

    def take(self, name: str, outcome: dict[str, Any]) -> None:
        self.calls += 1
        self.forms[outcome["form"]] += 1
        self.raised += outcome["raised"]
        self.fallbacks.update(outcome["fallbacks"])
        if outcome.get("explained") is not None:
            self.explained[outcome["explained"]] += 1
        elif "kind" in outcome:
            self.differ(name, outcome)

    def differ(self, name: str, outcome: dict[str, Any]) -> None:
        self.differences.append({"case": name, **outcome})
        if "text" in outcome:
            print(f"{name}: {outcome['kind']}\n  {outcome.get('program', '')}\n  {outcome['text']}\n", flush=True)


def fuzz(arguments: argparse.Namespace) -> Result:
    """Start processes until the time is over, or enough calls are made."""
    result, begun, process = Result(), time.monotonic(), 0
    while (left := begun + 60 * arguments.minutes - time.monotonic()) > 0 and result.calls < arguments.count:
        work(arguments, process, min(EACH_PROCESS, arguments.count - result.calls), time.monotonic() + left, result)
        process += 1
        if arguments.case:
            break
    result.seconds = time.monotonic() - begun
    return result


def work(arguments: argparse.Namespace, number: int, count: int, end: float, result: Result) -> None:
    """One process: what it says goes to the result, and that it crashed or hangs."""
    command = [sys.executable, str(Path(__file__).with_name("worker.py")), f"--device={arguments.device}"]
    command += [f"--seed={arguments.seed} {number}", f"--count={count}", *["--compile"] * arguments.compile]
    command += ["--only", *arguments.only, "--import", *arguments.imports]
    command += ["--case", arguments.case] if arguments.case else []
    environment = {**os.environ, "TORCH_BACKEND": arguments.device}
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, env=environment, text=True)
        lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=_read, args=(process, lines), daemon=True).start()
        name = "the start"
        try:
            while time.monotonic() < end and (line := lines.get(timeout=PATIENCE * (4 if arguments.compile else 1))):
                said = json.loads(line)
                if said is not None and "begins" in said:
                    name = said["begins"]
                elif said is not None:
                    result.take(name, said)
        except queue.Empty:
            result.differ(name, {"kind": "hang", "text": f"no answer for {PATIENCE} seconds"})
        else:
            if time.monotonic() < end and process.wait() != 0:
                errors.seek(0)
                text = f"exit code {process.returncode}\n{errors.read()[-2000:]}"
                result.differ(name, {"kind": "crash", "text": text})
        finally:
            process.kill()
            process.wait()


def _read(process: "subprocess.Popen[str]", lines: "queue.SimpleQueue[str]") -> None:
    assert process.stdout
    for line in process.stdout:
        lines.put(line)
    lines.put("")


def report(result: Result, arguments: argparse.Namespace) -> bool:
    """Print it; whether nothing differs that is not explained."""
    by_kind = collections.Counter((each["case"].split(":")[0], each["kind"]) for each in result.differences)
    figures = {
        "calls": result.calls,
        "seconds": round(result.seconds),
        "forms": dict(result.forms.most_common()),
        "raised on both": result.raised,
        "fallbacks": dict(result.fallbacks.most_common()),
        "explained": {index: result.explained[index] for index in sorted(result.explained)},
        "differences": {f"{entry} {kind}": count for (entry, kind), count in by_kind.most_common()},
    }
    idle = []
    if result.calls >= ENOUGH and arguments.only == ["*"]:
        rows = yaml.safe_load(EXPLAINED.read_text())
        idle = [row for index, row in enumerate(rows) if not result.explained[index]]
    for key, value in figures.items():
        print(f"{key}: {value}")
    for row in idle:
        print(f"explains nothing: {row}")
    if arguments.json:
        arguments.json.write_text(json.dumps({**figures, "idle": idle, "cases": result.differences}, indent=1))
    print(f"{len(result.differences)} differences in {result.calls} calls")
    return not result.differences and result.calls > 0


if __name__ == "__main__":
    options = parse()
    sys.exit(0 if report(fuzz(options), options) else 1)
