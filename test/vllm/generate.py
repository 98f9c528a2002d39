"""What vLLM generates on the active device: ``generate.py CHECKPOINT REQUEST``, both ways in JSON.

A request has ``prompts``, lists of tokens; ``sampling``, keywords of SamplingParams; ``engine``, those of LLM; and may
have ``adapter``, a folder. One line has ``tokens`` by prompt, ``logprobs`` by token, if asked for, ``fallbacks`` by
operator, ``metrics`` and the number of ``blocks`` of the cache.
"""

import json
import sys

import torch
from vllm import LLM, SamplingParams
from vllm.lora.request import LoRARequest
from vllm.outputs import CompletionOutput


def main() -> None:
    request = json.loads(sys.argv[2])
    engine = {"max_model_len": 512, "max_num_seqs": 16, "max_num_batched_tokens": 64, "dtype": "float32"}
    llm = LLM(sys.argv[1], disable_log_stats=False, enforce_eager=True, **engine | request.get("engine", {}))
    adapter = LoRARequest("adapter", 1, request["adapter"]) if "adapter" in request else None
    prompts = [{"prompt_token_ids": prompt} for prompt in request["prompts"]]
    sampling = SamplingParams(**{"ignore_eos": True} | request["sampling"])
    outputs = llm.generate(prompts, sampling, use_tqdm=False, lora_request=adapter)
    fallbacks: dict[str, int] = {}
    if torch._C._get_privateuse1_backend_name() != "privateuseone":
        import torch_backend

        fallbacks = {entry.op: entry.calls for entry in torch_backend.fallback.report().entries}
    result = {
        "tokens": [[list(completion.token_ids) for completion in output.outputs] for output in outputs],
        "logprobs": [[_logprobs(completion) for completion in output.outputs] for output in outputs],
        "fallbacks": fallbacks,
        "metrics": {metric.name: metric.value for metric in llm.get_metrics() if hasattr(metric, "value")},
        "blocks": llm.llm_engine.vllm_config.cache_config.num_gpu_blocks,
    }
    print("\n" + json.dumps(result))


def _logprobs(completion: CompletionOutput) -> list[dict[int, float]]:
    return [{token: each.logprob for token, each in place.items()} for place in completion.logprobs or ()]


if __name__ == "__main__":
    main()
