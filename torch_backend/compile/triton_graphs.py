"""Compiled graphs on devices that a Triton backend serves: Inductor's Triton, compiled and launched by that backend."""

import dataclasses
import functools
import hashlib
from typing import Any

import torch
import triton
from torch._inductor import utils
from torch._inductor.codegen import common
from torch._inductor.codegen.triton import TritonScheduling
from torch._inductor.codegen.wrapper import PythonWrapperCodegen
from torch._inductor.custom_graph_pass import CustomGraphModulePass
from torch._inductor.runtime import benchmarking

import torch_backend
from torch_backend import device_module
from torch_backend.compat import has_triton
from torch_backend.compile import seams
from torch_backend.compile.device_interface import BackendInterface
from torch_backend.compile.no_cpp_wrapper import NoCppWrapper


class DeviceTritonScheduling(TritonScheduling):
    """Inductor's, by a name that says who has chosen it."""


class _CacheKey(CustomGraphModulePass):
    """Changes no graph; says to Inductor's cache which backend the kernels in it are for."""

    def __call__(self, gm: torch.fx.GraphModule) -> None:
        """Nothing."""

    def uuid(self) -> Any:
        """Of the target and the compiler."""
        target = triton.runtime.driver.active.get_current_target()
        key = f"{torch_backend.__version__} {target} {triton.compiler.make_backend(target).hash()}"
        return hashlib.sha256(key.encode()).digest()


def register(name: str) -> None:
    """As PyTorch documents for devices out of its tree. Triton has the backend of the device ``name`` already."""
    has_triton.say_yes()
    if name not in utils.GPU_TYPES:  # for the others, Inductor chooses as is good for a CPU
        utils.GPU_TYPES.append(name)
    utils.get_gpu_type.cache_clear()
    if hasattr(benchmarking, "register_benchmarker"):  # from torch 2.13 on; the device is the only one before
        benchmarking.register_benchmarker(name, functools.partial(_benchmark, name), override=True)
    _name_targets(name)
    _have_warps_of_target()
    seams.PROCESS_POOL.replace(staticmethod(lambda: False))  # processes that compile do not know the device
    codegen: Any = NoCppWrapper
    common.register_backend_for_device(name, DeviceTritonScheduling, PythonWrapperCodegen, codegen, None, _CacheKey())


def _have_warps_of_target() -> None:
    """What Inductor knows of the device has the warps that Triton makes, which may be another number of lanes."""

    def get_device_properties(device: torch.types.Device = None) -> Any:
        warp_size = triton.runtime.driver.active.get_current_target().warp_size
        return dataclasses.replace(device_module.get_device_properties(device), warp_size=warp_size)

    BackendInterface.get_device_properties = staticmethod(get_device_properties)


def _benchmark(name: str, benchmarker: Any, function: Any, **options: Any) -> Any:
    """Milliseconds that ``function`` takes on the device ``name``."""
    return benchmarker.benchmark_gpu(function, device_type=name, **options)


def _name_targets(name: str) -> None:
    """Let kernels be compiled for the target of the driver: Inductor would call it as torch calls the device."""
    make = seams.TARGETS[0].get()

    def target(backend: str, arch: Any, warp_size: int) -> Any:
        return triton.runtime.driver.active.get_current_target() if backend == name else make(backend, arch, warp_size)

    for seam in seams.TARGETS:
        seam.replace(target)
