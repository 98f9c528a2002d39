"""The CPU fallback: which operators may use it, and which did.

An operator that the device has no kernel for runs on the CPU. That costs a copy to the host and back where the host
cannot use the device's memory, so it is counted, and can be made to warn or to fail, for all operators or for one::

    torch_backend.fallback.set_policy(None, "error")             # nothing may fall back,
    torch_backend.fallback.set_policy("aten::sort", "allow")     # but sort
    with torch_backend.fallback.policy(None, "warn"): ...
    print(torch_backend.fallback.report())
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, get_args

import torch

from torch_backend.files import native

native.require()
from torch_backend import _C  # noqa: E402  # after require(), which explains a failure
from torch_backend.operators import names  # noqa: E402
from torch_backend.operators.names import Operator  # noqa: E402

Policy = Literal["allow", "warn", "error"]

_ALL_OTHERS = ""


def set_policy(op: Operator | None, policy: Policy) -> None:
    """Say what happens when an operator is about to run on the CPU instead of the device.

    Args:
        op: an operator ("aten::sort", ``torch.ops.aten.sort``), one of its overloads ("aten::sort.stable",
            ``torch.ops.aten.sort.stable``), or None for every operator that has no policy of its own.
        policy: "allow"; "warn", a UserWarning per call, of which Python shows the first; or "error", which raises
            NotImplementedError.

    An overload's policy goes before its operator's. For the process. Threads: any.

    Raises ValueError for an operator that does not exist, with the names that are close.
    """
    if policy not in get_args(Policy):
        raise ValueError(f"policy is {policy!r}; expected one of {', '.join(map(repr, get_args(Policy)))}.")
    _C.fallback_set_policy(_key_of(op), policy)


def get_policies() -> dict[str | None, str]:
    """The policies in force by operator; None is for every other operator."""
    return {key or None: policy for key, policy in _C.fallback_get_policies().items()}


@contextmanager
def policy(op: Operator | None, policy: Policy) -> Iterator[None]:
    """:func:`set_policy` inside a with statement; afterwards the operator has the policy it had. For the process."""
    key = _key_of(op)
    before = _C.fallback_get_policies().get(key, "")
    set_policy(op, policy)
    try:
        yield
    finally:
        _C.fallback_set_policy(key, before)


def _key_of(op: Operator | None) -> str:
    if op is None:
        return _ALL_OTHERS
    if isinstance(op, torch._ops.OpOverload):
        return str(op.name())  # type: ignore[no-untyped-call]
    if isinstance(op, torch._ops.OpOverloadPacket):
        return str(op._qualified_op_name)
    if not isinstance(op, str):
        raise TypeError(f"op is {op!r}; expected an operator's name, an operator of torch.ops, or None.")
    if op not in names.known():
        raise ValueError(f"There is no operator '{op}'.{names.suggestion(op)}")
    return op


@dataclass(frozen=True)
class FallbackEntry:
    """What one operator overload did on the CPU.

    Attributes:
        op: the overload.
        calls: how often.
        bytes_copied: between device and host; 0 where the host uses the device's memory.
        seconds: of the host, copies and waiting for the device included.
    """

    op: str
    calls: int
    bytes_copied: int
    seconds: float = 0.0


@dataclass(frozen=True)
class FallbackReport:
    """Every operator overload that ran on the CPU since the last :func:`reset`, most calls first."""

    entries: tuple[FallbackEntry, ...]

    @property
    def calls(self) -> int:
        """Calls of all operators."""
        return sum(entry.calls for entry in self.entries)

    @property
    def bytes_copied(self) -> int:
        """Bytes copied between device and host for all operators."""
        return sum(entry.bytes_copied for entry in self.entries)

    @property
    def seconds(self) -> float:
        """Seconds of all operators."""
        return sum(entry.seconds for entry in self.entries)

    def __iter__(self) -> Iterator[FallbackEntry]:
        """The entries."""
        return iter(self.entries)

    def __len__(self) -> int:
        """Number of operator overloads."""
        return len(self.entries)

    def __str__(self) -> str:
        """A table, with the total in the last line."""
        if not self.entries:
            return "No operator fell back to the CPU."
        rows = [*self.entries, FallbackEntry("total", self.calls, self.bytes_copied, self.seconds)]
        width = max(len("operator"), *(len(row.op) for row in rows))
        lines = [f"{'operator':<{width}}  {'calls':>10}  {'bytes copied':>14}  {'seconds':>10}"]
        lines += [f"{row.op:<{width}}  {row.calls:>10,}  {row.bytes_copied:>14,}  {row.seconds:>10.4f}" for row in rows]
        return "\n".join(lines)


def report() -> FallbackReport:
    """What ran on the CPU instead of the device since the last :func:`reset`. Threads: any."""
    return FallbackReport(tuple(FallbackEntry(*entry) for entry in _C.fallback_report()))


def reset() -> None:
    """Forget what :func:`report` returns. Policies stay."""
    _C.fallback_reset()
