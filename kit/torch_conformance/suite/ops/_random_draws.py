"""Which samples make an operator draw random numbers, whose values cannot be compared."""

from functools import cache
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo, SampleInput
from torch.utils._python_dispatch import TorchDispatchMode

from ._entries import full_name
from ._samples import samples

MANY = 40
"""Samples among which there is one that draws random numbers, if there is any."""

_ENTRIES = {full_name(op): op for op in op_db}


class DrawsOfHost(TorchDispatchMode):
    """Notices whether an operator inside draws from the CPU's generator.

    The generator's state before and after an entry does not tell: many put it back.
    """

    def __init__(self) -> None:
        super().__init__()
        self.any = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operator."""
        if torch.Tag.nondeterministic_seeded not in func.tags:
            return func(*args, **(kwargs or {}))
        before = torch.get_rng_state()
        result = func(*args, **(kwargs or {}))
        self.any |= not torch.equal(before, torch.get_rng_state())
        return result


def draws_random_numbers(op: OpInfo, sample: SampleInput) -> bool:
    """Whether the operator draws random numbers for the sample."""
    return _draws_for_any(full_name(op)) and _draws(op, sample)


@cache
def _draws_for_any(operator: str) -> bool:
    op = _ENTRIES[operator]
    dtypes = op.supported_dtypes("cpu")
    if not dtypes:
        return False
    dtype = torch.float32 if torch.float32 in dtypes else min(dtypes, key=str)
    return any(_draws(op, sample) for sample in samples(op, dtype, MANY))


def _draws(op: OpInfo, sample: SampleInput) -> bool:
    with DrawsOfHost() as draws, torch.no_grad():
        try:
            op(sample.input, *sample.args, **sample.kwargs)
        except Exception:
            return draws.any
    return draws.any
