"""Packages of AOTInductor: code that is the CPU's to PyTorch, and names the device.

Note [Packages] in ``csrc/ops/packages/Packages.h`` has how they run.
"""

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch._dynamo.device_interface import get_interface_for_device
from torch._inductor import config
from torch.fx.experimental.symbolic_shapes import statically_known_true

from torch_backend.compile import registered, seams, to_host


def problem(name: str) -> str | None:
    """Why AOTInductor makes no packages for the device ``name``, as a sentence; None if it does."""
    if registered.generates_for_host(name):
        return seams.problem_of((seams.PACKAGE,))
    if registered.generates_modules(name):
        return seams.problem_of(seams.MODULE_PACKAGES)
    return "its code is called from Python."


def check(name: str, version: to_host.HostVersion | None = None) -> None:
    """Raises NotImplementedError if what is compiled is no package, or if one of ``version`` could not run."""
    if not config.aot_inductor.package:
        raise NotImplementedError(
            f"AOTInductor makes no library alone for {name}, whose device a loader could not know. Use "
            "torch._inductor.aoti_compile_and_package, and aoti_load_package for what it returns."
        )
    if version is not None and (version.operators or version.resized):
        reason = ", ".join(version.operators) or "untyped_storage().resize_()"
        raise NotImplementedError(
            f"AOTInductor makes no package of this for {name}, whose code would call {reason} on the device. Leave "
            "that out of the exported program, or use torch.compile."
        )


def label(
    name: str,
    files: list[Any],
    inputs: Sequence[Any],
    kernels: str = "",
    on_device: Sequence[bool] = (),
    seeds: int = 0,
    on_host: Sequence[str] = (),
) -> None:
    """Write into the metadata among the ``files`` of a package that it is the device's, and what its code takes.

    ``inputs`` are those that the graph was compiled for, the device's; what is not a tensor is none of the code's. The
    rest is in ``csrc/ops/packages/Contents.h``.
    """
    facts = {
        "AOTI_DEVICE_KEY": name,
        "AOTI_COMPUTE_CAPABILITY": str(get_interface_for_device(name).get_compute_capability()),
        "torch_backend.inputs": ";".join(_text_of(value) for value in inputs if isinstance(value, Tensor)),
        "torch_backend.kernels": kernels,
        "torch_backend.outputs": " ".join(name if there else "cpu" for there in on_device),
        "torch_backend.seeds": str(seeds),
        "torch_backend.on_host": " ".join(on_host),
    }
    for index, file in enumerate(files):
        if isinstance(file, str) and file.endswith("_metadata.json"):
            # Not in place: another process may be writing the same file for the same program.
            own = Path(tempfile.mkdtemp(dir=Path(file).parent)) / Path(file).name
            own.write_text(json.dumps(config.aot_inductor.metadata | facts))
            files[index] = str(own)


def _text_of(tensor: Tensor) -> str:
    """Device, dtype, sizes and strides, a ``?`` for what may be any number: ``xcpu float32 [?,4] contiguous``."""
    device, dtype = tensor.device.type, str(tensor.dtype).removeprefix("torch.")
    strides = "contiguous" if _is_contiguous(tensor) else _numbers(tensor.stride())
    return f"{device} {dtype} {_numbers(tensor.size())} {strides}"


def _numbers(values: Sequence[int | torch.SymInt]) -> str:
    return f"[{','.join(str(value) if isinstance(value, int) else '?' for value in values)}]"


def _is_contiguous(tensor: Tensor) -> bool:
    """The same as its method, which would make a size that may be any number one that is not 0 or 1."""
    expected: int | torch.SymInt = 1
    for size, stride in zip(reversed(tensor.size()), reversed(tensor.stride()), strict=True):
        if not statically_known_true(size == 1) and not statically_known_true(stride == expected):
            return False
        expected = expected * size
    return True
