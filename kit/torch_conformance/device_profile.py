"""What a device's makers say of it that cannot be asked: a TOML file, such as ``acme.toml``.

::

    device = "acme"                       # the torch device name
    modules = ["torch_acme"]              # what brings it to PyTorch
    dtypes = ["float32", "bfloat16"]     # what it computes in; without it, all that it stores

    [features]
    streams = true                       # it has them: tests about them have to pass
    nested = "not before driver 9"       # it has not, and why

    [environment]
    ACME_LAUNCH_BLOCKING = "1"

    [fallback]
    events = ["acme::cpu_fallback"]       # what its own fallback to the CPU shows in a profile

    [[known]]                            # known failures, as torch_conformance.expectations describes
    test = "ops/test_forward.py::*linalg_eig*"
    reason = "due in driver 9"

Every key may be left out.
"""

import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from torch_conformance.features import FEATURES

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

KEYS = frozenset({"device", "modules", "dtypes", "features", "environment", "fallback", "known"})
"""What the file may have."""


@dataclass(frozen=True)
class Profile:
    """What the file says.

    Attributes:
        device: the torch device name; None if it is not said.
        modules: what to import.
        dtypes: what the device computes in; None if it is not said.
        features: by the name of a feature, why the device has not got it, or None where it has.
        environment: variables for all processes.
        fallback_events: names of events that only calls which the CPU served have in a profile.
        path: of the file; None without one.
    """

    device: str | None = None
    modules: tuple[str, ...] = ()
    dtypes: frozenset[str] | None = None
    features: Mapping[str, str | None] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    fallback_events: tuple[str, ...] = ()
    path: str | None = None

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> "Profile":
        """From what :meth:`to_json` gave."""
        dtypes = fields["dtypes"]
        return cls(
            **{
                **fields,
                "modules": tuple(fields["modules"]),
                "dtypes": None if dtypes is None else frozenset(dtypes),
                "fallback_events": tuple(fields["fallback_events"]),
            }
        )

    def to_json(self) -> dict[str, Any]:
        """As JSON's types."""
        return {**asdict(self), "dtypes": None if self.dtypes is None else sorted(self.dtypes)}


def read(path: Path) -> Profile:
    """The profile in a file.

    Raises ValueError, naming the file and the key, for one that is not as described above; OSError if there is none.
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path} is not TOML: {error}.") from None
    if unknown := sorted(set(content) - KEYS):
        raise ValueError(f"{path} has the key '{unknown[0]}'; expected {', '.join(sorted(KEYS))}.")
    fallback = _typed(content, "fallback", dict, path)
    if unknown := sorted(set(fallback) - {"events"}):
        raise ValueError(f"{path} has the key 'fallback.{unknown[0]}'; expected fallback.events.")
    return Profile(
        device=_typed(content, "device", str, path) or None,
        modules=_strings(content, "modules", path),
        dtypes=frozenset(_strings(content, "dtypes", path)) if "dtypes" in content else None,
        features=_features(_typed(content, "features", dict, path), path),
        environment={key: str(value) for key, value in _typed(content, "environment", dict, path).items()},
        fallback_events=_strings(fallback, "events", path),
        path=str(path),
    )


def _typed(content: Mapping[str, Any], key: str, kind: type[Any], path: Path) -> Any:
    value = content.get(key, kind())
    if not isinstance(value, kind):
        expected = {"str": "a string", "dict": "a table", "list": "a list of strings"}[kind.__name__]
        raise ValueError(f"{path}: {key} is {value!r}; expected {expected}.")
    return value


def _strings(content: Mapping[str, Any], key: str, path: Path) -> tuple[str, ...]:
    values = _typed(content, key, list, path)
    if wrong := [value for value in values if not isinstance(value, str)]:
        raise ValueError(f"{path}: {key} has {wrong[0]!r}; expected a list of strings.")
    return tuple(values)


def _features(said: Mapping[str, Any], path: Path) -> dict[str, str | None]:
    if unknown := sorted(set(said) - set(FEATURES)):
        raise ValueError(f"{path} has the feature '{unknown[0]}'. There are {', '.join(FEATURES)}.")
    found: dict[str, str | None] = {}
    for name, value in said.items():
        if value is not True and value is not False and not (isinstance(value, str) and value):
            raise ValueError(f"{path}: features.{name} is {value!r}; expected true, false, or why it is not there.")
        found[name] = None if value is True else value or "its profile says that the device has not got it"
    return found
