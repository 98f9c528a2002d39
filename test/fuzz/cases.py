"""Calls of PyTorch's operators: samples of its own list (OpInfo), changed by chance. A case is drawn from its name."""

from dataclasses import dataclass, field
from functools import lru_cache
from math import isfinite
from random import Random
from typing import Any

import torch
from changes import MOST_ELEMENTS, changed, laid_out
from fatal import is_fatal
from torch import Tensor
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo
from torch.utils._pytree import tree_leaves, tree_map_only
from torch_conformance.suite.ops._entries import full_name
from torch_conformance.suite.ops._left_out import leaves_out_sample, reason_to_leave_out
from torch_conformance.suite.ops._samples import samples, tensors

ENTRIES = {full_name(op): op for op in op_db}
DTYPES = (
    torch.float32,
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.uint8,
    torch.bool,
    torch.complex64,
    torch.float64,
)
FORMS = ("function", "function", "method", "in place", "out", "backward", "backward")
MOST_SAMPLES = 24
TRANSFORMS = ("fft.", "stft", "istft")
VAST = {"combinations"}
"""Entries whose results grow with a power of the size of their arguments, which no meta function tells."""


@dataclass
class Case:
    """One call.

    Attributes:
        name: "entry:dtype:number", from which it is drawn again.
        form: as in FORMS.
        args, kwargs: on the CPU, as a caller gives them; ``out`` among them.
        special_gradients: whether the gradients of results have NaN and infinities.
    """

    name: str
    op: OpInfo
    form: str
    args: list[Any]
    kwargs: dict[str, Any] = field(default_factory=dict)
    special_gradients: bool = False

    @property
    def function(self) -> Any:
        """What is called."""
        return {"method": self.op.method_variant, "in place": self.op.inplace_variant}.get(self.form) or self.op.op

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the sample that it was made of."""
        dtype: torch.dtype = getattr(torch, self.name.split(":")[1])
        return dtype


@lru_cache(64)
def _samples(entry: str, dtype: torch.dtype) -> list[tuple[list[Any], dict[str, Any]]]:
    op = ENTRIES[entry]
    supported = op.supported_dtypes("cpu")
    if not supported:
        return []
    given = dtype if dtype in supported else min(supported, key=lambda x: (x is not torch.float32, str(x)))
    found = []
    for sample in samples(op, given, MOST_SAMPLES):
        args, kwargs = [sample.input, *sample.args], sample.kwargs
        if not any(x.is_nested or x.layout is not torch.strided or x.is_meta for x in tensors((args, kwargs))):
            to = lambda x: x.detach().to(dtype) if x.dtype is given else x.detach()  # noqa: E731
            found.append(tree_map_only(Tensor, to, (args, kwargs)))
    return found


def choose(random: Random, entries: list[str]) -> tuple[str, torch.dtype]:
    """An entry and a dtype, mostly one that PyTorch's list has for it."""
    entry = random.choice(entries)
    dtype = random.choice(DTYPES)
    if dtype not in ENTRIES[entry].supported_dtypes("cpu") and random.random() < 0.9:
        dtype = random.choice([x for x in DTYPES if x in ENTRIES[entry].supported_dtypes("cpu")] or [dtype])
    return entry, dtype


def draw(name: str) -> Case | None:
    """The case of that name; None if there is none."""
    entry, dtype_of, _ = name.split(":")
    random, op, dtype = Random(name), ENTRIES[entry], getattr(torch, dtype_of)
    forms = [form for form in FORMS if _has(op, form)]
    form = random.choice(forms)
    given = _samples(entry, dtype)
    part = form if form in ("out", "backward") else "forward"
    if not given or reason_to_leave_out(entry, dtype_of, part):
        return None
    values: Any = random.choice(given)
    if leaves_out_sample(entry, dtype_of, part, [x for x in tree_leaves(values) if not isinstance(x, Tensor)]):
        return None
    values = changed(random, values)
    if is_fatal(op, *values) or _is_vast(op, *values):
        return None
    case: Case | None = Case(name, op, form, *values, special_gradients=random.random() < 0.3)
    if form == "out":
        case = _with_out(random, case)
    return None if case is None or is_fatal(op, case.args, case.kwargs) else case


def _has(op: OpInfo, form: str) -> bool:
    return {
        "function": True,
        "method": op.method_variant is not None,
        "in place": op.inplace_variant is not None,
        "out": op.supports_out,
        "backward": op.supports_autograd,
    }[form]


def _with_out(random: Random, case: Case) -> Case | None:
    """The case with ``out=`` of some kind, made from the CPU's results; None if it has none."""
    from differences import run  # which imports this module

    answer = run(case, "cpu")
    if not all(isinstance(x, Tensor) for x in tree_leaves(answer.result)) or not tensors(answer.result):
        return None
    kind = random.choice(("right", "right", "strided", "empty", "larger", "other dtype", "input"))

    def out(x: Tensor) -> Tensor:
        if kind == "input":
            return next(
                (y for y in tensors(case.args) if y.shape == x.shape and y.dtype == x.dtype), torch.ones_like(x)
            )
        if kind == "other dtype":
            return torch.ones_like(x, dtype=random.choice(DTYPES))
        if kind in ("empty", "larger"):
            return torch.ones(0 if kind == "empty" else (*x.shape, 2), dtype=x.dtype)
        garbage = torch.full_like(x, float("nan") if x.is_floating_point() or x.is_complex() else 1)
        return laid_out(random, garbage) if kind == "strided" else garbage

    case.kwargs = {**case.kwargs, "out": tree_map_only(Tensor, lambda x: out(x.detach()), answer.result)}
    return case


def _is_vast(op: OpInfo, args: list[Any], kwargs: dict[str, Any]) -> bool:
    """Whether the result takes all memory."""
    if op.name in VAST:
        return tensors(args)[0].numel() > 100
    try:
        results = op.op(*tree_map_only(Tensor, lambda x: x.to("meta"), args), **kwargs)
    except Exception:  # mostly what the CPU raises as well
        numbers = [abs(x) for x in tree_leaves((args, kwargs)) if type(x) in (int, float) and isfinite(x)]
        return max(numbers, default=0) > MOST_ELEMENTS
    return any(max(x.numel(), x.untyped_storage().nbytes() // 8) > 8 * MOST_ELEMENTS for x in tensors(results))
