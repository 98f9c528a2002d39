"""What PyTorch's list has that cannot be tried on every device, or not like the rest. Every row says why."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from fnmatch import fnmatchcase


@dataclass(frozen=True)
class Row:
    """Tests that are left out.

    Attributes:
        operator: a pattern of the entry's full name.
        reason: the evidence, a sentence.
        parts: what is left out; nothing means everything.
        dtypes: for which dtypes; nothing means for all.
        samples: which samples; None means all of them, and so the test.
    """

    operator: str
    reason: str
    parts: frozenset[str] = frozenset()
    dtypes: frozenset[str] = frozenset()
    samples: Callable[[Collection[object]], bool] | None = None

    def matches(self, operator: str, dtype: str, part: str) -> bool:
        """Whether the row is about such a test."""
        return (
            fnmatchcase(operator, self.operator)
            and (not self.parts or part in self.parts)
            and (not self.dtypes or dtype in self.dtypes)
        )


ROWS = (
    Row(
        "jiterator_*", "PyTorch compiles jiterator's operators with CUDA's compiler, there is nothing for other devices"
    ),
    Row("bmm.triton_optimized", "PyTorch has this kernel for CUDA alone"),
    Row(
        "add",
        "PyTorch's meta function for all other devices than the CPU asks the dtype of out= whether alpha may be a bool",
        parts=frozenset({"out"}),
        dtypes=frozenset({"bool"}),
        samples=lambda arguments: any(argument is True for argument in arguments),
    ),
    Row(
        "sparse.mm.reduce",
        "torch_backend refuses gradients of torch.sparse.mm with reduce='amax' or 'amin': the CPU's kernel keeps which "
        "elements won only for arguments that require gradients, and the fallback's copies do not",
        parts=frozenset({"backward"}),
        samples=lambda arguments: "amax" in arguments or "amin" in arguments,
    ),
    Row(
        "*",
        "PyTorch computes with complex32 on CUDA alone, and warns that it is an experiment there",
        parts=frozenset({"dtypes of CUDA"}),
        dtypes=frozenset({"complex32"}),
    ),
    Row(
        "fft.*",
        "PyTorch's functions refuse halves on all devices but CUDA and XPU before they ask the device",
        parts=frozenset({"dtypes of CUDA"}),
        dtypes=frozenset({"float16"}),
    ),
)


def reason_to_leave_out(operator: str, dtype: str, part: str) -> str | None:
    """Why there can be no such test; None if there can."""
    rows = (row for row in ROWS if row.samples is None and row.matches(operator, dtype, part))
    return next((row.reason for row in rows), None)


def leaves_out_sample(operator: str, dtype: str, part: str, arguments: Collection[object]) -> str | None:
    """Why a sample with these arguments, tensors left out, cannot be tried; None if it can."""
    rows = (row for row in ROWS if row.samples is not None and row.matches(operator, dtype, part))
    return next((row.reason for row in rows if row.samples is not None and row.samples(arguments)), None)


OTHER_EXCEPTIONS: dict[str, tuple[type[Exception], str]] = {
    "narrow_copy": (
        IndexError,
        "PyTorch's narrow_copy for all other devices than the CPU checks its arguments otherwise, in other words",
    ),
}
"""Entries that raise another exception than the CPU by PyTorch's own doing, with the reason."""
