"""torch_backend.fallback: policies and the report. Which operators fall back is another test's business."""

from collections.abc import Iterator
from types import ModuleType

import pytest
import torch

import torch_backend
from torch_backend import fallback

pytestmark = pytest.mark.usefixtures("backend")


@pytest.fixture(autouse=True)
def keep_policies() -> Iterator[None]:
    before = fallback.get_policies()
    yield
    for op in fallback.get_policies():
        if op not in before:
            torch_backend._C.fallback_set_policy(op or "", "")
    for op, policy in before.items():
        fallback.set_policy(op, policy)  # type: ignore[arg-type]


def call(name: str) -> None:
    torch.linalg.matrix_exp(torch.eye(8).to(name))


@pytest.fixture
def falls_back(name: str) -> str:
    """An overload that `call` leaves to the CPU."""
    with fallback.policy(None, "allow"):
        fallback.reset()
        call(name)
        report = fallback.report()
    if not report.entries:
        pytest.skip("the device has kernels for all of a matrix exponential")
    fallback.reset()
    return report.entries[0].op


def test_policy_of_one_operator() -> None:
    fallback.set_policy("aten::sort", "warn")
    assert fallback.get_policies()["aten::sort"] == "warn"
    fallback.set_policy(torch.ops.aten.sort, "error")
    assert fallback.get_policies()["aten::sort"] == "error"
    fallback.set_policy(torch.ops.aten.sort.stable, "allow")
    assert fallback.get_policies()["aten::sort.stable"] == "allow"


def test_policy_of_all() -> None:
    fallback.set_policy(None, "warn")
    assert fallback.get_policies()[None] == "warn"


def test_context_restores() -> None:
    fallback.set_policy(None, "allow")
    fallback.set_policy("aten::topk", "warn")
    with fallback.policy("aten::sort", "error"), fallback.policy("aten::topk", "error"), fallback.policy(None, "warn"):
        assert fallback.get_policies()["aten::topk"] == fallback.get_policies()["aten::sort"] == "error"
        assert fallback.get_policies()[None] == "warn"
    assert "aten::sort" not in fallback.get_policies()
    assert fallback.get_policies()["aten::topk"] == "warn"
    assert fallback.get_policies()[None] == "allow"


@pytest.mark.parametrize(
    ("op", "suggestion"),
    [
        ("aten::sotr", "aten::sort"),
        ("sort", "aten::sort"),
        ("aten::sort.stabel", "aten::sort.stable"),
        ("aten::zzzzzzzzzz", None),
    ],
)
def test_unknown_operator(op: str, suggestion: str | None) -> None:
    with pytest.raises(ValueError, match=f"There is no operator '{op}'") as caught:
        fallback.set_policy(op, "warn")
    assert ("Did you mean" in str(caught.value)) is (suggestion is not None)
    assert suggestion is None or suggestion in str(caught.value)


def test_unknown_policy() -> None:
    with pytest.raises(ValueError, match="policy is 'ignore'; expected one of 'allow', 'warn', 'error'"):
        fallback.set_policy(None, "ignore")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="expected an operator's name"):
        fallback.set_policy(3, "warn")  # type: ignore[arg-type]


def test_report_of_nothing() -> None:
    fallback.reset()
    report = fallback.report()
    assert (len(report), report.calls, report.bytes_copied) == (0, 0, 0)
    assert str(report) == "No operator fell back to the CPU."


def test_report_as_a_table() -> None:
    entries = (
        fallback.FallbackEntry("aten::sort.stable", 12, 3_000_000, 0.25),
        fallback.FallbackEntry("aten::topk", 1, 8, 0.5),
    )
    report = fallback.FallbackReport(entries)
    assert (report.calls, report.bytes_copied, report.seconds) == (13, 3_000_008, 0.75)
    assert [entry.op for entry in report] == ["aten::sort.stable", "aten::topk"]
    lines = str(report).splitlines()
    assert lines[1].split() == ["aten::sort.stable", "12", "3,000,000", "0.2500"]
    assert lines[-1].split() == ["total", "13", "3,000,008", "0.7500"]
    assert len({len(line) for line in lines}) == 1


def test_calls_are_counted(falls_back: str, name: str, backend: ModuleType) -> None:
    with fallback.policy(None, "allow"):
        call(name)
        call(name)
    (entry,) = (entry for entry in fallback.report() if entry.op == falls_back)
    assert entry.calls == 2
    assert 0 < entry.seconds < 60
    shared = "HOST_COHERENT" in backend.get_device_properties().capabilities
    assert (entry.bytes_copied == 0) is shared
    assert fallback.report().entries[0].calls == max(entry.calls for entry in fallback.report())
    fallback.reset()
    assert fallback.report().calls == 0


def test_error_policy_names_the_operator(falls_back: str, name: str) -> None:
    with fallback.policy(None, "error"), pytest.raises(RuntimeError, match=falls_back):
        call(name)
    with fallback.policy(falls_back, "error"):
        with pytest.raises(RuntimeError, match=falls_back):
            call(name)
        with fallback.policy(falls_back, "allow"):
            call(name)
    call(name)


def test_warn_policy_names_the_operator(falls_back: str, name: str) -> None:
    with fallback.policy(falls_back, "warn"), pytest.warns(UserWarning, match=falls_back):
        call(name)


def test_another_view_of_what_is_written(name: str) -> None:
    """Kernels of the CPU see that of copies too: they refuse it where they do on the CPU, and compute the same."""
    x, index = torch.arange(6.0, device=name).view(2, 3), torch.zeros(2, 3, dtype=torch.int64, device=name)
    for gather in (torch.take_along_dim, lambda x, index, dim, out: torch.gather(x.view(2, 3), dim, index, out=out)):
        with pytest.raises(RuntimeError, match="single memory location"):
            gather(x, index, 1, out=x)
    assert x.add_(x.view(2, 3)).tolist() == [[0.0, 2.0, 4.0], [6.0, 8.0, 10.0]]
    assert torch.cumsum(x.view(2, 3), 0, out=x).tolist() == [[0.0, 2.0, 4.0], [6.0, 10.0, 14.0]]
