"""PyTorch's list of operators with samples (OpInfo) on a device with modules: what falls back, and what differs.

``python test/generated/opinfo.py`` tries all samples, prints what differs from the CPU, and writes
``opinfo_fallbacks.txt``. Patterns of entries' names as arguments: only those, and nothing is written.
"""

import os
import sys
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import partial
from itertools import islice
from pathlib import Path

os.environ.setdefault("TORCH_BACKEND", "xcpu")
os.environ.setdefault("TORCH_BACKEND_XCPU_MODULES", "1")

import torch  # after what it reads at import
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_map
from torch_conformance import facts
from torch_conformance.needs import NotOffered
from torch_conformance.suite.ops._compare import compare_values
from torch_conformance.suite.ops._directions import seed_of, try_backward, try_forward
from torch_conformance.suite.ops._entries import dtype_name, full_name
from torch_conformance.suite.ops._left_out import reason_to_leave_out
from torch_conformance.suite.ops._out_tensors import OUTS, try_out, try_overlaps
from torch_conformance.suite.ops._samples import READS_ALL_MEMORY, arguments, most_samples, tensors, with_gaps
from torch_conformance.suite.ops._tolerances import SOLUTIONS
from torch_conformance.suite.ops._trial import Trial
from torch_conformance.suite.ops._undetermined import determined

import torch_backend

DEVICE = f"{os.environ['TORCH_BACKEND']}:0"
DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.bool)
LIST = Path(__file__).with_name("opinfo_fallbacks.txt")
ENTRIES = {full_name(op): op for op in op_db}


@dataclass(frozen=True)
class Kind:
    """Samples of an entry: forward or backward, with a dtype."""

    direction: str
    dtype: torch.dtype

    def __str__(self) -> str:
        return f"{self.direction} {dtype_name(self.dtype)}"


KINDS = {str(kind): kind for kind in (Kind(way, dtype) for way in ("forward", "backward") for dtype in DTYPES)}


@dataclass
class Outcome:
    """What became of the samples of one kind: the operators that fell back, and how results differ, if they do."""

    fallbacks: list[str]
    difference: str


class NearTrial(Trial):
    """Takes results that differ from the CPU's if they are at most four times as far from double precision as those."""

    def compare(self, case, actual, answer):
        """Fail unless the result is the CPU's, or as near."""
        try:
            super().compare(case, actual, answer)
        except AssertionError:
            exact = self._exact(case)
            if not _as_near(tensors(actual), tensors(answer.result), tensors(exact)):
                raise

    def compare_gradient(self, case, actual, expected, what):
        """Fail unless the gradient is the CPU's, or as near."""
        try:
            super().compare_gradient(case, actual, expected, what)
        except AssertionError:
            sample = _in_double(case.host)
            ends = [x for x in tensors(_call(self.op, sample)) if x.requires_grad]
            seeds = [seed_of(x if x.is_complex() else x.to(self.dtype)).to(x.dtype) for x in ends]
            leaves = [x for x in tensors(arguments(sample)) if x.requires_grad]
            exact = torch.autograd.grad(ends, leaves, seeds, allow_unused=True)
            if not _as_near([actual], [expected], [exact[int(what.split()[-1])]]):
                raise

    def _exact(self, case):
        with torch.no_grad():
            return _call(self.op, _in_double(case.host))


NOT_NUMBERS = (float("nan"), float("inf"), -float("inf"))
ONLY_NAN = ("var_mean*", "std_mean*", "*group_norm", "*instance_norm", "*batch_norm*", "*layer_norm", "fft.*", "*stft")
"""Entries whose results for infinities depend on the order of operations, which differences of them are part of."""


def _attention_loses_nan():
    """Whether the CPU's attention has numbers for a query of NaN, as with torch 2.14."""
    query, ones = torch.full((1, 1, 8), float("nan")), torch.ones(1, 1, 8)
    result = torch.nn.functional.scaled_dot_product_attention(query, ones, ones, is_causal=True, enable_gqa=True)
    return not result.isnan().all()


UNDEFINED = (
    *(*SOLUTIONS, "*grid_sample*", "special.*_polynomial_*"),
    *("byte", "char", "short", "int", "long"),
    "*max_unpool*",
    *(["*conv[123_]*"] if DEVICE.startswith("xcuda") else []),
    *(["*scaled_dot_product_attention*"] if _attention_loses_nan() else []),
)
"""Entries with which the CPU reads other memory or ends the program: solutions, gradients of grids, NaN as an order.

Whole numbers of what is none. Which of several elements is last at one place. What a library's convolution
multiplies by 0.
"""


class SpecialTrial(Trial):
    """Every sample with a NaN or an infinity in each of its tensors in turn, as the CPU's plain kernels compute it.

    Its vectorized ones answer comparisons with NaN otherwise.
    """

    def samples(self, *, requires_grad=False):
        """One sample for each tensor and value."""
        only_nan, is_undefined = (
            any(fnmatchcase(full_name(self.op), pattern) for pattern in patterns) for patterns in (ONLY_NAN, UNDEFINED)
        )
        for sample in () if is_undefined else super().samples(requires_grad=requires_grad):
            given = {id(x): x for x in tensors(arguments(sample)) if x.dtype == self.dtype and x.numel() > 0}
            for chosen in (x for x in given.values() if x.layout is torch.strided):
                for value in NOT_NUMBERS[:1] if only_nan else NOT_NUMBERS:
                    yield sample.transform(lambda x, at=chosen, v=value: _with_value(x, v) if x is at else x)

    def case(self, sample):
        """The CPU's tensors have gaps between their elements."""
        case = super().case(sample)
        return case if full_name(self.op) in READS_ALL_MEMORY else replace(case, host=sample.transform(with_gaps))

    def compare(self, case, actual, answer):
        """Fail unless the values are the CPU's."""
        self.count()
        if self.has_values(case):
            ours, theirs = determined(self.op, case.device, actual), determined(self.op, case.host, answer.result)
            for one, other in zip(tensors(ours), tensors(theirs), strict=True):
                compare_values(one, other, self.tolerance, case.what)


class ZerosTrial(NearTrial):
    """Every sample with zeros of both signs in each of its tensors in turn: what is divided by them has their signs.

    As the CPU's vectorized kernels see them, which not all plain ones do.
    """

    def samples(self, *, requires_grad=False):
        """One sample for each tensor."""
        for sample in super().samples(requires_grad=requires_grad):
            given = {id(x): x for x in tensors(arguments(sample)) if x.dtype == self.dtype and x.numel() > 1}
            for chosen in given.values():
                yield sample.transform(lambda x, at=chosen: _with_zeros(x) if x is at else x)


def _with_zeros(x):
    values = torch.full((x.numel(),), 0.5, dtype=x.dtype)
    vectorized = values[: x.numel() // 64 * 64]
    vectorized[::2], vectorized[1::2] = 0.0, -0.0
    return values.view(x.shape).requires_grad_(x.requires_grad)


def _with_value(x, value):
    """A copy of the tensor in whose middle the value is."""
    changed = x.detach().clone()
    changed[tuple(size // 2 for size in x.shape)] = value
    return changed.requires_grad_(x.requires_grad)


def try_laid_out(trial: Trial) -> None:
    """Fail unless arguments of any layout have the CPU's results, values and strides."""
    name = full_name(trial.op)
    layouts = LAYOUTS[:-1] if name in NOT_REPEATED else LAYOUTS
    settled = (lambda x: x) if name not in LAID_OUT_AS_ON_CUDA else _of_tensors(torch.Tensor.contiguous)
    with torch.no_grad():
        for sample in islice(filter(_has_matrix, trial.samples()), MOST_LAID_OUT):
            for lay_out in layouts:
                case = trial.case(sample.transform(lay_out))
                answer = trial.on_host(trial.op, case)
                if answer.error is None:
                    actual, answer.result = (
                        tree_map(settled, x) for x in (trial.on_device(trial.op, case), answer.result)
                    )
                    trial.compare(case, actual, answer)


MOST_LAID_OUT = 2


def _has_matrix(sample):
    return any(x.dim() > 1 for x in tensors(arguments(sample)))


def _reversed(x):
    """The same values, the first dimension's side by side."""
    dims = tuple(reversed(range(x.dim())))
    return x.permute(dims).contiguous().permute(dims)


def _repeated(x):
    """The values of the last dimension's first place at all its places."""
    return x[..., :1].expand_as(x) if x.dim() > 0 and x.numel() > 0 else x


def _channels_last(x):
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    return x.contiguous(memory_format=formats[x.dim()]) if x.dim() in formats else x


def _of_tensors(lay_out):
    def changed(x):
        is_plain = isinstance(x, torch.Tensor) and x.layout is torch.strided and not x.is_nested
        return lay_out(x.detach()) if is_plain else x

    return changed


LAYOUTS = tuple(map(_of_tensors, (_reversed, _channels_last, _repeated)))

TRIALS = {
    "forward": try_forward,
    "backward": try_backward,
    "laid out": try_laid_out,
    "out that overlaps": try_overlaps,
    **{f"out {how}": partial(try_out, make=make) for how, make in OUTS.items()},
}
"""How an entry is tried, by what Kind calls its direction."""


def _call(op, sample):
    return op(sample.input, *sample.args, **sample.kwargs)


def _in_double(sample):
    def wide(x):
        is_float = isinstance(x, torch.Tensor) and x.is_floating_point()
        return x.detach().double().requires_grad_(x.requires_grad) if is_float else x

    return sample.transform(wide)


def _as_near(ours, theirs, exact):
    pairs = list(zip(ours, theirs, exact, strict=True))
    if any(not one.is_floating_point() or one.shape != wanted.shape for one, _, wanted in pairs):
        return False
    far = [[(x.detach().cpu().double() - wanted).abs().max().item() for x in (a, b)] for a, b, wanted in pairs]
    return all(ours <= 4 * theirs for ours, theirs in far)


LAID_OUT_AS_ON_CUDA = frozenset(
    {
        *("native_batch_norm", "_native_batch_norm_legit", "_batch_norm_with_update", "nn.functional.batch_norm"),
        *("nn.functional.conv_transpose3d", "nn.functional.pad.replicate_negative"),
    }
)
"""Entries whose results PyTorch's meta kernels and CUDA lay out otherwise than the CPU."""
NOT_REPEATED = (
    *("masked.median", "native_group_norm", "linalg.cholesky_ex"),
    *("native_batch_norm", "_native_batch_norm_legit", "_batch_norm_with_update", "nn.functional.batch_norm"),
)
"""Entries of which the CPU reads expanded tensors as if contiguous, that have no result for equal columns, or that
write to what they are given, for which items would race."""


def kinds_of(op) -> Iterator[Kind]:
    """What PyTorch says that the entry supports."""
    for kind in KINDS.values():
        supported = op.supported_dtypes if kind.direction == "forward" else op.supported_backward_dtypes
        if kind.dtype in supported("cpu") and not reason_to_leave_out(
            full_name(op), dtype_name(kind.dtype), kind.direction
        ):
            yield kind


def attempt(op, kind: Kind, most: int | None = None, trial_of: type[Trial] = NearTrial) -> Outcome | None:
    """Try at most so many samples; None if the CPU, which says what is right, computes none of them."""
    seen: dict = {}
    facts.record_to(seen.update)
    difference = ""
    most = most or most_samples(kind.dtype, quick=False)
    with torch_backend.fallback.policy(None, "allow"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the samples provoke them
        try:
            trial = trial_of(op, kind.dtype, kind.direction.split()[0], DEVICE, most=most)
            with trial.recorded():
                TRIALS[kind.direction](trial)
        except NotOffered:
            return None
        except Exception as error:
            difference = f"{type(error).__name__}: {error}"
        finally:
            facts.record_to(None)
    return Outcome(sorted(seen.get("fallbacks", {})), difference)


def known() -> dict[str, dict[str, list[str]]]:
    """By entry and kind what falls back, as the list has it."""
    found: dict = {}
    for line in LIST.read_text().splitlines():
        if line and not line.startswith("#"):
            name, kind, operators = line.split(" | ")
            found.setdefault(name, {})[kind] = operators.split()
    return found


def _sweep(part: int, names: list[str]) -> dict[str, dict[str, Outcome]]:
    torch.set_num_threads(1)
    found: dict = {}
    for name in names[part::2]:
        for kind in kinds_of(ENTRIES[name]):
            if outcome := attempt(ENTRIES[name], kind):
                found.setdefault(name, {})[str(kind)] = outcome
                if outcome.difference:
                    print(f"{name}, {kind}: {outcome.difference[:2000]}\n", flush=True)
                if outcome.fallbacks and len(names) < len(ENTRIES):
                    print(f"{name}, {kind} falls back: {' '.join(outcome.fallbacks)}\n", flush=True)
    return found


def main(patterns: list[str]) -> None:
    """Try entries and write the list."""
    names = [name for name in ENTRIES if not patterns or any(fnmatchcase(name, each) for each in patterns)]
    with ProcessPoolExecutor(2) as pool:
        found = {name: of for part in pool.map(_sweep, range(2), [names] * 2) for name, of in part.items()}
    total = {kind: [of[kind] for of in found.values() if kind in of] for kind in KINDS}
    shares = [
        f"{kind}: {sum(not each.fallbacks for each in all_)} of {len(all_)}" for kind, all_ in total.items() if all_
    ]
    print("\n".join(shares))
    if not patterns:
        header = [
            f"# What falls back with modules, torch {torch.__version__.split('+')[0]}: entry | samples | operators",
            "# Entries in all, and of them without a line here:",
            *(f"#   {share}" for share in shares),
        ]
        lines = [
            f"{name} | {kind} | {' '.join(outcome.fallbacks)}"
            for name in sorted(found)
            for kind, outcome in found[name].items()
            if outcome.fallbacks
        ]
        LIST.write_text("\n".join(header + lines) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
