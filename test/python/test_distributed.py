"""Process groups: names, failures, time-outs, groups of groups, and what torch.distributed's tools expect of a backend.

What collectives compute is tested by the conformance kit, for every device. All scenarios of a mode run in one set of
processes, because starting those takes most of the time.
"""

import re
from pathlib import Path

import pytest
from distributed_ranks import ASYNC, DEVICE_COLLECTIVES, expect_good, run_ranks
from fixtures import RunPython, run_program

ROOT = Path(__file__).parents[2]
MODES = {"sync": {}, "async": ASYNC, "ccl": DEVICE_COLLECTIVES, "ccl-async": ASYNC | DEVICE_COLLECTIVES}
TOOLS = ("shared_attention", "context_parallel", "hooks", "saved_meanwhile", "symmetric_memory")
FAILURES = ("time_out", "abort", "killed")
SYNC_PAIR = ("names", "bound", "bad_arguments", "rare_dtypes", "split", "unawaited", "detail", *FAILURES)
ASYNC_PAIR = ("names", "rare_dtypes", "unawaited", "issued_at_once", *FAILURES)
PAIR = {
    "sync": ("tags", *TOOLS, *SYNC_PAIR),
    "async": ("tags", *TOOLS, *ASYNC_PAIR),
    "ccl": SYNC_PAIR,
    "ccl-async": (*TOOLS, *ASYNC_PAIR),
}

_results: dict[str, list[dict[str, str]]] = {}


@pytest.mark.parametrize(("mode", "scenario"), [(mode, name) for mode, scenarios in PAIR.items() for name in scenarios])
def test_two_ranks(tmp_path_factory: pytest.TempPathFactory, mode: str, scenario: str) -> None:
    """What the scenario's docstring in rank_scenarios.py says."""
    if mode not in _results:
        _results[mode] = run_ranks(PAIR[mode], tmp_path_factory.mktemp(mode), 2, MODES[mode])
    said = _results[mode]
    expect_good(scenario, said[:1] if scenario == "killed" else said)


@pytest.mark.parametrize("mode", ["async", "ccl-async"])
def test_four_ranks(tmp_path: Path, mode: str) -> None:
    expect_good("kit", run_ranks(("kit",), tmp_path, 4, MODES[mode] | {"TORCH_BACKEND_XCPU_PROTECT": "1"}))


def test_activation_loads_nothing_and_takes_no_place(run_python: RunPython) -> None:
    """Nothing of a process group is loaded, and a backend that others have registered for the device stays."""
    run_python(
        """
        import sys, torch, torch_backend
        Backend = torch.distributed.Backend
        Backend.register_backend("other", lambda *_: None, devices=["fake"])
        torch_backend.activate("fake")
        assert Backend.default_device_backend_map["fake"] == "other"
        assert Backend.backend_capability["fakeccl"] == ["fake"]
        assert "torch_backend.distributed.creation" not in sys.modules
        """
    )


def test_a_torch_without_distributed(run_python: RunPython) -> None:
    """is_available() is asked at activation: whatever else torch.distributed has may be missing."""
    run_python(
        """
        import torch, torch_backend
        torch.distributed.is_available = lambda: False
        del torch.distributed.Backend
        torch_backend.activate("xcpu")
        assert torch.ones(3, device="xcpu").sum().item() == 3
        """
    )


def test_the_example(tmp_path: Path) -> None:
    pytest.importorskip("sklearn", reason="the digits come with scikit-learn: pip install scikit-learn")
    launch = ("-m", "torch.distributed.run", "--nproc-per-node", "xcpu", "--standalone")
    program = (ROOT / "examples" / "ddp" / "train.py", "--epochs", "3")
    process = run_program("python", *launch, *program, TORCH_BACKEND="xcpu", OMP_NUM_THREADS="1", TMPDIR=tmp_path)
    found = re.fullmatch(r"2 processes over xcpuccl: ([0-9.]+)% right", process.stdout.strip())
    assert found, process.stdout
    assert float(found[1]) > 90
