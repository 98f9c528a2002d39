"""Who served the calls of operators on the device: a kernel of its own, a generated one, others, or the CPU."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Literal, Protocol

Source = Literal["plugin", "native", "extension", "generated", "aten", "composite", "fallback"]
"""As :data:`torch_backend.operators.SOURCES` says; of other devices than its, "native", "composite" and "fallback" are
known."""


@dataclass(frozen=True)
class Call:
    """An operator that ran on the device.

    Attributes:
        op: the overload, "aten::add.Tensor"; without the overload's name where that is not known.
        source: what served it.
    """

    op: str
    source: Source


@dataclass
class Seen:
    """What ran in a block of code.

    Attributes:
        calls: the operators that kernels served or the CPU did, without those that only call others.
        fallbacks: by overload that the CPU served: calls, bytes copied between device and host, and seconds. Bytes are
            0 where they are not known.
    """

    calls: list[Call] = field(default_factory=list)
    fallbacks: Mapping[str, tuple[float, float, float]] = field(default_factory=dict)


class Calls(Protocol):
    """Notes the calls of operators on the active device."""

    def noted(self) -> AbstractContextManager[Seen]:
        """Note the calls of a block of code, in its threads too; what is yielded is filled when the block ends."""
        ...
