"""Tables of functions as another binary filled them: what it set, and nothing past what it says it filled."""

import ctypes
from collections.abc import Iterator
from typing import Any

from torch_backend.abi.structs import slots_of

_FUNCTION = type(ctypes.CFUNCTYPE(None))  # the metaclass of all types of function pointers


class Table:
    """A copy of a table that starts with struct_size.

    Its attributes are the fields of the struct: functions that can be called, and None for those that are NULL or lie
    past the table's struct_size.

    Attributes:
        address: where the table lies.
        declared_size: the struct_size it declares.
    """

    def __init__(self, struct: type[ctypes.Structure], address: int) -> None:
        """Copy the table at ``address``."""
        self.address = address
        self.declared_size = ctypes.c_uint64.from_address(address).value
        self._struct = struct
        self._copy = struct()
        ctypes.memmove(ctypes.byref(self._copy), address, min(self.declared_size, ctypes.sizeof(struct)))
        for field in struct._fields_:
            value = getattr(self._copy, field[0])
            setattr(self, field[0], value if not isinstance(field[1], _FUNCTION) or value else None)

    def __getattr__(self, name: str) -> Any:
        """Tell the type checker that there are attributes, and the user that one is not."""
        raise AttributeError(f"{self._struct.__name__} has no field {name}")

    def __contains__(self, slot: str) -> bool:
        """Whether the slot is set."""
        return getattr(self, slot) is not None

    def __iter__(self) -> Iterator[str]:
        """The slots that are set, in their order."""
        return (name for name in slots_of(self._struct) if name in self)

    @property
    def lacks(self) -> list[str]:
        """The slots that such a table needs and that are not set."""
        return [name for name in slots_of(self._struct, "required") if name not in self]


def type_of(struct: type[ctypes.Structure], field: str) -> Any:
    """The type of a field, such as that of pointers to a slot's function."""
    return next(entry[1] for entry in struct._fields_ if entry[0] == field)


def end_of(struct: type[ctypes.Structure], field: str) -> int:
    """The struct_size of a table that ends with this field."""
    descriptor = getattr(struct, field)
    return int(descriptor.offset + descriptor.size)
