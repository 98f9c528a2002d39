"""What a process of its own does with a device library: one step after the other, each announced before it is taken.

Run by :mod:`torch_backend.diagnosis.child`, which sees from the announcements where a crash or an endless wait
happened. A step that fails is reported and ends the run.
"""

import ctypes
import json
import os
import sys
import traceback
import warnings
from collections.abc import Callable
from importlib import metadata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch_backend.abi import DeviceLibrary

_TEST_BYTES = 1000  # an odd number of cache lines, and small enough for glibc to notice each double free


class Reporter:
    """Writes events to the process that waits for them, a JSON object per line."""

    def __init__(self, file_descriptor: int) -> None:
        """Write to a pipe."""
        self._pipe = os.fdopen(file_descriptor, "w", buffering=1, encoding="utf-8")

    def step(self, name: str) -> None:
        """Say what is about to be done."""
        self._send("step", name)

    def fact(self, name: str, value: object) -> None:
        """Say what was learned."""
        self._send("fact", [name, value])

    def fault(self, text: str) -> None:
        """Say what is wrong with what the last step gave."""
        self._send("fault", text)

    def done(self) -> None:
        """Say that no step is left."""
        self._send("done", True)

    def _send(self, kind: str, value: object) -> None:
        self._pipe.write(json.dumps({kind: value}) + "\n")


def use_bare(tell: Reporter, path: str) -> None:
    """Open the library at ``path`` without torch, start its driver, and copy a few bytes to every device and back."""
    from torch_backend.abi import DeviceLibrary
    from torch_backend.files import location

    if location.is_reference(path):
        tell.step(f"importing {path}")
        location.resolve(path)
    else:
        tell.step("loading the file")
        with open(path, "rb"):  # a better message than the loader's
            pass
        ctypes.CDLL(os.path.realpath(path), mode=os.RTLD_NOW | os.RTLD_LOCAL)
    tell.step("tb_plugin_entry")
    library = DeviceLibrary.open(path)
    tell.fact("name", library.name)
    tell.fact("abi", f"{library.plugin.abi_major}.{library.plugin.abi_minor}")
    tell.fact("option_keys", option_keys(library))
    tell.step("device_count")
    tell.fact("device_count", library.device_count)
    if library.device_count == 0:
        return
    tell.step("initialize")
    library.initialize()
    for index in range(library.device_count):
        _use_device(tell, library, index)


def option_keys(library: "DeviceLibrary") -> list[str] | None:
    """The options that the library reads; None if it does not say.

    Raises RuntimeError for a list without an end.
    """
    if not library.plugin.option_keys:
        return None
    keys = ctypes.cast(library.plugin.option_keys, ctypes.POINTER(ctypes.c_char_p))
    found: list[str] = []
    for position in range(1000):
        key = keys[position]
        if key is None:
            return found
        found.append(key.decode("utf-8", errors="replace"))
    raise RuntimeError("tb_plugin.option_keys has no end: its last entry must be NULL.")


def _use_device(tell: Reporter, library: "DeviceLibrary", index: int) -> None:
    from torch_backend.abi import CopyKind, Device
    from torch_backend.diagnosis import properties

    tell.step("device_properties")
    for fault in properties.faults_of(library, index):
        tell.fault(f"device_properties of device {index}: {fault}")
    device = Device(library, index)
    data = bytes(position * 7 % 251 for position in range(_TEST_BYTES))
    tell.step("memory_allocate")
    first, second = device.allocate(_TEST_BYTES), device.allocate(_TEST_BYTES)
    if first == second:
        tell.fault(f"memory_allocate gave {first:#x} twice, and both are in use.")
    alignment = device.properties.allocation_alignment_bytes
    if alignment and first % alignment:
        tell.fault(f"memory_allocate gave {first:#x}, which is not aligned to the {alignment} bytes that it declares.")
    tell.step("memory_copy (TB_COPY_HOST_TO_DEVICE)")
    device.write(first, data)
    tell.step("memory_copy (TB_COPY_DEVICE_TO_DEVICE)")
    device.copy(second, first, _TEST_BYTES, CopyKind.DEVICE_TO_DEVICE)
    device.synchronize()
    tell.step("memory_copy (TB_COPY_DEVICE_TO_HOST)")
    for address, way in ((first, "to the device and back"), (second, "to the device, within it and back")):
        wrong = sum(a != b for a, b in zip(device.read(address, _TEST_BYTES), data, strict=True))
        if wrong:
            tell.fault(f"{wrong} of {_TEST_BYTES} bytes are wrong after they were copied {way} by memory_copy.")
    tell.step("memory_free")
    device.free(first, _TEST_BYTES)
    device.free(second, _TEST_BYTES)


def find_entry_point(tell: Reporter, name: str) -> None:
    """Ask the package that offers the device ``name`` for the path of its library."""
    from torch_backend.devices.discovery import ENTRY_POINT_GROUPS
    from torch_backend.python_device import plugin

    (entry_point, *_) = (
        point for group in ENTRY_POINT_GROUPS for point in metadata.entry_points(group=group, name=name)
    )
    tell.step(f"importing {entry_point.value}")
    value = entry_point.load()
    if plugin.is_source(value):
        tell.fact("path", plugin.origin_of(value, entry_point.value))
        return
    if callable(value):
        tell.step(f"calling {entry_point.value}")
        value = value()
    path = os.fspath(value) if isinstance(value, (str, os.PathLike)) else getattr(value, "path", None)
    if not isinstance(path, str):
        tell.fault(
            f"{entry_point.value} gives a {type(value).__name__}. It must give the path of a device library, a "
            "torch_backend.PythonDevice, or a torch_backend.Plugin."
        )
        return
    tell.fact("path", path)


def use_in_torch(tell: Reporter, device: str) -> None:
    """Activate ``device``, a name or a place, and compute with a tensor."""
    tell.step("import torch")
    from torch_backend.devices.suppression import suppressed

    with suppressed():
        import torch
    tell.step("importing the native part of torch_backend")
    from torch_backend.devices import activation, description, loading, selection
    from torch_backend.files import location, native
    from torch_backend.version import __version__

    native.require()
    candidate = None
    if not location.is_place(device):
        try:
            candidate = selection.find(device)
        except ValueError as error:
            tell.fact("no_such_device", str(error))
            return
        tell.fact("path", candidate.path)
    with warnings.catch_warnings(record=True):  # what they say is found without them
        tell.step("torch_backend.load")
        plugin = loading.load(device) if candidate is None else candidate.load()
        tell.step("torch_backend.activate")
        activation.activate(plugin)
        tell.step(f"torch.ones(8, device='{plugin.name}') + 1")
        result = (torch.ones(8, device=plugin.name) + 1).cpu().tolist()
    if result != [2.0] * 8:
        tell.fault(f"torch.ones(8, device='{plugin.name}') + 1 gives {result}.")
    tell.fact(
        "device",
        {**description.of_plugin(plugin), "torch": torch.__version__, "torch_backend": __version__},
    )


def autoload(tell: Reporter, _: str) -> None:
    """Import torch as everybody does, and say what came of it."""
    tell.step("import torch")
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        import torch  # noqa: F401
    for warning in heard:
        if "torch_backend" in warning.filename:
            tell.fault(str(warning.message))
    tell.step("importing the native part of torch_backend")
    from torch_backend.devices import activation
    from torch_backend.files import native

    native.require()
    active = activation.active()
    tell.fact("active", active.name if active is not None else None)


_RUNS: dict[str, Callable[[Reporter, str], None]] = {
    "bare": use_bare,
    "entry_point": find_entry_point,
    "torch": use_in_torch,
    "autoload": autoload,
}


def main(arguments: list[str]) -> None:
    """Take the steps of one run: its name, what it is about, and the pipe to report to."""
    run, subject, file_descriptor = arguments
    tell = Reporter(int(file_descriptor))
    try:
        _RUNS[run](tell, subject)
    except (Exception, SystemExit) as error:
        from torch_backend.devices.selection import describe

        traceback.print_exc()
        tell.fault(describe(error))
    tell.done()


if __name__ == "__main__":
    main(sys.argv[1:])
