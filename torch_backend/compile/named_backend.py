"""``torch.compile(backend=<name of the device>)``: the default backend, under the device's name."""

from importlib.metadata import EntryPoint
from typing import Any

from torch_backend.compile import seams


def register(name: str) -> None:
    """List the backend ``name``, unless somebody has one. One that is registered later takes its place."""
    backend = EntryPoint(name, f"{__name__}:compile_graph", "torch_dynamo_backends")
    seams.BACKENDS.get().setdefault(name, backend)


def compile_graph(graph: Any, inputs: Any, *, mode: str | None = None, options: dict[str, Any] | None = None) -> Any:
    """What the default backend makes of ``graph`` with the same ``mode`` and ``options``."""
    from torch._inductor import list_mode_options
    from torch._inductor.compile_fx import compile_fx

    patches = {**(list_mode_options(mode) if mode else {}), **(options or {})}
    return compile_fx(graph, inputs, config_patches=patches)
