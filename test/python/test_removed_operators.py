"""Custom operators that get kernels late, are removed, and are defined again. Nothing of the former ones is left."""

import pytest
from fixtures import RunPython

MODES = {
    "xcpu": {"TORCH_BACKEND": "xcpu"},
    "fake": {"TORCH_BACKEND": "fake"},
    "asynchronous": {"TORCH_BACKEND": "xcpu", "TORCH_BACKEND_XCPU_ASYNC": "1", "TORCH_BACKEND_XCPU_DELAY_US": "0-300"},
}

START = """
    import gc, torch, torch_backend

    name = torch_backend.active().name
    x = torch.arange(3.0, device=name)

    def define(schema, kernel, meta=None):
        library = torch.library.Library("mine", "FRAGMENT")
        library.define(schema)
        operator = schema.split("(")[0]
        if kernel:
            library.impl(operator, kernel, "CPU")
        library.impl(operator, meta or kernel, "Meta")
        return library
"""


@pytest.fixture(params=MODES)
def run(request: pytest.FixtureRequest, run_python: RunPython):  # type: ignore[no-untyped-def]
    return lambda code: run_python(START + code, env=MODES[request.param])


def test_a_cpu_kernel_that_comes_after_the_first_call(run) -> None:  # type: ignore[no-untyped-def]
    run("""
    library = define("twice(Tensor x) -> Tensor", None, torch.empty_like)
    try:
        torch.ops.mine.twice(x)
    except NotImplementedError as error:
        assert "neither has the CPU" in str(error)
    else:
        raise AssertionError("nothing was raised")
    library.impl("twice", lambda x: x * 2, "CPU")
    assert torch.ops.mine.twice(x).tolist() == [0, 2, 4]
    """)


def test_another_schema(run) -> None:  # type: ignore[no-untyped-def]
    run("""
    for _ in range(2):
        library = define("combine(Tensor x) -> Tensor", lambda x: x * 2)
        assert torch.ops.mine.combine(x).tolist() == [0, 2, 4]
        library._destroy()
        library = define("combine(Tensor x, Tensor y, int z) -> Tensor", lambda x, y, z: x + y * z)
        assert torch.ops.mine.combine(x, x, 3).tolist() == [0, 4, 8]
        library._destroy()
        library = define("combine(Tensor(a!) x) -> ()", lambda x: x.add_(1).storage_offset() or None)
        y = x.clone()
        torch.ops.mine.combine(y)
        assert y.tolist() == [1, 2, 3]
        library._destroy()
        gc.collect()
    """)


def test_removed_while_its_kernel_waits(run) -> None:  # type: ignore[no-untyped-def]
    run("""
    for round in range(20):
        library = define("thrice(Tensor x) -> Tensor", lambda x: x * 3)
        y = x
        for _ in range(5):
            y = torch.ops.mine.thrice(y)
        library._destroy()
        gc.collect()
        assert y.tolist() == [0, 3**5, 2 * 3**5], y
    """)


def test_removed_after_it_was_captured(run_python: RunPython) -> None:
    run_python(
        START
        + """
    graph = torch.xcpu.Graph()
    library = define("thrice(Tensor x) -> Tensor", lambda x: x * 3)
    with torch.xcpu.graph(graph):
        y = torch.ops.mine.thrice(x)
    graph.replay()
    assert y.tolist() == [0, 3, 6]
    library._destroy()
    gc.collect()
    try:
        graph.replay()
        torch.xcpu.synchronize()
    except RuntimeError as error:
        assert "removed after the capture" in str(error), error
    else:
        raise AssertionError("nothing was raised")
    """,
        env=MODES["asynchronous"],
    )
