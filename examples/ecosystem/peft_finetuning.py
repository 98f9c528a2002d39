"""Fine-tune a language model that is larger than a device: two ranks, each with half of it.

The ranks train low-rank adapters (PEFT) of a model whose layers are sharded (FSDP2), compiled and computed again in the
backward pass, in bfloat16, and write a checkpoint, a part each. One process then reads it, adds the adapters to the
weights and answers with the model, which it leaves in the folder given, or in a temporary one, for others to serve.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import peft
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import transformers
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, set_model_state_dict
from torch.distributed.fsdp import fully_shard

RANKS = 2
TOKENS = 97
STEPS = 30
CONFIG = transformers.LlamaConfig(
    vocab_size=TOKENS,
    hidden_size=128,
    intermediate_size=256,
    num_hidden_layers=4,
    num_attention_heads=4,
    num_key_value_heads=2,
    bos_token_id=None,
    eos_token_id=None,
    tie_word_embeddings=False,
)
ADAPTERS = peft.LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", modules_to_save=["lm_head"])
TRAINED = StateDictOptions(ignore_frozen_params=True)
device = torch.accelerator.current_accelerator() or torch.device("cpu")


def base() -> peft.PeftModel:
    """The model with adapters; its own weights are the same in every process, as if they had been loaded."""
    torch.manual_seed(0)
    return peft.get_peft_model(transformers.LlamaForCausalLM(CONFIG), ADAPTERS)


def sequences(first: torch.Tensor, length: int) -> torch.Tensor:
    """What the model learns: each token follows from the one before it."""
    tokens = [first]
    for _ in range(length - 1):
        tokens.append((5 * tokens[-1] + 7) % TOKENS)
    return torch.stack(tokens, 1)


def train(folder: Path) -> None:
    """One rank's part. The first one prints the first and the last loss."""
    dist.init_process_group()
    if torch.accelerator.is_available():
        torch.accelerator.set_device_index(int(os.environ["LOCAL_RANK"]) % torch.accelerator.device_count())
    model = base().to(device)
    model.gradient_checkpointing_enable()
    for layer in model.get_base_model().model.layers:
        layer.compile()
        fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=5e-3)
    generator = torch.Generator().manual_seed(dist.get_rank())
    losses = []
    for _ in range(STEPS):
        tokens = sequences(torch.randint(TOKENS, (16,), generator=generator), 24).to(device)
        with torch.autocast(device.type, torch.bfloat16):
            loss = model(input_ids=tokens, labels=tokens, use_cache=False).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    dcp.save({"adapters": get_model_state_dict(model, options=TRAINED)}, checkpoint_id=folder / "checkpoint")
    if dist.get_rank() == 0:
        print(f"{losses[0].item():.2f} {losses[-1].item():.2f}")
    dist.destroy_process_group()


def merge(folder: Path) -> transformers.LlamaForCausalLM:
    """The model with the adapters added to its weights, of the checkpoint of all ranks."""
    model = base()
    state = {"adapters": get_model_state_dict(model, options=TRAINED)}
    dcp.load(state, checkpoint_id=folder / "checkpoint")
    set_model_state_dict(model, state["adapters"], options=StateDictOptions(strict=False))
    merged = model.merge_and_unload()
    merged.save_pretrained(folder / "model")
    return merged


def main() -> None:
    """Train in ranks of their own, then answer."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp())
    if "RANK" in os.environ:
        train(folder)
        return
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        f"--nproc_per_node={RANKS}",
        __file__,
        folder,
    ]
    first, last = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.split()[-2:]
    model = merge(folder).to(device)
    prompts = sequences(torch.arange(8), 24).to(model.device)
    answers = model.generate(prompts[:, :4], max_new_tokens=20, do_sample=False)
    right = (answers == prompts)[:, 4:].float().mean().item()
    print(f"{RANKS} {model.device.type}: loss {first} to {last}, {right:.0%} of the answers' tokens are right")


if __name__ == "__main__":
    main()
