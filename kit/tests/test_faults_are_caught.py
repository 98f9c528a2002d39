"""The conformance kit finds every fault, and none in the devices that they are in. ``-v`` lists what catches each."""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from broken_operators import BROKEN_OPERATORS
from faults import CRASHED, Fault
from faulty_devices import ASYNC, CCL, FAULTY_DEVICES, MODULES, PROTECT, SMALL
from torch_conformance.trials import Trial, Trials

from torch_backend.files import installed

HERE = Path(__file__).parent
EXAMPLE = HERE.parents[1] / "examples" / "kernels"
# A process that ends is noticed by the one that started it; else there is no need for two.
IN_A_WORKER = ("-p", "xdist.plugin", "-n", "1")

# What is still written when it has been freed may end the process, after the test has found that.
MAY_CRASH_LATER = {"synchronize_returns_early"}

# A test that may take longer is one that --quick leaves out.
LONG_SECONDS = 40.0

MANY = {"TORCH_BACKEND_XCPU_DEVICES": "16"}
UNUSUAL = (
    "unusual",
    "required_slots_only",
    "stream_alloc",
    "slow",
    "pageable_copies_wait",
    "memory_is_shared",
    "ranks_share_no_device",
)
"""No faults, though faulty.c has them among those: what few devices are like, and the contract allows."""

Library = Callable[[str], Path]
RunSuite = Callable[..., Trial]


@pytest.fixture(scope="session")
def faulty(build_plugin: Callable[..., Path]) -> Path:
    return build_plugin(source="faulty.c", name="faulty")


@pytest.fixture(scope="session")
def good(tmp_path_factory: pytest.TempPathFactory) -> Library:
    """The library of a good device by its name."""
    built: dict[str, Path] = {}

    def library(name: str) -> Path:
        if name != "example":
            return installed.reference_library(name)
        if name not in built:
            path = tmp_path_factory.mktemp("example") / "libtorch_backend_example.so"
            command = ["cc", "-std=c99", "-O1", "-shared", "-fPIC", f"-I{installed.include_dir()}"]
            subprocess.run([*command, *EXAMPLE.glob("*.c"), "-lm", "-o", path], check=True)
            built[name] = path
        return built[name]

    return library


@pytest.fixture
def run_suite(trials: Trials, faulty: Path, good: Library) -> RunSuite:
    """Run tests on a device, which has a fault if it is named."""

    def run(over: str, name: str, options: Mapping[str, str], tests: str, *more: str, module: str = "") -> Trial:
        device, imported = (good(over), ("--import", module)) if module else (faulty, ())
        environment = {"TORCH_BACKEND_FAULTY": name, "TORCH_BACKEND_FAULTY_OVER": str(good(over)), **options}
        environment["PYTHONPATH"] = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
        return trials.run(device, [tests], environment, *imported, *more)

    return run


def one_line(text: str) -> str:
    """Without pytest's margins and line ends, so that words can be found wherever a line was broken."""
    return " ".join(re.sub(r"^E? +", "", text, flags=re.MULTILINE).split())


@pytest.mark.parametrize("fault", [*FAULTY_DEVICES, *BROKEN_OPERATORS], ids=str)
def test_the_fault_is_found_and_named(fault: Fault, run_suite: RunSuite) -> None:
    file, _, test = fault.caught_by.partition("::")
    trial = run_suite(
        fault.over,
        fault.name,
        fault.options,
        file,
        "--only",
        f"*{test.replace('[', '[[]')}",
        "--test-timeout",
        str(fault.seconds),
        *(() if fault.seconds > LONG_SECONDS else ("--quick",)),
        *(IN_A_WORKER if fault.words == CRASHED or fault.name in MAY_CRASH_LATER else ()),
        module=fault.module,
    )
    assert trial.code == 1, f"exit code {trial.code}\n{trial.said}"
    assert set(trial.failed) == {fault.caught_by}, trial.said
    assert one_line(fault.words) in one_line(trial.said), trial.said


# What of device libraries takes minutes on them is tested in part.
_OF_ALL_DEVICES = ("properties", "slots", "peers", "memory", "events.py::test_a", "streams.py::test_every", "ipc")
_OF_UNUSUAL = {
    "slow": ("events.py::test_a", "event_times", "graph", "host_functions", "order", "streams.py::test_s"),
    "ranks_share_no_device": ("ccl",),
}


@pytest.mark.parametrize(
    ("over", "fault", "options", "only"),
    [
        ("example", "", {}, ()),
        ("xcpu", "", MODULES | ASYNC | PROTECT, ()),
        ("xcpu", "", ASYNC | MANY, _OF_ALL_DEVICES),
        *(("xcpu", unusual, ASYNC | SMALL | CCL, _OF_UNUSUAL.get(unusual, ())) for unusual in UNUSUAL),
        ("xcpu", "required_slots_only", {}, ()),
    ],
    ids=[
        "example",
        "protected",
        "16-devices",
        *UNUSUAL,
        "required_slots_only-sync",
    ],
)
def test_nothing_is_found_in_a_device_without_a_fault(
    over: str, fault: str, options: dict[str, str], only: tuple[str, ...], run_suite: RunSuite
) -> None:
    """Nor in fake and xcpu as they are, of which `make test-conformance` runs more, and in one that has to be bound."""
    patterns = [f"--only=abi/test_{part}" for part in only]
    trial = run_suite(over, fault, options, "abi", "--quick", *patterns)
    assert trial.code == 0, trial.said


def test_every_fault_has_a_row(faulty: Path, good: Library) -> None:
    code = (
        "import sys; from torch_backend.abi import DeviceLibrary, LibraryError\n"
        "try: DeviceLibrary.open(sys.argv[1])\n"
        "except LibraryError as error: print(error)"
    )
    said = subprocess.run(
        [sys.executable, "-c", code, faulty],
        env=os.environ | {"TORCH_BACKEND_FAULTY": "?", "TORCH_BACKEND_FAULTY_OVER": str(good("fake"))},
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    names = said.split("there are: ")[1].split()
    assert sorted(names) == sorted({*UNUSUAL, *(device.name for device in FAULTY_DEVICES)})
