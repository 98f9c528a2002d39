"""torchao: products of float8 matrices, with one scale or one for each row, and with weights of four bits, on devices
that torchao does not know.

May go once torchao asks whether ``torch._scaled_mm`` and ``torch._weight_int4pack_mm`` are there and not which GPU.
"""

import functools
from typing import Any
from unittest import mock

import torch

from torch_backend.integrations.library import Library


def _multiply_float8(module: Any, device: str) -> None:
    asks_the_gpu = module._check_hardware_support
    with_scales = (module.PerTensor, module.PerRow)

    def check(granularities: tuple[Any, Any]) -> None:
        if not all(isinstance(granularity, with_scales) for granularity in granularities):
            asks_the_gpu(granularities)

    module._check_hardware_support = check


def _pack_int4(module: Any, device: str) -> None:
    kind = module.Int4TilePackedTo4dTensor
    from_cuda = kind.from_hp.__func__

    @functools.wraps(from_cuda)
    def from_hp(cls: Any, hp_tensor: torch.Tensor, *arguments: Any, **options: Any) -> Any:
        if hp_tensor.device.type != device:
            return from_cuda(cls, hp_tensor, *arguments, **options)
        with mock.patch.object(torch.cuda, "get_device_capability", return_value=(8, 0)):
            return from_cuda(cls, hp_tensor, *arguments, **options)

    kind.from_hp = classmethod(from_hp)


_INT4 = "torchao.quantization.quantize_.workflows.int4.int4_tile_packed_to_4d_tensor"
LIBRARY = Library(
    name="torchao",
    versions=("0.17", "0.19"),
    actions={"torchao.quantization.quant_api": _multiply_float8, _INT4: _pack_int4},
)
