"""The way to a device of torch_backend's: a device library, which it makes a device of PyTorch."""

import difflib
import importlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import TYPE_CHECKING, Any

from torch_conformance import expectations
from torch_conformance.declaration import Declaration
from torch_conformance.expectations import Expectation
from torch_conformance.report.findings import DeviceDescription
from torch_conformance.routes import NoSuchDevice
from torch_conformance.sources import Calls

if TYPE_CHECKING:
    from torch_backend._C import Plugin

_OF_CAPABILITY = {"asynchronous": "ASYNC", "shared memory": "IPC"}
_OF_TABLE = {"graphs": "graph.1"}
_ASKED = ("compile", "distributed")
"""What PyTorch or a device library may be without. All else torch_backend has for every device."""


@dataclass(frozen=True)
class Library:
    """A device library and the modules to import after it.

    Attributes:
        device: a name, the path of a device library, or "module:Class".
        modules: what to import once the device is active, such as those that register kernels for it.
        options: what the device library reads through ``host->option``, by key.
    """

    device: str
    modules: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, device: str, modules: list[str]) -> "Library":
        """From JSON."""
        return cls(device, tuple(modules))

    def to_json(self) -> dict[str, Any]:
        """What processes need whose environment has the options."""
        from torch_backend.files import location

        return {"device": location.absolute(self.device), "modules": self.modules}

    def environment(self) -> dict[str, str]:
        """This process's environment, and options for the device library.

        Raises ValueError for options of a device whose name is not known, and for those that it does not read.
        """
        from torch_backend.files import location

        environment = dict(os.environ)
        if self.options:
            device = self.device
            name = location.name_in(device) if location.is_place(device) else device
            if name is None:
                raise ValueError(
                    f"Options cannot be given to '{device}', whose device is not known before it is loaded. Call the "
                    "file libtorch_backend_<name>.so, or set TORCH_BACKEND_<NAME>_<KEY> in the environment."
                )
            given = {f"TORCH_BACKEND_{name}_{key}".upper(): value for key, value in self.options.items()}
            environment.update(given)
            _refuse_unknown(self.options, device, environment)
        return environment

    def command(self) -> list[str]:
        """``torch-backend check``, with what the device needs."""
        words = ["python", "-m", "torch_backend", "check", self.device]
        words += [word for key, value in self.options.items() for word in ("--option", f"{key}={value}")]
        return [*words, *(word for module in self.modules for word in ("--import", module))]

    def known_failures(self, found: DeviceDescription) -> tuple[Expectation, ...]:
        """Those in the file beside the library."""
        if found.path is None:
            return ()
        from torch_backend.files import location

        folder = location.folder(found.path)
        file = folder / expectations.FILE_NAME if folder is not None else None
        return expectations.read(file, found.name) if file is not None and file.is_file() else ()

    def describe(self, environment: Mapping[str, str], seconds: float) -> DeviceDescription:
        """What the device is, asked in another process, which it may crash. Its ``error`` says what went wrong."""
        # Processes that only import the kit, by the dozen, do without it.
        from torch_backend.diagnosis import STEP_SECONDS, Severity, child, diagnose
        from torch_backend.files import location

        device = self.device
        path = location.absolute(device) if location.is_place(device) else None
        if path is not None and not location.exists(path):
            raise NoSuchDevice(f"There is no device library {device}.")
        opened = child.run("torch", device, environment, seconds)
        if "no_such_device" in opened.facts:
            raise NoSuchDevice(opened.facts["no_such_device"])
        if "device" in opened.facts and opened.ending is None:
            return DeviceDescription.of(opened.facts["device"])
        # The process that failed has named the step; the doctor takes smaller ones, and knows what to do.
        found = diagnose(device, environment, min(seconds, STEP_SECONDS))
        problems = [str(finding) for finding in found if finding.severity is Severity.PROBLEM]
        why = "\n".join(problems) or f"{opened.step}: {opened.ending or opened.faults}. It wrote: {opened.output}"
        error = f"{device} cannot be used by torch. What `torch-backend doctor` finds:\n{why}"
        return DeviceDescription(device, path=path or opened.facts.get("path"), error=error)

    def activate(self) -> Declaration:
        """Make the device the active one.

        Raises ValueError if there is no such device, RuntimeError if it does not work.
        """
        from torch_backend.devices.suppression import suppressed

        with suppressed():  # `import torch` alone might activate another one
            import torch
        # What a device computes is compared with the CPU's results, which are those of whole factors.
        torch.backends.cudnn.allow_tf32 = False
        from torch_backend.devices import activation, loading
        from torch_backend.files import location

        device = self.device
        plugin = activation.activate(loading.load(device) if location.is_path(device) else device)
        for module in self.modules:
            importlib.import_module(module)
        return _declaration_of(plugin)

    def module(self) -> ModuleType:
        """``torch.<name>``, which has all that CUDA's has."""
        import torch

        module: ModuleType = torch.get_device_module()
        return module

    def calls(self) -> Calls:
        """As torch_backend has counted them."""
        from torch_conformance.sources.exact import Counted

        return Counted()


def declaration_of_active() -> Declaration:
    """What the device declares that torch_backend has active. Raises RuntimeError if there is none."""
    from torch_backend.devices import activation

    plugin = activation.active()
    if plugin is None:
        raise RuntimeError("No device is active: call torch_conformance.routes.activate() first.")
    return _declaration_of(plugin)


def _declaration_of(plugin: "Plugin") -> Declaration:
    """What the active device declares. Starts its driver."""
    from torch_conformance.features import FEATURES, has_activity

    devices = [plugin.device_properties(index) for index in range(plugin.device_count())]
    capabilities = frozenset.intersection(*(device.capabilities for device in devices))
    dtypes = (frozenset(str(dtype).removeprefix("torch.") for dtype in device.dtypes) for device in devices)
    tables = frozenset(plugin.tables)
    features: dict[str, str | None] = dict.fromkeys(set(FEATURES) - set(_ASKED))
    features |= _lacking(_OF_CAPABILITY, capabilities, "the device does not declare TB_CAP_{}")
    features |= _lacking(_OF_TABLE, tables, "the device library has no table {}")
    features["memory limits"] = _unknown_memory(plugin.name)
    features["inductor"] = FEATURES["compile"].lacks(plugin.name)  # without code generation graphs run as captured
    features["profiler"] = has_activity(plugin.name)  # with that, work which is not shown is a fault
    return Declaration(
        name=plugin.name,
        device_count=len(devices),
        dtypes=frozenset.intersection(*dtypes),
        features=features,
        capabilities=capabilities,
        tables=tables,
    )


def _unknown_memory(device: str) -> str | None:
    """What torch says of a device that does not say how much memory it has; None for one that does."""
    import torch

    try:
        getattr(torch, device).mem_get_info()
    except NotImplementedError as error:
        return str(error).partition("\n")[0]
    except Exception:  # which the tests find
        return None
    return None


def _lacking(needed: Mapping[str, str], there: frozenset[str], why: str) -> dict[str, str]:
    return {feature: why.format(name) for feature, name in needed.items() if name not in there}


def _refuse_unknown(options: Mapping[str, str], device: str, environment: Mapping[str, str]) -> None:
    from torch_backend.diagnosis import STEP_SECONDS, option_keys

    known = option_keys(device, environment, STEP_SECONDS)
    if known is None:
        return
    spelled = {key.upper(): key for key in known}
    for key in options:
        if key.upper() not in spelled:
            similar = difflib.get_close_matches(key.upper(), spelled, n=1)
            hint = f" Did you mean {spelled[similar[0]]}?" if similar else ""
            has = f"It has {', '.join(known)}." if known else "It has none."
            raise ValueError(f"The device '{device}' has no option '{key}'.{hint} {has}")
