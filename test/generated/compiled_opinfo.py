"""PyTorch's list of operators with samples (OpInfo) through torch.compile, on the CPU and on the device.

What inductor compiles for the CPU says what is right. ``TORCH_BACKEND=... python test/generated/compiled_opinfo.py``
tries all entries in two processes, prints what differs, and writes the list of this way, in which reasons are kept.
Arguments: dtypes, "float32", to try and write only those; patterns of entries' names, to try those and write nothing.
"""

import faulthandler
import multiprocessing
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

os.environ.setdefault("TORCH_BACKEND_XCPU_MODULES", "0")

import torch  # after what it reads at import
from opinfo import DEVICE, ENTRIES, Kind, NearTrial, Outcome, attempt, kinds_of
from torch._dynamo.utils import counters
from torch._inductor import config
from torch_conformance.suite.ops._entries import dtype_name
from torch_conformance.suite.ops._trial import Answer

from torch_backend import _C

DTYPES = (torch.float32, torch.float16, torch.int64)
HOST = "HOST_ACCESS" in _C.device_properties().capabilities
WAY = "host graphs" if HOST else f"modules of {DEVICE.partition(':')[0]}"
LIST = Path(__file__).with_name(f"compiled_opinfo_{WAY.replace(' ', '_')}.txt")
SAMPLES = int(os.environ.get("OPINFO_SAMPLES", "1"))


class CompiledTrial(NearTrial):
    """Compiles every sample for the CPU, then for the device."""

    def on_host(self, function, case, **kwargs):
        """What code compiled for the CPU makes of the sample; an error if nothing of it is captured."""
        answer = super().on_host(_compiled(function), case, **kwargs)
        self._graphs = counters["stats"]["unique_graphs"]
        if answer.error is None and self._graphs == 0:
            self._last_error = NotImplementedError("nothing is captured")
            return Answer(error=self._last_error)
        return answer

    def on_device(self, function, case, **kwargs):
        """What code compiled for the device makes of it."""
        case.is_random, is_random = False, case.is_random  # what notices draws would see those of the compiler
        try:
            result = super().on_device(_compiled(function), case, **kwargs)
        finally:
            case.is_random = is_random
        graphs = counters["stats"]["unique_graphs"]
        assert graphs == self._graphs, f"{case.what} is captured in {graphs} graphs, for the CPU in {self._graphs}"
        return result


def _compiled(op):
    torch._dynamo.reset()
    counters.clear()
    function = op.op
    return torch.compile(lambda *args, **kwargs: function(*args, **kwargs), dynamic=False)


def try_entry(name: str, dtype: torch.dtype) -> tuple[Kind, Outcome] | None:
    """Compile an entry, backward too where that is possible; None if none of it compiles for the CPU."""
    kinds = [kind for kind in kinds_of(ENTRIES[name]) if kind.dtype == dtype]
    # Code that is not for vectors compiles in half the time, and says as much of what is done with it.
    with config.patch({"compile_threads": 1, "cpp.simdlen": 1}):
        for kind in reversed(kinds):
            if outcome := attempt(ENTRIES[name], kind, SAMPLES, CompiledTrial):
                return kind, outcome
    return None


@dataclass
class Known:
    """What the list says of an entry and kind."""

    fallbacks: list[str]
    difference: str
    """Why results differ, or that they do not compile; "" if neither is so."""


NOTHING = Known([], "")


def known() -> dict[tuple[str, str], Known]:
    """By entry and kind."""
    found: dict = {}
    for line in LIST.read_text().splitlines() if LIST.exists() else ():
        if line and not line.startswith("#"):
            name, kind, what, text = line.split(" | ")
            entry = found.setdefault((name, kind), Known([], ""))
            if what == "falls back":
                entry.fallbacks = text.split()
            else:
                entry.difference = text
    return found


def _sweep(part: int, tasks: list[tuple[str, torch.dtype]]) -> list[tuple[str, Kind, Outcome]]:
    torch.set_num_threads(1)
    faulthandler.enable()
    found = []
    for name, dtype in tasks[part::2]:
        if result := try_entry(name, dtype):
            found.append((name, *result))
            if result[1].difference:
                print(f"{name}, {result[0]}: {result[1].difference[:1500]}\n", flush=True)
    return found


def main(arguments: list[str]) -> None:
    """Try entries and write the list."""
    dtypes = [dtype for dtype in DTYPES if dtype_name(dtype) in arguments] or DTYPES
    patterns = [each for each in arguments if each not in map(dtype_name, DTYPES)]
    tasks = [
        (name, dtype)
        for dtype in dtypes
        for name, op in ENTRIES.items()
        if dtype in op.supported_dtypes("cpu") and (not patterns or any(fnmatchcase(name, each) for each in patterns))
    ]
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        found = [result for part in pool.map(_sweep, range(2), [tasks] * 2) for result in part]
    counts = []
    for dtype in dtypes:
        of = [outcome for _, kind, outcome in found if kind.dtype == dtype]
        same, served = sum(not x.difference for x in of), sum(not x.fallbacks for x in of)
        listed = sum(task[1] == dtype for task in tasks)
        counts.append(f"#   {dtype_name(dtype)}: {len(of)} of {listed}; {same} of {len(of)}; {served} of {len(of)}")
    print("\n".join(counts))
    if not patterns:
        _write(found, list(map(dtype_name, dtypes)), counts)


def _write(found: list[tuple[str, Kind, Outcome]], dtypes: list[str], counts: list[str]) -> None:
    """Replace what the list has of ``dtypes``."""
    before = known()
    old = LIST.read_text().splitlines() if LIST.exists() else []
    counts += [line for line in old if line.startswith("#   ") and line.split()[1].rstrip(":") not in dtypes]
    lines = [line for line in old if not line.startswith("#") and line.split(" | ")[1].split()[1] not in dtypes]
    for name, kind, outcome in found:
        if outcome.fallbacks:
            lines.append(f"{name} | {kind} | falls back | {' '.join(outcome.fallbacks)}")
        if outcome.difference:
            reason = known_entry.difference if (known_entry := before.get((name, str(kind)))) else ""
            reason = reason or outcome.difference.strip().splitlines()[0][:200].replace(" | ", " ")
            lines.append(f"{name} | {kind} | differs | {reason}")
    header = [
        f"# OpInfo compiled, {WAY}, torch {torch.__version__.split('+')[0]}: entry | samples | what | which or why",
        "# Entries that compile for the CPU, of those PyTorch lists; the same on the device; without a fallback:",
    ]
    LIST.write_text("\n".join([*header, *sorted(counts), *sorted(lines)]) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
