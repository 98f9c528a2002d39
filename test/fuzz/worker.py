"""Makes calls in a process that any of them may end: two lines of JSON each say what begins, and what became of it."""

import argparse
import importlib
import json
import os
import resource
import warnings
from fnmatch import fnmatchcase
from random import Random
from typing import Any

import torch
from cases import ENTRIES, Case, choose, draw
from differences import Difference, difference, run
from explained import Explanations
from shrinking import program, shrunk

import torch_backend

EACH = 6
"""Cases of an entry and dtype that follow each other, since its samples take longer than a call."""
SHRUNK = 2
"""Differences of an entry and kind that are shrunk; later ones are counted."""
MOST_MEMORY = 16 << 30
"""Bytes, so that a call that takes all memory fails and does no harm."""


class Worker:
    """What all cases of a process have in common."""

    def __init__(self, device: str, *, compiled: bool) -> None:
        self.device = device
        self.compiled = compiled
        self.explanations = Explanations()
        self.shrunk: dict[tuple[str, str], int] = {}

    def outcome(self, name: str) -> dict[str, Any] | None:
        """What became of a case; None if there is none of that name."""
        case = draw(name)
        if case is None:
            return None
        torch_backend.fallback.reset()
        found, raised = self.compare(case)
        answer: dict[str, Any] = {
            "form": case.form,
            "raised": raised,
            "fallbacks": [entry.op for entry in torch_backend.fallback.report()],
        }
        if found is not None:
            answer |= {"kind": found.kind, "explained": self.explanations.of(case, found)}
            key = case.op.full_name, found.kind
            if answer["explained"] is None and self.shrunk.get(key, 0) < SHRUNK:
                self.shrunk[key] = self.shrunk.get(key, 0) + 1
                small = case if self.compiled else shrunk(case, lambda other: self._shows(other, found.kind))
                answer |= {"program": program(small), "text": (self.compare(small)[0] or found).text[:1000]}
        return answer

    def compare(self, case: Case) -> tuple[Difference | None, bool]:
        """How the device differs, and whether the CPU raises."""
        expected = run(case, "cpu")
        if not self.compiled:
            return difference(case, self.device, expected, run(case, self.device)), expected.error is not None
        compiled, actual = run(case, "cpu", _compiled), run(case, self.device, _compiled)
        found = difference(case, self.device, compiled, actual)
        if found and difference(case, self.device, expected, actual) is None:
            found = None
        return found, expected.error is not None

    def _shows(self, case: Case, kind: str) -> bool:
        found = self.compare(case)[0]
        return found is not None and found.kind == kind and self.explanations.of(case, found) is None


def _compiled(function: Any) -> Any:
    torch._dynamo.reset()
    return torch.compile(lambda *args, **kwargs: function(*args, **kwargs), dynamic=False)


def main() -> None:
    """Work until the supervisor ends it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", required=True)
    parser.add_argument("--seed", required=True)
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--only", nargs="*", default=["*"])
    parser.add_argument("--import", dest="imports", nargs="*", default=[])
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--case")
    arguments = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    for module in arguments.imports:
        importlib.import_module(module)
    say = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what operators print
    worker, random = Worker(f"{arguments.device}:0", compiled=arguments.compile), Random(arguments.seed)
    entries = [name for name in ENTRIES if any(fnmatchcase(name, pattern) for pattern in arguments.only)]
    left = arguments.count
    while left > 0:
        entry, dtype = choose(random, entries)
        for _ in range(EACH):
            left -= 1
            name = arguments.case or f"{entry}:{str(dtype).removeprefix('torch.')}:{random.randrange(10**9)}"
            print(json.dumps({"begins": name}), file=say, flush=True)
            print(json.dumps(worker.outcome(name)), file=say, flush=True)
            if arguments.case or left <= 0:
                return


if __name__ == "__main__":
    main()
