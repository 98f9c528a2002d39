"""The way to any device that PyTorch has: in its own tree, or brought by a module that is imported.

What such a device has it need not declare: it is asked, see :mod:`torch_conformance.features`.
"""

import importlib
import json
import os
import subprocess
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

from torch_conformance import device_profile, expectations, modules, patience, routes
from torch_conformance.declaration import Declaration
from torch_conformance.device_profile import Profile
from torch_conformance.expectations import Expectation
from torch_conformance.report.findings import DeviceDescription
from torch_conformance.routes import NoSuchDevice
from torch_conformance.sources import Calls


@dataclass(frozen=True)
class InPyTorch:
    """A device by its torch name.

    Attributes:
        device: the name, without an index: "acme".
        modules: what to import first, which brings the device to PyTorch; nothing for one in its tree.
        profile: what its makers say of it.
        strict: whether it has to have all that CUDA has.
    """

    device: str
    modules: tuple[str, ...] = ()
    profile: Profile = field(default_factory=Profile)
    strict: bool = False

    @classmethod
    def of(cls, device: str, modules: list[str], profile: Mapping[str, Any], strict: bool) -> "InPyTorch":
        """From JSON."""
        return cls(device, tuple(modules), Profile.of(profile), strict)

    def to_json(self) -> dict[str, Any]:
        """The fields."""
        return {
            "device": self.device,
            "modules": self.modules,
            "profile": self.profile.to_json(),
            "strict": self.strict,
        }

    @property
    def options(self) -> Mapping[str, str]:
        """None: there is no device library."""
        return {}

    def environment(self) -> dict[str, str]:
        """This process's environment, with the profile's, and without devices that come by themselves."""
        return {**os.environ, **self.profile.environment, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}

    def command(self) -> list[str]:
        """``torch-conformance check``, with what the device needs."""
        words = ["python", "-m", "torch_conformance", "check", "--device", self.device]
        words += [word for module in self.modules for word in ("--module", module)]
        words += ["--profile", self.profile.path] if self.profile.path is not None else []
        return [*words, *(["--strict"] if self.strict else [])]

    def known_failures(self, found: DeviceDescription) -> tuple[Expectation, ...]:
        """Those in the profile."""
        path = self.profile.path
        return expectations.read(Path(path), found.name, device_profile.KEYS) if path is not None else ()

    def describe(self, environment: Mapping[str, str], seconds: float) -> DeviceDescription:
        """What the device is, asked in another process, which it may crash. Its ``error`` says what went wrong."""
        limit = patience.seconds(6 * seconds)  # for imports too
        try:
            process = subprocess.run(
                modules.command("torch_conformance.routes.description", routes.text_of(self)),
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=limit,
                check=False,
            )
        except subprocess.TimeoutExpired:
            error = f"A process that asks the device '{self.device}' what it has did not end within {limit:.0f} s."
            return DeviceDescription(self.device, is_library=False, error=error)
        lines = process.stdout.splitlines()
        if process.returncode == 0 and lines:
            return DeviceDescription.from_json(json.loads(lines[-1]))
        if process.returncode == NoSuchDevice.EXIT_CODE:
            raise NoSuchDevice(lines[-1])
        ending = f"ended with {process.returncode}:\n" + "\n".join(process.stderr.strip().splitlines()[-20:])
        error = f"A process that asks the device '{self.device}' what it has {ending}"
        return DeviceDescription(self.device, is_library=False, error=error)

    def activate(self) -> Declaration:
        """Import torch and the modules, and ask the device.

        Raises ImportError for a module that is not there, ValueError if PyTorch then has no such device.
        """
        os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"  # what is tested is what was named
        import torch

        torch.backends.cudnn.allow_tf32 = False  # as the CPU multiplies
        for module in self.modules:
            importlib.import_module(module)
            if not _is_known(self.device):
                _load_as_torch_does(module)
        try:
            torch.empty(1, device=self.device)
        except Exception as error:
            first = str(error).strip().partition("\n")[0]
            imported = f" with {', '.join(self.modules)}" if self.modules else ""
            raise ValueError(f"torch{imported} has no working device '{self.device}': {first}") from None
        from torch_conformance.synchronization import can_wait

        can_wait(self.device)  # which is found out while nothing has failed yet
        return Declaration(
            name=self.device,
            device_count=device_count(self.device),
            dtypes=self.profile.dtypes if self.profile.dtypes is not None else stored_dtypes(self.device),
            features={} if self.strict else self.profile.features,
            strict=self.strict,
        )

    def module(self) -> ModuleType:
        """``torch.<name>``; a member that it lacks ends the test, unless the device has to have all."""
        import torch

        module = getattr(torch, self.device, None)
        return module if self.strict and module is not None else PartialModule(module, self.device)

    def calls(self) -> Calls:
        """As PyTorch has seen them."""
        from torch_conformance.sources.profiled import Profiled

        return Profiled(self.device, self.profile.fallback_events)


def _is_known(device: str) -> bool:
    import torch

    try:
        torch.device(device)
    except RuntimeError:
        return False
    return True


def _load_as_torch_does(module: str) -> None:
    """Call what the package has for ``import torch``, if importing it is not enough."""
    for point in metadata.entry_points(group="torch.backends"):
        if point.module.partition(".")[0] == module:
            point.load()()


def device_count(name: str) -> int:
    """How many devices of this name there are, as ``torch.<name>`` says; 1 where it does not."""
    import torch

    count = getattr(getattr(torch, name, None), "device_count", None)
    return int(count()) if callable(count) else 1


def device_name(name: str, index: int = 0) -> str | None:
    """What the device is called, as ``torch.<name>`` says; None where it does not."""
    import torch

    asked = getattr(getattr(torch, name, None), "get_device_name", None)
    return str(asked(index)) if callable(asked) else None


def stored_dtypes(name: str) -> frozenset[str]:
    """The dtypes whose values the device keeps."""
    import torch

    found = {dtype for dtype in vars(torch).values() if isinstance(dtype, torch.dtype)}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="ComplexHalf support is experimental")
        return frozenset(str(dtype).removeprefix("torch.") for dtype in found if _stores(name, dtype))


def _stores(name: str, dtype: Any) -> bool:
    import torch

    try:
        host = torch.tensor([0, 1, 2, 3]).to(dtype)
        back = host.to(name).cpu()
    except Exception:  # such as those of quantized dtypes
        return False
    return back.dtype is dtype and torch.equal(back.view(torch.uint8), host.view(torch.uint8))


class PartialModule(ModuleType):
    """``torch.<name>`` of a device that may be without some of its functions.

    Instead of these it has what PyTorch has for every accelerator. Asking for what there is not ends the test.
    """

    def __init__(self, module: ModuleType | None, name: str) -> None:
        """``module``: what there is of it."""
        super().__init__(f"torch.{name}")
        self.__dict__["_module"] = module

    def __getattr__(self, member: str) -> Any:
        """Of the module."""
        from torch_conformance import accelerator, needs

        module = self.__dict__["_module"]
        if module is not None and hasattr(module, member):
            return getattr(module, member)
        found = accelerator.equivalent(self.__name__.removeprefix("torch."), member)
        return needs.not_offered(f"{self.__name__} has no {member}") if found is None else found

    def __eq__(self, other: object) -> bool:
        """Whether it is the module."""
        return other is self or other is self.__dict__["_module"]

    __hash__ = ModuleType.__hash__
