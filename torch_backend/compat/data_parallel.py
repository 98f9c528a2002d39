"""``torch.nn.DataParallel``: scatter, gather and broadcast between devices of one process.

``torch.nn.parallel.comm`` calls functions of ``torch._C`` that only builds with CUDA have, and that take CUDA tensors.
Those here do the same with copies between devices. ``parallel_apply`` asks for CUDA's autocast and turns off that of
the device in its threads: they get it back. All versions up to 2.15. May go once PyTorch has such functions for every
accelerator.
"""

import contextlib
import functools
import sys
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any


def replace(name: str) -> None:
    """Let the functions take tensors of the device ``name``, and of the CPU."""
    import torch
    from torch.nn.parallel import comm

    def move(tensor: torch.Tensor, index: int) -> torch.Tensor:
        return tensor.detach().to(torch.device(name, index) if index >= 0 else "cpu", non_blocking=index >= 0)

    def broadcast(tensor: torch.Tensor, devices: Sequence[int]) -> list[torch.Tensor]:
        return [move(tensor, index) for index in devices]

    def broadcast_out(tensor: torch.Tensor, out: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        for target in out:
            target.copy_(tensor, non_blocking=True)
        return out

    def broadcast_coalesced(
        tensors: Sequence[torch.Tensor], devices: Sequence[int], buffer_size: int
    ) -> list[list[torch.Tensor]]:
        return [[move(tensor, index) for tensor in tensors] for index in devices]

    def scatter(
        tensor: torch.Tensor, devices: Sequence[int], sizes: Sequence[int] | None, dim: int, streams: Any
    ) -> list[torch.Tensor]:
        parts = tensor.chunk(len(devices), dim) if sizes is None else torch.split(tensor, list(sizes), dim)
        found = []
        for part, index, stream in zip(parts, devices, streams or [None] * len(devices), strict=False):
            with contextlib.nullcontext() if stream is None else stream:
                found.append(move(part, index))
        return found

    def scatter_out(
        tensor: torch.Tensor, out: Sequence[torch.Tensor], dim: int, streams: Any
    ) -> Sequence[torch.Tensor]:
        for target, part in zip(out, torch.split(tensor, [target.size(dim) for target in out], dim), strict=True):
            target.copy_(part, non_blocking=True)
        return out

    def gather(tensors: Sequence[torch.Tensor], dim: int, destination: int | None) -> torch.Tensor:
        index = getattr(torch, name).current_device() if destination is None else destination
        return torch.cat([move(tensor, index) for tensor in tensors], dim)

    def gather_out(tensors: Sequence[torch.Tensor], out: torch.Tensor, dim: int) -> torch.Tensor:
        return out.copy_(torch.cat([tensor.to(out.device) for tensor in tensors], dim))

    for function in (broadcast, broadcast_out, broadcast_coalesced, scatter, scatter_out, gather, gather_out):
        _provide(f"_{function.__name__}", function)
    nccl: Any = comm.nccl  # type: ignore[attr-defined]
    vars(comm)["nccl"] = SimpleNamespace(  # which warns on a torch without NCCL
        is_available=lambda tensors: tensors[0].is_cuda and nccl.is_available(tensors), reduce=nccl.reduce
    )

    _keep_autocast(name)


def _keep_autocast(name: str) -> None:
    import torch

    original: Any = torch.nn.parallel.parallel_apply

    @functools.wraps(original)
    def parallel_apply(modules: Sequence[torch.nn.Module], *arguments: Any, **keywords: Any) -> Any:
        enabled, dtype = torch.is_autocast_enabled(name), torch.get_autocast_dtype(name)

        def call(module: torch.nn.Module, *inputs: Any, **options: Any) -> Any:
            with torch.autocast(name, dtype=dtype, enabled=enabled):
                return module(*inputs, **options)

        return original([functools.partial(call, module) for module in modules], *arguments, **keywords)

    for module in ("", ".parallel_apply", ".data_parallel"):  # all that have the function under its name
        vars(sys.modules[f"torch.nn.parallel{module}"])["parallel_apply"] = parallel_apply


def _provide(name: str, function: Callable[..., Any]) -> None:
    """Set ``torch._C``'s function, which keeps what is CUDA's."""
    import torch

    original = getattr(torch._C, name, None)

    def choose(first: Any, *arguments: Any) -> Any:
        tensor = first if isinstance(first, torch.Tensor) else first[0]
        return (original if original and tensor.is_cuda else function)(first, *arguments)

    setattr(torch._C, name, choose)
