"""The examples for libraries on top of PyTorch run, each in its own process. `make test-ecosystem` installs them."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples" / "ecosystem"
LIBRARIES = {path.stem: path.stem.split("_")[0] for path in sorted(EXAMPLES.glob("*.py"))}
TORCHRUN = ("-m", "torch.distributed.run", "--nproc_per_node=2")
# Two ranks: what comes before the example's path, and after it.
RANKS = {
    "torchrun": (TORCHRUN, "accelerate_training", ()),
    "accelerate launch": (("-m", "accelerate.commands.launch", "--num_processes=2"), "accelerate_training", ()),
    "Lightning's DDP": ((), "lightning_training", ("ddp",)),
    "Lightning's FSDP": ((), "lightning_training", ("fsdp",)),
}


def run(name: str, *arguments: str | os.PathLike[str]) -> str:
    """The last line that a program prints while the device is active."""
    process = subprocess.run(
        [sys.executable, *arguments],
        env=os.environ | {"TORCH_BACKEND": name, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert process.returncode == 0, process.stdout + process.stderr
    assert "torch_backend could not" not in process.stderr, process.stderr
    return process.stdout.splitlines()[-1]


def needs(library: str) -> None:
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed; `make test-ecosystem` installs it")


def test_there_are_examples() -> None:
    libraries = {"accelerate", "diffusers", "lightning", "ray", "safetensors", "torchmetrics", "transformers"}
    assert set(LIBRARIES.values()) == libraries


@pytest.mark.parametrize("example", LIBRARIES)
def test_example(name: str, example: str) -> None:
    needs(LIBRARIES[example])
    assert name in run(name, EXAMPLES / f"{example}.py")


def test_a_trainer_that_compiles_the_model(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    needs("transformers")
    monkeypatch.setenv(f"TORCH_BACKEND_{name.upper()}_DEVICES", "1")
    assert name in run(name, EXAMPLES / "transformers_training.py", "compiled")


@pytest.mark.usefixtures("two_devices")
@pytest.mark.parametrize("launcher", RANKS)
def test_ranks_train_one_model(name: str, launcher: str) -> None:
    before, example, after = RANKS[launcher]
    needs(LIBRARIES[example])
    assert f"2 {name}" in run(name, *before, EXAMPLES / f"{example}.py", *after)


def test_libraries_are_adapted_if_they_were_imported_before(name: str) -> None:
    needs("lightning")
    code = f"""
        import accelerate, lightning, safetensors.torch, transformers.modeling_utils
        import torch, torch_backend
        torch_backend.activate({name!r})
        found = [
            accelerate.Accelerator().device.type,
            lightning.Trainer(devices=1, logger=False).strategy.root_device.type,
            lightning.Fabric(accelerator="gpu", devices=1).device.type,
            transformers.TrainingArguments(bf16=True).device.type,
            *(type(key).__name__ for key in accelerate.utils.get_max_memory()),
        ]
        assert safetensors.safe_open is safetensors.torch.safe_open is transformers.modeling_utils.safe_open
        print(found[:4], torch.amp.GradScaler().is_enabled(), "int" in found)
    """
    environment = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    process = subprocess.run(
        [sys.executable, "-W", "error::RuntimeWarning", "-c", "\n".join(line[8:] for line in code.splitlines())],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    assert process.stdout.splitlines()[-1] == f"{[name] * 4} True True"
