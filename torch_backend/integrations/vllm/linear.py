"""Weights of linear layers, packed once by oneDNN, where PyTorch's kernels for the CPU make the device's products."""

from collections.abc import Callable

import torch
from torch.nn import functional
from vllm.model_executor.layers import utils
from vllm.model_executor.layers.linear import LinearBase, UnquantizedLinearMethod
from vllm.platforms import current_platform

from torch_backend import _C

_NAME = "torch_backend_vllm"
_library = torch.library.Library(_NAME, "FRAGMENT")
_packed: list[torch.Tensor] = []
"""Weights by their number, for as long as the process lives: a compiled graph knows the number."""
_products: list[Callable[[list[torch.Tensor]], list[torch.Tensor]]] = []
"""With each of them, of tensors of the device."""


def register() -> None:
    """Put it in place of vLLM's product, if those of the device are the CPU's, made where they are called."""
    properties = torch.get_device_module(current_platform.device_type).get_device_properties()
    is_called_in_place = "HOST_ACCESS" in properties.capabilities and "ASYNC" not in properties.capabilities
    if not is_called_in_place or _C.operator_sources().get("aten::mm") != "aten":
        return
    if torch.backends.mkldnn.is_available() and not hasattr(getattr(torch.ops, _NAME), "linear"):
        _library.define("linear(Tensor x, Tensor? bias, int number, int features) -> Tensor")
        _library.impl("linear", _on_host, "CPU")
        _library.impl("linear", _on_device, "PrivateUse1")
        torch.library.register_fake(f"{_NAME}::linear", _fake)
        utils.default_unquantized_gemm = _linear
        UnquantizedLinearMethod.process_weights_after_loading = _process_weights_after_loading


def _process_weights_after_loading(method: UnquantizedLinearMethod, layer: torch.nn.Module) -> None:
    """Before anything is traced, since a graph cannot pack."""
    weight = layer.weight
    if isinstance(weight, torch.Tensor) and weight.dtype == torch.float32:
        _pack(layer, weight)


def _linear(
    layer: torch.nn.Module, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
) -> torch.Tensor:
    number = getattr(layer, "_packed_weight", None)
    is_compiling = torch.compiler.is_compiling()
    if weight.dtype != torch.float32 or (number is None and is_compiling):
        return functional.linear(x, weight, bias)
    if is_compiling:
        product: torch.Tensor = torch.ops.torch_backend_vllm.linear(x, bias, number, weight.shape[0])
        return product
    return _on_device(x, bias, _pack(layer, weight) if number is None else number)


def _pack(layer: torch.nn.Module, weight: torch.Tensor) -> int:
    """The number of ``layer``'s weight from now on."""
    _packed.append(torch.ops.mkldnn._reorder_linear_weight(weight.cpu()))
    number = len(_packed) - 1

    def product(inputs: list[torch.Tensor]) -> tuple[torch.Tensor]:
        return (_on_host(inputs[0], inputs[1] if len(inputs) == 2 else None, number),)

    _products.append(_C.host_graph(product, [True], -1, 0, None, []))
    layer._packed_weight = number  # type: ignore[assignment]
    if isinstance(layer, LinearBase):
        weight.untyped_storage().resize_(0)  # nobody else reads it, as they do an embedding's
    return number


def _on_host(x: torch.Tensor, bias: torch.Tensor | None, number: int, features: int = 0) -> torch.Tensor:
    product: torch.Tensor = torch.ops.mkldnn._linear_pointwise(x, _packed[number], bias, "none", [], "")
    return product


def _on_device(x: torch.Tensor, bias: torch.Tensor | None, number: int, features: int = 0) -> torch.Tensor:
    (product,) = _products[number]([x] if bias is None else [x, bias])
    return product


def _fake(x: torch.Tensor, bias: torch.Tensor | None, number: int, features: int) -> torch.Tensor:
    return x.new_empty(*x.shape[:-1], features)
