"""Write docs/reference/cuda_names.md: what of torch.cuda the module of a device has, and why not the rest.

``python .ci/cuda_names.py DEVICE`` prints the page. test/python/test_cuda_names.py compares.
"""

import inspect
import os
import sys
from collections.abc import Iterator
from types import ModuleType

OTHER, MEANINGLESS = "another way", "not meaningful"
STORAGES = "BFloat16 Bool Byte Char ComplexDouble ComplexFloat Double Float Half Int Long Short"
NVIDIA = "asks NVIDIA's libraries or drivers"
ABSENT = {
    **{
        f"{dtype}Storage": (OTHER, 'deprecated: torch.UntypedStorage(size, device="NAME")')
        for dtype in STORAGES.split()
    },
    **dict.fromkeys(
        ("CUDAPluggableAllocator", "change_current_allocator"),
        (OTHER, "the device library allocates: memory_allocate in device.h"),
    ),
    **dict.fromkeys(
        ("caching_allocator_disabled", "caching_allocator_enable"),
        (OTHER, "memory is always cached; empty_cache() gives it back"),
    ),
    **dict.fromkeys(
        ("CudaError", "DeferredCudaCallError", "check_error", "cudaStatus"),
        (OTHER, "what fails raises torch.AcceleratorError with the library's own text"),
    ),
    "Device": (OTHER, "torch.types.Device"),
    **dict.fromkeys(("GreenContext", "green_contexts"), (MEANINGLESS, "parts of a GPU, of CUDA 12.4")),
    **dict.fromkeys(
        (
            "DEVICE_REQUIREMENT",
            "DEVICE_REQUIREMENT_POST_JETSON_SBSA_UNIFICATION",  # since torch 2.14
            "PYTORCH_RELEASES_CODE_CC",
            "get_gencode_flags",
        ),
        (MEANINGLESS, "what PyTorch's CUDA code is built for"),
    ),
    **dict.fromkeys(
        ("export_dot", "export_graph_data", "graph_annotations"), (MEANINGLESS, "what CUDA's driver tells of graphs")
    ),
    **dict.fromkeys(("current_blas_handle", "current_solver_handle", "has_magma"), (MEANINGLESS, "CUDA's libraries")),
    "cudart": (MEANINGLESS, "the CUDA runtime"),
    "gds": (MEANINGLESS, "GPUDirect Storage"),
    "has_half": (OTHER, "get_device_properties().dtypes"),
    "is_tf32_supported": (OTHER, "get_device_properties().dtypes; there is no TF32"),
    "jiterator": (OTHER, "torch_backend.kernel; torch.compile"),
    "nccl": (OTHER, 'torch.distributed; its backend is "NAMEccl"'),
    "sparse": (MEANINGLESS, "old names of types"),
    "tunable": (MEANINGLESS, "choices among CUDA's libraries"),
}
REFUSED = {
    "Event": "external and interprocess are refused",
    "MemPool": "allocator, use_on_oom and no_split are refused",
    "graph": "enable_annotations is refused",
    **dict.fromkeys(
        ("clock_rate", "list_gpu_processes", "memory_usage", "power_draw", "temperature", "utilization"),
        "raises NotImplementedError, unless the vendor's package brings it",
    ),
    **dict.fromkeys(
        ("get_arch_list", "get_device_capability"), "the device's own architectures and versions, not NVIDIA's"
    ),
    "profiler": "marks in torch.profiler's traces; no profiler outside is told",
}


def names(cuda: ModuleType) -> list[str]:
    """What torch.cuda offers: no private names, nothing of other modules."""
    offered = []
    for name in dir(cuda):
        value = getattr(cuda, name)
        home = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", "torch")
        if (
            not name.startswith("_")
            and home != "torch._utils"
            and (str(home) == "torch" or str(home).startswith(("torch.", "cuda")))
        ):
            offered.append(name)
    return offered


def other_arguments(cuda: object, ours: object) -> str | None:
    """What ``ours`` does not accept of ``cuda``'s arguments, if it is a function or class."""
    try:
        asked, accepted = (list(inspect.signature(function).parameters) for function in (cuda, ours))
    except (TypeError, ValueError):
        return None
    missing = [name for name in asked if name not in accepted and name not in ("args", "kwargs")]
    return ", ".join(missing) or None


def rows(cuda: ModuleType, ours: ModuleType) -> Iterator[tuple[str, str, str]]:
    """Name, kind, reason; a name that has none raises KeyError."""
    for name in names(cuda):
        if hasattr(ours, name):
            yield name, "same", REFUSED.get(name, "")
        else:
            yield name, *ABSENT[name]


def page(cuda: ModuleType, ours: ModuleType) -> str:
    """The page of the documentation."""
    lines = [
        "# Names of torch.cuda",
        "",
        "What `torch.<name>` has of `torch.cuda`, and for the rest why not. `python .ci/cuda_names.py xcpu` writes",
        "this page; private names are left out.",
        "",
        "| torch.cuda | torch.NAME | |",
        "|---|---|---|",
        *(f"| `{name}` | {kind} | {reason} |" for name, kind, reason in rows(cuda, ours)),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    os.environ["TORCH_BACKEND"] = sys.argv[1]
    import torch

    import torch_backend

    torch_backend.activate(sys.argv[1])
    sys.stdout.write(page(torch.cuda, getattr(torch, sys.argv[1])))
