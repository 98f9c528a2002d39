"""Small checkpoints with random weights and a tokenizer of bytes, one of each family; adapters for one of them.

A family's weights also come in eight bits, as the format compressed-tensors has them.
"""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    BloomConfig,
    BloomForCausalLM,
    CohereConfig,
    CohereForCausalLM,
    DeepseekV2Config,
    DeepseekV2ForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    OPTConfig,
    OPTForCausalLM,
    Phi3Config,
    Phi3ForCausalLM,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
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
    "phi3": (Phi3ForCausalLM, Phi3Config, {}),
    "qwen2": (Qwen2ForCausalLM, Qwen2Config, {}),  # biases
    "qwen3": (Qwen3ForCausalLM, Qwen3Config, {}),
    "qwen3moe": (
        Qwen3MoeForCausalLM,
        Qwen3MoeConfig,
        {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 64},
    ),
    # Pairs of neighbors are turned, and half of a head is.
    "cohere": (CohereForCausalLM, CohereConfig, {"tie_word_embeddings": True}),
    "gptneox": (GPTNeoXForCausalLM, GPTNeoXConfig, {"num_key_value_heads": 4, "rotary_pct": 0.5}),
    # Positions are learned.
    "opt": (OPTForCausalLM, OPTConfig, {"ffn_dim": 256, "word_embed_proj_dim": 128, "num_key_value_heads": 4}),
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
    model = model_class(config_class(**_SIZES | more)).float().eval()
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(parameter, std=0.08)
    model.save_pretrained(path)
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


@dataclass(frozen=True)
class Rounding:
    """How weights and activations become eight bits.

    Attributes:
        weights_by_channel: a scale for each row, otherwise one for the projections that vLLM makes one of.
        largest_activation: that of the scale of all; None: a scale for each token, of its largest.
    """

    dtype: torch.dtype
    weights_by_channel: bool = True
    largest_activation: float | None = None

    @property
    def largest(self) -> float:
        return 127.0 if self.dtype == torch.int8 else torch.finfo(self.dtype).max

    def round(self, x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        quotient = (x / scale).clamp(-self.largest, self.largest)
        return (quotient.round() if self.dtype == torch.int8 else quotient).to(self.dtype)

    def weights(self, weights: list[torch.Tensor]) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Those that vLLM makes one of, rounded, with their scales."""
        rows = [weight.abs().amax(1, keepdim=True) for weight in weights]
        if not self.weights_by_channel:
            rows = [torch.cat(rows).amax(0)] * len(rows)
        scales = [row / self.largest for row in rows]
        return [(self.round(*pair), pair[1]) for pair in zip(weights, scales, strict=True)]

    def activations(self, x: torch.Tensor) -> torch.Tensor:
        """``x`` as the products take it."""
        if self.largest_activation is None:
            scale = x.abs().amax(-1, keepdim=True) / self.largest
        else:
            scale = torch.tensor(self.largest_activation / self.largest)
        return self.round(x, scale).to(x.dtype) * scale

    def config(self) -> dict[str, object]:
        """That of compressed-tensors."""
        kind = "int" if self.dtype == torch.int8 else "float"
        by_token = self.largest_activation is None
        each = {"num_bits": 8, "type": kind, "symmetric": True}
        weights = {"strategy": "channel" if self.weights_by_channel else "tensor", "dynamic": False}
        activations = {"strategy": "token" if by_token else "tensor", "dynamic": by_token}
        group = {"targets": ["Linear"], "weights": each | weights, "input_activations": each | activations}
        return {
            "quant_method": "compressed-tensors",
            "format": f"{kind}-quantized",
            "ignore": ["lm_head"],
            "config_groups": {"group_0": group},
        }


def write_half(checkpoint: Path, folder: Path) -> Path:
    """The checkpoint with values that float16 holds, in float32."""
    shutil.copytree(checkpoint, folder)
    weights = {name: tensor.half().float() for name, tensor in load_file(checkpoint / "model.safetensors").items()}
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    return folder


_TOGETHER = (("q_proj", "k_proj", "v_proj"), ("o_proj",), ("gate_proj", "up_proj"), ("down_proj",))


def write_rounded(checkpoint: Path, rounding: Rounding, folder: Path) -> tuple[Path, Path]:
    """A checkpoint of Llama whose weights are rounded, and one with the same values in float32."""
    weights = load_file(checkpoint / "model.safetensors")
    values = dict(weights)
    firsts = [(name, together) for together in _TOGETHER for name in weights if f".{together[0]}." in name]
    for first, together in firsts:
        names = [first.replace(together[0], name) for name in together]
        for name, (rounded, scale) in zip(names, rounding.weights([values[name] for name in names]), strict=True):
            weights |= {name: rounded, f"{name}_scale": scale}
            values[name] = rounded.float() * scale
            if rounding.largest_activation is not None:
                scale_name = name.replace("weight", "input_scale")
                weights[scale_name] = torch.tensor([rounding.largest_activation / rounding.largest])
    for name, tensors in {"rounded": weights, "values": values}.items():
        shutil.copytree(checkpoint, folder / name)
        save_file(tensors, folder / name / "model.safetensors", {"format": "pt"})
    write_config(folder / "rounded", rounding.config())
    return folder / "rounded", folder / "values"


def write_config(checkpoint: Path, quantization: dict[str, object]) -> None:
    """Say how the weights are quantized."""
    path = checkpoint / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"quantization_config": quantization}))


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
