"""What an operator returns is worked out once for arguments of the same shapes, on an asynchronous device."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from fixtures import in_process

ASYNC = {"TORCH_BACKEND": "xcpu", "TORCH_BACKEND_XCPU_ASYNC": "1"}

Counts = Callable[..., list[int]]


def counting() -> Counts:
    """A function that says how often each of some calls has worked out what it returns."""
    calls: list[str] = []
    library = torch.library.Library("aten", "IMPL")

    def count(name: str, kernel: Callable[..., Any]) -> None:
        def counted(*args: Any, **kwargs: Any) -> Any:
            calls.append(name)
            return kernel(*args, **kwargs)

        library.impl(name, counted, "Meta", allow_override=True)

    count("flip", lambda x, dims: torch.empty_like(x))
    count("cumsum", lambda x, dim, dtype=None: torch.empty_like(x, dtype=dtype))
    count("renorm", lambda x, p, dim, maxnorm: torch.empty_like(x))
    count("_pdist_forward", lambda x, p: x.new_empty(len(x) * (len(x) - 1) // 2))

    def counts(*work: Callable[[], object]) -> list[int]:
        found = []
        for one in work:
            calls.clear()
            one()
            found.append(len(calls))
        return found

    counts.library = library  # type: ignore[attr-defined]  # which is there as long as this
    return counts


@in_process(ASYNC)
def test_the_same_shapes_are_worked_out_once() -> None:
    counts, (x, y) = counting(), torch.randn(2, 3, 4, device="xcpu")
    assert counts(lambda: x.flip(0), lambda: x.flip(0), lambda: y.flip(0)) == [1, 0, 0]
    assert torch.equal(y.flip(0).cpu(), y.cpu().flip(0))


@in_process(ASYNC)
def test_other_arguments_are_worked_out_anew() -> None:
    counts, x = counting(), torch.randn(3, 4, device="xcpu")
    assert counts(lambda: x.flip(0), lambda: x.flip(1), lambda: x[:2].flip(0), lambda: x.t().flip(0)) == [1] * 4
    assert counts(lambda: x.double().flip(0), lambda: x.flip([0, 1])) == [1, 1]
    assert counts(lambda: x.cumsum(0), lambda: x.cumsum(0, dtype=torch.float64), lambda: x.cumsum(0)) == [1, 1, 0]
    assert x.cumsum(0, dtype=torch.float64).dtype == torch.float64
    torch.set_default_dtype(torch.float64)
    assert counts(lambda: x.flip(0)) == [1]


@in_process(ASYNC)
def test_a_number_that_changes_every_step_is_no_other_shape() -> None:
    """A float for a Scalar counts by its sign and class; for a parameter that is a float, by its value."""
    counts, x = counting(), torch.randn(3, 4, device="xcpu")
    assert counts(*(lambda m=m: x.renorm(2, 0, m) for m in (0.5, 0.25, 3.0))) == [1, 0, 0]
    torch.testing.assert_close(x.renorm(2, 0, 0.125).cpu(), x.cpu().renorm(2, 0, 0.125))
    assert counts(*(lambda p=p: torch.pdist(x, p) for p in (0.5, 0.5, 0.25))) == [1, 0, 1]


@in_process(ASYNC)
def test_sizes_that_come_from_numbers() -> None:
    for end in (3.0, 5.0, 7.0):
        assert torch.arange(0.0, end, device="xcpu").tolist() == torch.arange(0.0, end).tolist()
        out = torch.empty(0, device="xcpu")
        assert torch.arange(0.0, end, out=out).tolist() == torch.arange(0.0, end).tolist()


@in_process(ASYNC)
def test_a_refusal_is_raised_every_time() -> None:
    x = torch.ones(3, 4, device="xcpu")
    for _ in range(3):
        for wrong in (lambda: x @ x, lambda: x.flip(2), lambda: x + torch.ones(5, device="xcpu")):
            with pytest.raises((RuntimeError, IndexError)):
                wrong()
