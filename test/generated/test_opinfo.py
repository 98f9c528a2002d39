"""What of PyTorch's operators falls back is what ``opinfo_fallbacks.txt`` lists, and nothing differs from the CPU.

By default one sample of each entry with float32. ``make test-opinfo`` sets OPINFO=all: all dtypes and all samples. The
list is of one version of torch; on others, whose entries and samples are others, only values are compared.
"""

import os

import opinfo
import pytest
import torch
from torch.testing._internal.opinfo.core import BinaryUfuncInfo, UnaryUfuncInfo

ALL = os.environ.get("OPINFO") == "all"
MOST = None if ALL else 1
DTYPES = opinfo.DTYPES if ALL else (torch.float32,)
KNOWN = opinfo.known()
UFUNCS = (UnaryUfuncInfo, BinaryUfuncInfo)
IS_LISTED = torch.__version__.split("+")[0] in opinfo.LIST.read_text().splitlines()[0]


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("name", opinfo.ENTRIES)
def test_entry(name):
    op = opinfo.ENTRIES[name]
    for kind in opinfo.kinds_of(op):
        outcome = opinfo.attempt(op, kind, MOST) if kind.dtype in DTYPES else None
        if outcome is not None:
            assert not outcome.difference, f"{kind}: {outcome.difference}"
            if not IS_LISTED:
                continue
            known = KNOWN.get(name, {}).get(str(kind), [])
            if ALL:
                assert outcome.fallbacks == known, f"{kind}; run test/generated/opinfo.py if that is meant"
            else:
                assert set(outcome.fallbacks) <= set(known), f"{kind}; run test/generated/opinfo.py if that is meant"


@pytest.mark.parametrize("name", opinfo.ENTRIES)
def test_entry_with_nan_and_infinities(name):
    op = opinfo.ENTRIES[name]
    for kind in opinfo.kinds_of(op):
        is_tried = kind.dtype.is_floating_point and kind.dtype in DTYPES
        outcome = opinfo.attempt(op, kind, MOST, opinfo.SpecialTrial) if is_tried else None
        assert outcome is None or not outcome.difference, f"{kind}: {outcome.difference}"


@pytest.mark.parametrize("name", [name for name, op in opinfo.ENTRIES.items() if isinstance(op, UFUNCS)])
def test_gradients_of_zeros(name):
    op = opinfo.ENTRIES[name]
    for kind in opinfo.kinds_of(op):
        is_tried = kind.direction == "backward" and kind.dtype.is_floating_point and kind.dtype in DTYPES
        outcome = opinfo.attempt(op, kind, MOST, opinfo.ZerosTrial) if is_tried else None
        assert outcome is None or not outcome.difference, f"{kind}: {outcome.difference}"


def attempts(name, ways, most):
    """Fail if a sample of the entry, with one dtype, differs in any of these ways."""
    op = opinfo.ENTRIES[name]
    dtypes = [dtype for dtype in opinfo.DTYPES if dtype in op.supported_dtypes("cpu")]
    for way in ways if dtypes else ():
        if not opinfo.reason_to_leave_out(name, opinfo.dtype_name(dtypes[0]), way.split()[0]):
            outcome = opinfo.attempt(op, opinfo.Kind(way, dtypes[0]), most)
            assert outcome is None or not outcome.difference, f"{way}: {outcome.difference}"


@pytest.mark.parametrize("name", [name for name, op in opinfo.ENTRIES.items() if op.supports_out])
def test_entry_with_out(name):
    """Tensors to write to are taken and refused as on the CPU: of other sizes and dtypes, arguments, overlapping."""
    attempts(name, [way for way in opinfo.TRIALS if way.startswith("out")], MOST)


@pytest.mark.parametrize("name", [name for name in opinfo.ENTRIES if name not in opinfo.READS_ALL_MEMORY])
def test_entry_with_layouts(name):
    """Results of permuted, expanded and channels_last arguments have the CPU's values and strides."""
    attempts(name, ["laid out"], None if ALL else 8)


@pytest.mark.skipif(not IS_LISTED, reason=f"{opinfo.LIST.name} is of another version of torch, with other entries")
@pytest.mark.parametrize("kind", opinfo.KINDS)
def test_share(kind):
    """At least 75 % of the forward and 80 % of the backward entries need no CPU, by the list."""
    shares = dict(
        line.removeprefix("#   ").split(": ") for line in opinfo.LIST.read_text().splitlines() if ": " in line
    )
    if kind not in shares:
        assert kind in ("backward int64", "backward bool")
        return
    served, total = map(int, shares[kind].split(" of "))
    assert total - served == sum(kind in kinds for kinds in KNOWN.values())
    assert served / total >= (0.75 if kind.startswith("forward") else 0.8)
