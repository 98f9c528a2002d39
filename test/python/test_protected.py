"""Protected device memory: the host touches it through the plugin only, and dies if it does not.

The tests need a device with such memory. On any other, the last one of this file runs them in a process of their own on
xcpu.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from fixtures import RunPython, clean_environment
from torch.nn import functional as F

PROTECTED = {"TORCH_BACKEND": "xcpu", "TORCH_BACKEND_XCPU_PROTECT": "1"}


@pytest.fixture
def protected(backend: ModuleType, name: str) -> str:
    """The device's name."""
    if name != "xcpu" or os.environ.get("TORCH_BACKEND_XCPU_PROTECT") != "1":
        pytest.skip("needs protected memory")
    assert "HOST_COHERENT" not in backend.get_device_properties().capabilities
    return name


def test_operators(protected: str) -> None:
    x = torch.arange(12.0).view(3, 4).to(protected)
    expected = torch.arange(12.0).view(3, 4)
    assert torch.equal((x * 2 + 1).cpu(), expected * 2 + 1)
    assert torch.equal((x @ x.t()).cpu(), expected @ expected.t())
    assert x.sum().item() == 66
    assert x.t()[1].tolist() == [1, 5, 9]
    x[1, ::2] = -1
    assert x[1].tolist() == [-1, 5, -1, 7]
    assert torch.cat([x, x]).shape == (6, 4)
    assert x.add_(1) is x


def test_operators_that_fall_back(protected: str) -> None:
    x = torch.eye(3).to(protected) * 4
    q, r = torch.linalg.qr(x)
    torch.testing.assert_close((q @ r).cpu(), torch.eye(3) * 4)
    assert torch.linalg.inv(x).diagonal().tolist() == [0.25] * 3
    out = torch.empty(0, device=protected)
    assert torch.lgamma(x, out=out) is out
    assert torch.sort(x, descending=True)[0][0].tolist() == [4, 0, 0]


def test_views_and_strides(protected: str) -> None:
    base = torch.zeros(6, 8, device=protected)
    base[::2, 1::3].add_(1)
    assert base.sum().item() == 9
    assert torch.view_as_real(torch.view_as_complex(base.view(6, 4, 2)).conj().resolve_conj())[..., 1].sum() <= 0
    assert base.t().contiguous().is_contiguous()


def test_copies(protected: str) -> None:
    source = torch.arange(24.0).view(4, 6)
    x = torch.zeros(6, 4, device=protected)
    x.copy_(source.t())
    assert torch.equal(x.cpu(), source.t())
    y = torch.empty(4, 12, device=protected)[:, ::2].copy_(x.t())
    assert torch.equal(y.to(torch.int32).cpu(), source.int())
    back = torch.zeros(4, 6, pin_memory=True)
    back.copy_(y, non_blocking=True)
    torch.accelerator.synchronize()
    assert torch.equal(back, source)


@pytest.mark.usefixtures("two_devices")
def test_copies_between_devices(protected: str) -> None:
    x = torch.arange(12.0).view(3, 4).to(f"{protected}:0")
    assert torch.equal(x.t().to(f"{protected}:1").cpu(), x.cpu().t())


def test_random_numbers_and_sizes(protected: str) -> None:
    x = torch.rand(100, device=protected)
    assert 0 <= x.min().item() <= x.max().item() < 1
    assert torch.randperm(10, device=protected).sort()[0].tolist() == list(range(10))
    assert x.resize_(1000)[:100].max().item() < 1
    assert torch.empty(0, device=protected).sum().item() == 0


def test_training_step(protected: str) -> None:
    torch.manual_seed(0)
    layers = torch.nn.Conv2d(1, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.Flatten()
    model = torch.nn.Sequential(*layers, torch.nn.Linear(144, 3))
    x, y = torch.randn(2, 1, 8, 8), torch.tensor([0, 2])
    losses = []
    for device in ("cpu", protected):
        torch.manual_seed(1)
        model.to(device)
        loss = F.cross_entropy(model(x.to(device)), y.to(device))
        model.zero_grad()
        loss.backward()
        torch.optim.AdamW(model.parameters(), lr=0.0).step()
        losses.append((loss.item(), [parameter.grad.cpu().clone() for parameter in model.parameters()]))
    torch.testing.assert_close(losses[1], losses[0])


def test_serialization(protected: str, tmp_path: Path) -> None:
    x = torch.arange(6.0).view(2, 3).to(protected)
    torch.save({"x": x.t()}, tmp_path / "x.pt")
    loaded = torch.load(tmp_path / "x.pt")["x"]
    assert loaded.device.type == protected
    assert loaded.tolist() == x.t().tolist()
    assert "tensor" in repr(loaded)


STRAY = """
import ctypes, torch
x = torch.ones(4, device="xcpu")
torch.accelerator.synchronize()
print("before", flush=True)
{access}
print("after", flush=True)
"""


@pytest.mark.parametrize(
    "access",
    [
        "ctypes.c_float.from_address(x.data_ptr()).value",
        "ctypes.c_float.from_address(x.data_ptr()).value = 2.0",
        "ctypes.string_at(x.data_ptr() + 15, 1)",
        "(x * 2).sum().item(); ctypes.string_at(x.data_ptr(), 1)",
        "y = x + 1; ctypes.memset(y.data_ptr(), 0, 16)",
    ],
)
@pytest.mark.parametrize("mode", ["0", "1"])
def test_stray_accesses_are_segmentation_faults(run_python: RunPython, access: str, mode: str) -> None:
    environment = PROTECTED | {"TORCH_BACKEND_XCPU_ASYNC": mode}
    process = run_python(STRAY.format(access=access), env=environment, expect=-signal.SIGSEGV)
    assert process.stdout == "before\n"


def test_stray_accesses_go_unnoticed_without_protection(run_python: RunPython) -> None:
    code = STRAY.format(access="print(ctypes.c_float.from_address(x.data_ptr()).value)")
    assert run_python(code, env={"TORCH_BACKEND": "xcpu"}).stdout.split() == ["before", "1.0", "after"]


@pytest.mark.parametrize("mode", ["0", "1"])
def test_with_protection(mode: str) -> None:
    if os.environ.get("TORCH_BACKEND_XCPU_PROTECT") == "1":
        pytest.skip("the other tests of this file run here")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "not stray", Path(__file__)]
    environment = clean_environment() | PROTECTED | {"TORCH_BACKEND_XCPU_ASYNC": mode}
    process = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert process.returncode == 0, process.stdout[-6000:]
    assert " passed" in process.stdout
