"""Which overloads compare their arguments' devices before any kernel is called."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from torchgen.model import BackendIndex, DeviceCheckType, DispatchKey, NativeFunction


def checked_overloads(functions: Iterable[NativeFunction], backends: Mapping[DispatchKey, BackendIndex]) -> list[str]:
    """Those around whose kernels for PyTorch's own accelerators torchgen puts the comparison, sorted."""
    cuda = backends[DispatchKey.CUDA]
    return sorted(
        str(function.func.name)
        for function in functions
        if function.device_check is DeviceCheckType.ExactSame
        and (function.structured_delegate is not None or cuda.has_kernel(function))
    )
