"""What the files of the libraries have in common: versions, when to act, and one warning if that is not possible."""

import functools
import importlib.metadata
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType

from torch_backend.compat import cuda_code
from torch_backend.compat.after_import import OnImport


@dataclass(frozen=True)
class Library:
    """How one library is adapted.

    Attributes:
        name: the package that is imported, and what it is called in messages.
        versions: those that were tried: from the first, up to but without the second.
        cuda_code: by module, the functions that name CUDA and shall mean the device; empty: all in the module. See
            :mod:`torch_backend.compat.cuda_code`.
        actions: by module, what else is to be done with it, called with the module and the device's name. An action
            that raises LookupError or AttributeError says that the library is not as expected.
        distributions: what it may be called where packages are installed, beside ``name``.
    """

    name: str
    versions: tuple[str, str]
    cuda_code: Mapping[str, Sequence[str]] = field(default_factory=dict)
    actions: Mapping[str, Callable[[ModuleType, str], None]] = field(default_factory=dict)
    distributions: tuple[str, ...] = ()

    def adapted_to(self, device: str) -> Iterator[OnImport]:
        """What lets the library choose ``device``, for each of its modules."""
        for module in {**self.cuda_code, **self.actions}:
            yield OnImport(
                module,
                functools.partial(self._adapt_module, module, device),
                as_main=functools.partial(cuda_code.retargeted, device=device) if module in self.cuda_code else None,
            )

    def _adapt_module(self, name: str, device: str) -> None:
        if reason := self.not_tried():
            self._warn(device, reason)
            return
        module = sys.modules[name]
        try:
            if name in self.cuda_code:
                cuda_code.retarget_module(module, self.cuda_code[name], device)
            if name in self.actions:
                self.actions[name](module, device)
        except (AttributeError, LookupError) as error:
            self._warn(device, f"{name} of version {self._version()} is not as expected: {error}")

    def not_tried(self) -> str | None:
        """Why the installed version is left alone; None if it is one that was tried."""
        version = self._version()
        if _parse(self.versions[0]) <= _parse(version) < _parse(self.versions[1]):
            return None
        return f"tried with {self.versions[0]} up to, not including, {self.versions[1]}, it is {version}"

    def _version(self) -> str:
        for distribution in (*self.distributions, self.name):
            try:
                return importlib.metadata.version(distribution)
            except importlib.metadata.PackageNotFoundError:
                continue
        return str(getattr(sys.modules.get(self.name), "__version__", "0"))

    def _warn(self, device: str, reason: str) -> None:
        if self.name in _warned:
            return
        _warned.add(self.name)
        warnings.warn(
            f"{self.name} may leave the active device '{device}' unused: torch_backend could not adapt it ({reason}). "
            "Name the device where the library lets you. (TORCH_BACKEND_INTEGRATIONS="
            f"-{self.name} hides this, and leaves the library alone.)",
            RuntimeWarning,
            stacklevel=2,
        )


_warned: set[str] = set()


def _parse(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version.split("+")[0])[:3])
