"""Native part of torch_backend. Import torch first."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
from torch._C._distributed_c10d import Backend, Store

# ---- Plugin.cpp: loading and activation ----

class Plugin:
    """A loaded device library. Lives until the process ends."""

    @property
    def name(self) -> str: ...
    @property
    def vendor(self) -> str: ...
    @property
    def version(self) -> str: ...
    @property
    def path(self) -> str: ...
    @property
    def abi_version(self) -> tuple[int, int]: ...
    @property
    def tables(self) -> list[str]:
        """Optional tables the plugin offers, e.g. ``["kernels.1"]``."""

    @property
    def is_async(self) -> bool:
        """Whether its work is enqueued on streams."""

    def device_count(self) -> int:
        """Number of devices; does not start the driver. Raises if the plugin fails."""

    def device_properties(self, device: int) -> DeviceProperties:
        """Starts the driver."""

class DeviceProperties:
    name: str
    arch: str
    major: int
    minor: int
    total_memory: int
    multi_processor_count: int
    warp_size: int
    stream_priority_range: tuple[int, int]  # lowest, highest
    numa_node: int
    uuid: str  # "" if the device has none
    allocation_granularity: int
    allocation_alignment: int
    capabilities: frozenset[str]  # names of TB_CAP_ flags, "ASYNC", "HOST_ACCESS", ...
    dtypes: frozenset[torch.dtype]  # what the device declares; every dtype if it declares none

def load_plugin(path: str) -> Plugin: ...
def load_plugin_entry(entry: int, origin: str) -> Plugin:
    """Take the plugin that a tb_plugin_entry of this process, given by its address, returns."""

def set_option(key: str, value: str) -> None: ...
def activate(plugin: Plugin) -> None:
    """Register the plugin's devices with PyTorch; once per process. Does not start the driver."""

def active_plugin() -> Plugin | None: ...
def abi_version() -> tuple[int, int]: ...

# ---- Device.cpp ----

def is_initialized() -> bool: ...
def initialize() -> None: ...
def is_in_bad_fork() -> bool: ...
def device_count() -> int: ...
def current_device() -> int: ...
def set_device(device: int) -> None: ...
def exchange_device(device: int) -> int: ...
def maybe_exchange_device(device: int) -> int: ...
def synchronize(device: int = -1) -> None: ...
def device_properties(device: int = -1) -> DeviceProperties: ...
def can_access_peer(device: int, peer: int) -> bool: ...
def is_device_lost(device: int) -> bool: ...
def get_sync_debug_mode() -> int: ...
def set_sync_debug_mode(mode: int) -> None:
    """0: nothing, 1: warn, 2: raise when an operation makes the host wait for the device."""

def range_push(name: str) -> None:
    """Begin a range of the calling thread in the vendor's own tools, if the device library serves them (prof.1)."""

def range_pop() -> None: ...

# ---- Stream.cpp: streams travel as (stream_id, device_index) ----

def default_stream_id(device: int) -> int: ...
def external_stream_id(handle: int, device: int) -> int: ...
def stream_priority_range(device: int = -1) -> tuple[int, int]: ...
def stream_priority(stream_id: int, device: int) -> int: ...

# ---- Autograd.cpp ----

def stop_autograd_threads() -> None:
    """Ends the threads that run backward passes on devices, waiting for them; there is no backward pass afterwards."""

def any_recorded(*args: object, **kwargs: object) -> bool:
    """Whether autograd records a call with these arguments, of which lists and tuples may have tensors too.

    It does if one requires a gradient, and gradients are enabled, or has a tangent (``torch.func.jvp``)."""

# ---- Random.cpp ----

def default_generator(device: int) -> torch.Generator: ...

# ---- Fallback.cpp: the CPU fallback ----

def fallback_set_policy(op: str, policy: str) -> None:
    """``op`` is an operator ("aten::sort") or overload ("aten::sort.stable"), or "" for all others; ``policy`` is
    "allow", "warn", "error", or "" to forget the op's own policy."""

def fallback_get_policies() -> dict[str, str]: ...
def fallback_report() -> list[tuple[str, int, int, float]]:
    """(overload, calls, bytes that were copied between device and host, seconds of the host), most calls first."""

def fallback_reset() -> None: ...

# ---- Operators.cpp ----

def operator_sources() -> dict[str, str]:
    """Every overload the dispatcher knows, and its source on this device: "plugin", "generated", "native", "aten",
    "extension", "composite", "fallback" or "unavailable"."""

def has_modules() -> bool:
    """Whether the device compiles kernels."""

def module_format() -> str | None:
    """The language of the device's kernels, "c++", "opencl-c" or "cuda-c"; None without modules."""

def compile_ahead(folder: str, compiler: Callable[[str], bytes] | None) -> None:
    """From now on images go to ``folder``. ``compiler`` makes one of a kernel's text, from any thread; None: the device
    does, by module_load. Before the process's first kernel."""

def num_ahead_images() -> int:
    """How many images compile_ahead has made and kept."""

def generated_kernels() -> list[str]:
    """The overloads that a device which takes modules gets kernels for, as a device library would name them."""

def register_plugin_kernel(overload: str) -> list[str]:
    """The overloads that the device library's kernel serves from now on."""

def operator_calls() -> list[tuple[str, str, int]]:
    """(overload, source, calls) since counting was switched on."""

def count_operator_calls(enable: bool) -> None:
    """Count every operator call by source; clears earlier counts when switched on."""

# ---- Customization.cpp ----

def wrap_number(number: complex) -> torch.Tensor:
    """The CPU tensor that PyTorch makes of a Python number, which yields in type promotion."""

def set_autocast_policy(overload: str, policy: str) -> None:
    """Arguments of ``overload`` follow ``policy`` under autocast on the device, until reset_autocast_policy."""

def reset_autocast_policy(overload: str) -> None: ...
def autocast_defaults() -> dict[str, str]:
    """PyTorch's own lists: overload -> policy."""

# ---- GraphKernels.cpp: kernels of compiled graphs ----

class GraphKernel:
    """A kernel whose text torch.compile wrote; see csrc/ops/compiled/engine/GraphKernel.h."""

    def __init__(
        self,
        name: str,
        texts: str,
        body: str,
        *,
        is_double: bool,
        is_32_bit: bool,
        num_pointers: int,
        num_numbers: int,
        may_fail: bool,
        per_block: int,
    ) -> None: ...
    def compile(self, device: int) -> None:
        """Blocks until it is compiled for the device."""

    def __call__(self, units: int, cost: int, *args: torch.Tensor | float) -> None:
        """Launch on the device of the tensors, which come before the numbers. No units: nothing happens."""

def pointwise_formula(overload: str) -> tuple[str, str | None, str | None, str | None, str]:
    """Of codegen/kernels/pointwise.yaml: parameters; statements by what is computed in, floats, integers or bools; what
    those of floats call, as KernelText.h has it. Raises IndexError if ``overload`` ("aten::exp.out") has none."""

def block_items(device: int) -> int:
    """Items of a block."""

def runs_in_stretches(device: int) -> bool:
    """Whether the items of a block run one after the other, as on a processor. Starts the driver."""

def computes_double(device: int) -> bool: ...
def kernel_traits(device: int) -> str:
    """What of a device the text of kernels depends on, in words."""

def most_pointers() -> int:
    """How many tensors a kernel may take."""

# ---- Memory.cpp ----

def memory_stats(device: int = -1) -> dict[str, Any]:
    """Nested, with the names of torch.cuda.memory_stats_as_nested_dict."""

def reset_accumulated_memory_stats(device: int = -1) -> None: ...
def reset_peak_memory_stats(device: int = -1) -> None: ...
def empty_cache() -> None:
    """Of all devices."""

def empty_cache_unless_capturing() -> None:
    """Of those on which no graph is being captured."""

def mem_get_info(device: int = -1) -> tuple[int, int]:
    """Free and total bytes."""

def set_memory_fraction(fraction: float, device: int = -1) -> None: ...
def get_memory_fraction(device: int = -1) -> float: ...
def memory_snapshot(pool: tuple[int, int] | None = None, include_traces: bool = True) -> dict[str, Any]: ...
def record_memory_history(
    enabled: str | None,
    context: str | None,
    stacks: str,
    max_entries: int,
    clear_history: bool,
    skip_actions: Sequence[str],
) -> None: ...
def is_memory_history_enabled() -> bool: ...
def attach_out_of_memory_observer(observer: Callable[[int, int, int, int], object]) -> None:
    """Called with device, bytes asked, total bytes and free bytes of the device. Stays until the process ends."""

def allocate_raw(size: int, device: int, stream_id: int) -> int: ...
def free_raw(ptr: int) -> None: ...

class MemoryPool:
    """Holds a private pool of one device; released with the object."""

    def __init__(self, device: int = -1) -> None: ...
    @property
    def id(self) -> tuple[int, int]: ...
    @property
    def device(self) -> int: ...
    def use_count(self) -> int: ...

class Graph:
    """Captured work of one device."""

    def __init__(self, keep_graph: bool = False) -> None: ...
    def capture_begin(self, pool: tuple[int, int] | None = None, capture_error_mode: str = "global") -> None: ...
    def capture_end(self) -> None: ...
    def instantiate(self) -> None: ...
    def replay(self) -> None: ...
    def reset(self) -> None: ...
    def pool(self) -> tuple[int, int]: ...
    def enable_debug_mode(self) -> None: ...
    def debug_dump(self, debug_path: str) -> None: ...

def graph_pool_handle() -> tuple[int, int]: ...
def is_current_stream_capturing() -> bool: ...
def begin_allocate_to_pool(device: int, pool: tuple[int, int]) -> None:
    """What the calling thread allocates on the device comes from the pool, until end_allocate_to_pool."""

def end_allocate_to_pool(device: int, pool: tuple[int, int]) -> None: ...
def host_memory_stats() -> dict[str, Any]: ...
def reset_accumulated_host_memory_stats() -> None: ...
def reset_peak_host_memory_stats() -> None: ...
def empty_host_cache() -> None: ...

# ---- GraphTrees.cpp: graphs that share a pool. A storage is named by its address, ``_cdata`` ----

class PoolCheckpoint:
    """What of a private pool was in use; see csrc/memory/PoolCheckpoint.h."""

    @property
    def addresses(self) -> list[int]: ...

def checkpoint_pool(device: int, pool: tuple[int, int]) -> PoolCheckpoint: ...
def restore_pool(device: int, checkpoint: PoolCheckpoint, storages: list[int]) -> None:
    """What was in use is so again, and nothing else of its pool; these storages, on memory of it, own theirs."""

def owns_memory(storage: int) -> bool:
    """Whether the memory is freed with the storage."""

def free_storage(storage: int) -> None:
    """Free the memory now; the storage keeps its address."""

def are_at(values: list[Any], expected: list[int | None], indices: list[int]) -> bool:
    """Whether the tensors of ``values`` at ``indices`` are where ``expected`` says."""

def forbid_access(tensor: torch.Tensor, message: str) -> None:
    """Take the storage away; who asks for it gets RuntimeError with ``message``."""

def forbid_storage_access(storage: int, message: str) -> None:
    """As forbid_access, for all tensors of a storage."""

# ---- Processes.cpp: storages for other processes ----

def lend_storage(storage: torch.UntypedStorage) -> bytes:
    """A message by which one process, which receives it once, gets the storage; waits for the device."""

def borrow_storage(message: bytes) -> torch.UntypedStorage: ...
def acknowledge_storage(message: bytes) -> None:
    """The message has arrived, and its storage is here already."""

def describe_storage_message(message: bytes) -> tuple[int, int, bytes, int, int, int]:
    """Process that lends, device, handle of the segment, offset in it, bytes, address in the process that lends."""

def num_lent() -> int:
    """Messages that are on their way, or whose storages are in use in other processes."""

def ipc_collect() -> None: ...

# ---- Metadata.cpp: notes on tensors ----

def tensor_metadata(tensor: torch.Tensor) -> str | None: ...
def set_tensor_metadata(tensor: torch.Tensor, text: str | None) -> None: ...
def save_tensor_metadata() -> bool:
    """Save and load them with their tensors from now on. False if an extension does that in its own way."""

# ---- Distributed.cpp: process groups ----

has_distributed: bool  # whether torch was built with torch.distributed

def has_device_collectives() -> bool:
    """Whether the device library offers ccl.1."""

class DeviceBackendOptions(Backend.Options):
    """Options of a DeviceBackend, as PyTorch has them of any backend."""

class DeviceBackend(Backend):
    """A process group's backend for the device's tensors."""

    def __init__(
        self,
        name: str,
        store: Store,
        rank: int,
        size: int,
        timeout: timedelta,
        make_gloo: Callable[[Store, int, int, timedelta], Backend] | None = None,
    ) -> None:
        """Over the device library's own collectives, or over the backends for CPU tensors that ``make_gloo`` makes."""
    @property
    def options(self) -> DeviceBackendOptions: ...
    @property
    def path(self) -> str:
        """Who moves the data: "ccl.1", the device library, or "host", a backend for CPU tensors."""
    def slot_calls(self) -> dict[str, int]:
        """How often each function of either did what this group asked of it."""

# ---- Compile.cpp ----

def host_graph(
    call: Callable[[list[Any]], Sequence[Any]],
    on_device: list[bool],
    device: int,
    seeds: int,
    results: list[Any] | None,
    resized: list[int],
) -> Callable[[list[Any]], list[Any]]:
    """What ``call``, which was compiled for the CPU, is on the device: called with a list, which it empties.

    ``on_device`` says of each result whether it belongs on the device; ``device`` is that of graphs that take no tensor
    of the device, -1 the current one; ``seeds``, if not 0, is how many random numbers ``call`` takes as its last
    argument. ``results``, None if they are not known before, has for each None, ``("input", index)``,
    ``("result", index)`` of an earlier one, or sizes, strides and dtype: an asynchronous device then runs the graph on
    its stream. ``resized`` has the indices of inputs whose storage ``call`` gives another size.
    """
