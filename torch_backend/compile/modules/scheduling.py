"""What inductor asks a device's code generation for."""

from pathlib import Path
from typing import Any

import sympy
import torch
from torch._inductor import config
from torch._inductor.codegen import common
from torch._inductor.codegen.common import BackendFeature
from torch._inductor.codegen.simd import SIMDScheduling
from torch._inductor.codegen.wrapper import PythonWrapperCodegen, SubgraphPythonWrapperCodegen
from torch._inductor.custom_graph_pass import CustomGraphModulePass, get_hash_for_files
from torch._inductor.runtime.hints import DeviceProperties
from torch._inductor.utils import get_fused_kernel_name, get_kernel_metadata
from torch._inductor.virtualized import V
from torch.utils._ordered_set import OrderedSet

import torch_backend
from torch_backend import _C
from torch_backend.compile.device_ops import DeviceOps
from torch_backend.compile.modules.cpp_code import CppCode
from torch_backend.compile.modules.kernel import ModuleKernel
from torch_backend.compile.modules.operations import FORMULAS, Operations


class ModuleScheduling(SIMDScheduling):
    """Loops become kernels that the device compiles; all else are calls of its operators."""

    kernel_type = ModuleKernel

    def get_backend_features(self, device: torch.device) -> OrderedSet[BackendFeature]:
        """What inductor may ask ModuleKernel for besides elementwise operations and reductions."""
        features = [BackendFeature.INPLACE_BUFFERS, BackendFeature.MASKED_SCATTER_WITH_INDEX]
        # Else blocks share long rows, in parts of a warp's elements at least: inductor fails on parts that it unrolls.
        warp = DeviceProperties.create(device).warp_size or 32  # as inductor has it where a device does not say
        if warp < config.unroll_reductions_threshold:
            features += [BackendFeature.REDUCE_TO_SINGLE_ELEMENT]
        if _C.runs_in_stretches(device.index or 0):
            features += [BackendFeature.SCAN, BackendFeature.TUPLE_REDUCTION]
        return OrderedSet(features)

    @classmethod
    def get_tiling_and_scores(
        cls,
        node_schedule: Any,
        numel: sympy.Expr,
        reduction_numel: sympy.Expr = sympy.S.One,
        coalesce_analysis: Any = None,
    ) -> tuple[dict[str, sympy.Expr], None]:
        """One flat range of what is kept, and one of what is reduced."""
        return cls.create_tiling([numel], [reduction_numel]), None

    def can_fuse(self, node1: Any, node2: Any) -> bool:
        """As inductor's, for as many buffers as a kernel takes."""
        names = {dep.name for node in (node1, node2) for dep in node.read_writes.reads_and_writes()}
        return len(names) < _C.most_pointers() and bool(super().can_fuse(node1, node2))

    can_fuse_vertical = can_fuse_horizontal = can_fuse

    def define_kernel(self, src_code: str, node_schedule: Any, kernel: ModuleKernel) -> str:
        """Names the kernel ``src_code``, which the same text has had before or gets now."""
        wrapper = V.graph.wrapper_code
        if src_code not in wrapper.src_to_kernel:
            fused = get_fused_kernel_name(node_schedule, config.triton.descriptive_names)
            name = f"graph_{fused}_{wrapper.next_kernel_suffix()}"
            wrapper.src_to_kernel[src_code] = name
            origins, details = get_kernel_metadata(node_schedule, wrapper)
            wrapper.define_kernel(name, src_code.replace("KERNEL_NAME", repr(name), 1), f"{origins}\n{details}")
        return str(wrapper.src_to_kernel[src_code])

    def codegen_sync(self) -> None:
        """Waits for the device."""
        V.graph.wrapper_code.writeline(V.graph.device_ops.synchronize())


class _OnItsDevice(PythonWrapperCodegen):
    """Allocates where the graph is: PyTorch's own is inside a guard, which it has for devices of its list alone."""

    def make_allocation(self, name: str, device: torch.device, *args: Any, **kwargs: Any) -> str:
        """The line that makes a tensor called ``name``."""
        line: str = super().make_allocation(name, device, *args, **kwargs)
        return line.replace(f"device='{device.type}'", f"device='{device}'", 1)


class _SubgraphWrapper(_OnItsDevice, SubgraphPythonWrapperCodegen):
    """The part of the Python that a subgraph is."""


class ModuleWrapper(_OnItsDevice):
    """The Python around the kernels."""

    @staticmethod
    def create(is_subgraph: bool, subgraph_name: Any, parent_wrapper: Any, partition_signatures: Any = None) -> Any:
        """That of a graph, or of one inside it."""
        if is_subgraph:
            return _SubgraphWrapper(subgraph_name, parent_wrapper, partition_signatures)
        return ModuleWrapper()

    def write_header(self) -> None:
        """The imports."""
        super().write_header()
        self.header.splice("from torch_backend.compile.modules.runtime import kernel\n")

    def write_triton_header_once(self) -> None:
        """There is no Triton."""

    def generate_and_run_autotune_block(self) -> None:
        """There is nothing to tune."""


class ModuleDeviceOps(DeviceOps):
    """Nothing that the code calls takes a stream."""

    def cpp_kernel_type(self) -> str:
        """What a package's code would keep a kernel in, which it does not."""
        return "void*"

    def import_get_raw_stream_as(self, name: str) -> str:
        """How the code gets at streams."""
        return f"{name} = lambda device: 0"


def _lacks(name: str) -> bool:
    return bool(Operations._is_unimplemented(name))


class CallOperators(CustomGraphModulePass):
    """What no kernel computes is left to the device's operators: special functions, and assertions."""

    def __call__(self, gm: torch.fx.GraphModule) -> None:
        """Mark the calls."""
        missing = {data.name for name, data in common.pointwise_overrides_data.items() if _lacks(name)}
        missing |= {"_assert_async"}
        for node in gm.graph.nodes:
            packet = getattr(node.target, "overloadpacket", None)
            if packet is not None and packet.__name__ in missing:
                node.meta["should_fallback"] = True

    def uuid(self) -> Any:
        """For the cache of compiled graphs: what is compiled depends on these files, and on what the devices are."""
        devices = []
        for device in range(_C.device_count()):
            if not _C.is_device_lost(device):  # which answers nothing
                properties = _C.device_properties(device)
                is_serial, has_double = _C.runs_in_stretches(device), _C.computes_double(device)
                sizes = (_C.block_items(device), properties.warp_size, properties.multi_processor_count)
                devices.append((is_serial, has_double, *sizes))
        files = tuple(map(str, sorted(Path(__file__).parent.glob("*.py"))))
        formulas = [_C.pointwise_formula(f"aten::{overload}") for overload in FORMULAS]
        return get_hash_for_files(files, extra=f"{torch_backend.__version__} {_C.most_pointers()} {devices} {formulas}")


def register(name: str) -> None:
    """As PyTorch documents for devices out of its tree."""
    common.register_backend_for_device(name, ModuleScheduling, ModuleWrapper, CppCode, None, CallOperators())
    common.register_device_op_overrides(name, ModuleDeviceOps(name))
