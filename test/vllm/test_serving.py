"""vLLM generates on the device what Transformers generates on the CPU, and nothing falls back."""

import functools
import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from checkpoints import FAMILIES, write_adapter
from conftest import ENVIRONMENT, GREEDY, NEW, SMALL_CACHE, Checkpoint, Generate, prompts
from scipy.stats import chisquare


@functools.cache
def expected(path: Path, count: int, adapter: Path | None = None) -> list[list[int]]:
    """Transformers' greedy tokens on the CPU."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
    if adapter is not None:
        from peft import PeftModel

        model = PeftModel.from_pretrained(model, adapter)
    options = {"max_new_tokens": NEW, "min_new_tokens": NEW, "do_sample": False, "eos_token_id": None}
    options["pad_token_id"] = 258  # no prompt has it: it would not be seen
    return [model.generate(torch.tensor([p]), **options)[0, len(p) :].tolist() for p in prompts(count)]


@pytest.mark.parametrize("family", sorted(FAMILIES.keys() - {"deepseek"}))
def test_tokens_are_those_of_transformers(family: str, checkpoint: Checkpoint, generate: Generate) -> None:
    path = checkpoint(family)
    result = generate(path, {"prompts": prompts(8), "sampling": GREEDY, "engine": SMALL_CACHE})
    assert [one for (one,) in result["tokens"]] == expected(path, 8)
    assert result["fallbacks"] == {}


def test_requests_that_are_put_off_go_on_where_they_were(checkpoint: Checkpoint, generate: Generate) -> None:
    """The cache has place for some of the requests, so that others lose theirs and are computed again."""
    path = checkpoint("llama")
    engine = {"num_gpu_blocks_override": 24, "max_model_len": 256}
    result = generate(path, {"prompts": prompts(12), "sampling": GREEDY, "engine": engine | SMALL_CACHE})
    assert [one for (one,) in result["tokens"]] == expected(path, 12)
    assert result["metrics"]["vllm:num_preemptions"] > 0
    assert result["fallbacks"] == {}


def test_layers_are_the_devices_own_unless_they_are_compiled(checkpoint: Checkpoint, generate: Generate) -> None:
    path, own = checkpoint("llama"), {"RMSNorm", "RotaryEmbedding", "SiluAndMul"}
    for compilation, layers in ({}, own), ({"mode": 2}, set()):
        engine = SMALL_CACHE | {"compilation_config": compilation}
        result = generate(path, {"prompts": prompts(8), "sampling": GREEDY, "engine": engine})
        assert [one for (one,) in result["tokens"]] == expected(path, 8)
        assert result["fallbacks"] == {}
        assert own & set(result["layers"]) == layers


def test_two_devices_have_a_part_each(told: str, checkpoint: Checkpoint, generate: Generate) -> None:
    path = checkpoint("llama")
    engine = {"tensor_parallel_size": 2}
    devices = {f"TORCH_BACKEND_{told.upper()}_DEVICES": "2"}
    result = generate(path, {"prompts": prompts(8), "sampling": GREEDY, "engine": engine | SMALL_CACHE}, **devices)
    assert [one for (one,) in result["tokens"]] == expected(path, 8)


@pytest.mark.parametrize("compiled", [{}, {"compilation_config": {"mode": 2}}], ids=["as it is", "asked to compile"])
def test_an_adapter(
    compiled: dict[str, dict[str, int]], checkpoint: Checkpoint, generate: Generate, tmp_path: Path
) -> None:
    path = checkpoint("llama")
    adapter = write_adapter("llama", path, tmp_path)
    request = {"prompts": prompts(8), "sampling": GREEDY, "engine": {"enable_lora": True} | compiled | SMALL_CACHE}
    result = generate(path, request | {"adapter": str(adapter)})
    assert [one for (one,) in result["tokens"]] == expected(path, 8, adapter)
    assert expected(path, 8, adapter) != expected(path, 8)
    assert result["fallbacks"] == {}


def logarithms(path: Path, result: dict, dtype: torch.dtype) -> list[torch.Tensor]:
    """Of the probabilities that Transformers has on the CPU for each place that vLLM generated, by prompt."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(path, dtype=dtype).eval()
    with torch.no_grad():
        return [
            model(torch.tensor([prompt + tokens])).logits[0, len(prompt) - 1 : -1].float().log_softmax(-1)
            for prompt, (tokens, *_) in zip(prompts(8), result["tokens"], strict=False)
        ]


@pytest.mark.parametrize("limit", [{"top_k": 8}, {"top_p": 0.5}, {"min_p": 0.2}], ids=lambda limit: next(iter(limit)))
def test_samples_are_the_models_probabilities(
    limit: dict[str, float], checkpoint: Checkpoint, generate: Generate
) -> None:
    """The first token of many samples of the likeliest, by a test of chi-squared; a seed repeats them."""
    from transformers import AutoModelForCausalLM, MinPLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

    path, prompt, count = checkpoint("llama"), prompts(8)[3], 512
    sampling = {"temperature": 0.5, "max_tokens": 1, "n": count, "seed": 3} | limit
    engine = SMALL_CACHE | {"max_num_seqs": 64}
    result = generate(path, {"prompts": [prompt, prompt], "sampling": sampling, "engine": engine})
    first, again = ([token for (token,) in completions] for completions in result["tokens"])
    assert first == again
    assert result["fallbacks"] == {}
    warper = {"top_k": TopKLogitsWarper, "top_p": TopPLogitsWarper, "min_p": MinPLogitsWarper}[next(iter(limit))]
    with torch.no_grad():
        logits = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)(torch.tensor([prompt])).logits[0, -1:]
    expected = warper(*limit.values())(None, logits.double() / 0.5)[0].softmax(0) * count
    counts = torch.bincount(torch.tensor(first), minlength=len(expected)).double()
    assert not counts[expected == 0].any()
    assert 3 < (expected > 0).sum() < 100
    often = expected >= 5
    rest = expected[~often].sum()
    expected, counts = expected[often], counts[often]
    if rest > 0:
        expected, counts = torch.cat((expected, rest[None])), torch.cat((counts, count - counts.sum()[None]))
    assert chisquare(counts.numpy(), expected.numpy()).pvalue > 1e-4


def test_requests_sample_each_in_its_own_way(checkpoint: Checkpoint, generate: Generate) -> None:
    """Penalties, a bias, some tokens alone, an end, a grammar, one without any of these: side by side in a step."""
    from transformers import AutoModelForCausalLM

    path, prompt = checkpoint("llama"), prompts(8)[3]
    right = expected(path, 8)[3]
    ways = [
        {"repetition_penalty": 1.3},
        {"bias": [[right[0], -100.0]]},
        {"allowed_token_ids": [7, 8, 9]},
        {"stop_token_ids": [right[-1]]},
        {"regex": "[ab]{4}c{2}", "ignore_eos": False},
        {"frequency_penalty": 1.5, "presence_penalty": 0.5},
        {},
    ]
    sampling = [GREEDY | way for way in ways]
    result = generate(path, {"prompts": [prompt] * len(ways), "sampling": sampling, "engine": SMALL_CACHE})
    penalty, bias, some, end, grammar, _, plain = (tokens for (tokens,) in result["tokens"])
    assert result["fallbacks"] == {}
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
    options = {"max_new_tokens": NEW, "min_new_tokens": NEW, "do_sample": False, "eos_token_id": None}
    penalized = model.generate(torch.tensor([prompt]), repetition_penalty=1.3, pad_token_id=258, **options)
    assert penalty == penalized[0, len(prompt) :].tolist()
    assert right[0] not in bias
    assert set(some) <= {7, 8, 9}
    assert end == right[: right.index(right[-1]) + 1]
    letters = json.loads((path / "tokenizer.json").read_text())["model"]["vocab"]
    names = {token: letter for letter, token in letters.items()}
    assert re.fullmatch("[ab]{4}cc</s>", "".join(names[token] for token in grammar))
    assert plain == right


def test_the_cache_has_what_memory_the_model_leaves(told: str, checkpoint: Checkpoint, generate: Generate) -> None:
    path = checkpoint("qwen3")
    blocks = {}
    for mib in (512, 1024):
        memory = {f"TORCH_BACKEND_{told.upper()}_MEMORY": str(mib << 20)}
        request = {"prompts": prompts(2), "sampling": GREEDY, "engine": {"gpu_memory_utilization": 0.8}}
        result = generate(path, request, **memory)
        assert [one for (one,) in result["tokens"]] == expected(path, 2)
        blocks[mib] = result["blocks"]
    size = 16 * 2 * 2 * 2 * 32 * 4  # of a block: places, layers, heads, key and value, head, bytes
    assert (blocks[1024] - blocks[512]) * size == pytest.approx(0.8 * (512 << 20), rel=0.02)
    assert blocks[512] * size > 0.7 * (512 << 20)


@pytest.mark.parametrize(
    ("family", "name"), [("llama", "float16"), *((family, "bfloat16") for family in ("gemma2", "llama", "mixtral"))]
)
def test_half_precision(family: str, name: str, checkpoint: Checkpoint, generate: Generate) -> None:
    """It is as far from float32 as Transformers in that precision."""
    path, dtype = checkpoint(family), getattr(torch, name)
    engine = {"dtype": name} | SMALL_CACHE
    result = generate(path, {"prompts": prompts(8), "sampling": GREEDY | {"logprobs": 8}, "engine": engine})
    distances: list[list[torch.Tensor]] = [[], []]
    references = (logarithms(path, result, each) for each in (torch.float32, dtype))
    for places, exact, half in zip(result["logprobs"], *references, strict=True):
        for place, row, other in zip(places[0], exact, half, strict=True):
            tokens = [int(token) for token in place]
            distances[0].append((torch.tensor(list(place.values())) - row[tokens]).abs())
            distances[1].append((other - row)[tokens].abs())
    found, step = (torch.cat(each) for each in distances)
    assert found.median() < 1.5 * step.median()
    # Of experts that are nearly as good, rounding may choose the other for a token.
    assert (found > 10 * step.median()).float().mean() < 0.02
    assert result["metrics"]["vllm:prefix_cache_hits"] >= 32  # two prompts begin alike
    assert result["fallbacks"] == {}


def test_latent_attention_is_refused(checkpoint: Checkpoint, answer: Generate) -> None:
    result = answer(checkpoint("deepseek"), {"prompts": [[1]], "sampling": {}, "engine": SMALL_CACHE})
    assert "multi-head latent attention, for which torch_backend has no kernel yet" in result["error"]


def test_another_version_is_refused() -> None:
    code = (
        "import dataclasses\n"
        "from torch_backend.integrations import vllm\n"
        "vllm.LIBRARY = dataclasses.replace(vllm.LIBRARY, versions=('7', '8'))\n"
        "from vllm.platforms import current_platform\n"
        "current_platform.device_name\n"
    )
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False)
    assert process.returncode == 1
    assert "does not serve by this vLLM: tried with 7 up to, not including, 8, it is 0." in process.stderr


@pytest.fixture(scope="module")
def server(checkpoint: Checkpoint, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of an OpenAI server, the engine in a process of its own."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(checkpoint("llama"))]
    command += ["--served-model-name", "tiny", "--host", "127.0.0.1", "--port", str(port), "--dtype", "float32"]
    command += ["--max-model-len", "512", "--max-num-seqs", "16", "--kv-cache-memory-bytes", str(64 << 20)]
    environment = {**os.environ, **ENVIRONMENT}
    del environment["VLLM_ENABLE_V1_MULTIPROCESSING"]
    log = tmp_path_factory.mktemp("server") / "log.txt"
    with log.open("w") as output:
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT)
    address = f"http://127.0.0.1:{port}"
    try:
        for _ in range(600):
            assert process.poll() is None, log.read_text()[-8000:]
            try:
                urllib.request.urlopen(f"{address}/health", timeout=5)
                break
            except (urllib.error.URLError, ConnectionError):
                time.sleep(1)
        yield address
    finally:
        process.terminate()
        process.wait(60)


def _post(url: str, **body: object) -> str:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=300) as answer:
        return answer.read().decode()


def test_completions(server: str, checkpoint: Checkpoint) -> None:
    options = {"temperature": 0, "max_tokens": NEW, "ignore_eos": True, "return_token_ids": True}
    answer = json.loads(_post(f"{server}/v1/completions", model="tiny", prompt=prompts(8)[4], **options))
    assert answer["choices"][0]["token_ids"] == expected(checkpoint("llama"), 8)[4]
    with urllib.request.urlopen(f"{server}/metrics", timeout=30) as page:
        assert f'vllm:generation_tokens_total{{engine="0",model_name="tiny"}} {NEW}' in page.read().decode()


def test_a_chat_in_pieces(server: str) -> None:
    options = {"max_tokens": 6, "temperature": 0.7, "top_p": 0.9, "ignore_eos": True, "stream": True}
    messages = [{"role": "user", "content": "hello"}]
    lines = [
        line.removeprefix("data: ")
        for line in _post(f"{server}/v1/chat/completions", model="tiny", messages=messages, **options).splitlines()
        if line
    ]
    assert lines[-1] == "[DONE]"
    pieces = [json.loads(line)["choices"][0] for line in lines[:-1]]
    assert pieces[-1]["finish_reason"] == "length"
    assert len(pieces) > 3


def test_what_was_fine_tuned(generate: Generate, tmp_path: Path) -> None:
    """The example's model answers as it has learned."""
    example = Path(__file__).parents[2] / "examples" / "ecosystem" / "peft_finetuning.py"
    subprocess.run([sys.executable, example, tmp_path], check=True, timeout=900)
    first = torch.arange(8)
    expected = torch.stack([first] + [first := (5 * first + 7) % 97 for _ in range(15)], 1)
    engine = SMALL_CACHE | {"skip_tokenizer_init": True}
    request = {"prompts": expected[:, :4].tolist(), "sampling": GREEDY | {"detokenize": False}, "engine": engine}
    result = generate(tmp_path / "model", request)
    assert [tokens for (tokens,) in result["tokens"]] == expected[:, 4:].tolist()
    assert result["fallbacks"] == {}
