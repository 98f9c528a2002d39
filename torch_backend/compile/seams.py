"""What torch_backend uses of PyTorch's compiler that PyTorch does not document: all of it, and whether it is there.

A seam is looked at when the compiler is imported. If one is gone or called otherwise, what needs it is left out, and a
warning names it.
"""

import importlib
import inspect
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Seam:
    """A function, class or table of a module of PyTorch's."""

    module: str
    name: str
    versions: str
    """Of torch in which it was seen, the first and the last."""
    parameters: tuple[str, ...] = ()
    """The first ones of a function, in order; () if it is none, or if it is not called with any."""

    def __str__(self) -> str:
        """Where it is, as Python names it."""
        return f"{self.module}.{self.name}"

    def get(self) -> Any:
        """What is there. AttributeError or ImportError if nothing is."""
        value: Any = importlib.import_module(self.module)
        for part in self.name.split("."):
            value = getattr(value, part)
        return value

    def replace(self, value: Any) -> None:
        """Put ``value`` there."""
        owner, _, name = self.name.rpartition(".")
        setattr(
            Seam(self.module, owner, self.versions).get() if owner else importlib.import_module(self.module),
            name,
            value,
        )

    def problem(self) -> str | None:
        """What is not as it was, as a sentence; None if the seam is as expected."""
        seen = f"as it was in torch {self.versions}"
        try:
            value = self.get()
        except (AttributeError, ImportError):
            return f"{self} is not there, {seen}."
        if self.parameters:
            parameters = tuple(inspect.signature(value).parameters)[: len(self.parameters)]
            if parameters != self.parameters:
                return f"{self} takes {', '.join(parameters)}, and not {', '.join(self.parameters)}, {seen}."
        return None


COMPILE_FX = Seam("torch._inductor.compile_fx", "compile_fx", "2.11 to 2.15", ("model_", "example_inputs_"))
"""The default backend, called with a graph as Dynamo captured it."""

BACKENDS = Seam("torch._dynamo.backends.registry", "_BACKENDS", "2.11 to 2.15")
"""Backends by name: entry points that are loaded when asked for, or None if they are."""

DENSE_ATTENTION = Seam(
    "torch._higher_order_ops.flex_attention", "sdpa_dense", "2.11 to 2.15", ("query", "key", "value")
)
"""flex_attention as operators on the whole matrix of scores."""

GENERATE = Seam(
    "torch._inductor.compile_fx",
    "fx_codegen_and_compile",
    "2.11 to 2.15",
    ("gm", "example_inputs", "inputs_to_check"),
)
"""Makes code of a graph of AOTAutograd's that was in no cache."""

COMPILED_GRAPH = Seam("torch._inductor.output_code", "CompiledFxGraph", "2.11 to 2.15")
"""What GENERATE returns, and Inductor's cache stores."""

AFTER_LOADING = Seam(
    "torch._inductor.output_code",
    "CompiledFxGraph.after_deserialization",
    "2.11 to 2.15",
    ("self", "constants"),
)
"""Gives a graph that was in the cache its ``current_callable`` again."""

PACKAGE = Seam("torch._inductor.output_code", "CompiledAOTI", "2.11 to 2.15", ("filename", "device_type"))
"""What GENERATE returns instead where a package is compiled: the package's files, by ``filename``."""


def _inductor(module: str, name: str, *parameters: str) -> Seam:
    return Seam(f"torch._inductor.{module}", name, "2.11 to 2.15", parameters)


REGISTER = _inductor(
    "codegen.common",
    "register_backend_for_device",
    "device",
    "device_scheduling",
    "device_wrapper_codegen",
    "device_cpp_wrapper_codegen",
    "device_fx_wrapper_codegen",
    "device_custom_pass",
)
"""Takes what generates code for a device, and a pass that chooses which operators of its graphs are called."""

_KERNELS = (
    _inductor("codegen.common", "CSE.generate", "self", "buffer", "expr"),
    _inductor("codegen.common", "CSE.newvar", "self", "bounds", "dtype", "shape"),
    _inductor("codegen.common", "DeferredLine", "name", "line"),
    _inductor("codegen.common", "KernelArgs.python_argdefs", "self"),
    _inductor("codegen.common", "OpOverrides._initialize_pointwise_overrides", "target"),
    _inductor("codegen.common", "OpOverrides._is_unimplemented", "name"),
    _inductor("codegen.common", "pointwise_overrides_data"),
    _inductor("codegen.common", "register_device_op_overrides", "device", "device_op_overrides"),
    _inductor("codegen.simd", "IterationRangesEntry", "name", "divisor", "length", "expr", "parent"),
    _inductor("codegen.simd", "SIMDKernel.call_kernel", "self", "name", "node"),
    _inductor("codegen.simd", "SIMDKernel.check_bounds", "self", "expr", "size", "lower", "upper"),
    _inductor("codegen.simd", "SIMDKernel.codegen_body", "self"),
    _inductor("codegen.simd", "SIMDKernel.codegen_iteration_ranges_entry", "self", "entry"),
    _inductor("codegen.simd", "SIMDKernel.codegen_kernel", "self"),
    _inductor("codegen.simd", "SIMDKernel.get_index_dtype_as_torch_dtype", "self"),
    _inductor("codegen.simd", "SIMDKernel.get_strides_of_load", "self", "index"),
    _inductor("codegen.simd", "SIMDKernel.index_to_str", "self", "index"),
    _inductor("codegen.simd", "SIMDKernel.is_indirect_indexing", "self", "index"),
    _inductor("codegen.simd", "SIMDKernel.mask_loads", "self", "mask", "value"),
    _inductor("codegen.simd", "SIMDKernel.prepare_indexing", "self", "index"),
    _inductor("codegen.simd", "SIMDKernel.reduction", "self", "dtype", "src_dtype", "reduction_type", "value"),
    _inductor("codegen.simd", "SIMDKernel.scan", "self", "dtypes", "combine_fn", "values"),
    _inductor("codegen.simd", "SIMDKernel.store", "self", "name", "index", "value", "mode"),
    _inductor("codegen.simd", "SIMDKernel.store_reduction", "self", "name", "index", "value"),
    _inductor("codegen.simd", "SIMDScheduling.create_tiling", "pw_tiling", "reduction_tiling"),
    _inductor("codegen.simd", "SIMDScheduling.define_kernel", "self", "src_code", "node_schedule", "kernel"),
    _inductor("codegen.simd", "SIMDScheduling.get_tiling_and_scores", "node_schedule", "numel", "reduction_numel"),
    _inductor("codegen.wrapper", "PythonWrapperCodegen.create", "is_subgraph", "subgraph_name", "parent_wrapper"),
    _inductor("codegen.wrapper", "PythonWrapperCodegen.define_kernel", "self", "kernel_name", "kernel_body"),
    _inductor("codegen.wrapper", "PythonWrapperCodegen.ensure_size_computed", "self", "sym"),
    _inductor("codegen.wrapper", "PythonWrapperCodegen.generate_numel_expr", "self", "kernel_name", "tree"),
    _inductor("codegen.wrapper", "PythonWrapperCodegen.make_allocation", "self", "name", "device"),
    _inductor("codegen.wrapper", "PythonWrapperCodegen.write_triton_header_once", "self"),
    _inductor("codegen.wrapper", "SubgraphPythonWrapperCodegen", "subgraph_name", "parent_wrapper"),
    _inductor("custom_graph_pass", "get_hash_for_files", "paths"),
    _inductor("runtime.hints", "DeviceProperties.create", "device"),
    _inductor("utils", "get_bounds_index_expr", "index"),
    _inductor("utils", "get_fused_kernel_name", "node_schedule", "descriptive_names"),
    _inductor("utils", "get_kernel_metadata", "node_schedule", "wrapper"),
    _inductor("utils", "upcast_compute_type", "dtype"),
)
"""What torch_backend/compile/modules extends or calls."""

TARGETS = (
    _inductor("runtime.triton_heuristics", "GPUTarget"),
    _inductor("runtime.triton_compat", "GPUTarget"),  # of which the code of graphs takes it, after torch 2.13
)
"""What Triton compiles for, called with the device's type, its architecture and the size of a warp."""

PROCESS_POOL = _inductor("async_compile", "AsyncCompile.use_process_pool")
"""Whether kernels are compiled in other processes."""

CAPTURE = _inductor("cudagraph_trees", "cudagraphify_impl", "model", "inputs", "static_input_idxs")
"""Makes of what runs a graph what captures and replays it."""

CAPTURED_ONLY = (COMPILE_FX, DENSE_ATTENTION)
HOST_GRAPHS = (COMPILE_FX, GENERATE, COMPILED_GRAPH, AFTER_LOADING)
TRITON = (
    REGISTER,
    *TARGETS,
    PROCESS_POOL,
    _inductor("codegen.triton", "TritonScheduling", "scheduler"),
    _inductor("utils", "GPU_TYPES"),
    Seam("torch.utils._triton", "has_triton", "2.11 to 2.15"),
)
GRAPH_TREES = (
    CAPTURE,
    _inductor("cudagraph_trees", "CUDAGraphTreeManager", "device_index"),
    _inductor("cudagraph_utils", "check_multiple_devices_or_any_cpu_nodes", "device_node_mapping"),
    _inductor("cudagraph_utils", "log_cudagraph_skip_and_bump_counter", "msg"),
)
MODULES = (COMPILE_FX, REGISTER, *_KERNELS)


def _of_cpp_wrapper(name: str, *parameters: str) -> Seam:
    return _inductor("codegen.cpp_wrapper_cpu", f"CppWrapperCpu.{name}", "self", *parameters)


MODULE_PACKAGES = (
    GENERATE,
    PACKAGE,
    _of_cpp_wrapper("add_device_include", "device"),
    _of_cpp_wrapper("codegen_device", "device"),
    _of_cpp_wrapper("codegen_model_constructor"),
    _of_cpp_wrapper("define_kernel", "kernel_name", "kernel_body"),
    _of_cpp_wrapper("write_header"),
    _of_cpp_wrapper(
        "generate_extern_kernel_args_decl_if_needed", "op_overload", "raw_args", "output_args", "raw_outputs"
    ),
    _of_cpp_wrapper(
        "generate_fallback_kernel_with_runtime_lookup",
        "buf_name",
        "python_kernel_name",
        "get_args",
        "op_overload",
        "raw_args",
        "outputs",
    ),
    _of_cpp_wrapper("generate_c_shim_extern_kernel_call", "kernel"),
    *(
        _of_cpp_wrapper(f"generate_{kind}", "node")
        for kind in (
            "extern_kernel_alloc",
            "extern_kernel_out",
            "fallback_kernel",
            "index_put_fallback",
            "scatter_fallback",
        )
    ),
    _inductor("ir", "FallbackKernel.export_extern_kernel_node", "self"),
    Seam("torch._export.serde.serialize", "GraphModuleSerializer.serialize_inputs", "2.11 to 2.15", ("self", "target")),
)
"""What torch_backend/compile/modules/cpp_code.py extends or calls."""


def problem_of(seams: tuple[Seam, ...]) -> str | None:
    """The first problem there is with any of ``seams``."""
    return next(filter(None, (seam.problem() for seam in seams)), None)
