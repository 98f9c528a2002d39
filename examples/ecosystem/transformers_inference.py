"""Hugging Face Transformers: `pipeline`, `device_map` over several devices, and a PEFT adapter that is loaded there."""

import os
import tempfile

import torch

device = torch.accelerator.current_accelerator() or torch.device("cpu")
count = torch.accelerator.device_count()
os.environ["HF_HUB_OFFLINE"] = "1"  # nothing is downloaded

from peft import LoraConfig, PeftModel, get_peft_model  # noqa: E402
from tokenizers import Tokenizer, models, pre_tokenizers  # noqa: E402
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast, pipeline, set_seed  # noqa: E402

set_seed(0)
words = Tokenizer(models.WordLevel({str(number): number for number in range(16)}, unk_token="0"))
words.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="1", eos_token="1")
config = GPT2Config(vocab_size=16, n_positions=32, n_embd=32, n_layer=4, n_head=2, bos_token_id=0, eos_token_id=1)
model = GPT2LMHeadModel(config).eval()
expected = model.cpu()(torch.arange(8)[None]).logits

for asked, where in ((None, 0), (0, 0), (count - 1, count - 1)):
    generate = pipeline("text-generation", model=model, tokenizer=tokenizer, device=asked)
    assert generate.device == (torch.device(device.type, where) if count else device), f"{asked}: {generate.device}"
    assert generate("2 3 4", max_new_tokens=4)[0]["generated_text"].startswith("2 3 4")

with tempfile.TemporaryDirectory() as folder:
    model.save_pretrained(folder)
    for device_map in ("auto", "balanced", "sequential", device.type):
        loaded = GPT2LMHeadModel.from_pretrained(folder, device_map=device_map)
        places = {parameter.device for parameter in loaded.parameters()}
        assert {place.type for place in places} == {device.type}, f"{device_map}: {places}"
        assert len(places) == (count if count and device_map == "balanced" else len(places))
        torch.testing.assert_close(loaded(torch.arange(8)[None].to(device)).logits.cpu(), expected)

    get_peft_model(GPT2LMHeadModel(config), LoraConfig(r=2, target_modules=["c_attn"])).save_pretrained(folder)
    adapted = PeftModel.from_pretrained(GPT2LMHeadModel(config).to(device), folder)
    assert {parameter.device.type for parameter in adapted.parameters()} == {device.type}
print(f"Transformers on {count} {device.type}: generated {generate('2 3 4', max_new_tokens=4)[0]['generated_text']}")
