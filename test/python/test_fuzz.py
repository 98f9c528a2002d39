"""The differential fuzzer of test/fuzz: a short run with a fixed seed, and that it finds faults that are planted."""

import json
from pathlib import Path
from typing import Any

import pytest
from fixtures import ROOT, run_program

FUZZ = ROOT / "test" / "fuzz"

PLANTED = {
    "operator that changes its input": "exp memory",
    "in-place operator that returns a copy": "sigmoid values|raises",
    "gradient with a wrong factor": "tanh gradients",
    "result with other strides": "add kind",
    "nextafter in float": "nextafter values",
    "operator that takes any sizes": "dot raises",
}
"""Faults of broken_operators.py and what they have to be found by: an entry, each another one, and kinds."""

BREAK = f"""
import os
import torch
from broken_operators import install
from torch_backend import kernel
for fault in {list(PLANTED)}:
    install(fault)
@kernel("aten::sinh")
def sinh(self):
    if self.dtype in (torch.float64, torch.bfloat16):
        os._exit(3)
    return torch.ops.aten.sinh(self)
"""


def fuzz(folder: Path, *arguments: str, code: int = 0, modules: str = "0") -> tuple[dict[str, Any], str]:
    """Its figures, and what it prints."""
    figures = folder / "figures.json"
    command = ("python", "-W", "ignore", FUZZ, "--device", "xcpu", "--json", figures, *arguments)
    path = f"{ROOT / 'kit' / 'tests'}:{folder}"
    process = run_program(*command, code=code, TORCH_BACKEND_XCPU_MODULES=modules, PYTHONPATH=path)
    return json.loads(figures.read_text()), process.stdout


@pytest.mark.long
@pytest.mark.parametrize("modules", ["0", "1"])
def test_nothing_differs(tmp_path: Path, modules: str) -> None:
    """Some calls of chance give what the CPU gives, or are explained; minutes of it find more."""
    figures, _ = fuzz(tmp_path, "--count", "80", "--seed", "1", modules=modules)
    assert figures["calls"] == 80
    assert figures["raised on both"] < 40


def test_planted_faults_are_found(tmp_path: Path) -> None:
    """One of them ends the process: the call is named, and others are tried."""
    (tmp_path / "planted.py").write_text(BREAK)
    expected = [found.split() for found in (*PLANTED.values(), "sinh crash")]
    entries = [entry for entry, _ in expected]
    figures, output = fuzz(tmp_path, "--import", "planted", "--only", *entries, "--count", "250", code=1)
    for entry, kinds in expected:
        assert any(f"{entry} {kind}" in figures["differences"] for kind in kinds.split("|")), f"{entry}: {output}"
    assert "exit code 3" in output
    again = next(each["case"] for each in figures["cases"] if each["case"].startswith("tanh:"))
    figures, output = fuzz(tmp_path, "--import", "planted", "--case", again, code=1)
    assert figures["differences"] == {"tanh gradients": 1}, output
