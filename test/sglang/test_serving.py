"""SGLang generates on the device what Transformers generates on the CPU, and nothing falls back."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent / "vllm"))
from checkpoints import write  # noqa: E402

NEW = 12
Run = Callable[..., "subprocess.CompletedProcess[str]"]


def prompts(count: int) -> list[list[int]]:
    """Of several lengths: some are longer than what one step takes (64), and two begin alike."""
    random = torch.Generator().manual_seed(1)
    made = [torch.randint(0, 256, (3 + 37 * i % 90,), generator=random).tolist() for i in range(count)]
    made[-1] = made[1] + [7, 8, 9]
    return made


@pytest.fixture(scope="module")
def run() -> Run:
    def run(checkpoint: Path, request: dict, **variables: str) -> "subprocess.CompletedProcess[str]":
        program = [sys.executable, HERE / "generate.py", checkpoint, json.dumps(request)]
        environment = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(HERE / "forbidding")}
        environment = os.environ | environment | variables
        return subprocess.run(program, env=environment, capture_output=True, text=True, timeout=900, check=False)

    return run


def test_tokens_are_those_of_transformers(run: Run, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    path = write("llama", tmp_path)
    process = run(path, {"prompts": prompts(8), "sampling": {"temperature": 0, "max_new_tokens": NEW}, "engine": {}})
    assert process.returncode == 0, process.stdout[-4000:] + process.stderr[-8000:]
    tokens = json.loads(next(line for line in process.stdout.splitlines() if line.startswith("[[")))
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
    options = {"max_new_tokens": NEW, "min_new_tokens": NEW, "do_sample": False, "eos_token_id": None}
    options["pad_token_id"] = 258  # no prompt has it: it would not be seen
    assert tokens == [model.generate(torch.tensor([p]), **options)[0, len(p) :].tolist() for p in prompts(8)]


def test_another_version_is_refused() -> None:
    code = (
        "import dataclasses\n"
        "from torch_backend.integrations import sglang\n"
        "sglang.LIBRARY = dataclasses.replace(sglang.LIBRARY, versions=('7', '8'))\n"
        "from sglang.srt.platforms import current_platform\n"
    )
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False)
    assert process.returncode == 1
    assert "does not serve by this SGLang: tried with 7 up to, not including, 8, it is 0." in process.stderr
