"""What vLLM generates on the active device: each line of the input is a checkpoint and a request in JSON.

A request has ``prompts``, lists of tokens; ``sampling``, keywords of SamplingParams, of all or each; ``engine``,
those of LLM; and may have ``adapter``, a folder. Its line of the output has ``tokens`` by prompt, ``logprobs`` by
token, if asked for, ``fallbacks`` by operator, ``metrics``, the number of ``blocks`` of the cache and of vLLM's model
``runner``, and vLLM's ``layers`` that are the platform's own; or ``error``, a traceback.
"""

import json
import sys
import traceback
from typing import Any

import torch
from vllm import LLM, SamplingParams
from vllm.distributed import cleanup_dist_env_and_memory
from vllm.lora.request import LoRARequest
from vllm.outputs import CompletionOutput
from vllm.sampling_params import StructuredOutputsParams


def main() -> None:
    for line in sys.stdin:
        try:
            result = generate(**json.loads(line))
        except Exception:
            result = {"error": traceback.format_exc()}
        cleanup_dist_env_and_memory()
        print("\n" + json.dumps(result), flush=True)


def generate(
    checkpoint: str,
    prompts: list[list[int]],
    sampling: dict[str, Any] | list[dict[str, Any]],
    engine: dict[str, Any] | None = None,
    adapter: str | None = None,
) -> dict[str, Any]:
    is_device = torch._C._get_privateuse1_backend_name() != "privateuseone"
    if is_device:
        import torch_backend

        torch_backend.fallback.reset()
    defaults = {"max_model_len": 512, "max_num_seqs": 16, "max_num_batched_tokens": 64, "dtype": "float32"}
    llm = LLM(checkpoint, disable_log_stats=False, **defaults | (engine or {}))
    outputs = llm.generate(
        [{"prompt_token_ids": prompt} for prompt in prompts],
        [_sampling(**each) for each in (sampling if isinstance(sampling, list) else [sampling] * len(prompts))],
        use_tqdm=False,
        lora_request=None if adapter is None else LoRARequest("adapter", 1, adapter),
    )
    config = llm.llm_engine.vllm_config
    result = {
        "tokens": [[list(completion.token_ids) for completion in output.outputs] for output in outputs],
        "logprobs": [[_logprobs(completion) for completion in output.outputs] for output in outputs],
        "fallbacks": {},
        "metrics": {metric.name: metric.value for metric in llm.get_metrics() if hasattr(metric, "value")},
        "blocks": config.cache_config.num_gpu_blocks,
        "layers": sorted(config.compilation_config.enabled_custom_ops),
        "runner": 2 if config.use_v2_model_runner else 1,
    }
    if is_device:
        result["fallbacks"] = {entry.op: entry.calls for entry in torch_backend.fallback.report().entries}
    return result


def _sampling(regex: str | None = None, bias: list[list] | None = None, **keywords: Any) -> SamplingParams:
    structured = None if regex is None else StructuredOutputsParams(regex=regex)
    more = {"ignore_eos": True, "structured_outputs": structured, "logit_bias": None if bias is None else dict(bias)}
    return SamplingParams(**more | keywords)


def _logprobs(completion: CompletionOutput) -> list[dict[int, float]]:
    return [{token: each.logprob for token, each in place.items()} for place in completion.logprobs or ()]


if __name__ == "__main__":
    main()
