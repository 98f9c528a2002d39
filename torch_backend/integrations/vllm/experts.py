"""Mixtures of experts: routing, as the operator that vLLM's router calls, and products. Nothing waits."""

from functools import cache
from typing import Any

import torch
from torch.nn import functional
from vllm.model_executor.layers.fused_moe.unquantized_fused_moe_method import UnquantizedFusedMoEMethod

from torch_backend import _C

_library = torch.library.Library("_moe_C", "FRAGMENT")
_SCHEMA = (
    "topk_softmax(Tensor(a!) weights, Tensor(b!) ids, Tensor(c!) token_expert_indices, Tensor gating, "
    "bool renormalize, Tensor? bias, Tensor? is_padding=None) -> ()"
)


def register() -> None:
    """Give vLLM's operator a kernel for the device, and define it where vLLM's own library is not loaded."""
    if not hasattr(torch.ops._moe_C, "topk_softmax"):
        _library.define(_SCHEMA)
    if not torch._C._dispatch_has_kernel_for_dispatch_key("_moe_C::topk_softmax", "PrivateUse1"):
        _library.impl("topk_softmax", _topk_softmax, "PrivateUse1")


def _topk_softmax(
    weights: torch.Tensor,
    ids: torch.Tensor,
    token_expert_indices: torch.Tensor,
    gating: torch.Tensor,
    renormalize: bool,
    bias: torch.Tensor | None,
    is_padding: torch.Tensor | None = None,
) -> None:
    """The k experts of each token, and what each contributes.

    Args:
        weights, ids: (tokens, k), written. ``bias`` has a part in the choice, not in the weights.
        gating: (tokens, experts), before the softmax.
    """
    scores = gating.float().softmax(-1)
    experts = (scores if bias is None else scores + bias).topk(weights.shape[-1], -1).indices
    chosen = scores.gather(-1, experts)
    weights.copy_(chosen / chosen.sum(-1, keepdim=True) if renormalize else chosen)
    ids.copy_(experts)


@UnquantizedFusedMoEMethod.register_oot
class ExpertsMethod(UnquantizedFusedMoEMethod):
    """Products of each expert's tokens, where the device has them. Else of all tokens and all experts, or, for a few
    tokens, of each with the weights of its own experts: PyTorch's own grouped products wait for the groups' sizes.
    """

    @property
    def is_monolithic(self) -> bool:
        return False

    @property
    def topk_indices_dtype(self) -> torch.dtype:
        return torch.int64

    def process_weights_after_loading(self, layer: Any) -> None:
        """They stay as the checkpoint has them."""

    def apply(
        self, layer: Any, x: torch.Tensor, topk_weights: torch.Tensor, topk_ids: torch.Tensor, *_: Any, **__: Any
    ) -> torch.Tensor:
        """``x`` is (tokens, hidden), the others are (tokens, k). Tokens times k up to the experts take few weights."""
        activation = getattr(layer.activation, "value", layer.activation)
        if activation != "silu":
            raise NotImplementedError(f"torch_backend's mixture of experts has silu, not {activation}.")
        gates_and_ups = layer.w13_weight  # (experts, 2 * inner, hidden)
        downs = layer.w2_weight  # (experts, hidden, inner)
        tokens, k = topk_ids.shape
        ids = topk_ids.long()
        if _has_kernel_for_groups():
            results = _experts(x, ids, gates_and_ups, downs)
        elif tokens * k <= gates_and_ups.shape[0]:
            each = x.repeat_interleave(k, 0)[:, None]
            results = _expert(each, gates_and_ups[ids.view(-1)], downs[ids.view(-1)]).view(tokens, k, -1)
        else:
            results = _expert(x, gates_and_ups, downs).transpose(0, 1)  # (tokens, experts, hidden)
            results = results.gather(1, ids[..., None].expand(-1, -1, results.shape[-1]))
        return (results * topk_weights[..., None]).sum(1).to(x.dtype)


@cache
def _has_kernel_for_groups() -> bool:
    return _C.operator_sources().get("aten::_grouped_mm") in ("plugin", "generated")


def _experts(x: torch.Tensor, ids: torch.Tensor, gates_and_ups: torch.Tensor, downs: torch.Tensor) -> torch.Tensor:
    """(tokens, k, hidden): the tokens of each expert lie side by side for the products."""
    tokens, k = ids.shape
    chosen, order = ids.view(-1).sort()
    numbers = torch.arange(gates_and_ups.shape[0], device=x.device)
    ends = torch.searchsorted(chosen, numbers, right=True, out_int32=True)
    rows = x.index_select(0, order // k)
    gates, ups = torch._grouped_mm(rows, gates_and_ups.transpose(1, 2), offs=ends).chunk(2, -1)
    results = torch._grouped_mm(functional.silu(gates) * ups, downs.transpose(1, 2), offs=ends)
    return torch.empty_like(results).index_copy_(0, order, results).view(tokens, k, -1)


def _expert(x: torch.Tensor, gates_and_ups: torch.Tensor, downs: torch.Tensor) -> torch.Tensor:
    gates, ups = torch.matmul(x, gates_and_ups.transpose(1, 2)).chunk(2, -1)
    return torch.bmm(functional.silu(gates) * ups, downs.transpose(1, 2))
