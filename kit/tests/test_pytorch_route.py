"""The kit on any device that PyTorch has: the CPU, and xcpu as if nobody had told who brought it."""

import subprocess
import sys
from pathlib import Path

import pytest
from fixtures import RunPython, clean_environment
from torch_conformance import (
    InPyTorch,
    NoSuchDevice,
    Profile,
    check,
    coverage,
    device_profile,
    find_level,
    patience,
    unsupported,
)
from torch_conformance.features import FEATURES

SERVED = {
    "add": "native",
    "mm": "native",
    "corrcoef": "composite",
    "linalg_eigvals": "fallback",
    "nn_functional_pdist": "fallback",
}
"""Operators of xcpu by who serves them, for which the dispatch table is enough."""


def _served(device: "InPyTorch | str") -> dict[str, str]:
    name = device if isinstance(device, str) else device.device
    only = [f"ops/test_forward.py::*test_forward_{op}_{name}_float32" for op in SERVED]
    report = check(device, levels=[find_level("ops")], quick=True, only=only, workers=1)
    assert report.ok, report.failures or report.problems
    return {op.replace(".", "_"): kind for op, kind in coverage.kinds(coverage.facts_of(report.results)).items()}


def test_who_served_an_operator_is_told_without_torch_backends_help(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("TORCH_BACKEND", name)
    assert _served(InPyTorch(name, ("torch_backend",))) == SERVED


def test_torch_backend_says_the_same(name: str) -> None:
    assert _served(name) == SERVED


def test_what_the_cpu_lacks_is_not_offered() -> None:
    files = ["async_/test_streams.py", "tensor/test_views.py"]
    report = check(InPyTorch("cpu"), levels=[find_level(each) for each in ("tensor", "async")], only=files, workers=1)
    assert report.ok, report.failures or report.problems
    outcomes = {level.name: {result.outcome for result in report.of_level(level)} for level in report.levels}
    assert outcomes["tensor"] == {"passed"}
    assert outcomes["async"] == {"not offered"}
    assert report.device.features["streams"] == "torch.accelerator is None, not cpu"
    assert report.device.features["dlpack"] is None


def test_a_strict_run_demands_what_the_device_lacks() -> None:
    only = ["async_/test_streams.py::test_waiting_for_another_stream*"]
    report = check(InPyTorch("cpu", strict=True), levels=[find_level("async")], only=only, workers=1)
    assert report.failures


def test_a_profile_says_what_is_not_there(tmp_path: Path) -> None:
    file = tmp_path / "cpu.toml"
    file.write_text('device = "cpu"\n[features]\nnested = "not before version 9"\n')
    device = InPyTorch("cpu", profile=device_profile.read(file))
    report = check(device, levels=[find_level("tensor")], only=["tensor/test_nested.py"], workers=1)
    assert "not before version 9" in {result.message for result in report.results if result.outcome == "not offered"}
    assert not any(result.outcome == "passed" for result in report.results if result.level.name == "tensor")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("device", "is not TOML"),
        ("devices = 1", "has the key 'devices'; expected"),
        ("device = 1", "device is 1; expected a string"),
        ("modules = [1]", "modules has 1; expected a list of strings"),
        ("[features]\nstream = true", "has the feature 'stream'. There are"),
        ("[features]\nstreams = 1", "features.streams is 1; expected true, false, or why"),
        ("[fallback]\nevent = []", "has the key 'fallback.event'"),
    ],
)
def test_a_profile_that_cannot_be_read(tmp_path: Path, text: str, error: str) -> None:
    file = tmp_path / "acme.toml"
    file.write_text(text)
    with pytest.raises(ValueError, match=error):
        device_profile.read(file)


def test_a_profile_travels_to_other_processes() -> None:
    said = Profile("acme", ("torch_acme",), frozenset({"float32"}), {"streams": None}, {"A": "1"}, ("acme::copy",), "x")
    assert Profile.of(said.to_json()) == said


@pytest.mark.parametrize(
    ("device", "modules", "error"),
    [
        ("acme", (), "torch has no working device 'acme'"),
        ("cpu", ("no_such_module",), "No module named 'no_such_module'"),
    ],
)
def test_a_device_that_is_not_there(device: str, modules: tuple[str, ...], error: str) -> None:
    with pytest.raises(NoSuchDevice, match=error):
        check(InPyTorch(device, modules), levels=[find_level("tensor")])


def test_features_say_where_they_come_from() -> None:
    for name, feature in FEATURES.items():
        assert feature.name == name
        assert feature.means
        assert feature.source


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (
            NotImplementedError("Could not run 'aten::equal' with arguments from the 'QuantizedCUDA' backend. This"),
            "there is no kernel of aten::equal for QuantizedCUDA",
        ),
        (NotImplementedError("\"index_cuda\" not implemented for 'UInt16'"), "the kernel index_cuda has no uint16"),
        (NotImplementedError("\"index_cuda\" not implemented for 'Half'"), None),
        (NotImplementedError("Could not run 'aten::equal' with arguments from the 'CUDA' backend. This"), None),
        (RuntimeError("Could not run 'aten::equal' with arguments from the 'QuantizedCUDA' backend. This"), None),
    ],
)
def test_kernels_that_no_device_has_to_have(error: Exception, reason: str | None) -> None:
    assert unsupported.reason(error) == reason


def test_the_kit_does_without_torch_backend(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['torch_backend'] = None\n")
    process = subprocess.run(
        [sys.executable, "-m", "torch_conformance", "check", "--device", "cpu", "--only", "tensor/test_views.py"],
        env=clean_environment() | {"PYTHONPATH": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=patience.seconds(300),
        check=False,
    )
    assert "These tests pass." in process.stdout, process.stdout + process.stderr
    assert process.returncode == 0


def test_what_is_measured_is_compared(run_python: RunPython) -> None:
    run_python(
        """
        import json
        from dataclasses import replace

        from torch_conformance.measure import report, run
        from torch_conformance.measure.timing import Time
        from torch_conformance.routes.pytorch import InPyTorch

        found = run.measure(InPyTorch("cpu"), against="meta", parts=["calls"], quick=True)
        assert found.facts["cpu"] == "cpu"
        add = found.rows[0]
        assert add.name == "add" and 0 < add.times["cpu"].low <= add.times["cpu"].median <= add.times["cpu"].high
        assert add.ratio("cpu", "meta") == add.times["cpu"].median / add.times["meta"].median
        item = next(row for row in found.rows if row.name == "item")
        assert "cpu" in item.times and item.errors["meta"].startswith("RuntimeError: Tensor.item()")

        again = report.Measurements.from_json(json.loads(json.dumps(found.to_json())))
        assert again == replace(found, rows=again.rows) and list(again.rows) == found.rows
        assert report.differences(found, again) == []
        slow = Time(*(5 * found.rows[0].times["cpu"].high,) * 3)
        slower = replace(again, rows=[replace(add, times={"cpu": slow}), *found.rows[1:]])
        worse, = report.differences(found, slower)
        assert worse.is_worse and worse.what == "calls: add" and worse.ratio >= 5
        """
    )
