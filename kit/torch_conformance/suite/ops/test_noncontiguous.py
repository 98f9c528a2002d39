"""Operators on tensors with gaps between their elements, and on images whose channels come last."""

from itertools import islice

import torch
from torch.testing._internal.opinfo.core import OpInfo

from torch_conformance.suite.ops._entries import each_operator, full_name, instantiate
from torch_conformance.suite.ops._operator_test import OperatorTest
from torch_conformance.suite.ops._samples import LAID_OUT_AS_ON_CUDA, arranged


class TestNoncontiguous(OperatorTest):
    """Every tensor argument has gaps, with values in them that must not be used."""

    @each_operator("noncontiguous", dtypes=(torch.float32, torch.bfloat16, torch.complex64, torch.int64, torch.bool))
    def test_noncontiguous(self, device: str, dtype: torch.dtype, op: OpInfo) -> None:
        """An operator on tensors with gaps, or images with channels last, gives what it gives on the CPU."""
        with self.trial(op, dtype, "noncontiguous", device).recorded() as trial, torch.no_grad():
            most = 1 if full_name(op) in LAID_OUT_AS_ON_CUDA else None
            for sample in (laid_out for each in trial.samples() for laid_out in islice(arranged(each), most)):
                case = trial.case(sample)
                answer = trial.on_host(op, case)
                if answer.error is not None:
                    continue
                actual = trial.on_device(op, case)
                trial.compare(case, actual, answer)
                trial.compare_arguments(case)


instantiate(TestNoncontiguous, globals())
