"""``TORCH_BACKEND=xcpu python -m benchmarks [name ...]``: run the benchmarks and show device against native CPU."""

import argparse
import importlib
import json
import sys
from dataclasses import asdict
from pathlib import Path

import torch

from benchmarks import instructions, targets, timer
from benchmarks.facts import facts
from benchmarks.result import Row, table

BENCHMARKS = (
    "small_ops",
    "kernels",
    "training",
    "compiled",
    "layers",
    "optimizers",
    "generation",
    "copies",
    "allocator",
    "asynchronous",
    "custom_operators",
    "distributed",
)


def main() -> int:
    """Run what the command line asks for; the exit status."""
    arguments = _arguments()
    device = torch.accelerator.current_accelerator()
    if device is None:
        print(
            "There is no accelerator to measure. Choose one: TORCH_BACKEND=xcpu python -m benchmarks", file=sys.stderr
        )
        return 2
    if arguments.clock == "instructions" and not instructions.are_counted():
        return instructions.run_under_valgrind()
    torch.set_num_threads(1)  # more threads would hide what the device adds to a call
    timer.use_clock(arguments.clock)
    known = facts(device) | {"clock": arguments.clock}
    for fact, value in known.items():
        print(f"{fact + ':':<15}{value}")
    results: dict[str, list[Row]] = {}
    for name in arguments.names or BENCHMARKS:
        module = importlib.import_module(f"benchmarks.{name}")
        print(f"\n{name}: {str(module.__doc__).splitlines()[0]}", flush=True)
        results[name] = module.run(device)
        print(table(results[name]), flush=True)
    missed = targets.missed(results)
    if arguments.json:
        rows = {name: [asdict(row) for row in rows] for name, rows in results.items()}
        document = {"facts": known, "results": rows, "missed": missed}
        arguments.json.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    print("\n" + "\n".join(f"target missed: {line}" for line in missed) if missed else "\nNo target missed.")
    return 1 if missed and arguments.check else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Device against native CPU, one thread.")
    parser.add_argument("names", nargs="*", metavar="name", help=f"of {', '.join(BENCHMARKS)}; default: all")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results to FILE")
    parser.add_argument(
        "--clock",
        choices=timer.CLOCKS,
        default="wall",
        help="time that passes, or that the process runs, or a nanosecond for each instruction (default: wall)",
    )
    parser.add_argument("--check", action="store_true", help="exit with 1 if a target is missed")
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - set(BENCHMARKS):
        parser.error(f"there is no benchmark {', '.join(sorted(unknown))}; there are {', '.join(BENCHMARKS)}")
    return arguments


if __name__ == "__main__":
    sys.exit(main())
