"""The libraries' own tests, from their source distributions: which run, and how many pass without and with a device.

A copy for the device has its name in place of CUDA's, as programs written for CUDA have. Nothing is skipped that the
library does not skip, except files that need what is not there on any device: models from the network, mostly.
"""

import os
import re
import subprocess
import sys
import tarfile
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from xml.etree import ElementTree

CUDA = re.compile(r"(?<!\w)cuda(?!\w)")
MINUTES = 30


@dataclass(frozen=True)
class Suite:
    """What is run of a library.

    Attributes:
        library: its name on PyPI.
        files: of its folder ``tests``.
        only: of these the tests that this names, in pytest's words (``-k``); empty: all.
        reasons: of tests that fail on the device and not on the CPU, by a part of their names: why.
    """

    library: str
    files: tuple[str, ...]
    only: str = ""
    reasons: dict[str, str] = field(default_factory=dict)


SUITES = (
    Suite(
        "accelerate",
        (
            "accelerator",
            "activation_checkpointing_offload",
            "big_modeling",
            "compile",
            "cpu",
            "data_loader",
            "dataclasses",
            "grad_sync",
            "hooks",
            "kwargs_handlers",
            "load_checkpoint_and_dispatch_with_broadcast",
            "memory_utils",
            "metrics",
            "modeling_utils",
            "multidevice",
            "offload",
            "optimizer",
            "scheduler",
            "state_checkpointing",
            "utils",
        ),
        reasons={
            "test_setting_cpu_affinity": "NVIDIA's or AMD's library is asked for the cores near a GPU",
            "TestLoadCheckpointAndDispatchWithBroadcast": "skipped without two devices; needs a model from the network",
        },
    ),
    Suite(
        "peft",
        (
            "adamss_asa",
            "bdlora",
            "bufferdict",
            "deft",
            "lora_ga",
            "lorafa",
            "loraplus",
            "mapping",
            "osf",
            "pvera",
            "randlora",
            "riemannian_lora",
            "shira",
            "unilora",
            "vblora",
            "velora",
            "vera",
        ),
    ),
    Suite(
        "peft",
        ("custom_models",),
        only="test_only_params_are_updated or test_disable_adapters_with_merging",
        reasons={
            "AdaLoraConfig": "PEFT makes a new parameter of what it moves off the CPU, with a gradient",
            "EmbConv1D-TrainableTokensConfig": "with the device's random numbers a ReLU is dead, on the CPU too",
        },
    ),
)


def source(library: str, folder: Path) -> Path:
    """The unpacked source distribution of the version that is installed."""
    name = f"{library}=={version(library)}"
    download = ("download", "--quiet", "--no-deps", "--no-binary", ":all:", "--no-build-isolation")
    subprocess.run([sys.executable, "-m", "pip", *download, "--dest", folder, name], check=True)
    (archive,) = folder.glob(f"{library}-*.tar.gz")
    with tarfile.open(archive) as opened:
        opened.extractall(folder, filter="data")
    unpacked = folder / archive.name.removesuffix(".tar.gz")
    (unpacked / "tests" / "__init__.py").touch()  # test files import each other
    return unpacked


def outcomes(suite: Suite, folder: Path, device: str | None) -> dict[str, str]:
    """By test: "passed", "skipped" or "failed"."""
    for path in [*folder.glob("tests/**/*.py"), *folder.glob("src/*/test_utils/**/*.py")] if device else ():
        path.write_text(CUDA.sub(device or "", path.read_text()))
    report = folder / "report.xml"
    settings = {
        "OMP_NUM_THREADS": "1",
        "TORCH_BACKEND": device or "none",
        "PYTHONPATH": str(folder / "src"),
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_OFFLINE": "1",
        "HF_ENDPOINT": "http://localhost:9",  # nobody answers, so that tests that go online in spite of it fail soon
        # Some tests fill the device but for what they need themselves.
        f"TORCH_BACKEND_{(device or '').upper()}_MEMORY": "1GiB",
    }
    options = (
        "-q",
        "-p",
        "no:cacheprovider",
        "-o",
        "addopts=",
        "--continue-on-collection-errors",
        f"--junitxml={report}",
    )
    files = [f"tests/test_{name}.py" for name in suite.files]
    subprocess.run(
        [sys.executable, "-m", "pytest", *options, *files, "-k", suite.only],
        cwd=folder,
        env=os.environ | settings,
        stdout=sys.stderr,
        timeout=MINUTES * 60,
        check=False,
    )
    said = {}
    for case in ElementTree.parse(report).iter("testcase"):
        kinds = {child.tag for child in case} & {"failure", "error", "skipped"}
        name = f"{case.get('classname')}.{case.get('name')}"
        said[name] = "passed" if not kinds else "skipped" if kinds == {"skipped"} else "failed"
    return said


def rows(device: str, folder: Path) -> list[str]:
    """A row of the table for each suite."""
    found = []
    for number, suite in enumerate(SUITES):
        before, after = (
            outcomes(suite, source(suite.library, folder / f"{number}-{name}"), name) for name in (None, device)
        )
        worse = [test for test, outcome in after.items() if outcome == "failed" != before.get(test)]
        reasons = [
            f"{len(tests)}: {reason}"
            for part, reason in suite.reasons.items()
            if (tests := [test for test in worse if part in test])
        ]
        unexplained = [test for test in worse if not any(part in test for part in suite.reasons)]
        (one,) = suite.files if len(suite.files) == 1 else (f"{len(suite.files)} files",)
        what = f"its tests, {one}" + (f": {suite.only}" if suite.only else "")
        difference = "; ".join([*reasons, *unexplained])
        found.append(
            f"| {suite.library} {version(suite.library)} | {what} | {counts(before)} | {counts(after)} | {difference} |"
        )
    return found


def counts(said: dict[str, str]) -> str:
    """As "12 passed, 1 failed, 2 skipped"."""
    return ", ".join(f"{list(said.values()).count(outcome)} {outcome}" for outcome in ("passed", "failed", "skipped"))
