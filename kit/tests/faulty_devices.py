"""The devices with a fault that test/plugins/faulty.c makes, as its rows ``CAUGHT(fault, device, test, words)`` say.

The tests check that every fault has a row. What a row calls its device are the words of ``OPTIONS``, or the name of
another good device than xcpu.
"""

import ast
import re
from pathlib import Path

from faults import CRASHED, Fault

ASYNC = {"TORCH_BACKEND_XCPU_ASYNC": "1"}
MODULES = {"TORCH_BACKEND_XCPU_MODULES": "1"}
CCL = {"TORCH_BACKEND_XCPU_CCL": "1"}
SMALL = {"TORCH_BACKEND_XCPU_MEMORY": "64MiB"}
PROTECT = {"TORCH_BACKEND_XCPU_PROTECT": "1"}
OPTIONS = {
    "async": ASYNC,
    "modules": MODULES,
    "ccl": CCL,
    "small": SMALL,
    "protect": PROTECT,
    "ipc": {"TORCH_BACKEND_XCPU_IPC": "1"},
    "slow": {"TORCH_BACKEND_XCPU_DELAY_US": "1000"},
}
SECONDS = {"hangs": 2.0, "thorough": 60.0}
"""How long the test may take, where a row has these words."""

SOURCES = sorted((Path(__file__).parents[2] / "test" / "plugins").glob("faulty*"))
_TEXT = r'"(?:[^"\\]|\\.)*"'
_ROW = re.compile(rf"^CAUGHT\((\w+), ([\w ]+),\s+({_TEXT}),\s+(CRASHED|{_TEXT}(?:\s+{_TEXT})*)\)$", re.MULTILINE)


def _fault(name: str, device: str, test: str, words: str) -> Fault:
    over, options, seconds = "xcpu", {}, Fault.seconds
    for word in device.split():
        if word in SECONDS:
            seconds = SECONDS[word]
        elif word in OPTIONS:
            options |= OPTIONS[word]
        else:
            over = word
    test = ast.literal_eval(test)
    caught_by = test if "/" in test.partition("::")[0] else f"abi/{test}"
    said = CRASHED if words == "CRASHED" else ast.literal_eval(f"({words})")
    return Fault(name, caught_by, said, over, options, seconds)


FAULTY_DEVICES = tuple(_fault(*row) for source in SOURCES for row in _ROW.findall(source.read_text(encoding="utf-8")))
