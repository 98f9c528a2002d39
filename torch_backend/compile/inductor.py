"""The default backend of torch.compile: which way the device takes."""

import importlib
import warnings

from torch_backend import _C, triton
from torch_backend.compile import default_backend, device_ops, registered, seams


def prepare(name: str) -> None:
    """Let Inductor compile for the device ``name``. Once per process, when torch._inductor.compile_fx was imported.

    A vendor who has code generation registers it as PyTorch documents: ``register_backend_for_device``, or the classes
    ``Scheduling``, ``PythonWrapperCodegen`` and ``CppWrapperCodegen`` in ``torch.<name>``. It comes before all others,
    then a Triton backend of his.
    """
    device_ops.register(name)
    if registered.has_own_code_generation(name):
        return
    try:
        reason = None if triton.is_declared(name) and _generate_triton(name) else _generate(name)
    except ImportError as error:
        reason = f"what would generate code cannot be imported, {error}."
    if seams.problem_of(seams.CAPTURED_ONLY) is None:
        default_backend.register(name, reason)


def _generate_triton(name: str) -> bool:
    """Whether Triton's backend generates code for the device; a warning says why it does not."""
    reason = triton.problem(name) or seams.problem_of(seams.TRITON)
    if reason is None:
        importlib.import_module("torch_backend.compile.triton_graphs").register(name)
    else:
        warnings.warn(f"torch.compile does without Triton on {name}. {reason}", RuntimeWarning, stacklevel=2)
    return reason is None


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
