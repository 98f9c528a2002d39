"""Results that are written to tensors of the caller: ``out=``."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.testing._internal.opinfo.core import OpInfo
from torch.utils._pytree import tree_map

from torch_backend.testing.suite.ops._entries import each_operator, instantiate
from torch_backend.testing.suite.ops._operator_test import OperatorTest
from torch_backend.testing.suite.ops._samples import tensors
from torch_backend.testing.suite.ops._trial import Answer, Case, Trial

DTYPES = (torch.float32, torch.complex64, torch.int64, torch.bool)

MOST = 10
"""Samples of an operator: what happens to out= depends little on them."""

MakeOut = Callable[[Tensor, str], Tensor]
"""Makes the tensor to write to, from a result on the CPU, on a device."""


def _garbage(x: Tensor, device: str) -> Tensor:
    """A tensor like ``x`` with values that no result should have."""
    value = float("nan") if x.is_floating_point() or x.is_complex() else 1
    return torch.full_like(x, value).to(device)


def _with_gaps(x: Tensor, device: str) -> Tensor:
    """A tensor with the shape of ``x``, whose elements do not lie next to each other."""
    return torch.zeros((*x.shape, 2), dtype=x.dtype, device=device)[..., 1]


def _empty(x: Tensor, device: str) -> Tensor:
    return torch.empty(0, dtype=x.dtype, device=device)


def _larger(x: Tensor, device: str) -> Tensor:
    """A tensor of another shape, with elements."""
    return torch.ones((*x.shape, 3), dtype=x.dtype, device=device)


def _of_other_dtype(x: Tensor, device: str) -> Tensor:
    dtype = torch.int32 if x.dtype.is_floating_point or x.dtype.is_complex else torch.float32
    return torch.zeros_like(x, dtype=torch.bool if x.dtype is torch.int32 else dtype).to(device)


def _takes_out(op: OpInfo) -> bool:
    return bool(op.supports_out)


class TestOut(OperatorTest):
    """``out=`` tensors of the right and of the wrong kind."""

    @each_operator("out", select=_takes_out, dtypes=DTYPES)
    def test_out(self, device: str, dtype: torch.dtype, op: OpInfo) -> None:
        """An out= tensor of the result's shape gets the result in its own memory and is what the operator returns."""
        self._try_with(op, dtype, device, _garbage)

    @each_operator("out", select=_takes_out, dtypes=DTYPES)
    def test_out_with_gaps(self, device: str, dtype: torch.dtype, op: OpInfo) -> None:
        """An out= tensor with gaps between its elements keeps its strides and gets the result."""
        self._try_with(op, dtype, device, _with_gaps)

    @each_operator("out", select=_takes_out, dtypes=DTYPES)
    def test_out_empty(self, device: str, dtype: torch.dtype, op: OpInfo) -> None:
        """An empty out= tensor is resized to the result, or refused where the CPU refuses it."""
        self._try_with(op, dtype, device, _empty)

    @each_operator("out", select=_takes_out, dtypes=DTYPES[:1])
    def test_out_of_wrong_shape(self, device: str, dtype: torch.dtype, op: OpInfo) -> None:
        """An out= tensor of the wrong shape is resized or refused as on the CPU."""
        self._try_with(op, dtype, device, _larger)

    @each_operator("out", select=_takes_out, dtypes=DTYPES)
    def test_out_of_wrong_dtype(self, device: str, dtype: torch.dtype, op: OpInfo) -> None:
        """An out= tensor of another dtype gets the converted result or is refused as on the CPU."""
        self._try_with(op, dtype, device, _of_other_dtype)

    # torch.lu copies its results to out= in Python, which works between devices.
    @each_operator("out", select=lambda op: _takes_out(op) and op.name != "lu", dtypes=DTYPES[:1])
    def test_out_on_the_cpu(self, device: str, dtype: torch.dtype, op: OpInfo) -> None:
        """A result of device tensors is not written to an out= tensor on the CPU."""
        with self.trial(op, dtype, "out", device, most=MOST).recorded() as trial, torch.no_grad():
            for case, results in _results(trial):
                if any(x.numel() == 0 for x in tensors(results)) or not tensors(case.device.input):
                    continue
                if trial.on_host(op, case, out=tree_map(lambda x: _garbage(x, "cpu"), results)).error is not None:
                    continue  # an entry whose out= is not like its results
                out = tree_map(lambda x: _garbage(x, "cpu"), results)
                error = RuntimeError("all tensors have to be on one device")
                what = f"{case.what} with out= on the CPU"
                trial.expect_error(error, lambda case=case, out=out: trial.on_device(op, case, out=out), what)

    def _try_with(self, op: OpInfo, dtype: torch.dtype, device: str, make: MakeOut) -> None:
        with self.trial(op, dtype, "out", device, most=MOST).recorded() as trial, torch.no_grad():
            for case, results in _results(trial):
                _try(trial, case, results, make)


def _addresses(value: Any) -> list[int]:
    return [x.data_ptr() for x in tensors(value) if x.layout is torch.strided]


def _results(trial: Trial) -> Iterator[tuple[Case, Any]]:
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
    returned = trial.on_device(trial.op, case, out=of_device)
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


instantiate(TestOut, globals())
