"""Places where PyTorch leaves out-of-tree devices out, and what we put there. Each asks first whether it is needed."""

import atexit
import contextlib
import os
import sys
import time
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection

    import torch

    from torch_backend._C import Plugin


def repair_dlpack_device(name: str) -> None:
    """Make ``torch.from_dlpack`` accept tensors of the device ``name``.

    ``Tensor.__dlpack_device__`` compares the device type with "privateuse1", which a renamed device never is.
    """
    import torch
    from torch.overrides import handle_torch_function, has_torch_function_unary
    from torch.utils.dlpack import DLDeviceType

    original = torch.Tensor.__dlpack_device__

    class Probe:  # all that the method looks at
        device = torch.device(name, 0)

    try:
        original(Probe())  # type: ignore[arg-type]
        return
    except ValueError:
        pass

    def __dlpack_device__(self: torch.Tensor) -> tuple[IntEnum, int]:
        if has_torch_function_unary(self):
            result: tuple[IntEnum, int] = handle_torch_function(torch.Tensor.__dlpack_device__, (self,), self)
            return result
        if self.device.type == name:
            return DLDeviceType.kDLExtDev, self.device.index or 0
        return original(self)

    __dlpack_device__.__doc__ = original.__doc__
    torch.Tensor.__dlpack_device__ = __dlpack_device__  # type: ignore[method-assign]


def tell_tracing_of_convolutions(name: str) -> None:
    """Let tracing know how the device ``name`` lays out the results of convolutions: by channels if an argument is.

    PyTorch has a rule for each kind of convolution of its own devices. That of out-of-tree devices is "overrideable",
    for which it answers "contiguous" whatever the device does. The device's side is convolution_format in
    csrc/aten/ResultRules.cpp.
    """
    import torch

    overrideable = torch._C._ConvBackend.Overrideable  # type: ignore[attr-defined]
    original: Any = torch._C._conv_determine_backend_memory_format
    image = torch.empty(1, 2, 2, 2, device="meta", memory_format=torch.channels_last)
    if original(image, image, overrideable) is torch.channels_last:
        return

    def determine(input: torch.Tensor, weight: torch.Tensor, backend: object) -> torch.memory_format:
        if backend != overrideable or input.device.type != name:
            chosen: torch.memory_format = original(input, weight, backend)
            return chosen
        from torch._prims_common import suggest_memory_format

        formats = {suggest_memory_format(input), suggest_memory_format(weight)}
        by_channels = torch.channels_last if input.dim() == 4 else torch.channels_last_3d
        return by_channels if by_channels in formats else torch.contiguous_format

    torch._C._conv_determine_backend_memory_format = determine


def register_graphsafe_rng(name: str) -> None:
    """Let AOTAutograd recompute random operators of the device ``name``: its generators have graph-safe states.

    Only if the part of torch that wants to know is in the process: importing it would make ``import torch`` slow where
    torch does not import it itself. Call it again before compiling; registering twice does no harm.
    """
    utils = sys.modules.get("torch._functorch._aot_autograd.utils")
    register = getattr(utils, "register_graphsafe_rng_device_type", None)
    if register is not None:
        register(name)


def choose_autocast_dtype(name: str, dtypes: "Collection[torch.dtype]") -> None:
    """Let ``torch.autocast`` of the device ``name`` cast to bfloat16 by default if the device lacks float16.

    PyTorch's default for out-of-tree devices is float16, and autocast to a dtype that is not supported does nothing but
    warn. The default belongs to a thread: this is for the one that starts the driver, the others say ``dtype=``.
    """
    import torch

    chosen = torch.get_autocast_dtype(name)
    if chosen is torch.float16 and chosen not in dtypes and torch.bfloat16 in dtypes:
        torch.set_autocast_dtype(name, torch.bfloat16)


def run_backward_where_it_is_called(plugin: "Plugin") -> None:
    """On a synchronous device, let backward passes that this thread starts run in it, as on CPU.

    Autograd gives every out-of-tree device a thread, so that the host can enqueue on several devices at once. A device
    that has finished when a call returns gains little from that, and loses the caches of the core that ran the forward
    pass. Other threads, and whoever calls ``torch.autograd.set_multithreading_enabled(True)``, get device threads.
    """
    import torch

    if not plugin.is_async:
        torch.autograd.set_multithreading_enabled(False)


def end_autograd_with_process() -> None:
    """End autograd's device threads before Python ends.

    Each has a Python thread state, takes the GIL to drop the objects of the last backward pass, and takes it again to
    drop its state when it leaves. If Python is ending by then, the process aborts. The engine would send the threads
    away only when static objects are destroyed, which is too late, and does not wait for the last step. Not in a forked
    child, which has no such threads.
    """
    from torch_backend import _C

    process = os.getpid()

    def end() -> None:
        if os.getpid() != process:
            return
        _C.stop_autograd_threads()
        deadline = time.monotonic() + 5  # the engine leaves busy threads alone: they stay
        while _has_autograd_threads() and time.monotonic() < deadline:
            time.sleep(0.001)

    atexit.register(end)


def end_profile_with_process() -> None:
    """End a profile that goes on when Python ends.

    A profiler waits for the device when it is left, and stays on if that fails. Its state would go after what it logs
    to, which ends the process with SIGSEGV.
    """
    import torch

    def end() -> None:
        if torch._C._autograd._profiler_enabled():
            with contextlib.suppress(RuntimeError):  # what could not be collected
                torch._C._autograd._disable_profiler()

    atexit.register(end)


def _has_autograd_threads() -> bool:
    """Whether this process has a thread with the name that the engine gives its own; False where that is unknown."""
    for path in Path("/proc/self/task").glob("*/comm"):
        with contextlib.suppress(OSError):  # it has just ended
            if path.read_text().startswith("pt_autograd"):
                return True
    return False
