"""Hugging Face Transformers: a small language model is trained from random weights, in mixed precision.

With the argument "compiled", by a Trainer that compiles it, which Trainers do where they see one device:
TORCH_BACKEND_XCPU_DEVICES=1.
"""

import os
import sys
import tempfile

import torch

device = torch.accelerator.current_accelerator() or torch.device("cpu")
os.environ["HF_HUB_OFFLINE"] = "1"  # nothing is downloaded

from torch.utils.data import Dataset  # noqa: E402
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments, set_seed  # noqa: E402

PERIOD = 6
compiled = "compiled" in sys.argv[1:]


class Counting(Dataset[dict[str, torch.Tensor]]):
    """Sequences that count up to a number and start again, from random beginnings."""

    def __len__(self) -> int:
        """How many there are."""
        return 192

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        """One sequence, which is its own label."""
        tokens = (torch.arange(16) + index) % PERIOD + 2
        return {"input_ids": tokens, "labels": tokens}


set_seed(0)
config = LlamaConfig(
    vocab_size=16,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=64,
    bos_token_id=0,
    eos_token_id=1,
    pad_token_id=1,
)
model = LlamaForCausalLM(config)
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        output_dir=folder,
        num_train_epochs=4,
        per_device_train_batch_size=16,
        learning_rate=1e-2,
        bf16=device.type != "cpu",  # which the Trainer refuses on the CPU
        torch_compile=compiled,
        skip_memory_metrics=False,
        logging_steps=4,
        report_to=[],
        disable_tqdm=True,
    )
    assert arguments.device.type == device.type, f"Transformers chose {arguments.device}"
    trainer = Trainer(model=model, args=arguments, train_dataset=Counting())
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert float(losses[-1]) < 0.2, f"the losses are {losses}"
    if compiled:
        counted = torch._dynamo.utils.counters
        assert not counted["graph_break"], f"the graph is broken: {counted['graph_break']}"
        assert counted["stats"]["unique_graphs"] == 1, f"the model is in {counted['stats']}"
    trainer.save_model(folder)
    loaded = LlamaForCausalLM.from_pretrained(folder, device_map="auto", dtype=torch.bfloat16)

loaded.eval()
start = torch.arange(4, device=device)[None] + 2
for options in ({}, {"num_beams": 2}, {"use_cache": False}):
    continued = loaded.generate(
        start, attention_mask=torch.ones_like(start), max_new_tokens=8, do_sample=False, **options
    )
    assert continued.device.type == device.type
    expected = (torch.arange(12) % PERIOD + 2).tolist()
    assert continued[0].tolist() == expected, f"generated {continued[0].tolist()}, not {expected}, with {options}"
print(f"Transformers on {arguments.device}: generated {continued[0].tolist()}")
