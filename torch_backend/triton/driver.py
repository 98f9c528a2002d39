"""What Triton's driver of a device says that does not depend on the device's compiler. Imports torch and triton."""

import functools
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase

from torch_backend import device_module


class Argument(NamedTuple):
    """What a kernel is called with: Triton's name of its type, "*fp32" or "i32", and the value."""

    type: str
    value: Any


class DeviceDriver(DriverBase):  # type: ignore[misc]  # triton has no types
    """The active device as Triton knows it. A vendor's class has :meth:`get_current_target`, load and launch.

    There is one object a process. Methods are called by any thread, under the interpreter's lock, with the device
    current that is meant.
    """

    def __init__(self) -> None:
        """Triton asks ``utils`` for what is about binaries."""
        super().__init__()
        self.utils = self

    # ---- a vendor's ----

    @abstractmethod
    def get_current_target(self) -> GPUTarget:
        """What kernels are compiled for: ``GPUTarget(backend, arch, warp_size)``, which the compiler accepts."""

    @abstractmethod
    def load(self, device: int, name: str, image: bytes, shared_bytes: int) -> Any:
        """Make the kernel ``name`` of the compiler's last stage one that ``device`` can run.

        Returns what :meth:`launch` takes, which is kept as long as the kernel is used.
        """

    @abstractmethod
    def launch(
        self, function: Any, grid: tuple[int, int, int], stream: int, arguments: Sequence[Argument], metadata: Any
    ) -> None:
        """Enqueue what :meth:`load` returned on ``stream``, the device library's handle, without waiting.

        ``arguments`` are those that are no constants, in the kernel's order, tensors as :meth:`address` has them.
        ``metadata`` is what the compiler's stages left: ``num_warps``, ``shared`` (bytes), and more.
        """

    def address(self, tensor: Tensor) -> Any:
        """What a kernel gets for ``tensor``: its address, or what the driver has in the place of addresses."""
        return tensor.data_ptr()

    # ---- Triton's ----

    @classmethod
    def is_active(cls) -> bool:
        """Whether the device can be used."""
        return device_module.is_available()

    def get_current_device(self) -> int:
        """The calling thread's."""
        return device_module.current_device()

    def set_current_device(self, device: int) -> None:
        """For the calling thread."""
        device_module.set_device(device)

    def get_current_stream(self, device: int) -> int:
        """The device library's handle of the calling thread's stream on ``device``."""
        stream: Any = device_module.current_stream(device)
        handle: int = stream.native_handle
        return handle

    def get_active_torch_device(self) -> torch.device:
        """The current one, as torch names it."""
        return torch.device(torch._C._get_privateuse1_backend_name(), self.get_current_device())

    def get_device_interface(self) -> Any:
        """``torch.<name>``."""
        return device_module

    def get_device_capability(self, device: int) -> tuple[int, int]:
        """The version of the architecture."""
        properties = device_module.get_device_properties(device)
        return properties.major, properties.minor

    def map_python_to_cpp_type(self, ty: str) -> str:
        """The type of C that a kernel's parameter has."""
        return "void*" if ty.startswith("*") else _C_TYPES[ty]

    def get_benchmarker(self) -> Any:
        """What autotuning takes the time with."""
        from triton.testing import do_bench

        return do_bench

    def get_empty_cache_for_benchmark(self) -> Tensor:
        """Memory to be written between two measurements, larger than caches."""
        return torch.empty(1 << 26, dtype=torch.int32, device=self.get_active_torch_device())

    def clear_cache(self, cache: Tensor) -> None:
        """Write it."""
        cache.zero_()

    # ---- what Triton asks `utils` for ----

    def get_device_properties(self, device: int) -> dict[str, int]:
        """What limits a kernel. Shared memory is the compiler's to keep within: no limit is known here."""
        properties = device_module.get_device_properties(device)
        return {
            "max_shared_mem": 1 << 31,
            "multiprocessor_count": properties.multi_processor_count,
            "warpSize": properties.warp_size,
        }

    def load_binary(self, name: str, image: bytes, shared: int, device: int) -> tuple[Any, Any, int, int, int]:
        """The module, the function, registers that it takes and spills, and the most threads of a block."""
        function = self.load(device, name, image, shared)
        return function, function, 0, 0, 1 << 31

    def unload_module(self, module: Any) -> None:
        """The function goes with the last reference to it."""

    def launcher_cls(self, src: Any, metadata: Any) -> Any:
        """What launches the kernel that was compiled from ``src``."""
        return functools.partial(self._launch, tuple(src.signature.values()), metadata)

    def _launch(
        self,
        signature: tuple[Any, ...],
        metadata: Any,
        *grid_stream_function: Any,
    ) -> None:
        x, y, z, stream, function, _packed, launch_metadata, enter, leave, *arguments = grid_stream_function
        if min(x, y, z) < 1:
            return
        if enter is not None:
            enter(launch_metadata)
        self.launch(function, (x, y, z), stream, list(self._flatten(signature, arguments)), metadata)
        if leave is not None:
            leave(launch_metadata)

    def _flatten(self, signature: Sequence[Any], arguments: Sequence[Any]) -> Iterator[Argument]:
        if len(signature) != len(arguments):  # Triton before 3.3 leaves constants out
            signature = [each for each in signature if each != "constexpr"]
        for kind, value in zip(signature, arguments, strict=True):
            if isinstance(kind, tuple):
                yield from self._flatten(kind, value)
            elif kind.startswith("tensordesc"):
                raise NotImplementedError("DeviceDriver passes no tensor descriptors: pass tensors, or override it.")
            elif kind != "constexpr":
                yield Argument(kind, self.address(value) if hasattr(value, "data_ptr") else value)


_C_TYPES = {
    **{f"i{bits}": f"int{bits}_t" for bits in (8, 16, 32, 64)},
    **{f"u{bits}": f"uint{bits}_t" for bits in (8, 16, 32, 64)},
    "i1": "int8_t",
    "u1": "uint8_t",
    **dict.fromkeys(("fp16", "bf16", "fp32", "fp64"), "double"),
}
