"""How a C struct is written here: as a class whose annotations are both the Python and the C types of its fields.

@c_struct
class tb_device_id(ctypes.Structure):
    type: I32
    index: I32
"""

import ctypes
import inspect
from typing import Annotated, Any, TypeVar, get_type_hints

I32 = Annotated[int, ctypes.c_int32]
I64 = Annotated[int, ctypes.c_int64]
U8 = Annotated[int, ctypes.c_uint8]
U16 = Annotated[int, ctypes.c_uint16]
U32 = Annotated[int, ctypes.c_uint32]
U64 = Annotated[int, ctypes.c_uint64]
F64 = Annotated[float, ctypes.c_double]

Pointer = Annotated[int | None, ctypes.c_void_p]
"""Any pointer, as an address; None is NULL."""

Text = Annotated[bytes | None, ctypes.c_char_p]
"""A NUL-terminated string; None is NULL."""

Function = Any
"""A function pointer: false if it is NULL, and callable if not."""

STATUS = ctypes.c_int32

_Type = TypeVar("_Type", bound=type)


def function(result: Any, *arguments: Any) -> Any:
    """The type of pointers to functions of C."""
    return ctypes.CFUNCTYPE(result, *arguments)


def slot(*arguments: Any) -> Any:
    """The type of pointers to functions that return a tb_status."""
    return function(STATUS, *arguments)


def out(c_type: Any) -> Any:
    """The type of an out-parameter."""
    return ctypes.POINTER(c_type)


def c_struct(cls: _Type) -> _Type:
    """Give a ctypes.Structure or Union the fields that its annotations say."""
    hints = get_type_hints(cls, include_extras=True)
    fields = [(name, _c_type(hints[name])) for name in inspect.get_annotations(cls)]
    cls._fields_ = fields  # type: ignore[attr-defined]
    return cls


def _c_type(hint: Any) -> Any:
    return hint.__metadata__[0] if hasattr(hint, "__metadata__") else hint
