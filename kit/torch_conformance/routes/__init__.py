"""How the kit comes to a device: any that PyTorch knows by name, or one that torch_backend brings to it.

A route is picked on the command line, and goes along to every process that runs tests.
"""

import json
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any, Protocol

from torch_conformance.declaration import Declaration
from torch_conformance.expectations import Expectation
from torch_conformance.report.findings import DeviceDescription
from torch_conformance.sources import Calls


class NoSuchDevice(ValueError):
    """The route leads to no device."""

    EXIT_CODE = 3
    """Of a process that was to ask one; it prints the reason."""


class Route(Protocol):
    """A way to a device. It is pickled for other processes, and written as JSON on their command lines."""

    @property
    def device(self) -> str:
        """What the user calls the device."""
        ...

    @property
    def modules(self) -> tuple[str, ...]:
        """What is imported for the device."""
        ...

    @property
    def options(self) -> Mapping[str, str]:
        """What the device library is told, by key."""
        ...

    def command(self) -> list[str]:
        """The words of a command that checks the device, but for which tests."""
        ...

    def known_failures(self, found: DeviceDescription) -> tuple[Expectation, ...]:
        """What its makers say that fails; ``found``: the device as it was described. Raises as reading a file does."""
        ...

    def environment(self) -> dict[str, str]:
        """What the processes of a run get. Raises ValueError for what the device does not understand."""
        ...

    def describe(self, environment: Mapping[str, str], seconds: float) -> DeviceDescription:
        """What the device is, asked in another process, which it may crash. Its ``error`` says what went wrong.

        ``seconds``: how long that process may be silent. Raises NoSuchDevice if there is none.
        """
        ...

    def activate(self) -> Declaration:
        """Bring the device into this process, and ask it what it has.

        Raises ValueError if there is no such device, and what its modules raise if it does not work.
        """
        ...

    def module(self) -> ModuleType:
        """``torch.<name>`` of the device, which is active, for tests."""
        ...

    def calls(self) -> Calls:
        """Who serves the calls of operators on the device, which is active."""
        ...

    def to_json(self) -> dict[str, Any]:
        """What :func:`parse` makes the route of again."""
        ...


def text_of(route: Route) -> str:
    """The route on one line."""
    return json.dumps({"route": type(route).__name__, **route.to_json()})


def parse(text: str, imports: Sequence[str] = ()) -> Route:
    """The route that :func:`text_of` has written; any other text is what torch_backend knows a device by.

    ``imports``: modules to import after such a device.
    """
    from torch_conformance.routes.library import Library
    from torch_conformance.routes.pytorch import InPyTorch

    if not text.startswith("{"):
        return Library(text, tuple(imports))
    fields = json.loads(text)
    kinds: dict[str, Any] = {kind.__name__: kind for kind in (Library, InPyTorch)}
    route: Route = kinds[fields.pop("route")].of(**fields)
    return route


_gone: tuple[Route, Declaration] | None = None


def activate(route: Route) -> Declaration:
    """Go it in this process, and ask the device what it has."""
    global _gone
    _gone = route, route.activate()
    return _gone[1]


def of_this_process() -> Route:
    """The route that was gone in this process; without one, that to the device which torch_backend has active."""
    return _way()[0]


def active() -> Declaration:
    """What the active device has."""
    return _way()[1]


def has(feature: str) -> bool:
    """Whether the active device has it, one of :data:`torch_conformance.features.FEATURES`."""
    return active().lacks("feature", feature) is None


def _way() -> tuple[Route, Declaration]:
    global _gone
    if _gone is None:
        from torch_conformance.routes import library

        _gone = library.Library(""), library.declaration_of_active()
    return _gone
