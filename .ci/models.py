"""A training step of each architecture that Transformers and Diffusers have, on a device and on the CPU.

``python .ci/models.py --device xcpu --only 'qwen*'``: configurations are made small field by field, weights and inputs
are random, nothing is downloaded. Outputs and all gradients are compared, and what fell back to the CPU is counted. An
architecture that the CPU cannot run so is none that can be compared: its error is printed as the reason.
"""

import argparse
import collections
import copy
import inspect
import json
import math
import multiprocessing
import os
import re
import resource
import sys
import time
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatchcase
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

# Processes are forked once the libraries are imported, each activates the device for itself.
os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import diffusers
import torch
import transformers
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves
from transformers.models.auto import modeling_auto

VOCABULARY, LENGTH, IMAGE, SAMPLES = 99, 12, 32, 4000
MOST_PARAMETERS = 20_000_000
"""Of a configuration that was made small: of more, a field that makes it large has a name that SMALL does not know."""
MOST_MEMORY = 8 << 30
HEADS = ("CAUSAL_LM", "SEQ_TO_SEQ_CAUSAL_LM", "MASKED_LM", "CTC", "IMAGE_CLASSIFICATION")
# By the name of a configuration's field: the most that it is. Heads divide sizes.
SMALL = {
    r"vocab_size|.*_vocab_size": VOCABULARY,
    r".*num_(key_value|kv)_heads|n_kv_heads|kv_n_heads": 2,
    r".*num_(attention_|self_attention_)?heads|n_heads?|(en|de)coder_attention_heads|n_head": 4,
    r"(global_)?head_dim|d_kv|kv_channels|.*_head_dim|(q|kv)_lora_rank|attention_head_size": 16,
    r"d_ff|n_inner|.*intermediate_(size|dim)|.*ffn_dim|.*ffn_size|hidden_dim|ffn_hidden_size|mlp_dim": 96,
    r"hidden_size|d_model|n_embd|dim|emb(ed)?_dim|.*embedding_size|decoder_hidden_size|model_dim|n_embed": 64,
    r".*projection_dim|classifier_proj_size|lru_width|conv_dim|d_embed": 64,
    r"max_position_embeddings|n_positions|max_target_positions|n_ctx|max_seq_len": 64,
    r"max_source_positions": 32,
    r"num_local_experts|n(um)?_(routed_)?experts|moe_num_experts": 4,
    r"num_experts_per_tok(en)?|moe_topk|moe_k|top_k|num_selected_experts": 2,
    r"n_group|topk_group|first_k_dense_replace|n_shared_experts|num_nextn_predict_layers": 1,
    r".*num(_hidden)?_layers|n_layers?|(en|de)coder_layers|(en|de)coder_depth|num_(?!feat_extract).*_layers": 2,
    r"sliding_window|attention_window|local_attention|window_size": 8,
    r"image_size|input_size|sample_size": IMAGE,
    r"patch_size": 8,
}


@dataclass
class Outcome:
    """What became of an architecture.

    Attributes:
        kind: "passed", "differs", "raises", "crashes", "hangs"; "skipped" where the CPU gives nothing to compare with.
        text: the reason.
        fallbacks: calls by operator.
    """

    name: str
    kind: str
    text: str = ""
    seconds: float = 0.0
    compiled: bool = False
    fallbacks: dict[str, int] = field(default_factory=dict)


class NotComparable(Exception):
    """The CPU gives nothing to compare with."""


# ---- models ----


def small(config: Any) -> dict[str, Any]:
    """The fields of a configuration that have to be others for it to be small, those of its parts included."""
    found: dict[str, Any] = {}
    for name, value in config.to_dict().items():
        part = getattr(config, name, None)
        if isinstance(part, transformers.PreTrainedConfig):
            found[name] = small(part)
        elif isinstance(value, float) and re.search("drop", name):
            found[name] = 0.0
        elif name == "depths":
            found[name] = [1] * len(value)
        elif type(value) is int and name.endswith("_token_id"):
            found[name] = value % VOCABULARY
        elif type(value) is int:
            limits = [limit for pattern, limit in SMALL.items() if re.fullmatch(pattern, name)]
            found |= {name: min(value, limits[0])} if limits else {}
    heads = "num_key_value_heads", "num_attention_heads"
    if set(heads) <= set(found) and getattr(config, heads[0]) == getattr(config, heads[1]):
        found[heads[0]] = found[heads[1]]
    return found


def model_class(model_type: str) -> Any:
    """The one of an architecture: with the first head of HEADS that it has, or without any."""
    for head in HEADS:
        names = getattr(modeling_auto, f"MODEL_FOR_{head}_MAPPING_NAMES")
        if name := names.get(model_type):
            return getattr(transformers, name)
    name = modeling_auto.MODEL_MAPPING_NAMES[model_type]
    return getattr(transformers, name if isinstance(name, str) else name[0])


def of_transformers(model_type: str) -> tuple[nn.Module, list[dict[str, Any]]]:
    """A model, and inputs of which it takes the first that it does not refuse."""
    made, architecture = transformers.CONFIG_MAPPING[model_type], model_class(model_type)
    config = made(**small(made()))
    if hasattr(config, "use_cache"):
        config.use_cache = False
    with torch.device("meta"):
        parameters = sum(p.numel() for p in architecture(config).parameters())
    if parameters > MOST_PARAMETERS:
        raise NotComparable(f"{parameters:,} parameters, in spite of the small configuration")
    torch.manual_seed(0)
    model = architecture(config)
    accepted = inspect.signature(model.forward).parameters
    ids = torch.randint(3, VOCABULARY, (2, LENGTH))
    size = getattr(config, "image_size", None) or IMAGE
    mels = getattr(config, "num_mel_bins", None) or 80
    sides = (size, size) if isinstance(size, int) else tuple(size)
    values = {
        "input_ids": ids,
        "pixel_values": torch.randn(2, getattr(config, "num_channels", 3), *sides),
        "input_values": torch.randn(2, SAMPLES),
        "input_features": torch.randn(2, mels, 2 * getattr(config, "max_source_positions", 32)),
    }
    main = model.main_input_name
    if main not in values:
        raise NotComparable(f"there are no inputs {main}")
    first = {main: values[main]}
    if "decoder_input_ids" in accepted:
        first["decoder_input_ids"] = ids
    if "labels" in accepted and architecture.__name__.endswith(("LM", "CTC", "ConditionalGeneration", "LMHeadModel")):
        first["labels"] = ids
    images = {"pixel_values": values["pixel_values"]} if "pixel_values" in accepted else {}
    return model, [first, first | images, {main: values[main]}]


def diffusers_models() -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
    """The library's main models: what each is made with, and inputs as its pipelines give them."""
    image, picture = torch.randn(2, 4, 16, 16), torch.randn(2, 3, 32, 32)
    time_step, text, pooled = torch.tensor([3, 7]), torch.randn(2, 6, 32), torch.randn(2, 32)
    noise = {"sample": image, "timestep": time_step}
    hidden = {"hidden_states": image, "timestep": time_step}
    context = {"encoder_hidden_states": text, "pooled_projections": pooled}
    unet = {"sample_size": 16, "in_channels": 4, "out_channels": 4, "layers_per_block": 1, "norm_num_groups": 8}
    heads = {"num_attention_heads": 2, "attention_head_dim": 16}
    widths = {"block_out_channels": (16, 32)}
    blocks = {"down_block_types": ("DownBlock2D", "AttnDownBlock2D"), "up_block_types": ("AttnUpBlock2D", "UpBlock2D")}
    crossed = {
        "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D"),
        "up_block_types": ("CrossAttnUpBlock2D", "UpBlock2D"),
        "cross_attention_dim": 32,
        "attention_head_dim": 8,
    }
    packed = {
        "hidden_states": image.flatten(2).transpose(1, 2),
        "timestep": time_step / 10,
        "img_ids": torch.cartesian_prod(torch.zeros(1), torch.arange(16.0), torch.arange(16.0)),
        "txt_ids": torch.zeros(6, 3),
    }
    coders = {"down_block_types": ("DownEncoderBlock2D",) * 2, "up_block_types": ("UpDecoderBlock2D",) * 2}
    pooling = {"joint_attention_dim": 32, "pooled_projection_dim": 32}
    sd3 = {"sample_size": 16, "patch_size": 2, "in_channels": 4, "out_channels": 4, "caption_projection_dim": 32}
    return {
        "UNet2DModel": (unet | widths | blocks | {"attention_head_dim": 8}, noise),
        "UNet2DConditionModel": (unet | widths | crossed, noise | {"encoder_hidden_states": text}),
        "AutoencoderKL": (widths | coders | {"latent_channels": 4, "norm_num_groups": 8}, {"sample": picture}),
        "DiTTransformer2DModel": (
            heads | {"in_channels": 4, "num_layers": 2, "sample_size": 16, "norm_num_groups": 8},
            hidden | {"class_labels": torch.tensor([1, 2])},
        ),
        "SD3Transformer2DModel": (heads | sd3 | pooling | {"num_layers": 2}, hidden | context),
        "FluxTransformer2DModel": (
            heads | pooling | {"in_channels": 4, "num_layers": 1, "num_single_layers": 1, "axes_dims_rope": (4, 6, 6)},
            packed | context,
        ),
    }


def of_diffusers(name: str) -> tuple[nn.Module, list[dict[str, Any]]]:
    """A model and its inputs."""
    arguments, inputs = diffusers_models()[name]
    torch.manual_seed(0)
    return getattr(diffusers, name)(**arguments), [inputs]


def architectures() -> Iterator[str]:
    """Their names: the library's, and the architecture's."""
    yield from (f"diffusers:{name}" for name in diffusers_models())
    known = transformers.CONFIG_MAPPING
    yield from (f"transformers:{name}" for name in modeling_auto.MODEL_MAPPING_NAMES if name in known)


# ---- a step ----


def step(model: nn.Module, inputs: dict[str, Any]) -> dict[str, Tensor | None]:
    """Outputs and gradients."""
    torch.manual_seed(1)
    outputs = [x for x in tree_leaves(dict(model(**inputs, return_dict=True))) if isinstance(x, Tensor)]
    ends = [x for x in outputs if x.requires_grad]
    sum((x * torch.linspace(0.5, 1.5, x.numel()).to(x.device).view(x.shape)).float().mean() for x in ends).backward()
    found: dict[str, Tensor | None] = {f"output {i}": x.detach().cpu() for i, x in enumerate(outputs)}
    for name, parameter in model.named_parameters():
        found[f"gradient of {name}"] = None if parameter.grad is None else parameter.grad.cpu()
    return found


def reference(name: str) -> tuple[nn.Module, dict[str, Any], dict[str, Tensor | None]]:
    """A model that has not run, its inputs, and what the CPU makes of them: training unless it draws numbers then."""
    library, _, architecture = name.partition(":")
    model, tries = (of_diffusers if library == "diffusers" else of_transformers)(architecture)
    for parameter in model.parameters():
        if parameter.dim() > 1 and not parameter.any():  # of a router whose scores are all equal any choice is right
            nn.init.normal_(parameter, std=0.02)
    errors = []
    for inputs in tries:
        for mode in (True, False):
            fresh, used = copy.deepcopy(model).train(mode), copy.deepcopy(model).train(mode)
            torch.manual_seed(1)
            before = torch.get_rng_state()
            try:
                found = step(used, inputs)
            except Exception as error:
                errors.append(f"{type(error).__name__}: {error}")
                break
            if torch.equal(before, torch.get_rng_state()):
                return fresh, inputs, found
            errors.append("it draws random numbers")
    raise NotComparable(errors[0])


def distance(a: Tensor, b: Tensor) -> float:
    """The largest difference, infinite where only one is a number."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return math.inf
    a, b = (x.to(torch.complex128 if x.is_complex() else torch.float64) for x in (a, b))
    same = (a == b) | (a.isnan() & b.isnan())
    return float(torch.where(same, 0.0, (a - b).abs()).nan_to_num(nan=math.inf).max()) if a.numel() else 0.0


def differences(model: nn.Module, inputs: dict[str, Any], expected: Any, actual: Any) -> list[str]:
    """What is further from the CPU's than rounding explains: a step there with weights whose last bits are others."""
    numbers = (x for x in expected.values() if x is not None and x.numel() and x.isfinite().all())
    largest = max((float(x.abs().max()) for x in numbers), default=0.0)
    shaken: dict[str, Tensor | None] = {}
    found = []
    for name, x in expected.items():
        y = actual[name]
        if (x is None) != (y is None):
            found.append(f"{name}: only one has it")
        if x is None or y is None:
            continue
        far, scale = distance(x, y), float(x.abs().max()) if x.numel() else 0.0
        if not far <= 1e-4 * scale + 1e-6 * largest:
            shaken = shaken or step(_shake(model), inputs)
            if not far <= 10 * distance(x, shaken[name] if shaken[name] is not None else x):
                found.append(f"{name} {tuple(x.shape)}: differs by {far:.3g}, the largest value is {scale:.3g}")
    return found


def _shake(model: nn.Module) -> nn.Module:
    model = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1 + 1e-6 * torch.randn(parameter.shape).clamp(-2, 2))
    return model


def compare(name: str, device: str, *, compiled: bool) -> Outcome:
    """Of one architecture, in this process."""
    try:
        model, inputs, expected = reference(name)
    except Exception as error:
        reason = error if isinstance(error, NotComparable) else f"{type(error).__name__}: {error}"
        return Outcome(name, "skipped", str(reason))
    import torch_backend

    torch_backend.activate(device)
    torch_backend.fallback.reset()
    try:
        there = copy.deepcopy(model).to(device)
        if compiled:
            there.compile()
        actual = step(there, {key: x.to(device) for key, x in inputs.items()})
    except Exception as error:
        outcome = Outcome(name, "raises", f"{type(error).__name__}: {error}")
    else:
        found = differences(model, inputs, expected, actual)
        outcome = Outcome(name, "differs" if found else "passed", "; ".join(found[:5]))
    outcome.fallbacks = {entry.op: entry.calls for entry in torch_backend.fallback.report()}
    return outcome


# ---- processes ----


def _work(name: str, arguments: argparse.Namespace, compiled: bool, say: Connection) -> None:
    for stream in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    torch.set_num_threads(1)
    say.send(compare(name, arguments.device, compiled=compiled))


def outcomes(work: list[tuple[str, bool]], arguments: argparse.Namespace) -> Iterator[Outcome]:
    """Of all, each in its own process, which a crash or the end of its time ends."""
    fork = multiprocessing.get_context("fork")
    waiting, running = collections.deque(work), {}
    end = time.monotonic() + 60 * arguments.minutes
    while waiting or running:
        if time.monotonic() > end:
            waiting.clear()
        while waiting and len(running) < arguments.jobs:
            name, compiled = waiting.popleft()
            hear, say = fork.Pipe(duplex=False)
            process = fork.Process(target=_work, args=(name, arguments, compiled, say), daemon=False)
            process.start()
            say.close()
            running[hear] = process, name, compiled, time.monotonic()
        ready = wait(list(running), timeout=1)
        for hear, (process, name, compiled, begun) in list(running.items()):
            seconds = time.monotonic() - begun
            if hear in ready:
                try:
                    outcome = hear.recv()
                except EOFError:
                    process.join()
                    outcome = Outcome(name, "crashes", f"exit code {process.exitcode}")
            elif seconds > arguments.patience * (4 if compiled else 1):
                outcome = Outcome(name, "hangs", f"no answer for {seconds:.0f} seconds")
            else:
                continue
            process.kill()
            process.join()
            del running[hear]
            outcome.seconds, outcome.compiled = round(seconds, 1), compiled
            yield outcome


def report(found: list[Outcome], arguments: argparse.Namespace) -> bool:
    """Print it; whether nothing fails, and something passes."""
    kinds = collections.Counter(("compiled " if each.compiled else "") + each.kind for each in found)
    used: dict[str, list[Outcome]] = collections.defaultdict(list)
    for each in found:
        for operator in each.fallbacks:
            used[operator].append(each)
    print(f"\n# Models on {arguments.device}\n\n" + ", ".join(f"{count} {kind}" for kind, count in kinds.most_common()))
    print("\n| fell back | calls | in |\n|---|---|---|")
    for operator, by in sorted(used.items(), key=lambda item: -len(item[1])):
        names = ", ".join(sorted({each.name.partition(":")[2] for each in by}))
        print(f"| {operator} | {sum(each.fallbacks[operator] for each in by)} | {names} |")
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(each) for each in found], indent=1))
    return any(each.kind == "passed" for each in found) and all(each.kind in ("passed", "skipped") for each in found)


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default=os.environ.get("TORCH_BACKEND", "xcpu"))
    parser.add_argument("--only", nargs="*", default=["*"], metavar="PATTERN", help="of architectures")
    parser.add_argument("--compile", type=int, default=0, metavar="COUNT", help="so many through torch.compile as well")
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin nothing later")
    parser.add_argument("--patience", type=float, default=300, help="seconds for one; four times that to compile it")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--json", type=Path, help="write all outcomes there")
    arguments = parser.parse_args()
    os.environ["TORCH_BACKEND"] = arguments.device
    names = [x for x in architectures() if any(fnmatchcase(x.partition(":")[2], p) for p in arguments.only)]
    spread = names[:: max(1, len(names) // arguments.compile)][: arguments.compile] if arguments.compile else []
    found: list[Outcome] = []
    for each in outcomes([(x, False) for x in names] + [(x, True) for x in spread], arguments):
        found.append(each)
        how = " compiled" if each.compiled else ""
        print(f"{each.name}{how}: {each.kind} {' '.join(each.text.split())[:300]}".rstrip(), flush=True)
    sys.exit(not report(found, arguments))


if __name__ == "__main__":
    main()
