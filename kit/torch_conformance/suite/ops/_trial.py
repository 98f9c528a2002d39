"""One operator with one dtype, tried on the device and on the CPU."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass
from statistics import median
from time import perf_counter
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.testing._internal.opinfo.core import ErrorInput, OpInfo, SampleInput

from torch_conformance import facts, needs, routes
from torch_conformance.synchronization import synchronize

from ._compare import compare, compare_values
from ._entries import dtype_name, full_name
from ._left_out import OTHER_EXCEPTIONS, leaves_out_sample
from ._random_draws import DrawsOfHost, draws_random_numbers
from ._samples import arguments, moved, plain_arguments, samples, seed, summary, tensors
from ._tolerances import tolerance
from ._undetermined import determined, has_equal_elements
from ._watch import Watch

UNINITIALIZED = frozenset({"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"})
"""Operators whose results hold whatever was in memory."""

SPARSE_LAYOUTS = (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)

_TIMED_CALLS = 5

Gradients: TypeAlias = list[Tensor | None]


@dataclass
class Case:
    """One sample on both sides.

    Attributes:
        host: the sample on the CPU.
        device: the same on the device.
        what: the call in short, for messages.
        is_random: whether the call draws random numbers, so that values mean nothing.
    """

    host: SampleInput
    device: SampleInput
    what: str
    is_random: bool

    def size(self) -> int:
        """Elements of all its tensors."""
        return sum(x.numel() for x in tensors(arguments(self.host)))


@dataclass
class Answer:
    """What the CPU made of a call: a result, or an error."""

    result: Any = None
    error: Exception | None = None


class Trial:
    """One operator with one dtype: its samples on both sides, and what becomes of them."""

    def __init__(self, op: OpInfo, dtype: torch.dtype, part: str, device: str, *, most: int) -> None:
        self.op = op
        self.dtype = dtype
        self.device = device
        self.tolerance = tolerance(op, dtype)
        self._part = part
        self.most = most
        self._watch = Watch(op)
        # Strides, and which kind of RuntimeError it is, PyTorch leaves to the device: CUDA's results have other strides
        # than the CPU's, as of nonzero, rfftn and eig.
        self._keeps_details = routes.has("torch_backend")
        self._has_generator = routes.has("generator")
        self._compared = 0
        self._left_out: set[str] = set()
        self._last_error: Exception | None = None
        self._host_seconds = 0.0
        self._slower: list[float] = []

    @contextmanager
    def recorded(self) -> Iterator["Trial"]:
        """Tell the report about everything that is tried inside."""
        facts.record(op=full_name(self.op), dtype=dtype_name(self.dtype), part=self._part)
        if self.tolerance.is_widened:
            facts.record(tolerance=asdict(self.tolerance))
        try:
            yield self
        finally:
            if self._left_out:
                facts.record(left_out=sorted(self._left_out))
            facts.record(samples=self._compared, source=self._watch.source, fallbacks=self._watch.fallbacks)
            if self._slower:
                facts.record(times_cpu=round(median(self._slower), 2))
        if self._compared == 0:
            needs.not_offered(self._why())

    def _why(self) -> str:
        """Why nothing was compared."""
        if self._left_out:
            return "; ".join(sorted(self._left_out))
        why = "there is none" if self._last_error is None else str(self._last_error).split("\n")[0]
        return f"the CPU, which says what is right, computes none of the samples: {why}"

    def samples(self, *, requires_grad: bool = False) -> Iterator[SampleInput]:
        """The samples to try, on the CPU."""
        for sample in samples(self.op, self.dtype, self.most, requires_grad=requires_grad):
            reason = leaves_out_sample(full_name(self.op), dtype_name(self.dtype), self._part, plain_arguments(sample))
            reason = reason or _lacks_layout(sample)
            if reason is None:
                yield sample
            else:
                self.leave_out(reason)

    def leave_out(self, reason: str) -> None:
        """Tell the report why a sample is not tried."""
        self._left_out.add(reason)

    def error_inputs(self, device: str) -> Iterator[ErrorInput]:
        """Arguments that the operator has to refuse on ``device``, where their tensors are."""
        seed()
        if self.op.error_inputs_func is not None:
            yield from self.op.error_inputs_func(self.op, device)
        if self.op.error_inputs_sparse_func is not None:
            for layout in SPARSE_LAYOUTS:
                if _lacks(layout) is not None:
                    continue
                yield from self.op.error_inputs_sparse_func(self.op, device, layout)

    def cases(self, *, requires_grad: bool = False) -> Iterator[Case]:
        """The samples on both sides."""
        return map(self.case, self.samples(requires_grad=requires_grad))

    def case(self, sample: SampleInput) -> Case:
        """A sample that the caller has made on the CPU."""
        what = f"{full_name(self.op)}{summary(sample)}"
        return Case(sample, moved(sample, self.op, self.device), what, draws_random_numbers(self.op, sample))

    def on_host(self, function: Callable[..., Any], case: Case, **kwargs: Any) -> Answer:
        """What the CPU makes of the sample."""
        torch.default_generator.manual_seed(1)
        started = perf_counter()
        try:
            result = _call(function, case.host, **kwargs)
            self._host_seconds = perf_counter() - started
            return Answer(result)
        except Exception as error:  # whatever it is, it is what the CPU does
            self._last_error = error
            return Answer(error=error)

    def on_device(self, function: Callable[..., Any], case: Case, **kwargs: Any) -> Any:
        """What the device makes of it. Fails if it has a generator and draws from the CPU's."""
        torch.default_generator.manual_seed(1)
        before = torch.get_rng_state()
        draws = DrawsOfHost()
        with self._watch.running(), draws if case.is_random else nullcontext():
            started = perf_counter()
            result = _call(function, case.device, **kwargs)
            self._slower.append((perf_counter() - started) / max(self._host_seconds, 1e-9))
        used = self._has_generator and (draws.any or not torch.equal(before, torch.get_rng_state()))
        assert not used, f"{case.what} drew random numbers from the CPU's generator, not from the device's"
        return result

    def time_against_fallback(self, case: Case) -> None:
        """Tell the report how long the device library's own kernel takes, and how long the CPU does with its copies."""
        if self._watch.source != "plugin":
            return

        def device() -> None:
            _call(self.op, case.device)

        def fallback() -> None:
            there = case.device.transform(  # type: ignore[no-untyped-call]
                lambda x: x.cpu() if isinstance(x, Tensor) else x
            )
            for result in tensors(_call(self.op, there)):
                result.to(self.device)

        with suppress(Exception):  # of samples that the call has changed
            times = (self._milliseconds(device), self._milliseconds(fallback))
            facts.record(milliseconds=times[0], fallback_milliseconds=times[1])

    def _milliseconds(self, function: Callable[[], None]) -> float:
        """The least of a few calls."""
        times = []
        for _ in range(_TIMED_CALLS):
            synchronize(self.device)
            started = perf_counter()
            function()
            synchronize(self.device)
            times.append(1e3 * (perf_counter() - started))
        return round(min(times), 4)

    @contextmanager
    def unwatched(self) -> Iterator[None]:
        """What runs on the device inside is not what the test is about."""
        watch, self._watch = self._watch, Watch(self.op)
        try:
            yield
        finally:
            self._watch = watch

    def gradients_on_host(self, outputs: list[Tensor], leaves: list[Tensor], seeds: list[Tensor]) -> Gradients:
        """The gradients of ``leaves``; nothing if the CPU cannot compute them."""
        try:
            return list(torch.autograd.grad(outputs, leaves, seeds, allow_unused=True))
        except Exception as error:  # whatever it is, it is what the CPU does
            self._last_error = error
            return []

    def gradients_on_device(self, outputs: list[Tensor], leaves: list[Tensor], seeds: list[Tensor]) -> Gradients:
        """The gradients of ``leaves``."""
        with self._watch.running():
            return list(torch.autograd.grad(outputs, leaves, seeds, allow_unused=True))

    def compare_gradient(self, case: Case, actual: Tensor, expected: Tensor, what: str) -> None:
        """Fail unless the device's gradient is the CPU's. Its strides are the engine's business."""
        values = self.has_values(case) and not has_equal_elements(self.op, case.host)
        compare(actual, expected, self.device, self.tolerance, what, values=values, strides=False)

    def has_values(self, case: Case) -> bool:
        """Whether the values of results mean something."""
        return not case.is_random and self.op.name not in UNINITIALIZED

    def count(self) -> None:
        """Tell the report that a sample was tried."""
        self._compared += 1

    def compare(self, case: Case, actual: Any, answer: Answer) -> None:
        """Fail unless the device's result is the CPU's."""
        self.count()
        ours, theirs = (
            determined(self.op, sample, result)
            for sample, result in ((case.device, actual), (case.host, answer.result))
        )
        values = self.has_values(case)
        compare(ours, theirs, self.device, self.tolerance, case.what, values=values, strides=self._keeps_details)

    def compare_arguments(self, case: Case) -> None:
        """Fail unless the arguments hold after the call what they hold on the CPU."""
        if case.is_random:
            return
        pairs = zip(tensors(arguments(case.device)), tensors(arguments(case.host)), strict=True)
        for index, (one, other) in enumerate(pairs):
            compare_values(one, other, self.tolerance, f"{case.what}: tensor {index} of the arguments, after the call,")

    def expect_refusal(self, wrong: ErrorInput) -> None:
        """Fail unless the device refuses what PyTorch's test of such calls has for it, with type and text as there.

        Some of them PyTorch takes, and skips its test.
        """
        sample = wrong.sample_input
        host = sample.transform(lambda x: x.cpu() if isinstance(x, Tensor) and not x.is_meta else x)
        case = Case(host, sample, f"{full_name(self.op)}{summary(sample)}", False)
        if self.on_host(self.op, case).error is None:
            return
        self.count()
        ours = _error_of(lambda: (self.on_device(self.op, case), synchronize(self.device)))
        assert ours is not None, f"{case.what} raised nothing, PyTorch asks for {wrong.error_type.__name__}"
        same = isinstance(ours, wrong.error_type) and re.search(wrong.error_regex, str(ours))
        asked = f"PyTorch asks for {wrong.error_type.__name__} with '{wrong.error_regex}'"
        assert same, f"{case.what} raised {type(ours).__name__} ({ours}), {asked}"

    def expect_error(self, error: Exception, function: Callable[[], Any], what: str, *, in_words: bool = False) -> None:
        """Fail unless the device raises what the CPU does, and in the CPU's words if that is asked."""
        self.count()

        def finish() -> None:
            function()
            # An asynchronous device may find out only now.
            synchronize(self.device)

        ours = _error_of(finish)
        theirs = f"on the CPU {type(error).__name__} ({error})"
        assert ours is not None, f"{what} raised nothing, {theirs}"
        if full_name(self.op) in OTHER_EXCEPTIONS:
            assert type(ours) in {type(error), OTHER_EXCEPTIONS[full_name(self.op)][0]}, f"{what}: {ours!r}, {theirs}"
            return
        same = type(ours) is type(error) or (not self._keeps_details and isinstance(ours, type(error)))
        same = same and (not in_words or _says(str(ours), str(error), self.device))
        assert same, f"{what} raised {type(ours).__name__} ({ours}), {theirs}"


def _lacks_layout(sample: SampleInput) -> str | None:
    """Why the device has no tensors like the sample's; None if it has."""
    reasons = (_lacks(x.layout) for x in tensors(arguments(sample)))
    return next((reason for reason in reasons if reason is not None), None)


def _lacks(layout: torch.layout) -> str | None:
    if layout not in SPARSE_LAYOUTS:
        return None
    return routes.active().lacks("feature", "sparse" if layout is torch.sparse_coo else "sparse compressed")


_INDEX = re.compile(r"index (-?\d+) is out of bounds for dimension \d+ with size (\d+)")


def _says(ours: str, theirs: str, device: str) -> bool:
    """Whether the device's message has the CPU's, whichever device each names.

    What only the device can see, values and indices, it finds while it computes: its message says where and when too,
    and of an index that is out of range not in which dimension.
    """
    name = re.escape(device.split(":")[0])

    def words(text: str) -> str:
        return re.sub(rf"\b({name}|cpu)(:\d+)?\b", "device", text.split("\nException raised from")[0], flags=re.I)

    index = _INDEX.search(theirs)
    is_index = index is not None and f"index {index[1]} is out of range for a dimension of size {index[2]} on" in ours
    return is_index or words(theirs) in words(ours)


def _error_of(function: Callable[[], Any]) -> Exception | None:
    """What the function raises."""
    try:
        function()
    except Exception as error:
        return error
    return None


def _call(function: Callable[..., Any], sample: SampleInput, **kwargs: Any) -> Any:
    return function(sample.input, *sample.args, **sample.kwargs, **kwargs)
