"""``@triton.jit`` kernels take tensors of the device, compiled by its backend, and by Triton's own interpreter."""

from pathlib import Path
from types import ModuleType

import interpreting_backend
import kernels
import pytest
import torch
import triton
from fixtures import RunPython

import torch_backend


def sum_of(x: torch.Tensor, y: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
    out = torch.empty_like(x)
    kernels.add[(triton.cdiv(x.numel(), 256),)](x, y, out, x.numel(), scale, BLOCK=256)
    return out


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64])
def test_a_kernel_reads_and_writes(device: str, dtype: torch.dtype) -> None:
    x, y = (torch.arange(1000).mul(step).to(dtype) for step in (1, 3))
    out = sum_of(x.to(device), y.to(device), scale=2 if dtype is torch.int64 else 0.5)
    expected = x + 2 * y if dtype is torch.int64 else (x.float() + 0.5 * y.float()).to(dtype)
    torch.testing.assert_close(out.cpu(), expected)


def test_rows_at_a_distance(device: str) -> None:
    x = torch.randn(5, 50)
    rows, out = x.to(device)[:, 3:40], torch.empty(5, 37, device=device)
    kernels.softmax[(5,)](rows, out, 37, rows.stride(0), BLOCK=64)
    torch.testing.assert_close(out.cpu(), x[:, 3:40].softmax(1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_blocks_of_a_product(device: str, dtype: torch.dtype) -> None:
    a, b = torch.randn(20, 50, dtype=dtype), torch.randn(50, 40, dtype=dtype)
    out = torch.empty(20, 40, dtype=dtype, device=device)
    kernels.matmul[(2, 3)](a.to(device), b.to(device), out, 20, 40, 50, BLOCK=16)
    torch.testing.assert_close(out.cpu(), a @ b, rtol=1e-3, atol=1e-2 if dtype is torch.float16 else 1e-4)


def test_no_block_is_no_launch(device: str) -> None:
    before = len(interpreting_backend.launches)
    assert sum_of(torch.empty(0, device=device), torch.empty(0, device=device)).numel() == 0
    assert len(interpreting_backend.launches) == before


def test_a_kernel_is_launched_on_the_current_stream(backend: ModuleType, device: str) -> None:
    """Between two operators of that stream, which may be late."""
    stream, x, y = backend.Stream(), torch.randn(3000), torch.randn(3000)
    with backend.stream(stream):
        out = sum_of(x.to(device) * 2, y.to(device)) + 1
    backend.current_stream().wait_stream(stream)
    assert interpreting_backend.launches[-1] == ("add", stream.native_handle)
    torch.testing.assert_close(out.cpu(), 2 * x + y + 1)


def test_autotuning_takes_the_time_on_the_device(device: str) -> None:
    x = torch.randn(100)
    out = torch.empty(100, device=device)
    kernels.twice[lambda meta: (triton.cdiv(100, meta["BLOCK"]),)](x.to(device), out, 100)
    torch.testing.assert_close(out.cpu(), 2 * x)
    assert len(kernels.twice.cache) == 1


def test_explain_names_the_kernels(device: str) -> None:
    library = torch.library.Library("triton_test", "FRAGMENT")
    library.define("total(Tensor x, Tensor y) -> Tensor")
    library.impl("total", sum_of, "PrivateUse1")
    x = torch.ones(300, device=device)
    explanation = torch_backend.explain("triton_test::total", x, x)
    assert explanation.trace is not None
    assert [(entry.op, entry.calls) for entry in explanation.trace if entry.source == "triton"] == [("add", 1)]
    assert "add  " in str(explanation)
    assert "triton" in str(explanation)


INTERPRETED = """
    import torch
    import kernels, triton
    from triton.runtime.interpreter import InterpretedFunction
    assert isinstance(kernels.add, InterpretedFunction)
    device = "{device}"
    x, y, out = torch.randn(500, device=device), torch.randn(500, device=device), torch.empty(500, device=device)
    stream = torch.Stream(device)
    with stream:
        kernels.add[(4,)](x * 2, y, out, 500, 1.0, BLOCK=128)
    torch.accelerator.current_stream().wait_stream(stream)
    torch.testing.assert_close((out + 1).cpu(), 2 * x.cpu() + y.cpu() + 1)
    """


def test_tritons_interpreter_takes_tensors_of_a_device_without_a_backend(run_python: RunPython, device: str) -> None:
    env = {"TRITON_INTERPRET": "1", "TORCH_BACKEND": device}
    run_python(INTERPRETED.format(device=device), env=env, packages=[Path(__file__).parent])
