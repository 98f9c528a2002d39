"""Weights and activations of eight bits: probabilities are those of Transformers on the CPU with the same values.

An activation close to the middle of two values may be rounded the other way than in the reference, as sums have
another order: a step in few elements, where rounding is up to half a step in each of them. So what rounding activations
makes of the reference's logarithms is the measure: the distance to the reference with activations rounded is a small
part of it. (Not smaller: one step in one of 128 elements is a third of what rounding all of them does, and makes others
of the next layers round the other way.)
"""

import re
import shutil
from pathlib import Path

import pytest
import torch
from checkpoints import Rounding, write_config, write_half, write_rounded
from conftest import GREEDY, SMALL_CACHE, Checkpoint, Generate, prompts

FLOAT8 = torch.float8_e4m3fn
CHECKPOINTS = {
    "int8": Rounding(torch.int8),
    "int8-static": Rounding(torch.int8, weights_by_channel=False, largest_activation=6.0),
    "float8": Rounding(FLOAT8),
    "float8-static": Rounding(FLOAT8, weights_by_channel=False, largest_activation=6.0),
    "float8-mixed": Rounding(FLOAT8, largest_activation=6.0),
}
SAMPLING = GREEDY | {"logprobs": 8}


def distances(path: Path, rounding: Rounding, result: dict) -> tuple[torch.Tensor, torch.Tensor]:
    """Of the logarithms of probabilities: of vLLM to the reference, and of the reference to itself without rounding."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
    projections = [module for name, module in model.named_modules() if name.endswith("_proj")]
    assert len(projections) == 14
    given, exact, rounded = [], [], []
    for to in (exact, rounded):
        if to is rounded:
            for module in projections:
                module.register_forward_pre_hook(lambda _, inputs: (rounding.activations(inputs[0]),))
        for prompt, (tokens,) in zip(prompts(8), result["tokens"], strict=True):
            with torch.no_grad():
                to.append(model(torch.tensor([prompt + tokens])).logits[0, len(prompt) - 1 : -1].log_softmax(-1))
    pairs: list[list[torch.Tensor]] = [[], []]
    for places, right, other in zip(result["logprobs"], rounded, exact, strict=True):
        for place, row, other_row in zip(places[0], right, other, strict=True):
            tokens = [int(token) for token in place]
            given = torch.tensor(list(place.values()))
            pairs[0].append((given - row[tokens]).abs())
            pairs[1].append((other_row - row)[tokens].abs())
    return torch.cat(pairs[0]), torch.cat(pairs[1])


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_checkpoints(name: str, checkpoint: Checkpoint, generate: Generate, tmp_path: Path) -> None:
    rounding = CHECKPOINTS[name]
    path, values = write_rounded(checkpoint("llama"), rounding, tmp_path)
    result = generate(path, {"prompts": prompts(8), "sampling": SAMPLING, "engine": SMALL_CACHE})
    found, step = distances(values, rounding, result)
    assert found.mean() < step.mean() / 4
    assert found.max() < step.max()
    assert result["fallbacks"] == {}


def test_weights_rounded_while_they_load(checkpoint: Checkpoint, generate: Generate, tmp_path: Path) -> None:
    """As those of a checkpoint that were rounded before: both in float16, which vLLM asks for here."""
    path = write_half(checkpoint("llama"), tmp_path / "half")
    rounded, _ = write_rounded(path, Rounding(FLOAT8), tmp_path)
    request = {"prompts": prompts(8), "sampling": SAMPLING, "engine": SMALL_CACHE | {"dtype": "float16"}}
    before = generate(rounded, request)
    request["engine"] = request["engine"] | {"quantization": "fp8_per_channel"}
    online = generate(path, request)
    assert online["tokens"] == before["tokens"]
    assert online["logprobs"] == before["logprobs"]
    assert online["fallbacks"] == {}


INT4 = {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group", "group_size": 32}
GROUP = {"targets": ["Linear"], "weights": INT4}
PACKED = {"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": {"group_0": GROUP}}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": True}
FP8 = {"quant_method": "fp8", "activation_scheme": "dynamic"}


@pytest.mark.parametrize(
    ("family", "config", "engine", "says"),
    [
        ("llama", AWQ, {}, "the quantization .*awq"),
        ("llama", PACKED, {}, "compressed-tensors with weights in int4 by group and activations in the model's dtype"),
        ("llama", FP8, {"dtype": "float16"}, "the quantization fp8"),
        (
            "mixtral",
            None,
            {"dtype": "float16", "quantization": "fp8_per_channel"},
            "fp8_per_channel in mixtures of experts",
        ),
    ],
    ids=["awq", "int4", "fp8", "experts"],
)
def test_others_are_refused(
    family: str, config: dict | None, engine: dict, says: str, checkpoint: Checkpoint, answer: Generate, tmp_path: Path
) -> None:
    path = shutil.copytree(checkpoint(family), tmp_path / family)
    if config is not None:
        write_config(path, config)
    result = answer(path, {"prompts": [[1]], "sampling": {}, "engine": SMALL_CACHE | engine})
    assert re.search(f"torch_backend has no kernels for {says}: it serves compressed", result["error"])
