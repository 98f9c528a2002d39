"""How far a device's result may be from the CPU's, and why."""

from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache

import torch
from torch.testing._comparison import default_tolerances
from torch.testing._internal.common_device_type import precisionOverride, tol, toleranceOverride
from torch.testing._internal.opinfo.core import OpInfo

from ._entries import dtype_name, full_name


@dataclass(frozen=True)
class Row:
    """More than torch.testing allows, for some operators.

    Attributes:
        operators: patterns of full names.
        dtypes: of the arguments.
        reason: why a right result can be so far off.
        rtol: what is allowed; None means what torch.testing allows for the dtype.
        of_largest: whether rtol is relative to the largest element of the result, not to each.
    """

    operators: tuple[str, ...]
    dtypes: tuple[str, ...]
    reason: str
    rtol: float | None = None
    of_largest: bool = True


SUMS_OF_PRODUCTS = (
    *("*mm", "*mv", "*matmul*", "*.multi_dot", "*.vecdot", "dot", "vdot", "inner", "addr", "einsum", "tensordot"),
    *("nn.functional.conv*", "nn.functional.linear*", "nn.functional.bilinear", "nn.functional.*attention*", "cdist"),
    *(
        "torch.ops.aten.*attention*",
        "*.cross",
        "cross",
        "kron",
        "cov",
        "corrcoef",
        "fft.*",
        "stft",
        "istft",
        "convolution",
    ),
    *("_upsample*", "nn.functional.interpolate*", "nn.functional.upsample*", "*grid_sample*"),
)
SUMS = (
    *("*sum*", "*mean*", "*var*", "*std*", "*norm*", "*prod*", "trapz", "*trapezoid", "trace", "diff", "gradient"),
    *("nn.functional.*loss*", "nn.functional.*pool*", "nn.functional.*cross_entropy*", "nn.functional.*similarity"),
    *("nn.functional.embedding*", "index_add", "index_reduce*", "scatter_add", "scatter_reduce*", "_segment_reduce*"),
    *("*softmax*", "*softmin*", "_unsafe_masked_index_put_accumulate", "nn.functional.pdist", "dist"),
)
SOLUTIONS = (
    *("linalg.*", "*cholesky*", "svd*", "*lowrank", "qr", "geqrf", "ormqr", "lu*", "*_solve", "pinverse", "logdet"),
    *("matrix_exp", "triangular_solve"),
)
SPECIAL_FUNCTIONS = (
    *("special.*", "*polygamma*", "mvlgamma*", "lgamma", "digamma", "erf*", "i0", "igamma*", "sinc", "pow", "__rpow__"),
    *("float_power", "nn.functional.gelu", "nn.functional.mish", "logcumsumexp", "logaddexp*"),
)
SINGLE = ("float32", "complex64")

ROWS = (
    Row(
        ("*",),
        ("bfloat16",),
        "the CPU rounds to 8 bits between the steps of an operator, a device may compute in float32 and round once",
    ),
    Row(
        ("*",),
        ("float16", "complex32"),
        "the CPU rounds to 11 bits between the steps of an operator, a device may compute in float32 and round once",
        rtol=4e-3,
    ),
    Row(
        (*SUMS_OF_PRODUCTS, *SUMS),
        (*SINGLE, "float64", "complex128"),
        "a device may add in another order, which rounds relative to the largest terms; the CPU is as far from sums in "
        "double precision",
    ),
    Row(
        SOLUTIONS,
        SINGLE,
        "solving amplifies roundings by the condition of the matrix; the CPU is as far from double precision",
        rtol=1e-4,
    ),
    Row(
        ("logcumsumexp",),
        SINGLE,
        "samples have numbers of 1e4, whose last bit is 1e-3; the CPU's gradient is 5e-4 from double precision",
        rtol=2e-3,
    ),
    Row(
        ("*attention*",),
        SINGLE,
        "the exponential of a score of 100 is 1e-5 off when that is rounded; the CPU's gradients are 4e-5 from double "
        "precision where the largest is 4",
        rtol=3e-5,
    ),
    Row(
        ("nn.functional.ctc_loss",),
        SINGLE,
        "logarithms of sums along every path; the CPU's gradient is 1e-4 from double precision",
        rtol=1e-4,
    ),
    Row(
        SPECIAL_FUNCTIONS,
        SINGLE,
        "approximations differ; the CPU's polygamma is 1.3e-5 from double precision, its erfcx and Hermite polynomials "
        "1e-6",
        rtol=3e-5,
        of_largest=False,
    ),
)


@dataclass(frozen=True)
class Tolerance:
    """What is allowed.

    Attributes:
        rtol: relative to each element.
        atol: absolute.
        largest_rtol: relative to the largest element.
        reasons: for what is more than torch.testing allows for the dtype, and "OpInfo" for what PyTorch allows.
    """

    rtol: float
    atol: float
    largest_rtol: float = 0.0
    reasons: tuple[str, ...] = ()

    @property
    def is_widened(self) -> bool:
        """Whether it is more than torch.testing allows for the dtype."""
        return bool(self.reasons)

    def of(self, expected: torch.Tensor) -> tuple[float, float]:
        """Relative and absolute tolerance for a result, whose dtype may be coarser than the arguments'."""
        rtol, atol = default_tolerances(expected.dtype)
        allowed = max(atol, self.atol)
        if self.largest_rtol and expected.numel() > 0:
            allowed = max(allowed, self.largest_rtol * _largest(expected.detach()))
        return max(rtol, self.rtol), allowed


def _largest(x: torch.Tensor) -> float:
    """The absolute value of the largest finite element."""
    dense = x if x.layout is torch.strided else x.to_dense()
    sizes = dense.to(torch.complex128 if x.is_complex() else torch.float64).abs()
    finite = sizes[sizes.isfinite()]
    return finite.max().item() if finite.numel() > 0 else 0.0


def tolerance(op: OpInfo, dtype: torch.dtype) -> Tolerance:
    """The widest of what torch.testing allows for the dtype, PyTorch for the operator, and the rows of this file."""
    rtol, atol = default_tolerances(dtype)
    largest = 0.0
    reasons = []
    for given in _of_entry(op, dtype):
        if given.rtol > rtol or given.atol > atol:
            rtol, atol = max(rtol, given.rtol), max(atol, given.atol)
            reasons.append("OpInfo")
    for row in _rows(full_name(op), dtype_name(dtype)):
        allowed = default_tolerances(dtype)[0] if row.rtol is None else row.rtol
        rtol, largest = max(rtol, allowed), max(largest, allowed if row.of_largest else 0.0)
        reasons.append(row.reason)
    return Tolerance(rtol, atol, largest, tuple(reasons))


def _of_entry(op: OpInfo, dtype: torch.dtype) -> Iterator[tol]:
    """What PyTorch allows a CUDA device when it compares that with the CPU."""
    for decorator in op.get_decorators("TestCommon", "test_compare_cpu", "cuda", dtype, {}):
        if isinstance(decorator, toleranceOverride) and dtype in decorator.d:
            yield decorator.d[dtype]
        elif isinstance(decorator, precisionOverride) and dtype in decorator.d:
            yield tol(atol=decorator.d[dtype], rtol=0.0)


@cache
def _rows(entry: str, dtype: str) -> tuple[Row, ...]:
    return tuple(
        row for row in ROWS if dtype in row.dtypes and any(fnmatchcase(entry, pattern) for pattern in row.operators)
    )
