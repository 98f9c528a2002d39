"""What all tests of operators are made of."""

import warnings
from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial
from typing import Any
from unittest import mock

import pytest
import torch
import torch.testing._utils
from torch.testing._internal import common_utils
from torch.testing._internal.common_utils import TestCase
from torch.testing._internal.opinfo.core import OpInfo

from torch_conformance import routes

from ._samples import most_samples, seed
from ._trial import Trial


class OperatorTest(TestCase):
    """A group of tests that :func:`._entries.instantiate` makes for the device."""

    quick = False
    device_type: str  # PyTorch gives it to the classes that it makes

    @pytest.fixture(autouse=True)
    def _of_run(self, quick: bool) -> Iterator[None]:
        self.quick = quick
        with warnings.catch_warnings(), nullcontext() if routes.has("generator") else _of_the_cpu_alone():
            warnings.simplefilter("ignore")  # the samples provoke them
            yield

    def setUp(self) -> None:
        """Check what PyTorch checks by default, not what it checks in its own tests."""
        # PyTorch keeps seeds for devices that are not there, each with a stack: that takes longer than many tests.
        with mock.patch.object(common_utils, "set_rng_seed", self._seed):
            super().setUp()
        torch.sparse.check_sparse_tensor_invariants.disable()

    def _seed(self) -> None:
        seed()
        module = getattr(torch, self.device_type, None)
        if hasattr(module, "manual_seed_all"):  # others have no generator of their own
            module.manual_seed_all(0)

    def trial(self, op: OpInfo, dtype: torch.dtype, part: str, device: str, *, most: int | None = None) -> Trial:
        """The operator with the dtype, for ``with self.trial(...).recorded() as trial``.

        ``most``: at most so many samples, if not as many as for other tests with the dtype.
        """
        return Trial(op, dtype, part, device, most=most or most_samples(dtype, quick=self.quick))


def _of_the_cpu_alone() -> Any:
    """The functions of PyTorch's entries that draw would also keep the state of a generator that is not there."""
    keep = partial(torch.random.fork_rng, devices=[])
    return mock.patch.object(torch.testing._utils, "freeze_rng_state", keep)
