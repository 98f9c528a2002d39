"""Continuous batching: requests of several lengths share steps and a cache in pages, sized by the device's memory.

On a device the next batch is prepared while one is computed. No model is downloaded: it is small, with random weights.
"""

import torch
from transformers import ContinuousBatchingConfig, GenerationConfig, LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
device = torch.accelerator.current_accelerator() or torch.device("cpu")
shape = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
config = LlamaConfig(vocab_size=256, num_key_value_heads=2, initializer_range=0.1, **shape)
model = LlamaForCausalLM(config).to(device).eval()
prompts = [torch.randint(1, 256, (length,)).tolist() for length in (3, 40, 17, 90, 8, 61)]

generation = GenerationConfig(max_new_tokens=12, do_sample=False, eos_token_id=-1, pad_token_id=0)
one_by_one = [
    model.generate(torch.tensor([prompt], device=device), generation_config=generation)[0, len(prompt) :].tolist()
    for prompt in prompts
]

batching = ContinuousBatchingConfig(
    max_memory_percent=0.05, max_batch_tokens=128, use_async_batching=device.type != "cpu"
)
results = model.generate_batch(prompts, generation, continuous_batching_config=batching, progress_bar=False)
together = [results[name].generated_tokens for name in sorted(results, key=lambda name: int(name.split("_")[-1]))]

assert together == one_by_one
print(f"{len(prompts)} requests in shared batches on {device}: the same tokens as one by one")
