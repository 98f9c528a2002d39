"""torchao: products of float8 matrices, with one scale or one for each row, on devices that torchao does not know.

May go once torchao asks whether ``torch._scaled_mm`` is there and not which GPU.
"""

from typing import Any

from torch_backend.integrations.library import Library


def _multiply_float8(module: Any, device: str) -> None:
    asks_the_gpu = module._check_hardware_support
    with_scales = (module.PerTensor, module.PerRow)

    def check(granularities: tuple[Any, Any]) -> None:
        if not all(isinstance(granularity, with_scales) for granularity in granularities):
            asks_the_gpu(granularities)

    module._check_hardware_support = check


LIBRARY = Library(
    name="torchao", versions=("0.17", "0.19"), actions={"torchao.quantization.quant_api": _multiply_float8}
)
