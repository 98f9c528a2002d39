"""PyTorch's operators compiled for the device give what they give compiled for the CPU, but for those that are listed.

By default a few entries with float32. ``make test-compiled-opinfo`` sets OPINFO=all: all entries and dtypes.
"""

import os

import compiled_opinfo
import pytest
import torch

ALL = os.environ.get("OPINFO") == "all"
SOME = [
    "addcmul",
    "argsort",
    "clamp",
    "cross",
    "cumprod",
    "diag_embed",
    "einsum",
    "fmod",
    "gather",
    "heaviside",
    "histc",
    "index_add",
    "kthvalue",
    "lerp",
    "linalg.inv",
    "logcumsumexp",
    "masked_scatter",
    "nn.functional.batch_norm",
    "nn.functional.conv2d",
    "nn.functional.grid_sample",
    "nn.functional.interpolate.bilinear",
    "nn.functional.max_pool2d",
    "nn.functional.unfold",
    "norm",
    "scatter_add",
    "searchsorted",
    "tril",
    "var_mean",
]
KNOWN = compiled_opinfo.known()
pytestmark = pytest.mark.skipif(
    ALL and torch.__version__.split("+")[0] not in compiled_opinfo.LIST.read_text().splitlines()[0],
    reason=f"{compiled_opinfo.LIST.name} is of another version of torch, whose entries and samples are others",
)


@pytest.mark.parametrize("dtype", compiled_opinfo.DTYPES if ALL else [torch.float32], ids=str)
@pytest.mark.parametrize("name", compiled_opinfo.ENTRIES if ALL else SOME)
def test_entry(name: str, dtype: torch.dtype) -> None:
    found = compiled_opinfo.try_entry(name, dtype)
    if found is None:
        assert ALL, "none of it compiles for the CPU"
        return
    kind, outcome = found
    known = KNOWN.get((name, str(kind)), compiled_opinfo.NOTHING)
    if not known.difference:
        assert not outcome.difference, outcome.difference
    if ALL:
        assert outcome.difference or not known.difference, f"{kind} is listed, and does not differ"
        assert outcome.fallbacks == known.fallbacks, f"{kind}; run compiled_opinfo.py if that is meant"
