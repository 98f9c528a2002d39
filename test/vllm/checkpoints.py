"""Small checkpoints with random weights and a tokenizer of bytes, one of each family; adapters for one of them."""

from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    BloomConfig,
    BloomForCausalLM,
    DeepseekV2Config,
    DeepseekV2ForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
)

# Weights are large, so that the likeliest token is so by more than what orders of addition make of it.
_SIZES = {
    "vocab_size": 512,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 1024,
    "bos_token_id": 256,
    "eos_token_id": 257,
    "pad_token_id": 258,
    "initializer_range": 0.08,
    "tie_word_embeddings": False,
}
_GEMMA = {"sliding_window": 16, "query_pre_attn_scalar": 32, "tie_word_embeddings": True}
FAMILIES = {
    "llama": (LlamaForCausalLM, LlamaConfig, {}),
    "qwen3": (Qwen3ForCausalLM, Qwen3Config, {}),
    # Some layers see a window; the second's scores are capped.
    "gemma2": (Gemma2ForCausalLM, Gemma2Config, _GEMMA),
    "gemma3": (Gemma3ForCausalLM, Gemma3TextConfig, _GEMMA),
    "mistral": (MistralForCausalLM, MistralConfig, {"sliding_window": 16}),
    "mixtral": (
        MixtralForCausalLM,
        MixtralConfig,
        {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": None},
    ),
    # Positions are slopes.
    "bloom": (BloomForCausalLM, BloomConfig, {"n_layer": 2, "n_head": 4, "tie_word_embeddings": True}),
    # Latent attention, which is refused.
    "deepseek": (DeepseekV2ForCausalLM, DeepseekV2Config, {"n_routed_experts": 4, "num_key_value_heads": 4}),
}


def write(family: str, folder: Path) -> Path:
    """A checkpoint in float32, the same each time."""
    model_class, config_class, more = FAMILIES[family]
    path = folder / family
    torch.manual_seed(0)
    model_class(config_class(**_SIZES | more)).float().eval().save_pretrained(path)
    _tokenizer().save_pretrained(path)
    return path


def write_adapter(family: str, checkpoint: Path, folder: Path) -> Path:
    """Weights of LoRA for the projections of attention."""
    from peft import LoraConfig, get_peft_model

    model = FAMILIES[family][0].from_pretrained(checkpoint)
    torch.manual_seed(1)
    adapted = get_peft_model(model, LoraConfig(r=8, target_modules=["q_proj", "v_proj"], init_lora_weights=False))
    adapted.save_pretrained(folder)
    return folder


def _tokenizer() -> PreTrainedTokenizerFast:
    vocabulary = {letter: i for i, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary | {"<s>": 256, "</s>": 257, "<pad>": 258}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<s>",
        eos_token="</s>",
        pad_token="<pad>",
        chat_template="{% for message in messages %}{{ message['content'] }}{% endfor %}",
    )
