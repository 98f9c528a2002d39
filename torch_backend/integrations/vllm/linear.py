"""Weights of linear layers, packed once by oneDNN, where PyTorch's kernels for the CPU make the device's products."""

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional
from vllm.model_executor.layers import utils
from vllm.model_executor.layers.linear import LinearBase
from vllm.platforms import current_platform

from torch_backend import _C

_Product = Callable[[list[torch.Tensor]], list[torch.Tensor]]


def register() -> None:
    """Put it in place of vLLM's product, if those of the device are the CPU's, made where they are called."""
    properties = torch.get_device_module(current_platform.device_type).get_device_properties()
    is_called_in_place = "HOST_ACCESS" in properties.capabilities and "ASYNC" not in properties.capabilities
    if is_called_in_place and _C.operator_sources().get("aten::mm") == "aten" and torch.backends.mkldnn.is_available():
        utils.default_unquantized_gemm = _linear


def _linear(
    layer: torch.nn.Module, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
) -> torch.Tensor:
    if weight.dtype != torch.float32 or torch.compiler.is_compiling():
        return functional.linear(x, weight, bias)
    product: _Product | None = getattr(layer, "_packed_product", None)
    if product is None:
        product = layer._packed_product = _packed(weight)  # type: ignore[assignment]
        if isinstance(layer, LinearBase):
            weight.untyped_storage().resize_(0)  # nobody else reads it, as they do an embedding's
    (result,) = product([x] if bias is None else [x, bias])
    return result


def _packed(weight: torch.Tensor) -> _Product:
    operators: Any = torch.ops.mkldnn
    packed = operators._reorder_linear_weight(weight.cpu())

    def product(inputs: list[torch.Tensor]) -> tuple[torch.Tensor]:
        x, bias = inputs if len(inputs) == 2 else (*inputs, None)
        return (operators._linear_pointwise(x, packed, bias, "none", [], ""),)

    return _C.host_graph(product, [True], -1, 0, None, [])
