"""``torch.compile`` writes Triton for the device, and the backend's kernels compute what eager mode does."""

from collections.abc import Callable
from pathlib import Path

import interpreting_backend
import pytest
import torch
import torch.nn.functional as F
from fixtures import RunPython
from torch._dynamo.device_interface import get_interface_for_device
from torch._dynamo.testing import CompileCounterWithBackend
from torch.nn.attention.flex_attention import flex_attention

pytestmark = pytest.mark.usefixtures("without_tuning")

torch.manual_seed(0)
x, y = torch.randn(33, 70), torch.randn(33, 70)
GRAPHS: dict[str, tuple[Callable[..., torch.Tensor], tuple[torch.Tensor, ...]]] = {
    "pointwise": (lambda a, b: (a * b + 1).relu().exp(), (x, y)),
    "broadcast": (lambda a, b: a[:, :1] * b[0] - b.sigmoid(), (x, y)),
    "sum": (lambda a: a.square().sum(), (x,)),
    "long rows": (lambda a: a.amax(1), (torch.randn(3, 3000),)),
    "columns": (lambda a: a.mean(0), (x,)),
    "softmax": (lambda a: a.softmax(1), (x,)),
    "layer norm": (lambda a: F.layer_norm(a, (70,)), (x,)),
    "bfloat16": (lambda a: F.gelu(a * 2), (x.bfloat16(),)),
    "indices": (lambda a, i: a[i].sum(1), (x, torch.tensor([3, 1, 32]))),
    "product": (lambda a, b: F.gelu(a @ b.T), (x, y)),
    "int64": (lambda a: (a * 3) // 2, (torch.arange(100),)),
}


@pytest.mark.parametrize("graph", GRAPHS)
def test_graphs_are_kernels_of_triton(device: str, graph: str) -> None:
    function, inputs = GRAPHS[graph]
    before = len(interpreting_backend.launches)
    compiled = torch.compile(function)(*(each.to(device) for each in inputs))
    assert compiled.device.type == device
    # Products and sums may be fused on one side, and exp makes relative errors of absolute ones.
    tolerance = dict.fromkeys(("rtol", "atol"), 2e-2 if compiled.dtype is torch.bfloat16 else 1e-5)
    torch.testing.assert_close(compiled.cpu(), function(*inputs), **tolerance)
    names = [name for name, _ in interpreting_backend.launches[before:]]
    assert names
    assert all(name.startswith("triton_") for name in names)


def test_a_training_step(device: str) -> None:
    def step(on: str) -> list[torch.Tensor]:
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.LayerNorm(32), torch.nn.GELU()).to(on)
        run = torch.compile(model) if on == device else model
        run(torch.linspace(-1, 1, 64).reshape(4, 16).to(on)).square().sum().backward()
        return [parameter.grad.cpu() for parameter in model.parameters()]

    for compiled, eager in zip(step(device), step("cpu"), strict=True):
        torch.testing.assert_close(compiled, eager, rtol=1e-4, atol=1e-4)


def test_sizes_that_change_are_one_graph(device: str) -> None:
    counter = CompileCounterWithBackend("inductor")
    run = torch.compile(lambda a: (a + 1).sum(1), backend=counter, dynamic=True)
    for rows in (3, 5, 9):
        a = torch.randn(rows, 20)
        torch.testing.assert_close(run(a.to(device)).cpu(), (a + 1).sum(1))
    assert counter.frame_count == 1


def test_kernels_of_a_user_are_part_of_the_graph(device: str) -> None:
    import kernels

    def run(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(a)
        kernels.add[(1,)](a * 2, b, out, 100, 1.0, BLOCK=128)
        return out + 1

    a, b = torch.randn(100), torch.randn(100)
    got = torch.compile(run, fullgraph=True)(a.to(device), b.to(device))
    torch.testing.assert_close(got.cpu(), 2 * a + b + 1)


def test_attention_is_its_dense_form(device: str) -> None:
    q = torch.randn(1, 2, 32, 16)
    compiled = torch.compile(flex_attention)(*(q.to(device) for _ in range(3)))
    torch.testing.assert_close(compiled.cpu(), flex_attention(q, q, q), rtol=1e-3, atol=1e-3)


def test_random_numbers_follow_from_the_seed(device: str) -> None:
    run = torch.compile(lambda a: F.dropout(a, 0.5))
    results = []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        results.append(run(torch.ones(500, device=device)).cpu())
    assert torch.equal(results[0], results[1])
    assert not torch.equal(results[0], results[2])
    assert 200 < results[0].count_nonzero() < 300


def test_the_interface_asks_the_vendor(device: str) -> None:
    interface = get_interface_for_device(device)
    assert interface.is_triton_capable()
    interface.raise_if_triton_unavailable()
    assert interface.get_device_properties().warp_size == 32  # the target's


@pytest.mark.parametrize("aot", [False, True])
def test_code_in_cpp_is_refused(device: str, aot: bool) -> None:
    a = torch.ones(3, device=device)

    def compile() -> None:
        if aot:
            torch._inductor.aoti_compile_and_package(torch.export.export(torch.nn.ReLU(), (a,)))
        else:
            torch.compile(lambda a: a + 1, options={"cpp_wrapper": True})(a)

    said = f"makes no package of this for {device}" if aot else f"kernels of {device} are called from Python"
    with pytest.raises(Exception, match=said):
        compile()


def test_graphs_can_be_interpreted_by_triton(run_python: RunPython, device: str, installed: Path) -> None:
    run_python(
        f"""
        import torch
        a = torch.randn(9, 50)
        compiled = torch.compile(lambda a: (a + 1).softmax(1))
        torch.testing.assert_close(compiled(a.to("{device}")).cpu(), (a + 1).softmax(1))
        from torch._inductor.codegen import common
        assert common.get_scheduling_for_device("{device}").__name__ == "DeviceTritonScheduling"
        """,
        env={"TRITON_INTERPRET": "1", "TORCH_BACKEND": device},
        packages=[installed, Path(__file__).parent],
    )
