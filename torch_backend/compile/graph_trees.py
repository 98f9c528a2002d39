"""``mode="reduce-overhead"``: compiled graphs that are captured in graphs of the device, and replayed.

What to capture when, in which memory, and what may be overwritten is PyTorch's, ``torch._inductor.cudagraph_trees``:
graphs that follow one another form a tree and share a pool, inputs that stay where they are are read there, the others
are copied. Its functions name CUDA, and name the device instead from here on; what they ask ``torch._C`` for, only a
build of PyTorch for CUDA has, so that they are given a ``torch`` whose ``_C`` has it for the device.
"""

import collections
import contextlib
import functools
import importlib
import importlib.util
import inspect
import re
import threading
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import torch

from torch_backend import _C
from torch_backend.compat import cuda_code
from torch_backend.compile import registered, seams

_TREES = "torch._inductor.cudagraph_trees"
_UTILS = "torch._inductor.cudagraph_utils"
_CONDITIONS = "torch._higher_order_ops.cudagraph_conditional_nodes"
"""Branches inside a graph, of which torch 2.11 has none."""
_LOGS = ("CompiledFxGraph.__init__", "CompiledFxGraph.post_compile", "cudagraph_post_compile")
"""Of ``torch._inductor.output_code``. In some versions they say for CUDA alone why a graph is not captured."""


def problem(name: str) -> str | None:
    """Why no compiled graph is captured on the device ``name``, as a sentence; None if they are from now on."""
    if registered.generates_for_host(name):
        return f"a compiled graph is one call on {name} as it is."
    if "ASYNC" not in _C.device_properties().capabilities:
        return f"{name} is synchronous."
    return _prepare(name)


@functools.cache
def _prepare(name: str) -> str | None:
    try:
        modules = {module: importlib.import_module(module) for module in (_TREES, _UTILS)}
        if importlib.util.find_spec(_CONDITIONS) is not None:
            modules[_CONDITIONS] = importlib.import_module(_CONDITIONS)
    except ImportError as error:
        return f"PyTorch's part of it cannot be imported, {error}."
    reason = seams.problem_of(seams.GRAPH_TREES) or _unknown(modules.values())
    if reason is not None:
        return reason
    ours = _with(torch, _C=_with(torch._C, **_FUNCTIONS))
    for module in modules.values():
        cuda_code.retarget_module(module, (), name, tensors=True)
        module.torch = ours  # type: ignore[attr-defined]
    trees: Any = modules[_TREES]
    trees._set_cached_tensors_enabled = torch._C._set_cached_tensors_enabled
    if not hasattr(trees, "_initialize_tls"):  # in torch 2.11, which captures in the thread that has imported it alone
        trees.get_obj = functools.partial(_of_thread, trees.get_obj)
    utils: Any = modules[_UTILS]
    if hasattr(utils, "_CUDAGRAPH_SUPPORTED_DEVICE_TYPES"):  # from torch 2.15 on
        utils._CUDAGRAPH_SUPPORTED_DEVICE_TYPES |= {name}
    for function in _LOGS:
        with contextlib.suppress(LookupError):
            cuda_code.retarget_module(importlib.import_module("torch._inductor.output_code"), (function,), name)
    seams.CAPTURE.replace(functools.partial(_capture, seams.CAPTURE.get()))
    return None


def _of_thread(get_obj: Callable[[Any, str], Any], local: Any, name: str) -> Any:
    """PyTorch's trees of the calling thread, or their locks; of a thread that has none yet, new ones."""
    if not hasattr(local, name) and not torch._C._is_key_in_tls(name):
        local.tree_manager_containers = {}
        local.tree_manager_locks = collections.defaultdict(threading.Lock)
        for key in ("tree_manager_containers", "tree_manager_locks"):
            torch._C._stash_obj_in_tls(key, getattr(local, key))
    return get_obj(local, name)


def _unknown(modules: Any) -> str | None:
    """What ``modules`` use of ``torch._C`` that neither PyTorch has in this build nor we, as a sentence."""
    used = {name for module in modules for name in re.findall(r"torch\._C\.(\w+)", inspect.getsource(module))}
    missing = sorted(name for name in used if name not in _FUNCTIONS and not hasattr(torch._C, name))
    return f"PyTorch's part of it asks for {', '.join(missing)}, which is not known." if missing else None


def _with(module: Any, **changed: Any) -> ModuleType:
    """``module`` as another object, in which some names are others."""
    other = ModuleType(module.__name__, module.__doc__)
    vars(other).update(vars(module))
    vars(other).update(changed, __getattr__=functools.partial(getattr, module))
    return other


# ---- what cannot be captured ----


class _NotCaptured(Exception):
    """A capture has failed; what the graph was to be called with is at hand."""

    def __init__(self, inputs: list[Any], reason: str) -> None:
        super().__init__(reason)
        self.inputs = inputs


def _capture(
    capture: Callable[..., Callable[[list[Any]], Any]],
    model: Callable[[list[Any]], Any],
    inputs: list[Any],
    static_input_idxs: Sequence[int],
    *args: Any,
    **kwargs: Any,
) -> Callable[[list[Any]], Any]:
    """PyTorch's :func:`cudagraphify_impl`; a graph that a capture refuses runs as before, and a warning says so."""
    stay = {*static_input_idxs, *kwargs.get("mutated_input_idxs", ())}
    refused = False

    def attempt(inputs: list[Any]) -> Any:
        if not _C.is_current_stream_capturing():
            return model(inputs)
        kept = list(inputs)
        try:
            return model(inputs)
        except RuntimeError as error:
            raise _NotCaptured(kept, str(error)) from None

    captured = capture(attempt, inputs, static_input_idxs, *args, **kwargs)

    def call(inputs: list[Any]) -> Any:
        nonlocal refused
        if refused:
            return model(inputs)
        try:
            return captured(inputs)
        except _NotCaptured as error:
            refused = True
            importlib.import_module(_UTILS).log_cudagraph_skip_and_bump_counter(f"skipping cudagraphs: {error}")
            # Copies for the capture are in memory that the next one may get.
            given = [
                value.clone() if isinstance(value, torch.Tensor) and i not in stay else value
                for i, value in enumerate(error.inputs)
            ]
        return model(given)

    return call


# ---- what a build of PyTorch for CUDA has in torch._C, for the device ----


def _tensor(metadata: dict[str, Any], storage: Any) -> torch.Tensor:
    tensor = torch.empty(0, dtype=metadata["dtype"], device=metadata["device"])
    return tensor.set_(storage, metadata["storage_offset"], metadata["size"], metadata["stride"])


def _restore_pool(device: int, checkpoint: _C.PoolCheckpoint, stale: list[int], storages: list[int]) -> None:
    assert not stale, "torch._inductor frees storages of its own"
    _C.restore_pool(device, checkpoint, storages)


def _is_in_use(device: int, pool: tuple[int, int], addresses: set[int]) -> bool:
    return set(_C.checkpoint_pool(device, pool).addresses) == set(addresses)


def _nothing(*_: Any) -> None:
    pass


_FUNCTIONS: dict[str, Any] = {
    "_construct_CUDA_Tensor_From_Storage_And_Metadata": _tensor,
    "_cuda_beginAllocateCurrentThreadToPool": _C.begin_allocate_to_pool,
    "_cuda_checkPoolLiveAllocations": _is_in_use,
    "_cuda_clearCublasWorkspaces": _nothing,
    "_cuda_cudaCachingAllocator_is_enabled": lambda: True,
    "_cuda_cudaCachingAllocator_raw_delete": _C.free_raw,
    "_cuda_endAllocateToPool": _C.end_allocate_to_pool,  # releases it as well
    "_cuda_getCheckpointState": _C.checkpoint_pool,
    "_cuda_get_conv_benchmark_empty_cache": lambda: False,
    "_cuda_isHistoryEnabled": _C.is_memory_history_enabled,
    "_cuda_releasePool": _nothing,
    "_cuda_setCheckpointPoolState": _restore_pool,
    "_cudnn_set_conv_benchmark_empty_cache": _nothing,
    "_free_And_Remove_DeleterFn": _C.free_storage,
    "_has_Standard_Deleter": _C.owns_memory,
    "_set_storage_access_error_msg": _C.forbid_access,
    "_set_storage_data_ptr_access_error_msg": _C.forbid_storage_access,
    "_tensors_data_ptrs_at_indices_equal": _C.are_at,
}
