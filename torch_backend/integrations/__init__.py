"""Libraries on top of PyTorch choose the active device where they would choose CUDA, without being told.

A file for each library says what it changes, in which versions, and how it finds out that it can. Everything happens
when a library is imported, or at activation if that was before; nothing is imported for it. What cannot be done for
the installed version becomes one warning, as do libraries that are known to use no device but those in their own list.

``TORCH_BACKEND_INTEGRATIONS`` switches it off: ``0`` all, ``-lightning,-peft`` some, ``accelerate,transformers`` all
others. Importing this package imports neither torch nor a library.
"""

import functools
import importlib
import os
import warnings

from torch_backend.compat.after_import import OnImport
from torch_backend.integrations.library import Library

VARIABLE = "TORCH_BACKEND_INTEGRATIONS"
ADAPTED = (
    "accelerate",
    "lightning",
    "lightning_fabric",
    "peft",
    "pytorch_lightning",
    "ray",
    "safetensors",
    "sglang",
    "torchao",
    "torchtitan",
    "transformers",
    "vllm",
)

# Each picks its device from a list of names, and says nothing where it finds none of them.
UNADAPTED = {
    "deepspeed": "set DS_ACCELERATOR and give it an accelerator class",
    "fastai": 'call fastai.torch_core.default_device("{device}")',
    "flair": 'set flair.device = torch.device("{device}")',
    "ignite": "take torch.accelerator.current_accelerator() where you ask ignite.distributed.device()",
    "keras": 'compute inside keras.device("{device}:0")',
    "sentence_transformers": 'pass device="{device}"',
    "spacy": 'its models run on the CPU; move what "spacy-transformers" has with .to("{device}")',
    "stable_baselines3": 'pass device="{device}"',
    "ultralytics": 'pass device="{device}", if your version accepts it',
    "whisper": 'pass device="{device}" to load_model',
}
_ON_TORCH = {"keras": "keras.src.backend.torch"}  # the part that is imported only where the library runs on torch


def register(device: str) -> list[OnImport]:
    """What adapts the libraries to the active device called ``device``, those imported before as well."""
    libraries = chosen()
    actions: list[OnImport] = []
    for name in ADAPTED:
        if name in libraries:
            module = importlib.import_module(f"torch_backend.integrations.{name}")
            library: Library = module.LIBRARY
            actions += library.adapted_to(device)
    for name, advice in UNADAPTED.items():
        if name in libraries:
            actions.append(OnImport(_ON_TORCH.get(name, name), functools.partial(_warn, name, device, advice)))
    return actions


def chosen() -> set[str]:
    """The names of libraries that ``TORCH_BACKEND_INTEGRATIONS`` does not switch off."""
    known = {*ADAPTED, *UNADAPTED}
    words = [word for word in os.environ.get(VARIABLE, "").replace(" ", "").split(",") if word]
    if words in (["0"], ["none"]):
        return set()
    unknown = sorted({word.lstrip("-") for word in words} - known)
    if unknown:
        raise ValueError(
            f"{VARIABLE} names {', '.join(unknown)}; it can be 0, or name {', '.join(sorted(known))}, each with a "
            "minus to leave it alone, or without one to leave all others alone."
        )
    left_alone = {word[1:] for word in words if word.startswith("-")}
    only = {word for word in words if not word.startswith("-")}
    return (only or known) - left_alone


def _warn(library: str, device: str, advice: str) -> None:
    warnings.warn(
        f"{library} does not choose the active device '{device}' by itself: {advice.format(device=device)}. "
        f"({VARIABLE}=-{library} hides this.)",
        RuntimeWarning,
        stacklevel=2,
    )
