"""Results that PyTorch leaves to the device: which of equal elements is named, and statistics for the backward pass."""

from typing import Any

from torch import Tensor
from torch.testing._internal.opinfo.core import OpInfo, SampleInput

ORDERS = {"sort": 0, "argsort": 0, "topk": 1, "kthvalue": 1, "mode": 0}
"""Operators that name elements by their order, and where `dim` is among the arguments after the first one."""

STATISTICS = frozenset(
    {"native_batch_norm", "_native_batch_norm_legit", "_batch_norm_with_update", "native_layer_norm"}
)
"""Operators whose results after the first are for the backward pass alone: PyTorch's meta functions give them other
dtypes and sizes on the CPU than elsewhere."""


FACTORS = frozenset({"linalg.eig", "linalg.eigh", "linalg.svd", "svd", "svd_lowrank", "pca_lowrank"})
"""Operators whose vectors are determined but for signs or phases, as PyTorch documents; its samples tell what of them
is the same everywhere (``output_process_fn_grad``)."""


def has_equal_elements(op: OpInfo, sample: SampleInput) -> bool:
    """Whether the result, and where gradients go, is not determined."""
    if op.name not in ORDERS or sample.kwargs.get("stable"):
        return False
    given = sample.input.detach()
    return given.numel() > 1 and given.unique().numel() < given.numel()


def determined(op: OpInfo, sample: SampleInput, result: Any) -> Any:
    """What of the result has to be the CPU's. In place of the indices of equal elements: the elements."""
    if op.name in STATISTICS:
        return result[0]
    if op.name in FACTORS:
        return sample.output_process_fn_grad(result)
    if not has_equal_elements(op, sample):
        return result
    place = ORDERS[op.name]
    dim = sample.kwargs.get("dim", sample.args[place] if len(sample.args) > place else -1)
    source = sample.input.detach()
    if isinstance(result, Tensor):
        return source.take_along_dim(result, dim)
    values, indices = result
    is_kept = indices.dim() == source.dim()
    named = source.take_along_dim(indices if is_kept else indices.unsqueeze(dim), dim)
    return values, named if is_kept else named.squeeze(dim)
