"""In-place operators."""

import torch
from torch import Tensor
from torch.testing._internal.opinfo.core import OpInfo
from torch.utils._pytree import tree_map

from torch_conformance.suite.ops._entries import each_operator, instantiate
from torch_conformance.suite.ops._operator_test import OperatorTest
from torch_conformance.suite.ops._samples import tensors, with_gaps
from torch_conformance.suite.ops._trial import Case, Trial

DTYPES = (torch.float32, torch.complex64, torch.int64, torch.bool)


def _has_in_place(op: OpInfo) -> bool:
    return op.inplace_variant is not None


class TestInPlace(OperatorTest):
    """On tensors that span their memory, and on tensors with gaps."""

    @each_operator("in_place", select=_has_in_place, dtypes=DTYPES)
    def test_in_place(self, device: str, dtype: torch.dtype, op: OpInfo) -> None:
        """An in-place operator writes the CPU's result into its input, returns that, and fails where the CPU does."""
        with self.trial(op, dtype, "in_place", device).recorded() as trial, torch.no_grad():
            for sample in trial.samples():
                sample.input = _copied(sample.input)
                _try(trial, trial.case(sample))

    @each_operator("in_place", select=_has_in_place, dtypes=DTYPES[:1])
    def test_in_place_with_gaps(self, device: str, dtype: torch.dtype, op: OpInfo) -> None:
        """An in-place operator on a tensor with gaps between its elements changes the elements and not the gaps."""
        with self.trial(op, dtype, "in_place", device).recorded() as trial, torch.no_grad():
            for sample in trial.samples():
                sample.input = with_gaps(_copied(sample.input))
                case = trial.case(sample)
                gaps = [_gaps_of(one) for one in tensors(case.device.input) if _has_gaps(one)]
                _try(trial, case)
                untouched = all(bool(gap.cpu().isnan().all()) for gap in gaps)
                assert untouched, f"in place, {case.what} wrote into the gaps between the input's elements"


def _try(trial: Trial, case: Case) -> None:
    variant = trial.op.inplace_variant
    before = _addresses(case.host.input)
    answer = trial.on_host(variant, case)
    if answer.error is not None:
        trial.expect_error(answer.error, lambda: trial.on_device(variant, case), f"in place, {case.what}")
        return
    stays = _addresses(case.host.input) == before
    addresses = _addresses(case.device.input)
    result = trial.on_device(variant, case)
    same = result is case.device.input or not isinstance(case.device.input, Tensor)
    assert same, f"in place, {case.what} returned another tensor than its input"
    moved = stays and _addresses(case.device.input) != addresses
    assert not moved, f"in place, {case.what} moved its input to other memory"
    answer.result = case.host.input
    trial.compare(case, case.device.input, answer)
    trial.compare_arguments(case)


def _copied(value: object) -> object:
    """``value`` with memory of its own, without gaps: samples may share theirs."""

    def copied(leaf: object) -> object:
        if not isinstance(leaf, Tensor):
            return leaf
        kept = leaf.layout is not torch.strided
        return leaf.detach().clone() if kept else leaf.detach().clone(memory_format=torch.contiguous_format)

    return tree_map(copied, value)


def _addresses(value: object) -> list[int]:
    return [x.data_ptr() for x in tensors(value) if x.layout is torch.strided]


def _has_gaps(x: Tensor) -> bool:
    return x.layout is torch.strided and not x.is_contiguous()


def _gaps_of(x: Tensor) -> Tensor:
    """The elements between those of ``x``, which has one before each."""
    return x.as_strided((x.numel(),), (2,), x.storage_offset() - 1)


instantiate(TestInPlace, globals())
