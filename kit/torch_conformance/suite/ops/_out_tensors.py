"""Tensors for ``out=`` of the right and of the wrong kind, and what becomes of them."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.testing._internal.opinfo.core import SampleInput
from torch.utils._pytree import tree_map

from ._samples import arguments, tensors
from ._trial import Answer, Case, Trial

WHOLE = "that is an argument"

MakeOut = Callable[[Tensor, str], Tensor]
"""Makes the tensor to write to, from a result on the CPU, on a device."""


def garbage(x: Tensor, device: str) -> Tensor:
    """A tensor like ``x`` with values that no result should have."""
    value = float("nan") if x.is_floating_point() or x.is_complex() else 1
    return torch.full_like(x, value).to(device)


def with_gaps(x: Tensor, device: str) -> Tensor:
    """A tensor with the shape of ``x``, whose elements do not lie next to each other."""
    return torch.zeros((*x.shape, 2), dtype=x.dtype, device=device)[..., 1]


def empty(x: Tensor, device: str) -> Tensor:
    return torch.empty(0, dtype=x.dtype, device=device)


def larger(x: Tensor, device: str) -> Tensor:
    """A tensor of another shape, with elements."""
    return torch.ones((*x.shape, 3), dtype=x.dtype, device=device)


def of_other_dtype(x: Tensor, device: str) -> Tensor:
    dtype = torch.int32 if x.dtype.is_floating_point or x.dtype.is_complex else torch.float32
    return torch.zeros_like(x, dtype=torch.bool if x.dtype is torch.int32 else dtype).to(device)


OUTS = {
    "of garbage": garbage,
    "with gaps": with_gaps,
    "empty": empty,
    "of wrong shape": larger,
    "of wrong dtype": of_other_dtype,
}
"""The kinds of tensors to write to that share no memory."""


def try_out(trial: Trial, make: MakeOut) -> None:
    """Fail unless ``out=`` tensors that are made like this get the results, or are refused, as on the CPU."""
    with torch.no_grad():
        for case, results in results_of(trial):
            _try(trial, case, results, make)


def try_overlaps(trial: Trial) -> None:
    """Fail if the CPU refuses ``out=`` tensors that share memory, and the device does not."""
    with torch.no_grad():
        for case, results in results_of(trial):
            for what, sample in _overlaps(case.host, results):
                if what != WHOLE or not case.is_random:  # whose arguments are looked at when some is written
                    _try_overlap(trial, trial.case(sample), what, results)


def _overlaps(sample: SampleInput, results: Any) -> Iterator[tuple[str, SampleInput]]:
    """The sample with ``out=`` tensors of the right kind, one of which is where it must not be."""
    for place, result in enumerate(tensors(results)):
        count, shape = result.numel(), result.shape
        if count < 2:
            continue
        roomy = torch.zeros(2 * count, dtype=result.dtype)
        yield (
            "that repeats an element",
            _with_out(sample, results, place, roomy[:1].view([1] * len(shape)).expand(shape)),
        )
        for x in {id(x): x for x in tensors(arguments(sample))}.values():
            if x.shape == shape and x.dtype is result.dtype and x.layout is torch.strided and x.is_contiguous():
                memory = torch.cat([x.flatten(), roomy])
                moved = _replaced(sample, x, memory[:count].view(shape))
                yield WHOLE, _with_out(sample, results, place, x)
                yield "beside an argument", _with_out(moved, results, place, memory[1 : count + 1].view(shape))


def _replaced(sample: SampleInput, one: Tensor, other: Tensor) -> SampleInput:
    args, kwargs, input_ = tree_map(lambda x: other if x is one else x, (sample.args, sample.kwargs, sample.input))
    return SampleInput(input_, args=args, kwargs=kwargs)  # type: ignore[no-untyped-call]


def _with_out(sample: SampleInput, results: Any, place: int, out: Tensor) -> SampleInput:
    outs = [out if index == place else torch.zeros_like(x) for index, x in enumerate(tensors(results))]
    given = outs[0] if isinstance(results, Tensor) else tuple(outs)
    return SampleInput(sample.input, args=sample.args, kwargs={**sample.kwargs, "out": given})  # type: ignore[no-untyped-call]


def _try_overlap(trial: Trial, case: Case, what: str, results: Any) -> None:
    """``results``: what the CPU computes without the overlap."""
    where = f"{case.what} with out= {what}"
    trial.count()
    ours = None
    try:
        trial.on_device(trial.op, case)
    except Exception as error:
        ours = error
    # The CPU does not refuse all that it computes wrong, some of it to the loss of its own memory.
    refused = "unsupported operation" in str(ours)
    if what != WHOLE and refused:
        return
    theirs = trial.on_host(trial.op, case)
    if refused and theirs.error is None and not _are_close(theirs.result, results):
        return
    assert type(ours) is type(theirs.error), f"{where} raised {ours!r}, on the CPU {theirs.error!r}"


def _are_close(some: Any, others: Any) -> bool:
    return all(
        one.shape == other.shape and bool(torch.isclose(one, other, equal_nan=True).all())
        for one, other in zip(tensors(some), tensors(others), strict=True)
    )


@contextmanager
def _resizes() -> Iterator[list[str]]:
    """What is said inside of ``out=`` tensors that were resized."""
    told: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield told
    told += [
        str(one.message) for one in caught if "An output with one or more elements was resized" in str(one.message)
    ]


def _addresses(value: Any) -> list[int]:
    return [x.data_ptr() for x in tensors(value) if x.layout is torch.strided]


def results_of(trial: Trial) -> Iterator[tuple[Case, Any]]:
    """The cases and what the CPU returns for them: a tensor, or a tuple of tensors."""
    for case in trial.cases():
        results = trial.on_host(trial.op, case).result
        if isinstance(results, tuple | list) and all(isinstance(x, Tensor) for x in results):
            yield case, tuple(results)
        elif isinstance(results, Tensor) and results.layout is torch.strided:
            yield case, results


def _try(trial: Trial, case: Case, results: Any, make: MakeOut) -> None:
    of_host, of_device = (
        tree_map(lambda x, device=device: make(x, device), results) for device in ("cpu", trial.device)
    )
    shape = [list(x.shape) for x in tensors(of_device)]
    case.what = f"{case.what} with out= of {[str(x.dtype) for x in tensors(of_device)]} {shape}"
    before = _addresses(of_host)
    with _resizes() as told:
        answer = trial.on_host(trial.op, case, out=of_host)
    if answer.error is not None:
        trial.expect_error(answer.error, lambda: trial.on_device(trial.op, case, out=of_device), case.what)
        return
    if trial.has_values(case) and not _agree(of_host, results):
        trial.leave_out("the CPU's own out= does not hold what it returns without out=, so nothing says what is right")
        return
    # Where elements lie on the CPU says whether they may be elsewhere than before.
    stays = _addresses(of_host) == before
    addresses = _addresses(of_device)
    with _resizes() as told_on_device:
        returned = trial.on_device(trial.op, case, out=of_device)
    assert told_on_device or not told, f"{case.what} did not warn that it resized out=, as the CPU does"
    pairs = zip(tensors(returned), tensors(of_device), strict=False)
    assert len(tensors(returned)) == len(tensors(answer.result)), f"{case.what} does not return what it does on the CPU"
    assert all(one is other for one, other in pairs), f"{case.what} returned another tensor than out="
    moved = stays and _addresses(of_device) != addresses
    assert not moved, f"{case.what} moved out= to other memory though it had room for the result"
    trial.compare(case, of_device, Answer(of_host))


def _agree(outs: Any, results: Any) -> bool:
    """Whether ``out=`` holds the results, up to the roundings of another dtype."""
    for out, result in zip(tensors(outs), tensors(results), strict=True):
        close = {"rtol": 1e-2, "atol": 1e-2} if out.is_floating_point() or out.is_complex() else {"rtol": 0, "atol": 0}
        try:
            torch.testing.assert_close(out, result.to(out.dtype), equal_nan=True, check_stride=False, **close)
        except AssertionError:
            return False
    return True
