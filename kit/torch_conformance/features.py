"""What PyTorch leaves to a device whether it has it, in groups: the kit's contract with devices.

A test that is about such a group says so with :func:`torch_conformance.needs.feature`; all other tests are about what
every device has. A device has a group if its profile says so; else it is asked, as the rows below do.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

Probe: TypeAlias = Callable[[str], str | None]
"""Takes the torch device name; says why the device has not got the feature, or None if it has."""


@dataclass(frozen=True)
class Feature:
    """A group of what a device may have.

    Attributes:
        name: what tests and profiles call it.
        means: what a device with it can do.
        source: where PyTorch documents it, or which devices in its tree have it.
        probe: asks a device.
        is_cudas: whether CUDA has it, so that a device which has to have all has to have it too.
    """

    name: str
    means: str
    source: str
    probe: Probe
    is_cudas: bool = True

    def lacks(self, device: str) -> str | None:
        """Why the device has not got it; None if it has."""
        try:
            return self.probe(device)
        except (ImportError, NameError):  # mistakes of a probe, which would hide tests
            raise
        except Exception as error:
            first = str(error).strip().partition("\n")[0]
            return f"{self.name}: {type(error).__name__}: {first}"


def _module(device: str) -> Any:
    import torch

    return getattr(torch, device, None)


def _functions(*names: str) -> Probe:
    """Whether ``torch.<name>`` has these."""

    def probe(device: str) -> str | None:
        module = _module(device)
        missing = [name for name in names if not hasattr(module, name)]
        return f"torch.{device} has no {missing[0]}" if missing else None

    return probe


def _offers(*names: str) -> Probe:
    """Whether ``torch.<name>`` has these, or PyTorch for every accelerator."""
    from torch_conformance.accelerator import equivalent

    def probe(device: str) -> str | None:
        module = _module(device)
        missing = [name for name in names if not hasattr(module, name) and equivalent(device, name) is None]
        return f"torch.{device} has no {missing[0]}" if missing else None

    return probe


def _has_index(device: str) -> str | None:
    import torch

    return None if torch.empty(0, device=device).device.index is not None else f"tensors on {device} have no index"


def _has_memory_of_its_own(device: str) -> str | None:
    import torch

    return f"tensors on {device} are the CPU's" if torch.empty(0, device=device).is_cpu else None


def _has_methods(device: str) -> str | None:
    import torch

    missing = [kind for kind in (torch.Tensor, torch.nn.Module) if not hasattr(kind, device)]
    return f"{missing[0].__name__} has no method {device}" if missing else None


def _is_accelerator(device: str) -> str | None:
    import torch

    found = torch.accelerator.current_accelerator()
    if found != torch.device(device):
        return f"torch.accelerator is {found}, not {device}"
    torch.accelerator.set_device_index(torch.accelerator.current_device_index())
    if not torch.accelerator.is_available():
        return f"torch.accelerator says that {device} is not available"
    return None


def _has_generator(device: str) -> str | None:
    import torch

    if reason := _functions("get_rng_state", "set_rng_state", "manual_seed")(device):
        return reason
    torch.Generator(device=device)
    return None


def _has_streams(device: str) -> str | None:
    import torch

    if reason := _is_accelerator(device):
        return reason
    stream = torch.Stream(device=device)
    stream.synchronize()
    is_new = stream != torch.accelerator.current_stream()
    return None if is_new else f"a new stream on {device} is the one that was current: there is no other"


def _is_asynchronous(device: str) -> str | None:
    import torch

    if reason := _has_streams(device):
        return reason
    source = torch.ones(1 << 24, device=device)
    target = torch.empty_like(source)
    for _ in range(20):  # of these one may be done before it is asked about, on a busy host
        for _ in range(8):
            target.copy_(source, non_blocking=True)
        if not torch.accelerator.current_stream().query():
            torch.accelerator.synchronize()
            return None
    return f"work on {device} is done when the call returns, as streams that are asked say"


def _measures_time(device: str) -> str | None:
    import torch

    if reason := _has_streams(device):
        return reason
    start, end = (torch.Event(device, enable_timing=True) for _ in range(2))
    start.record()
    end.record()
    end.synchronize()
    start.elapsed_time(end)
    return None


def _counts_memory(device: str) -> str | None:
    import torch

    if reason := _is_accelerator(device):
        return reason
    torch.empty(1, device=device)
    has = "allocated_bytes.all.current" in torch.accelerator.memory_stats()
    return None if has else f"torch.accelerator.memory_stats() does not count the memory of {device}"


def _limits_memory(device: str) -> str | None:
    from torch_conformance.accelerator import equivalent

    if reason := _offers("set_per_process_memory_fraction", "mem_get_info")(device):
        return reason
    _, total = (getattr(_module(device), "mem_get_info", None) or equivalent(device, "mem_get_info"))()
    return None if total else f"{device} does not say how much memory it has"


def _has_graphs(device: str) -> str | None:
    import torch

    if reason := _has_streams(device) or _offers("Graph", "graph")(device):
        return reason
    from torch_conformance.accelerator import equivalent

    graph, capture = (getattr(_module(device), name, None) or equivalent(device, name) for name in ("Graph", "graph"))
    source, target = torch.ones(8, device=device), torch.zeros(8, device=device)
    captured = graph()
    with capture(captured):
        target.copy_(source)
    captured.replay()
    return None


def _shares_memory(device: str) -> str | None:
    from multiprocessing.reduction import ForkingPickler

    import torch.multiprocessing

    if reason := _has_memory_of_its_own(device):
        return reason
    ForkingPickler.dumps(torch.ones(8, device=device))
    return None


def _pins_memory(device: str) -> str | None:
    import torch

    if reason := _is_accelerator(device):
        return reason
    return None if torch.empty(1).pin_memory().is_pinned() else "pin_memory gives memory that is not pinned"


def _has_storage(device: str) -> str | None:
    import torch

    x = torch.zeros(4, device=device)
    same = x.data_ptr() != 0 and x.view(2, 2).untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
    return None if same else f"views on {device} share no storage that has an address"


def _resizes_storages(device: str) -> str | None:
    import torch

    torch.empty(1, device=device).untyped_storage().resize_(64)
    return None


def _exchanges_data(device: str) -> str | None:
    import torch

    takes = torch._has_compatible_shallow_copy_type(torch.empty(0), torch.empty(0, device=device))
    return None if takes else f"PyTorch does not let a tensor of the CPU become one of {device} in place"


def _refuses_overlaps(device: str) -> str | None:
    import torch

    x = torch.zeros(8, device=device)
    try:
        torch.sin(x[:-1], out=x[1:])
    except RuntimeError:
        return None
    return f"operators on {device} do not see that out= overlaps an argument"


def _copies_storages(device: str) -> str | None:
    # Tensor.__deepcopy__ names these.
    if device in {"lazy", "xla", "mtia", "mps", "maia", "meta", "ipu"}:
        return f"PyTorch makes a deep copy of a tensor on {device} by clone"
    return _has_storage(device)


def _has_sparse(device: str) -> str | None:
    import torch

    torch.sparse_coo_tensor(torch.tensor([[0]]), torch.tensor([1.0]), (2,), device=device).to_dense()
    return None


def _has_sparse_csr(device: str) -> str | None:
    import torch

    torch.sparse_csr_tensor([0, 1], [0], [1.0], (1, 2), device=device).to_dense()
    return None


def _has_nested(device: str) -> str | None:
    import torch

    torch.nested.nested_tensor([torch.ones(1, device=device)]).unbind()
    return None


def _has_quantized(device: str) -> str | None:
    import torch

    torch.quantize_per_tensor(torch.ones(2, device=device), 0.1, 0, torch.quint8).dequantize()
    return None


def _has_dlpack(device: str) -> str | None:
    import torch

    x = torch.ones(2, device=device)
    back = torch.utils.dlpack.from_dlpack(x)
    return None if back.device == x.device else f"DLPack gives a tensor of {back.device} for one of {x.device}"


def _has_complex_views(device: str) -> str | None:
    import torch

    torch.view_as_real(torch.zeros(2, dtype=torch.complex64, device=device))
    return None


def _is_of_torch_backend(device: str) -> str | None:
    torch_backend = sys.modules.get("torch_backend")
    plugin = torch_backend.active() if torch_backend is not None else None
    return None if plugin is not None and plugin.name == device else f"{device} is no device of torch_backend's"


def activity_of(device: str) -> Any:
    """What torch.profiler is told to show the device's work."""
    import torch

    names = {"cpu": "CPU", "cuda": "CUDA", "xpu": "XPU", "mtia": "MTIA", "hpu": "HPU"}
    return getattr(torch.profiler.ProfilerActivity, names.get(device, "PrivateUse1"), None)


def has_activity(device: str) -> str | None:
    """Whether Kineto would show the device's work. That says nothing of the device."""
    import torch

    if not torch._C._autograd.kineto_available():
        return "this torch is built without Kineto"
    known = torch._C._autograd._supported_activities()
    return None if activity_of(device) in known else f"Kineto has no profiler of {device}"


def _has_profiler(device: str) -> str | None:
    import torch

    if reason := has_activity(device):
        return reason
    from torch._C._autograd import DeviceType

    activities = {torch.profiler.ProfilerActivity.CPU, activity_of(device)}
    with torch.profiler.profile(activities=activities, acc_events=True) as profile:
        torch.ones(100, 100, device=device).cpu()
    shown = {event.device_type for event in profile.events() or ()} - {DeviceType.CPU}
    return None if shown else f"torch.profiler shows operators alone, and no work of {device}"


def _has_autocast(device: str) -> str | None:
    import torch

    return None if torch.amp.is_autocast_available(device) else f"torch.amp knows no autocast on {device}"


def _has_process_groups(device: str) -> str | None:
    import torch.distributed as dist

    if not dist.is_available():
        return "this torch is built without torch.distributed"
    has = device in dist.Backend.default_device_backend_map
    return None if has else f"torch.distributed has no default backend for {device}"


def _has_dynamo_interface(device: str) -> str | None:
    from torch._dynamo.device_interface import get_interface_for_device

    try:
        get_interface_for_device(device)
    except NotImplementedError:
        return f"torch._dynamo knows no interface of {device}"
    return None


def _has_inductor(device: str) -> str | None:
    if reason := _has_dynamo_interface(device):
        return reason
    from torch._inductor.codegen.common import get_scheduling_for_device, init_backend_registration

    init_backend_registration()
    return None if get_scheduling_for_device(device) is not None else f"Inductor generates no code for {device}"


FEATURES = {
    feature.name: feature
    for feature in (
        Feature(
            "module",
            "torch.<name> counts devices and chooses one",
            "torch.utils.rename_privateuse1_backend, torch._register_device_module; cuda, xpu, mtia",
            _functions("is_available", "device_count", "current_device", "set_device", "device", "synchronize"),
        ),
        Feature(
            "index", "tensors say on which of several devices they are", "torch.device; all devices but cpu", _has_index
        ),
        Feature(
            "memory of its own",
            "tensors on the device are told from those of the CPU",
            "torch.Tensor.is_cpu; all devices but cpu",
            _has_memory_of_its_own,
        ),
        Feature(
            "methods",
            "tensors and modules have methods that are named after the device",
            "torch.utils.generate_methods_for_privateuse1_backend; cpu, cuda, xpu, mtia",
            _has_methods,
        ),
        Feature(
            "accelerator",
            "torch.accelerator finds the device",
            "torch.accelerator's documentation; all accelerators in the tree",
            _is_accelerator,
        ),
        Feature(
            "generator",
            "the device draws random numbers of its own, from a state that can be saved",
            "torch.Generator, AcceleratorHooksInterface::getNewGenerator; cuda, xpu, mps, mtia",
            _has_generator,
        ),
        Feature(
            "streams",
            "work is put into streams that wait for each other",
            "torch.Stream and torch.accelerator.current_stream; cuda, xpu, mtia",
            _has_streams,
        ),
        Feature(
            "asynchronous",
            "calls return before their work is done",
            "CUDA semantics, Asynchronous execution; cuda, xpu, mps, mtia",
            _is_asynchronous,
        ),
        Feature(
            "event times",
            "events tell the time between them",
            "torch.Event(enable_timing=True); cuda, xpu",
            _measures_time,
        ),
        Feature(
            "memory statistics",
            "memory is counted, and its peak",
            "torch.accelerator.memory_stats, DeviceAllocator; cuda, xpu",
            _counts_memory,
        ),
        Feature(
            "memory limits",
            "a process can be limited to a part of the memory",
            "torch.cuda.set_per_process_memory_fraction; cuda, xpu, mps",
            _limits_memory,
        ),
        Feature(
            "pinned memory",
            "the host has memory that the device reads and writes by itself",
            "Tensor.pin_memory, AcceleratorHooksInterface::getPinnedMemoryAllocator; cuda, xpu",
            _pins_memory,
        ),
        Feature(
            "storage",
            "tensors are views of storages with an address",
            "torch.UntypedStorage; all devices in the tree but those of opaque tensors, such as xla and lazy",
            _has_storage,
        ),
        Feature(
            "resized storages",
            "storages grow and shrink",
            "torch.UntypedStorage.resize_, PrivateUse1HooksInterface::resizePrivateUse1Bytes; cpu, cuda, xpu, hpu",
            _resizes_storages,
        ),
        Feature(
            "data in place",
            "a tensor of the CPU becomes one of the device in place, so a module that moves keeps its parameters",
            "Tensor.data, TensorImpl::has_compatible_shallow_copy_type; cpu, cuda, xpu, mps, mtia",
            _exchanges_data,
        ),
        Feature(
            "deep copies of storages",
            "deep copies of several tensors on one storage have one storage",
            "Tensor.__deepcopy__; cpu, cuda, xpu",
            _copies_storages,
        ),
        Feature(
            "overlaps",
            "operators refuse out= that overlaps an argument or itself",
            "at::assert_no_overlap, which at::native::cpu_fallback has no part in; cpu, cuda, xpu, mps",
            _refuses_overlaps,
        ),
        Feature("sparse", "sparse tensors in coordinates", "torch.sparse; cpu, cuda, xpu, mps", _has_sparse),
        Feature(
            "sparse compressed", "sparse tensors by rows or columns", "torch.sparse; cpu, cuda, xpu", _has_sparse_csr
        ),
        Feature("nested", "nested tensors", "torch.nested; cpu, cuda, xpu", _has_nested),
        Feature("quantized", "quantized tensors", "torch.ao.quantization; cpu and cuda", _has_quantized),
        Feature(
            "complex views",
            "complex tensors are seen as real ones",
            "torch.view_as_real; cpu, cuda",
            _has_complex_views,
        ),
        Feature(
            "dlpack", "tensors are exchanged with other libraries", "torch.from_dlpack; cpu, cuda, xpu", _has_dlpack
        ),
        Feature("profiler", "torch.profiler shows the device's work", "torch.profiler; cuda, xpu, mtia", _has_profiler),
        Feature("autocast", "torch.autocast", "torch.amp.is_autocast_available; cpu, cuda, xpu, mps", _has_autocast),
        Feature(
            "shared memory",
            "processes share memory of the device",
            "torch.multiprocessing, Sharing CUDA tensors; cuda",
            _shares_memory,
        ),
        Feature("graphs", "work is captured and replayed", "torch.accelerator.Graph; cuda, xpu", _has_graphs),
        Feature(
            "distributed",
            "processes with a device each work together",
            "torch.distributed.Backend.register_backend; cpu, cuda, xpu",
            _has_process_groups,
        ),
        Feature(
            "compile",
            "torch.compile takes tensors of the device",
            "torch._dynamo.device_interface.register_interface_for_device; cpu, cuda, xpu, mps, mtia",
            _has_dynamo_interface,
        ),
        Feature(
            "inductor",
            "torch.compile's default backend generates code for the device",
            "torch._inductor.codegen.common.register_backend_for_device; cpu, cuda, xpu, mps",
            _has_inductor,
        ),
        Feature(
            "torch_backend",
            "what torch_backend promises beyond PyTorch, such as what errors say",
            "torch_backend's documentation",
            _is_of_torch_backend,
            is_cudas=False,
        ),
    )
}
"""By name. PyTorch has no such list: each row says what bears it out."""
