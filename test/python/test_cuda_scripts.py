"""examples/ecosystem/cuda: programs written for CUDA run if the device's name is changed, and nothing else."""

import os
from pathlib import Path

import pytest
from fixtures import RunPython, run_program

SCRIPTS = sorted((Path(__file__).parents[2] / "examples" / "ecosystem" / "cuda").glob("*.py"))
RANKS = [path for path in SCRIPTS if path.name.startswith("ranks_")]
ALONE = [path for path in SCRIPTS if path not in RANKS]


def renamed(path: Path, name: str) -> str:
    return path.read_text().replace("cuda", name)


@pytest.mark.parametrize("path", ALONE, ids=[path.stem for path in ALONE])
def test_script(run_python: RunPython, name: str, path: Path) -> None:
    settings = {key: value for key, value in os.environ.items() if key.startswith("TORCH_BACKEND")}
    run_python(renamed(path, name), env=settings)


@pytest.mark.usefixtures("two_devices")
@pytest.mark.parametrize("path", RANKS, ids=[path.stem for path in RANKS])
def test_script_of_two_ranks(name: str, tmp_path: Path, path: Path) -> None:
    run_ranks(name, tmp_path, path)


@pytest.mark.usefixtures("two_devices")
@pytest.mark.parametrize("late", [{}, {"ASYNC": "1", "DELAY_US": "0-300"}], ids=["", "asynchronous, with delays"])
def test_pipelines_over_collectives_of_the_device(name: str, tmp_path: Path, late: dict[str, str]) -> None:
    if name != "xcpu":
        pytest.skip("sets options of xcpu")
    settings = {f"TORCH_BACKEND_XCPU_{option}": value for option, value in {"CCL": "1", **late}.items()}
    (path,) = (path for path in RANKS if path.stem == "ranks_pipeline")
    run_ranks(name, tmp_path, path, settings)


def run_ranks(name: str, tmp_path: Path, path: Path, settings: dict[str, str] | None = None) -> None:
    script = tmp_path / path.name
    script.write_text(renamed(path, name))
    launch = ("-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2")
    run_program("python", *launch, script, TORCH_BACKEND=name, OMP_NUM_THREADS="1", **(settings or {}))


def test_there_are_enough() -> None:
    assert len(SCRIPTS) >= 12
    assert len(RANKS) >= 4
