"""Where a Triton backend serves the device, vLLM takes its own attention and the model runner that needs Triton."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from conftest import GREEDY, SMALL_CACHE, Checkpoint, Generate, prompts
from test_serving import expected

TESTS = Path(__file__).parents[1] / "triton"
# As vLLM's kernel for grammars has it; 3.9.0's interpreter refuses such a mask, on tensors of the CPU too.
MASK_OF_BITS = """
import torch, triton, triton.language as tl
@triton.jit
def kernel(bits, out, count):
    mask = ((tl.load(bits + tl.arange(0, 2))[:, None] >> tl.arange(0, 32)[None, :]) & 1) == 0
    tl.store(out + tl.arange(0, 64), 1, mask=(count < 5) & mask.reshape(64))
kernel[(1,)](torch.zeros(2, dtype=torch.int32), torch.zeros(64), 3)
"""


@pytest.fixture
def interpreted(device: str, tmp_path: Path) -> dict[str, str]:
    """Variables for a process in which an installed package names a backend, whose kernels Triton interprets."""
    if "HOST_ACCESS" not in torch.get_device_module(device).get_device_properties().capabilities:
        pytest.skip(f"the model runner keeps addresses in memory, and the interpreter cannot follow those of {device}")
    probe, only = tmp_path / "probe.py", {"TRITON_INTERPRET": "1", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    probe.write_text(MASK_OF_BITS)
    done = subprocess.run([sys.executable, probe], env=os.environ | only, capture_output=True, text=True, check=False)
    if "mask has unsupported dtype" in done.stderr:
        pytest.skip("this Triton's interpreter cannot run vLLM's kernels: ValueError, mask has unsupported dtype")
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "triton_test_vendor-1.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: triton_test_vendor\nVersion: 1\n")
    (folder / "entry_points.txt").write_text(f"[torch_backend.triton]\n{device} = triton_test_vendor:BACKEND\n")
    return {"PYTHONPATH": f"{tmp_path}:{TESTS}", "TRITON_INTERPRET": "1"}


def test_the_second_model_runner_and_attention_in_triton(
    checkpoint: Checkpoint, generate: Generate, interpreted: dict[str, str]
) -> None:
    path = checkpoint("llama")
    request = {"prompts": prompts(3), "sampling": GREEDY | {"max_tokens": 4}, "engine": SMALL_CACHE}
    result = generate(path, request, **interpreted)
    assert result["runner"] == 2
    assert [one for (one,) in result["tokens"]] == [tokens[:4] for tokens in expected(path, 3)]
    assert result["fallbacks"] == {}
