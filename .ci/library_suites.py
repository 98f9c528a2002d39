"""The libraries' own tests: which run, and how many pass without and with a device.

They come from the source distribution of the version that is installed, or from a checkout of the library's repository,
whose code is then run as well. A copy for the device has its name in place of CUDA's, as programs written for CUDA
have. Nothing is skipped that the library does not skip, except files that need what is not there on any device: models
from the network, mostly.
"""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from xml.etree import ElementTree

# Not the library's own modules of that name, nor the version of CUDA that torch was built with.
CUDA = re.compile(r"(?<!\w)(?<!accelerators\.)(?<!version\.)cuda(?!\w)")
TESTS = ("tests/**/*.py", "src/*/test_utils/**/*.py", "src/*/testing_utils.py", "src/*/*/utilities/testing/*.py")
MINUTES = 90


@dataclass(frozen=True)
class Suite:
    """What is run of a library.

    Attributes:
        library: its name on PyPI.
        files: of its folder ``tests``: "models/bert/modeling_bert" is tests/models/bert/test_modeling_bert.py.
        only: of these the tests that this names, in pytest's words (``-k``); empty: all.
        reasons: of tests that fail on the device and not on the CPU, by a part of their names: why.
        archived: whether the library's source distribution has them; else it takes a checkout.
        devices: how many there are; 1 where tests that start a process for each would wait for the others.
    """

    library: str
    files: tuple[str, ...]
    only: str = ""
    reasons: dict[str, str] = field(default_factory=dict)
    archived: bool = True
    devices: int = 2


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
    Suite(
        "transformers",
        tuple(f"models/{model}/modeling_{model}" for model in ("bert", "gpt2", "llama", "t5", "vit")),
        only="not compil and not flex_attention and not export",  # minutes of the compiler for each
        archived=False,
    ),
    Suite(
        "transformers",
        (
            "generation/candidate_generator",
            "generation/configuration_utils",
            "generation/logits_process",
            "generation/stopping_criteria",
            "generation/streamers",
            "generation/utils",
        ),
        only="not synthidtext",  # it draws for minutes
        reasons=dict.fromkeys(
            ("multi_accelerator", "correct_device_when_drafting", "inputs_on_cpu", "cpu_offload_doesnt_compile"),
            "skipped without a device; needs a model from the network",
        ),
        archived=False,
    ),
    Suite(
        "transformers",
        (
            "trainer/data_collator",
            "trainer/trainer",
            "trainer/trainer_accelerator",
            "trainer/trainer_callback",
            "trainer/trainer_checkpointing",
            "trainer/trainer_data",
            "trainer/trainer_evaluation",
            "trainer/trainer_hyperparameter",
            "trainer/trainer_optimizers",
            "trainer/trainer_seq2seq",
            "trainer/training_args",
        ),
        archived=False,
    ),
    Suite(
        "lightning",
        (
            "tests_fabric/accelerators/cpu",
            "tests_fabric/accelerators/cuda",
            "tests_fabric/accelerators/registry",
            "tests_fabric/connector",
            "tests_fabric/fabric",
            "tests_fabric/strategies/ddp",
            "tests_fabric/strategies/single_device",
            "tests_fabric/utilities/apply_func",
            "tests_fabric/utilities/device_dtype_mixin",
            "tests_fabric/utilities/device_parser",
            "tests_fabric/utilities/seed",
        ),
        reasons={
            "test_tf32_message": "no precision follows from torch.backends.<name>.matmul.allow_tf32: there is no TF32",
            "test_fabric.test_setup_": "Fabric() takes both devices, as two of CUDA, and then has to be launched",
            "test_ddp_process_group_backend": "the device's collectives have a name of their own",
            "rng_states": 'the states of the device\'s generators keep the key "torch.cuda"',
        },
        archived=False,
    ),
    Suite(
        "lightning",
        (
            "tests_pytorch/accelerators/common",
            "tests_pytorch/accelerators/gpu",
            "tests_pytorch/accelerators/registry",
            "tests_pytorch/core/metric_result_integration",
            "tests_pytorch/models/amp",
            "tests_pytorch/models/gpu",
            "tests_pytorch/plugins/amp_plugins",
            "tests_pytorch/strategies/ddp",
            "tests_pytorch/strategies/fsdp",
            "tests_pytorch/strategies/single_device",
            "tests_pytorch/trainer/connectors/accelerator_connector",
            "tests_pytorch/utilities/imports",
        ),
        reasons={
            "test_get_nvidia_gpu_stats": "runs nvidia-smi",
            "test_amp_gpu": "the tests ask torch.is_autocast_enabled() without a device, which answers for CUDA",
            "test_ddp_process_group_backend": "the device's collectives have a name of their own",
        },
        archived=False,
        devices=1,
    ),
)


def source(library: str, folder: Path, checkouts: Mapping[str, Path]) -> Path:
    """A copy of the library's checkout if there is one, or the unpacked source distribution of what is installed."""
    if library in checkouts:
        return Path(shutil.copytree(checkouts[library], folder, ignore=shutil.ignore_patterns(".git")))
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
    for path in (path for pattern in TESTS for path in folder.glob(pattern)) if device else ():
        path.write_text(CUDA.sub(device or "", path.read_text()))
    report = folder / "report.xml"
    options = (
        "-q",
        "-p",
        "no:cacheprovider",
        "-o",
        "addopts=",
        "--continue-on-collection-errors",
        f"--junitxml={report}",
    )
    files = [str(Path("tests", name).parent / f"test_{Path(name).name}.py") for name in suite.files]
    _run([sys.executable, "-m", "pytest", *options, *files, "-k", suite.only], folder, device, suite.devices)
    if not report.exists():
        raise RuntimeError(
            f"pytest has not run the tests of {suite.library}; above it says why: what is missing, mostly"
        )
    said = {}
    for case in ElementTree.parse(report).iter("testcase"):
        kinds = {child.tag for child in case} & {"failure", "error", "skipped"}
        name = f"{case.get('classname')}.{case.get('name')}"
        said[name] = "passed" if not kinds else "skipped" if kinds == {"skipped"} else "failed"
    return said


def _run(command: list[str], folder: Path, device: str | None, devices: int) -> None:
    """Run ``command`` and end what it leaves behind: ranks that tests have started, which wait for each other."""
    environment = _environment(folder, device, devices)
    with subprocess.Popen(command, cwd=folder, env=environment, stdout=sys.stderr, start_new_session=True) as process:
        try:
            process.wait(MINUTES * 60)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def _environment(folder: Path, device: str | None, devices: int = 1) -> dict[str, str]:
    ours = f"TORCH_BACKEND_{(device or '').upper()}"
    path = (str(folder / "src"), os.environ.get("PYTHONPATH", ""))
    settings = {
        "OMP_NUM_THREADS": "1",
        "TORCH_BACKEND": device or "none",
        "PATH": os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"])),  # of accelerate and torchrun
        "PYTHONPATH": os.pathsep.join(filter(None, path)),
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_OFFLINE": "1",
        "HF_ENDPOINT": "http://localhost:9",  # nobody answers, so that tests that go online in spite of it fail soon
        f"{ours}_DEVICES": str(devices),
        # Some tests fill the device but for what they need themselves, and from_pretrained leaves 1.2 GiB free.
        f"{ours}_MEMORY": "2GiB",
    }
    return os.environ | settings


def rows(device: str, folder: Path, checkouts: Mapping[str, Path]) -> list[str]:
    """A row of the table for each suite; ``checkouts`` by the library's name."""
    found = []
    for number, suite in enumerate(SUITES):
        (one,) = suite.files if len(suite.files) == 1 else (f"{len(suite.files)} files",)
        what = f"its tests, {one}" + (f": {suite.only}" if suite.only else "")
        if not suite.archived and suite.library not in checkouts:
            found.append(f"| {suite.library} | {what} | not run | not run | needs --checkout {suite.library}=PATH |")
            continue
        folders = [folder / f"{number}-{name}" for name in (None, device)]
        sources = [source(suite.library, each, checkouts) for each in folders]
        before, after = (outcomes(suite, each, name) for each, name in zip(sources, (None, device), strict=True))
        what = f"| {suite.library} {_version(suite.library, sources[0])} | {what}"
        found.append(f"{what} | {counts(before)} | {counts(after)} | {difference(suite, before, after)} |")
    return found


def _version(library: str, folder: Path) -> str:
    """What the code says that was run."""
    ask = [sys.executable, "-c", f"import {library}; print({library}.__version__)"]
    answer = subprocess.run(ask, env=_environment(folder, None), capture_output=True, text=True, check=True)
    return answer.stdout.split()[-1]


def difference(suite: Suite, before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """How many tests fail only with the device for each known reason, and the names of those that have none."""
    worse = [test for test, outcome in after.items() if outcome == "failed" != before.get(test)]
    reasons = [
        f"{len(tests)}: {reason}"
        for part, reason in suite.reasons.items()
        if (tests := [test for test in worse if part in test])
    ]
    return "; ".join([*reasons, *(test for test in worse if not any(part in test for part in suite.reasons))])


def counts(said: dict[str, str]) -> str:
    """As "12 passed, 1 failed, 2 skipped"."""
    return ", ".join(f"{list(said.values()).count(outcome)} {outcome}" for outcome in ("passed", "failed", "skipped"))
