"""Which Triton backend a device has: what vendors say, in a call or in an entry point."""

import sys
from dataclasses import dataclass
from importlib import metadata

ENTRY_POINT_GROUP = "torch_backend.triton"


@dataclass(frozen=True)
class TritonBackend:
    """The two classes that Triton asks of who compiles for a device, each a class or where it is, "module:Class".

    Modules are imported once somebody imports triton.

    Attributes:
        driver: a ``triton.backends.driver.DriverBase``: the target that kernels are compiled for, and how they are
            loaded and launched. :class:`torch_backend.triton.driver.DeviceDriver` has the rest.
        compiler: a ``triton.backends.compiler.BaseBackend``: the stages from Triton's IR to what the driver loads.
    """

    driver: str | type
    compiler: str | type


_registered: dict[str, TritonBackend] = {}


def register(device: str, backend: TritonBackend) -> None:
    """Say that ``backend`` serves the device called ``device``. Before the device is used with Triton or the compiler.

    The same backend may be registered again. Raises RuntimeError if the device has another one, or if Triton or
    PyTorch's compiler was imported while the device was active: they have been told. Threads: one at a time.
    """
    if _registered.get(device, backend) != backend:
        raise RuntimeError(
            f"{backend} cannot be registered for '{device}', which has {_registered[device]} already. A device has one "
            "Triton backend: remove one of the two registrations."
        )
    if device not in _registered and (module := _told(device)):
        raise RuntimeError(
            f"A Triton backend for '{device}' comes too late: {module} was imported, and knows what serves the device. "
            f"Register it before, or name it in an entry point in the group '{ENTRY_POINT_GROUP}'."
        )
    _registered[device] = backend


def _told(device: str) -> str | None:
    torch = sys.modules.get("torch")
    if torch is None or torch._C._get_privateuse1_backend_name() != device:
        return None
    return next((name for name in ("triton", "torch._inductor.compile_fx") if name in sys.modules), None)


def declared(device: str) -> TritonBackend | None:
    """What serves the device, or None if nobody has said so.

    Raises what loading an entry point raises, and TypeError if what it names is no :class:`TritonBackend`.
    """
    if device in _registered:
        return _registered[device]
    for point in metadata.entry_points(group=ENTRY_POINT_GROUP, name=device):
        value = point.load()
        if not isinstance(value, TritonBackend):
            raise TypeError(f"the entry point names a {type(value).__name__}, not a torch_backend.triton.TritonBackend")
        return value
    return None
