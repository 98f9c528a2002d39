"""Where each operator's kernel for the active device comes from."""

from typing import Literal, cast

from torch_backend import _C

Source = Literal["plugin", "generated", "native", "aten", "extension", "composite", "fallback", "unavailable"]

SOURCES: tuple[Source, ...] = ("plugin", "generated", "native", "aten", "extension", "composite", "fallback")
"""Where a kernel that can be called comes from: the device library; this package's text,
which the device compiles; this package's own; ATen's CPU kernel on the
device's memory; somebody's registration with torch.library; other operators; the CPU fallback."""


def operator_sources() -> dict[str, Source]:
    """Every operator overload that the dispatcher knows, by name, and where its kernel for the device comes from.

    "unavailable" means that a call raises NotImplementedError.
    """
    return cast("dict[str, Source]", _C.operator_sources())
