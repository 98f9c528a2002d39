"""Graphs of devices whose memory the host can access: Inductor's code for the CPU, run on the device's memory.

AOTAutograd, autocast and mutation have been dealt with when a graph comes here, as one of the device's, and Inductor's
cache has looked for it. What is compiled is a copy: the same operators on CPU tensors. For how it runs see Note
[Compiled graphs on aliased memory] in ``csrc/ops/host/GraphCall.h``.
"""

import atexit
import contextlib
import sys
from collections.abc import Sequence
from typing import Any

import torch
from torch._inductor.codegen import common
from torch._inductor.codegen.wrapper import PythonWrapperCodegen
from torch._inductor.custom_graph_pass import CustomGraphModulePass, get_hash_for_files
from torch._inductor.output_code import CompiledFxGraph, CompiledFxGraphConstants
from torch._inductor.virtualized import V
from torch.fx import GraphModule

import torch_backend
from torch_backend import _C, device_module
from torch_backend.compile import on_device, package, registered, seams, to_host


class HostGraph(CompiledFxGraph):
    """A graph of the device: a compiled one of the CPU's, and what is to be known to run it on the device.

    Inductor's and AOTAutograd's caches keep it as they do with others.
    """

    version: to_host.HostVersion

    @classmethod
    def wrap(cls, graph: CompiledFxGraph, version: to_host.HostVersion) -> "HostGraph":
        """``graph``, compiled for the CPU from ``version``, for the device from now on."""
        graph.__class__ = cls
        assert isinstance(graph, HostGraph)
        graph.version = version.compiled(graph.output_strides or [])
        graph._run_on_device()
        return graph

    def after_deserialization(self, constants: CompiledFxGraphConstants) -> str:
        """Load the compiled code."""
        for overload in self.version.operators:
            on_device.operator(overload)
        path = super().after_deserialization(_HostConstants(constants))
        self._run_on_device()
        return path

    def _run_on_device(self) -> None:
        version = self.version
        assert self.current_callable is not None
        self.current_callable = _C.host_graph(
            self.current_callable, version.on_device, version.device, version.seeds, version.results, version.resized
        )


class _HostConstants(CompiledFxGraphConstants):
    """The constants of a graph of the device, which its code takes as CPU tensors."""

    def __init__(self, constants: CompiledFxGraphConstants) -> None:
        self._constants = constants

    def unwrap(self, graph: CompiledFxGraph) -> dict[str, Any]:
        return {name: _to_cpu(value) for name, value in self._constants.unwrap(graph).items()}


def _to_cpu(value: Any) -> Any:
    return value.cpu() if isinstance(value, torch.Tensor) else value


class _CacheKey(CustomGraphModulePass):
    """Does nothing to graphs; what it is known by is part of the key of every graph in Inductor's cache."""

    def __call__(self, gm: GraphModule) -> None:
        pass

    def uuid(self) -> object:
        """What the code depends on that Inductor looks at for graphs of the CPU only."""
        sources = tuple(module.__file__ for module in (sys.modules[__name__], to_host, on_device))
        return get_hash_for_files(sources, extra=f"{torch_backend.__version__} {torch.get_num_threads()}")


def register(name: str) -> None:
    """Let Inductor compile for the device ``name``."""
    generate = seams.GENERATE.get()
    common.register_backend_for_device(
        name, registered.HostScheduling, PythonWrapperCodegen, device_custom_pass=_CacheKey()
    )

    def generate_on_host(
        gm: GraphModule, example_inputs: Sequence[Any], inputs_to_check: Sequence[int], *args: Any, **kwargs: Any
    ) -> Any:
        version = None if registered.has_own_code_generation(name) else to_host.to_host(name, gm, example_inputs)
        if version is None:
            return generate(gm, example_inputs, inputs_to_check, *args, **kwargs)
        if V.aot_compilation:
            package.check(name, version)
        compiled = generate(version.graph, version.inputs, [], *args, **kwargs)
        if V.aot_compilation:
            package.label(name, compiled.filename, example_inputs, on_device=version.on_device, seeds=version.seeds)
            return compiled
        return HostGraph.wrap(compiled, version)

    seams.GENERATE.replace(generate_on_host)
    atexit.register(_finish_graphs)


def _finish_graphs() -> None:
    """What is on streams may be code of Python, which is to run before Python's end."""
    for device in range(device_module.device_count()):
        with contextlib.suppress(torch.AcceleratorError):  # too late to tell anybody
            device_module.synchronize(device)
