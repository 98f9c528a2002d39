"""A call on a device and on the CPU: how what a program can see of it differs."""

from collections.abc import Callable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from math import isfinite
from typing import Any

import torch
from cases import ENTRIES, TRANSFORMS, Case
from torch import Tensor
from torch.testing._internal.opinfo.core import SampleInput
from torch.utils._pytree import tree_leaves, tree_map
from torch_conformance.suite.ops._compare import compare
from torch_conformance.suite.ops._random_draws import DrawsOfHost, _draws_for_any
from torch_conformance.suite.ops._samples import HOST_ARGUMENTS, tensors
from torch_conformance.suite.ops._tolerances import SOLUTIONS, SUMS, SUMS_OF_PRODUCTS, Tolerance, tolerance
from torch_conformance.suite.ops._trial import UNINITIALIZED
from torch_conformance.suite.ops._undetermined import STATISTICS, determined, has_equal_elements

WIDE = {torch.float32: torch.float64, torch.float16: torch.float64, torch.bfloat16: torch.float64}
WIDE[torch.complex64] = torch.complex128
EPSILON = torch.finfo(torch.float32).eps
SHAKEN = (*SUMS_OF_PRODUCTS, *SUMS, *SOLUTIONS)
"""Entries whose roundings are as large as what changes if all arguments are rounded otherwise."""
Wrap = Callable[[Any], Any]
Change = Callable[[Tensor], Tensor]


@dataclass
class Difference:
    """What differs: "values", "strides", "raises" and so on, and the details."""

    kind: str
    text: str


@dataclass
class Answer:
    """What became of a call: a result and gradients, or an error, and the memory of the arguments afterwards."""

    result: Any = None
    gradients: list[Tensor | None] = field(default_factory=list)
    memory: list[Tensor] = field(default_factory=list)
    shares: list[int | None] = field(default_factory=list)
    """For each result, which argument's memory it is a view of."""
    error: Exception | None = None
    is_random: bool = False


class Placed:
    """The arguments of a case somewhere: copies that have the strides, and share what they share."""

    def __init__(self, case: Case, device: str, *, wide: bool = False, change: Change | None = None) -> None:
        self.memory: dict[tuple[int, torch.dtype], Tensor] = {}
        self._done: dict[int, Tensor] = {}
        self._requires_grad = case.form == "backward"
        self._device, self._wide = device, wide
        self._change = change
        stay = HOST_ARGUMENTS.get(case.op.name, ())
        self.args = [tree_map(self._copy if i - 1 not in stay else lambda x: x, arg) for i, arg in enumerate(case.args)]
        self.kwargs = tree_map(self._copy, case.kwargs)

    def _copy(self, value: Any) -> Any:
        if not isinstance(value, Tensor):
            return torch.device(self._device) if value in (torch.device("cpu"), "cpu") else value
        if id(value) not in self._done:
            self._done[id(value)] = self._tensor(value.detach())
        return self._done[id(value)]

    def _tensor(self, x: Tensor) -> Tensor:
        key = x.untyped_storage()._cdata, x.dtype
        if key not in self.memory:
            whole = torch.empty(0, dtype=x.dtype).set_(x.untyped_storage())
            self.memory[key] = whole.to(self._device, WIDE.get(x.dtype, x.dtype) if self._wide else x.dtype, copy=True)
            if self._change and (x.is_floating_point() or x.is_complex()):
                self.memory[key].copy_(self._change(self.memory[key]))
        there = self.memory[key].as_strided(x.size(), x.stride(), x.storage_offset())
        there = torch._neg_view(there) if x.is_neg() else there
        there = there.conj() if x.is_conj() else there
        return there.requires_grad_(self._requires_grad and (x.is_floating_point() or x.is_complex()))


@cache
def _may_draw(operator: str) -> bool:
    """Whether a sample of any entry of the operator draws random numbers: changed arguments may be those of another."""
    entries = [entry for entry, op in ENTRIES.items() if op.name == operator and op.supported_dtypes("cpu")]
    return any(map(_draws_for_any, entries))


def run(
    case: Case, device: str, wrap: Wrap = lambda function: function, *, wide: bool = False, change: Change | None = None
) -> Answer:
    """Make the call, in double precision if it is wide, and with other numbers if they are to change."""
    watched = device == "cpu" and not wide and _may_draw(case.op.name)  # which seeds the generator
    torch.default_generator.manual_seed(1)
    before = torch.get_rng_state()
    placed, draws = Placed(case, device, wide=wide, change=change), DrawsOfHost()
    try:
        with torch.set_grad_enabled(case.form == "backward"):
            if watched:
                with draws:
                    result = case.function(*placed.args, **placed.kwargs)
            else:
                result = wrap(case.function)(*placed.args, **placed.kwargs)
        gradients = _gradients(case, placed, result) if case.form == "backward" else []
        if device != "cpu":
            torch.get_device_module(device).synchronize(device)
    except Exception as error:
        return Answer(error=error)
    memories = {x.untyped_storage()._cdata: i for i, x in enumerate(placed.memory.values())}
    shares = [memories.get(x.untyped_storage()._cdata) for x in tensors(result) if x.layout is torch.strided]
    sample = SampleInput(placed.args[0], args=tuple(placed.args[1:]), kwargs=placed.kwargs)
    ties = isinstance(sample.input, Tensor) and has_equal_elements(case.op, sample)
    result, memory = determined(case.op, sample, result), list(placed.memory.values())
    if ties:  # nor where gradients go, nor the indices in out=
        memory, gradients = [], []
    is_random = draws.any or not torch.equal(before, torch.get_rng_state())
    return Answer(result, gradients, memory, shares, is_random=is_random)


def _gradients(case: Case, placed: Placed, result: Any) -> list[Tensor | None]:
    leaves = [x for x in tensors((placed.args, placed.kwargs)) if x.requires_grad]
    leaves = list({id(x): x for x in leaves}.values())
    ends = [x for x in tensors(result[0] if case.op.name in STATISTICS else result) if x.requires_grad]
    if not leaves or not ends:
        return []
    return list(torch.autograd.grad(ends, leaves, [_seed(case, x) for x in ends], allow_unused=True))


def _seed(case: Case, end: Tensor) -> Tensor:
    """Gradients of which no two are equal, so that a mix-up shows."""
    seed = torch.linspace(0.5, 1.5, end.numel())
    if case.special_gradients and end.numel():
        for place, value in ((-1, float("nan")), (end.numel() // 2, float("inf")), (0, -0.0)):
            seed[place] = value
    return seed.view(end.shape).to(end.dtype).to(end.device)


@cache
def _tolerance(entry: str, dtype: torch.dtype) -> Tolerance:
    return tolerance(ENTRIES[entry], dtype)


def difference(case: Case, device: str, expected: Answer, actual: Answer) -> Difference | None:
    """The first thing that differs, if anything does."""
    if expected.error is not None or actual.error is not None:
        return _of_errors(expected.error, actual.error)
    tol = _tolerance(case.op.full_name, case.dtype)
    has_values = not expected.is_random and case.op.name not in UNINITIALIZED
    try:
        compare(actual.result, expected.result, device, tol, "it", values=False, strides=True)
    except AssertionError as error:
        return Difference("kind", str(error))
    if actual.shares != expected.shares:
        return Difference("sharing", f"results are views of arguments {actual.shares}, on the CPU {expected.shares}")
    if [x is None for x in actual.gradients] != [x is None for x in expected.gradients]:
        return Difference("kind", "gradients are missing")
    if not has_values:
        return None
    exact = None
    for what in ("result", "memory", "gradients"):
        ours, theirs = _values(getattr(actual, what)), _values(getattr(expected, what))
        for index, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            text = _of_values(one.detach(), other.detach(), None, tol)
            if text and (one.is_floating_point() or one.is_complex()):
                exact = exact or run(case, "cpu", wide=True)
                better = _values(getattr(exact, what))
                same = index < len(better) and better[index].shape == other.shape
                wider = better[index].detach() if same else None
                text = _of_values(one.detach(), other.detach(), wider, tol, mixed=case.op.name.startswith(TRANSFORMS))
                if text and wider is not None and _far(one, wider) <= 16 * _moved(case, what, index, wider):
                    text = ""
            if text:
                names = {"result": "result", "memory": "memory of argument", "gradients": "gradient"}
                return Difference("values" if what == "result" else what, f"{names[what]} {index}: {text}")
    return None


def _moved(case: Case, what: str, index: int, exact: Tensor) -> float:
    """How far other roundings move a value in double precision, where sums or solutions do.

    They are those of the arguments, and of partial sums: those of a thousand add up to some ten of the sum of sizes.
    """

    def changed(change: Change) -> Tensor | None:
        found = _values(getattr(run(case, "cpu", wide=True, change=change), what))
        return found[index] if index < len(found) and found[index].shape == exact.shape else None

    name = case.op.full_name
    if what != "gradients" and ("pool" in name or not any(fnmatchcase(name, pattern) for pattern in SHAKEN)):
        return 0.0  # gradients of what is expanded are sums
    others = [changed(_rounded(seed)) for seed in (1, 2, 3)]
    moved = min((x for x in (_far(other, exact) for other in others if other is not None) if isfinite(x)), default=0.0)
    sizes = changed(torch.abs) if any(fnmatchcase(name, pattern) for pattern in SUMS_OF_PRODUCTS) else exact
    finite = sizes[sizes.isfinite()] if sizes is not None else exact[:0]
    return max(moved, 4 * EPSILON * finite.abs().max().item()) if finite.numel() else moved


def _rounded(seed: int) -> Change:
    def change(x: Tensor) -> Tensor:
        up = torch.randint(2, x.shape, generator=torch.Generator().manual_seed(seed))
        return x * (1 + EPSILON * (2 * up - 1).double())

    return change


def _far(one: Tensor, exact: Tensor) -> float:
    """The largest difference; infinite if what is not finite differs."""
    dense = (x.detach().cpu().to_dense().resolve_conj().resolve_neg() for x in (one, exact))
    one, exact = ((torch.view_as_real(x) if x.is_complex() else x).double() for x in dense)
    finite = one.isfinite() & exact.isfinite()
    if not torch.equal(one[~finite].nan_to_num(), exact[~finite].nan_to_num()):
        return float("inf")
    return (one - exact)[finite].abs().max().item() if finite.any() else 0.0


def _values(value: Any) -> list[Tensor]:
    """All tensors, and all numbers as such."""
    numbers = (bool, int, float, complex)
    return [
        x if isinstance(x, Tensor) else torch.tensor(x) for x in tree_leaves(value) if isinstance(x, (Tensor, *numbers))
    ]


def _of_errors(expected: Exception | None, actual: Exception | None) -> Difference | None:
    if expected is None or actual is None:
        names = [f"raises {type(x).__name__} ({x})" if x else "does not raise" for x in (actual, expected)]
        return Difference("raises", f"{names[0]}, on the CPU {names[1]}")
    if type(expected) is not type(actual):
        names = [f"{type(x).__name__} ({x})" for x in (actual, expected)]
        return Difference("error", f"raises {names[0]}, on the CPU {names[1]}")
    if "INTERNAL ASSERT" in str(actual) and "INTERNAL ASSERT" not in str(expected):
        return Difference("error", f"{actual}, on the CPU {expected}")
    return None


def _of_values(one: Tensor, other: Tensor, exact: Tensor | None, tol: Tolerance, *, mixed: bool = False) -> str:
    """Where values differ, and how; "" if they are the CPU's, or at most four times as far from double precision.

    If they are mixed, each being a sum of all that was given, it is the largest that says how much is rounded away.
    """
    one, other = (x.cpu().to_dense().resolve_conj().resolve_neg() for x in (one, other))
    exact = exact.to_dense().resolve_conj().resolve_neg() if exact is not None else None
    if not (other.is_floating_point() or other.is_complex()):
        wrong = one != other
    else:
        rtol, atol = tol.of(other)
        if is_complex := other.is_complex():
            one, other = torch.view_as_real(one), torch.view_as_real(other)
            exact = torch.view_as_real(exact) if exact is not None else None
        right = torch.isclose(one, other, rtol, atol, equal_nan=True)
        if is_complex:  # what is rounded of a part is relative to both
            right |= (one - other).abs() <= rtol * other.abs().nan_to_num(0, 0, 0).amax(-1, keepdim=True)
        if exact is not None:
            right |= torch.isclose(one, exact.to(one.dtype), rtol, atol, equal_nan=True)
            far, allowed = ((x.double() - exact).abs() for x in (one, other))
            right |= far <= 4 * allowed[allowed.isfinite()].max() if allowed.isfinite().any() else right
            if mixed and exact.isfinite().any():
                right |= far <= 8 * torch.finfo(one.dtype).eps * exact[exact.isfinite()].abs().max()
        wrong = ~right
    if not wrong.any():
        return ""
    place = tuple(wrong.nonzero()[0].tolist())
    values = f"element {list(place)} is {one[place].item()}, on the CPU {other[place].item()}"
    better = f", in double precision {exact[place].item()}" if exact is not None else ""
    return f"{values}{better}; {int(wrong.sum())} of {wrong.numel()} differ"
