"""What an operator returns is worked out once for arguments of the same shapes, on an asynchronous device."""

from fixtures import RunPython

COUNTED = """
    import torch

    calls = []

    def count(name, overload, kernel):
        def counted(*args, **kwargs):
            calls.append(name)
            return kernel(*args, **kwargs)
        library.impl(f"{name}.{overload}" if overload else name, counted, "Meta", allow_override=True)

    library = torch.library.Library("aten", "IMPL")
    count("flip", "", lambda x, dims: torch.empty_like(x))
    count("cumsum", "", lambda x, dim, dtype=None: torch.empty_like(x, dtype=dtype))
    count("renorm", "", lambda x, p, dim, maxnorm: torch.empty_like(x))
    count("_pdist_forward", "", lambda x, p: x.new_empty(len(x) * (len(x) - 1) // 2))

    def counts(*work):
        found = []
        for one in work:
            calls.clear()
            one()
            found.append(len(calls))
        return found

    x = torch.randn(3, 4, device="xcpu")
    y = torch.randn(3, 4, device="xcpu")
"""

ASYNC = {"TORCH_BACKEND": "xcpu", "TORCH_BACKEND_XCPU_ASYNC": "1"}


def test_the_same_shapes_are_worked_out_once(run_python: RunPython) -> None:
    run_python(
        COUNTED
        + """
    assert counts(lambda: x.flip(0), lambda: x.flip(0), lambda: y.flip(0)) == [1, 0, 0]
    assert torch.equal(y.flip(0).cpu(), y.cpu().flip(0))
    """,
        env=ASYNC,
    )


def test_other_arguments_are_worked_out_anew(run_python: RunPython) -> None:
    run_python(
        COUNTED
        + """
    assert counts(lambda: x.flip(0), lambda: x.flip(1), lambda: x[:2].flip(0), lambda: x.t().flip(0)) == [1] * 4
    assert counts(lambda: x.double().flip(0), lambda: x.flip([0, 1])) == [1, 1]
    assert counts(lambda: x.cumsum(0), lambda: x.cumsum(0, dtype=torch.float64), lambda: x.cumsum(0)) == [1, 1, 0]
    assert x.cumsum(0, dtype=torch.float64).dtype == torch.float64
    torch.set_default_dtype(torch.float64)
    assert counts(lambda: x.flip(0)) == [1]
    """,
        env=ASYNC,
    )


def test_a_number_that_changes_every_step_is_no_other_shape(run_python: RunPython) -> None:
    """A float for a Scalar counts by its sign and class; for a parameter that is a float, by its value."""
    run_python(
        COUNTED
        + """
    renorm = lambda maxnorm: lambda: x.renorm(2, 0, maxnorm)
    assert counts(renorm(0.5), renorm(0.25), renorm(3.0)) == [1, 0, 0]
    torch.testing.assert_close(x.renorm(2, 0, 0.125).cpu(), x.cpu().renorm(2, 0, 0.125))
    distances = lambda p: lambda: torch.pdist(x, p)
    assert counts(distances(0.5), distances(0.5), distances(0.25)) == [1, 0, 1]
    """,
        env=ASYNC,
    )


def test_sizes_that_come_from_numbers(run_python: RunPython) -> None:
    run_python(
        """
    import torch

    for end in (3.0, 5.0, 7.0):
        assert torch.arange(0.0, end, device="xcpu").tolist() == torch.arange(0.0, end).tolist()
        out = torch.empty(0, device="xcpu")
        assert torch.arange(0.0, end, out=out).tolist() == torch.arange(0.0, end).tolist()
    """,
        env=ASYNC,
    )


def test_a_refusal_is_raised_every_time(run_python: RunPython) -> None:
    run_python(
        """
    import torch

    x = torch.ones(3, 4, device="xcpu")
    for _ in range(3):
        for wrong in (lambda: x @ x, lambda: x.flip(2), lambda: x + torch.ones(5, device="xcpu")):
            try:
                wrong()
            except (RuntimeError, IndexError):
                continue
            raise AssertionError("nothing was raised")
    """,
        env=ASYNC,
    )


def test_an_operator_that_is_defined_anew(run_python: RunPython) -> None:
    """An operator of the user's may get another shape; nothing of the first one is left."""
    run_python(
        """
    import torch

    def define(rows):
        library = torch.library.Library("mine", "FRAGMENT")
        library.define("rows(Tensor x) -> Tensor")
        library.impl("rows", lambda x: torch.ones(rows, *x.shape), "CPU")
        library.impl("rows", lambda x: x.new_empty(rows, *x.shape), "Meta")
        return library

    x = torch.ones(3, device="xcpu")
    for rows in (2, 4, 6):
        library = define(rows)
        assert torch.equal(torch.ops.mine.rows(x).cpu(), torch.ones(rows, 3))
        library._destroy()
    """,
        env=ASYNC,
    )
