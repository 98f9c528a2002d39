"""Attention of tensors that ranks share: DTensor's rule for the fused operator, and context parallelism over it.

PyTorch has both for CUDA's fused operators, and none for the one of other devices, "overrideable".
"""

import importlib
import warnings
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from torch._ops import OpOverload

    Shardings = list[tuple[list[Any], list[Any]]]

_aten = torch.ops.aten
FORWARD: "OpOverload" = _aten._scaled_dot_product_fused_attention_overrideable.default
BACKWARD: "OpOverload" = _aten._scaled_dot_product_fused_attention_overrideable_backward.default
_BATCH, _HEADS, _SEQUENCE = 0, 1, 2  # dimensions of query, key and value


def register_shardings() -> None:
    """Let DTensor split the fused attention by heads, as tensor parallelism does, and by batch. Once per process."""
    from torch.distributed.tensor.experimental import register_sharding

    register_sharding(FORWARD)(_forward_shardings)
    register_sharding(BACKWARD)(_backward_shardings)


def _forward_shardings(query: Any, key: Any, value: Any, bias: Any = None, *others: Any, **named: Any) -> "Shardings":
    def split(dim: int | None) -> tuple[list[Any], list[Any]]:
        whole, part = _placement(None), _placement(dim)
        outputs = [part, part, None, None, None, None, whole, whole, None]
        bias_given = bias is not None or len(others) > 0
        return outputs, [part] * 3 + ([_of_bias(bias, dim)] if bias_given else []) + [None] * len(others)

    return [split(dim) for dim in _dimensions(query, key)]


def _backward_shardings(
    grad: Any, query: Any, key: Any, value: Any, bias: Any, *others: Any, **named: Any
) -> "Shardings":
    def split(dim: int | None) -> tuple[list[Any], list[Any]]:
        part = _placement(dim)
        of_outputs = [part, part]  # what came out, and its logsumexp, behind the mask of gradients
        rest = [None if other is None or not hasattr(other, "placements") else _placement(None) for other in others[3:]]
        return [part] * 3 + [None], [part] * 4 + [_of_bias(bias, dim), None, *of_outputs, *rest]

    return [split(dim) for dim in _dimensions(query, key)]


def _dimensions(query: Any, key: Any) -> list[int | None]:
    """What may be split. With fewer heads in ``key`` each serves several of ``query``'s, which have to stay with it."""
    grouped = query.shape[_HEADS] != key.shape[_HEADS]
    apart = grouped and key.shape[_HEADS] % query.mesh.size() != 0
    return [None, _BATCH] if apart else [None, _HEADS, _BATCH]


def _placement(dim: int | None) -> Any:
    from torch.distributed.tensor import Replicate, Shard

    return Replicate() if dim is None else Shard(dim)


def _of_bias(bias: Any, dim: int | None) -> Any:
    """Of the mask, which is broadcast to (batch, heads, queries, keys)."""
    if bias is None or not hasattr(bias, "shape"):
        return None
    own = None if dim is None else dim + len(bias.shape) - 4
    return _placement(own if own is not None and own >= 0 and bias.shape[own] > 1 else None)


def register_context_parallel() -> None:
    """Let ``context_parallel`` pass keys and values around the ranks for the fused attention. Once per process."""
    try:
        ring: Any = importlib.import_module("torch.distributed.tensor.experimental._context_parallel._attention")
        handlers = ring.custom_ops
    except (ImportError, AttributeError) as error:
        warnings.warn(
            f"context_parallel of torch {torch.__version__} is not as expected ({error}), and not for this device.",
            RuntimeWarning,
            stacklevel=2,
        )
        return

    def forward(operator: "OpOverload", args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        query, local = _local_arguments(operator, args, named)
        causal = local.pop("is_causal", False)
        out, logsumexp, *rest = ring._templated_ring_attention(
            query.device_mesh.get_group(), _SEQUENCE, operator, is_causal=causal, **local
        )
        return (_shared(out, query), _shared(logsumexp, query), *rest)

    def backward(operator: "OpOverload", args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        query, local = _local_arguments(operator, args, named)
        gradients = ring._templated_ring_attention_backward(
            query.device_mesh.get_group(), _SEQUENCE, operator, grad_out_name="grad_out", **local
        )
        return (*(_shared(gradient, query) for gradient in gradients[:3]), None)

    handlers.update({FORWARD: forward, BACKWARD: backward})


def _local_arguments(
    operator: "OpOverload", args: tuple[Any, ...], named: dict[str, Any]
) -> tuple[Any, dict[str, Any]]:
    """The query, and all arguments by name, those that ranks share as this rank's part."""
    from torch.distributed.tensor import DTensor

    given = {argument.name: value for argument, value in zip(operator._schema.arguments, args, strict=False)} | named
    if given.get("attn_bias") is not None:
        raise NotImplementedError(
            "context_parallel was asked for scaled_dot_product_attention with a mask (attn_mask), but it passes keys "
            "and values around without one. Use is_causal=True, or flex_attention, or leave context_parallel."
        )
    local = {name: value.to_local() if isinstance(value, DTensor) else value for name, value in given.items()}
    return given["query"], local


def _shared(part: torch.Tensor, query: Any) -> Any:
    """``part`` of a tensor that is split as ``query`` is: of its sequence."""
    from torch.distributed.tensor import DTensor

    size = list(part.shape)
    size[_SEQUENCE] = query.shape[_SEQUENCE]
    stride = torch.empty(size, device="meta").stride()
    return DTensor.from_local(
        part, query.device_mesh, query.placements, run_check=False, shape=torch.Size(size), stride=stride
    )
