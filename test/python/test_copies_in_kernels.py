"""What CPU kernels that run on the device's memory copy to the device and back, and what they keep of it.

Their CPU tensors lie in device memory, so that no copy of those is one from or to the host.
"""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from fixtures import BuildPlugin, in_process
from torch import Tensor

ASYNC = {"TORCH_BACKEND_XCPU_ASYNC": "1"}
PROTECTED = {"TORCH_BACKEND_XCPU_PROTECT": "1"}
MODES = {"at once": {}, "async": ASYNC, "protected": PROTECTED, "async, protected": ASYNC | PROTECTED}

MINE = torch.library.Library("copies_in_kernels", "FRAGMENT")
KEPT: list[Tensor] = []


def doubled(x: Tensor, device: int) -> Tensor:
    return (x.to(torch.device("xcpu", device)) * 2).cpu()


def keep(x: Tensor, _: int) -> Tensor:
    KEPT.append(x + 1)
    return KEPT[-1] * 1


def overwrite(x: Tensor, device: int) -> None:
    x.copy_(torch.arange(float(x.numel()), device=torch.device("xcpu", device)).view(x.shape))


def mapped(x: Tensor, device: int) -> Tensor:
    wide = torch.promote_types(x.dtype, torch.float64)
    return x.clone().copy_(x.to(torch.device("xcpu", device), wide, non_blocking=True)).add_(x)


RETURNS = {doubled: "Tensor", keep: "Tensor", overwrite: "()", mapped: "Tensor"}
for kernel, returns in RETURNS.items():
    x = "Tensor(a!)" if kernel is overwrite else "Tensor"
    MINE.define(f"{kernel.__name__}({x} x, int device) -> {returns}")
    MINE.impl(kernel.__name__, kernel, "CPU")

VIEWS: dict[str, Callable[[Tensor], Tensor]] = {
    "dense": lambda x: x,
    "turned": lambda x: x.mT,
    "rows": lambda x: x[:, 1:],
    "in steps": lambda x: x[:, ::2, ::3],
    "expanded": lambda x: x[:, :1].expand_as(x),
    "channels last": lambda x: x[None].contiguous(memory_format=torch.channels_last),
    "halves": lambda x: x.half(),
    "conjugate": lambda x: torch.complex(x, x + 1).conj(),
    "a number": lambda x: x[0, 0, 0],
    "empty": lambda x: x[:0],
}


def environment(build_plugin: BuildPlugin, mode: str) -> Mapping[str, str | Path]:
    """xcpu that refuses a copy whose kind is not what it is."""
    return {"TORCH_BACKEND": "xcpu", "TORCH_BACKEND_PATH": build_plugin(source="bound.c", over="xcpu")} | MODES[mode]


@pytest.mark.parametrize("mode", MODES)
@in_process(environment)
def test_copies_in_kernels() -> None:
    values = torch.arange(60.0).view(3, 4, 5)

    def check(here: int, there: int) -> None:
        for name, view in VIEWS.items():
            for kernel in (doubled, mapped):
                call = getattr(torch.ops.copies_in_kernels, kernel.__name__)
                result = call(view(values.to(torch.device("xcpu", here))), there)
                assert result.device == torch.device("xcpu", here)
                torch.testing.assert_close(result.cpu(), view(values) * 2, msg=name)
            if name not in ("expanded", "conjugate"):
                written = view(values.to(torch.device("xcpu", here)))
                torch.ops.copies_in_kernels.overwrite(written, there)
                right = torch.arange(float(written.numel())).view(written.shape)
                torch.testing.assert_close(written.cpu(), right.to(written.dtype), msg=name)

    for here, there in ((0, 0), (0, 1), (1, 0)):
        check(here, there)
    with ThreadPoolExecutor(4) as threads:
        for done in [threads.submit(check, i % 2, i // 2) for i in range(4)]:
            done.result()


@pytest.mark.parametrize("mode", MODES)
@in_process(environment)
def test_what_kernels_keep() -> None:
    values = torch.arange(60.0).view(3, 4, 5)
    result = torch.ops.copies_in_kernels.keep(values.to("xcpu"), 0)
    assert torch.equal(result.cpu(), values + 1)
    assert torch.equal(KEPT[0].to("xcpu:1").cpu(), values + 1)
    KEPT[0].copy_(values.to("xcpu"))
    assert torch.equal(KEPT[0].mT.to("xcpu").cpu(), values.mT)
