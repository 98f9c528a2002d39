"""The default backend of torch.compile: which way the device takes."""

import importlib

from torch_backend import _C
from torch_backend.compile import default_backend, registered, seams


def prepare(name: str) -> None:
    """Let Inductor compile for the device ``name``. Once per process, when torch._inductor.compile_fx was imported.

    A vendor who has code generation registers it as PyTorch documents: ``register_backend_for_device``, or the classes
    ``Scheduling``, ``PythonWrapperCodegen`` and ``CppWrapperCodegen`` in ``torch.<name>``. It comes before all others.
    """
    if registered.has_own_code_generation(name):
        return
    try:
        reason = _generate(name)
    except ImportError as error:
        reason = f"what would generate code cannot be imported, {error}."
    if seams.problem_of(seams.CAPTURED_ONLY) is None:
        default_backend.register(name, reason)


def _generate(name: str) -> str | None:
    """Register what generates code for the device; if nothing does, why, as a sentence."""
    capabilities = _C.device_properties().capabilities
    if "HOST_ACCESS" in capabilities:
        problem = seams.problem_of(seams.HOST_GRAPHS)
        if problem is None:
            from torch_backend.compile import host_graph

            host_graph.register(name)
        return problem
    if _C.has_modules():
        problem = seams.problem_of(seams.MODULES)
        if problem is None:
            importlib.import_module("torch_backend.compile.modules").register(name)
        return problem
    return f"the host cannot access the memory of {name}, and it compiles no kernels."
