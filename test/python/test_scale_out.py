"""examples/scale_out: losses are those of one go after a rank was killed, on other numbers of ranks, on two nodes.

What plan.py says of ranks that are not there is what it measures where they are."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from fixtures import clean_environment

from torch_backend.files import patience

EXAMPLES = Path(__file__).parents[2] / "examples" / "scale_out"
TRAIN, PLAN = EXAMPLES / "train.py", EXAMPLES / "plan.py"
ALONE = ("--standalone", "--nproc-per-node", "2")


def start(name: str, launch: tuple[str, ...], *arguments: str | Path, devices: int = 2) -> "subprocess.Popen[str]":
    return python(name, "-m", "torch.distributed.run", *launch, TRAIN, *arguments, devices=devices)


def python(name: str, *arguments: str | Path, devices: int) -> "subprocess.Popen[str]":
    settings = {"TORCH_BACKEND": name, "OMP_NUM_THREADS": "1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    return subprocess.Popen(
        [sys.executable, *arguments],
        env=clean_environment() | settings | {f"TORCH_BACKEND_{name.upper()}_DEVICES": str(devices)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def said(*processes: "subprocess.Popen[str]") -> str:
    outputs = [process.communicate(timeout=patience.seconds(240)) for process in processes]
    assert [process.returncode for process in processes] == [0] * len(processes), outputs
    return "".join(stdout for stdout, _ in outputs)


def losses(text: str) -> dict[int, float]:
    return {int(step): float(loss) for step, loss in re.findall(r"step (\d+) on .*: loss ([\d.]+)", text)}


@pytest.fixture(scope="module")
def expected(name: str, tmp_path_factory: pytest.TempPathFactory) -> dict[int, float]:
    """Of two nodes with a rank each, which meet on the loopback."""
    if name not in ("xcpu", "fake"):
        pytest.skip("sets the number of a reference device")
    folder = tmp_path_factory.mktemp("nodes")
    launch = ("--nnodes", "2", "--nproc-per-node", "1", "--rdzv-backend", "c10d", "--rdzv-id", str(os.getpid()))
    place = ("--rdzv-endpoint", f"localhost:{20000 + os.getpid() % 20000}", "--local-addr", "localhost")
    return losses(said(*(start(name, (*launch, *place), folder) for _ in range(2))))


def test_two_nodes(expected: dict[int, float]) -> None:
    assert list(expected) == list(range(6))


def test_a_killed_rank_is_started_again(name: str, expected: dict[int, float], tmp_path: Path) -> None:
    text = said(start(name, (*ALONE, "--max-restarts", "1"), tmp_path, "--fail-at", "2"))
    assert "2 ranks go on at step 3" in text
    assert losses(text) == {step: pytest.approx(loss, abs=1e-3) for step, loss in expected.items() if step != 2}


def test_four_ranks_then_two(name: str, expected: dict[int, float], tmp_path: Path) -> None:
    four = said(start(name, ("--standalone", "--nproc-per-node", "4"), tmp_path, "--steps", "3", devices=4))
    two = said(start(name, ALONE, tmp_path))
    assert "2 ranks go on at step 3" in two
    assert losses(four + two) == pytest.approx(expected, abs=1e-3)


def cells(text: str) -> list[list[float]]:
    """The numbers of each line of a table: ranks, FSDP and TP, memory, and calls and MiB of the collectives."""
    return [[float(x) for x in re.findall(r"[\d.]+", line)] for line in text.splitlines() if re.match(r"\| \d", line)]


@pytest.mark.parametrize("split", ["1", "2"])
def test_a_plan_is_what_ranks_measure(name: str, split: str) -> None:
    options = ("--tensor-parallel", split, "--width", "128", "--layers", "3", "--tokens", "64")
    planned = cells(said(python(name, PLAN, "--ranks", "2", "4", *options, devices=1)))
    assert [line[:3] for line in planned] == [[ranks, ranks / int(split), int(split)] for ranks in (2, 4)]
    for line in planned:
        ranks = int(line[0])
        launch = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks))
        (measured,) = cells(said(python(name, *launch, PLAN, *options, devices=ranks)))
        assert measured[4:] == line[4:], "calls and MiB of collectives"
        assert sum(measured[4:]) > 0
        assert measured[3] == pytest.approx(line[3], rel=0.1), "memory per rank"


def test_a_plan_of_many_ranks(name: str) -> None:
    """Of 1,024 ranks each gathers a row per rank of weights that have 256: more than with 8, and more than there is."""
    text = said(python(name, PLAN, "--ranks", "8", "1024", "--memory", "0.025", devices=1))
    few, many = cells(text)
    assert (few[0], many[0]) == (8, 1024)
    assert few[3] < 25.6 < many[3]
    assert [line.split()[-2] for line in text.splitlines()[2:]] == ["yes", "no"]


def test_a_plan_that_cannot_be(name: str) -> None:
    process = python(name, PLAN, "--ranks", "6", "--tensor-parallel", "4", devices=1)
    assert "--tensor-parallel 4 does not divide 6 ranks" in process.communicate(timeout=patience.seconds(240))[1]
    assert process.returncode == 2
