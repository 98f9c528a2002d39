"""The device library as the tests without torch see it."""

from torch_backend.abi import Capability, DeviceLibrary, dtypes_in
from torch_backend.devices import selection
from torch_backend.files import location
from torch_conformance.declaration import Declaration


def open_library(device: str) -> tuple[DeviceLibrary, Declaration]:
    """Open the library of ``device``, a place or a name, start its driver, and read what it declares.

    Raises ValueError if there is no such device, LibraryError or DeviceError if it does not work.
    """
    library = DeviceLibrary.open(library_path(device))
    library.initialize()
    return library, declaration_of(library)


def library_path(device: str) -> str:
    """The path of a device's library, or "module:Class"; ``device`` is that or a name.

    Raises ValueError if there is no such device, or if only its package, which may need torch, knows the path.
    """
    if location.is_place(device):
        return device
    path = selection.find(device).path
    if path is None:
        raise ValueError(f"Where the library of '{device}' lies is known to its package alone: name its path instead.")
    return path


def declaration_of(library: DeviceLibrary) -> Declaration:
    """What the device library declares."""
    dtypes = [dtypes_in(device.properties.dtype_mask) for device in library.devices]
    return Declaration(
        name=library.name,
        device_count=library.device_count,
        capabilities=Capability.names(library.capabilities),
        dtypes=frozenset.intersection(*dtypes) if dtypes else frozenset(),
        tables=frozenset(library.tables),
        slots=frozenset(library.core),
    )
