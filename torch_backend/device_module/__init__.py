"""The module ``torch.<name>`` of the active device, with torch.cuda's names where they make sense.

What torch.cuda has and this module lacks is not there for a reason, which docs/reference/cuda_names.md says for each.
"""

# ruff: noqa: F401  # private names are for torch, which reads them from here
from typing import TYPE_CHECKING

import torch  # before anything else, see Note [Import order] in torch_backend/devices/autoload.py
from torch import AcceleratorError, OutOfMemoryError

from torch_backend import ops
from torch_backend.device_module import (
    _utils,
    amp,
    backends,
    devices,
    graphs,
    memory,
    nvtx,
    profiler,
    random,
    streams,
    sync_debug,
    telemetry,
    typed_tensors,
)
from torch_backend.device_module._utils import _get_device_index
from torch_backend.device_module.amp import (
    get_amp_supported_dtype,
    get_autocast_dtype,
    is_autocast_enabled,
    set_autocast_dtype,
    set_autocast_enabled,
)
from torch_backend.device_module.devices import (
    _DeviceProperties,
    _exchange_device,
    _is_in_bad_fork,
    _lazy_init,
    _maybe_exchange_device,
    can_device_access_peer,
    current_device,
    device,
    device_count,
    device_of,
    get_arch_list,
    get_device_capability,
    get_device_name,
    get_device_properties,
    init,
    is_available,
    is_bf16_supported,
    is_initialized,
    set_device,
    synchronize,
)
from torch_backend.device_module.graphed_callables import make_graphed_callables
from torch_backend.device_module.graphs import (
    CUDAGraph,
    Graph,
    graph,
    graph_pool_handle,
    is_current_stream_capturing,
)
from torch_backend.device_module.memory import *  # noqa: F403
from torch_backend.device_module.nvtx import mark, range_pop, range_push
from torch_backend.device_module.random import (
    _get_generator,
    _get_rng_state_offset,
    _set_rng_state_offset,
    default_generators,
    get_rng_state,
    get_rng_state_all,
    initial_seed,
    manual_seed,
    manual_seed_all,
    seed,
    seed_all,
    set_rng_state,
    set_rng_state_all,
)
from torch_backend.device_module.streams import (
    Event,
    ExternalStream,
    Stream,
    StreamContext,
    _set_stream_by_id,
    current_stream,
    default_stream,
    get_stream_from_external,
    set_stream,
    stream,
)
from torch_backend.device_module.sync_debug import get_sync_debug_mode, set_sync_debug_mode
from torch_backend.device_module.telemetry import *  # noqa: F403
from torch_backend.device_module.typed_tensors import *  # noqa: F403

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name == "_initialized":  # torch.utils.checkpoint saves the device's random state only if this is true
            return is_initialized()
        raise AttributeError(f"module 'torch.{torch._C._get_privateuse1_backend_name()}' has no attribute '{name}'")


__all__ = [
    "AcceleratorError",
    "CUDAGraph",
    "Event",
    "ExternalStream",
    "Graph",
    "OutOfMemoryError",
    "Stream",
    "StreamContext",
    "amp",
    "can_device_access_peer",
    "current_device",
    "current_stream",
    "default_generators",
    "default_stream",
    "device",
    "device_count",
    "device_of",
    "get_amp_supported_dtype",
    "get_arch_list",
    "get_autocast_dtype",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "get_rng_state",
    "get_rng_state_all",
    "get_stream_from_external",
    "get_sync_debug_mode",
    "graph",
    "graph_pool_handle",
    "graphs",
    "init",
    "initial_seed",
    "is_autocast_enabled",
    "is_available",
    "is_current_stream_capturing",
    "is_bf16_supported",
    "is_initialized",
    "make_graphed_callables",
    "manual_seed",
    "manual_seed_all",
    "mark",
    "memory",
    "nvtx",
    "ops",
    "profiler",
    "random",
    "range_pop",
    "range_push",
    "seed",
    "seed_all",
    "set_autocast_dtype",
    "set_autocast_enabled",
    "set_device",
    "set_rng_state",
    "set_rng_state_all",
    "set_stream",
    "set_sync_debug_mode",
    "stream",
    "streams",
    "synchronize",
    *memory.__all__,
    *telemetry.__all__,
    *typed_tensors.__all__,
]
