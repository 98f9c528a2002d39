"""vLLM's Triton kernels that its model runner launches on every device, in PyTorch's operators.

A kernel's parameters are another list in each version of vLLM: what is here takes those that it names.
"""

import importlib
import inspect
from collections.abc import Callable
from typing import Any

import torch

from torch_backend.integrations.vllm import experts, linear, quantization
from torch_backend.integrations.vllm import layers as layers  # which vLLM then finds by their names

_SLOT_MAPPING = "vllm.v1.worker.block_table.ComputeSlotMappingKernel"


def register(has_triton: bool) -> None:
    """Put them in place of vLLM's, in this process; where there is Triton, only those that vLLM has in CUDA."""
    experts.register()
    quantization.register()
    linear.register()
    if has_triton:
        return
    module, _, owner = _SLOT_MAPPING.rpartition(".")
    kernel = getattr(importlib.import_module(module), owner)
    takes_names = _by_name(kernel.kernel, _compute_slot_mapping)
    try:
        from vllm.triton_utils.dispatcher import register_kernels
    except ImportError:  # before vLLM 0.31
        kernel.kernel = _Launch(kernel.kernel, takes_names)
    else:
        register_kernels({f"{_SLOT_MAPPING}.kernel": takes_names})


class _Launch:
    """Called as a Triton kernel: ``kernel[grid](...)``."""

    def __init__(self, kernel: Any, function: Callable[..., None]) -> None:
        self.arg_names = _names_of(kernel)
        self._function = function

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        return self._function


def _names_of(kernel: Any) -> tuple[str, ...]:
    """The parameters of a Triton kernel, or of what stands for one where there is no Triton."""
    names = getattr(kernel, "arg_names", None)
    return tuple(names or inspect.signature(getattr(kernel, "func", kernel)).parameters)


def _by_name(kernel: Any, function: Callable[..., None]) -> Callable[..., None]:
    """``function``, called with all that ``kernel`` takes, by position or by name, in its order."""
    names = _names_of(kernel)
    wanted = list(inspect.signature(function).parameters)
    if missing := [name for name in wanted if name not in names]:
        raise RuntimeError(f"vLLM's kernel {_SLOT_MAPPING} takes no {', '.join(missing)}, but {', '.join(names)}.")

    def call(*args: Any, **kwargs: Any) -> None:
        values = {**dict(zip(names, args, strict=False)), **kwargs}
        function(*(values[name] for name in wanted))

    return call


def _compute_slot_mapping(
    num_tokens: int,
    max_num_tokens: int,
    query_start_loc_ptr: torch.Tensor,
    positions_ptr: torch.Tensor,
    block_table_ptr: torch.Tensor,
    slot_mapping_ptr: torch.Tensor,
    TOTAL_CP_WORLD_SIZE: int,
    PAD_ID: int,
    KV_CACHE_BLOCK_SIZE: int,
) -> None:
    """Where in the cache each token's key and value go.

    Args:
        num_tokens, max_num_tokens: tokens of this step, and the length of ``slot_mapping_ptr``.
        query_start_loc_ptr: (requests + 1,), the first token of each.
        positions_ptr: (tokens,), each token's place in its request.
        block_table_ptr: (requests, blocks), the blocks of each request's cache.
        slot_mapping_ptr: (max_num_tokens,), written; ``PAD_ID`` after the last token.
    """
    if TOTAL_CP_WORLD_SIZE != 1:
        raise NotImplementedError("torch_backend serves a request by one device: context parallelism has to be 1.")
    token = torch.arange(num_tokens, device=positions_ptr.device, dtype=query_start_loc_ptr.dtype)
    request = torch.bucketize(token, query_start_loc_ptr[1:], right=True)
    request = request.clamp(max=block_table_ptr.shape[0] - 1)  # what follows the last request is padding
    position = positions_ptr[:num_tokens]
    block = block_table_ptr[request, position // KV_CACHE_BLOCK_SIZE].long()
    slot_mapping_ptr[:num_tokens] = block * KV_CACHE_BLOCK_SIZE + position % KV_CACHE_BLOCK_SIZE
    slot_mapping_ptr[num_tokens:max_num_tokens] = PAD_ID
