"""Programs are traced without the device, exported, saved and run."""

import gc
import io

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F
from torch_conformance import needs

pytestmark = pytest.mark.thorough


class Net(nn.Module):
    """A convolution and a linear layer."""

    def __init__(self) -> None:
        """A model of images of any size."""
        super().__init__()
        self.convolution = nn.Conv2d(3, 4, 3)
        self.head = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        """Scores of a batch."""
        scores: Tensor = self.head(F.gelu(self.convolution(x)).mean((2, 3)))
        return scores


def _images(device: str, count: int = 2) -> Tensor:
    return torch.linspace(-1, 1, count * 3 * 6 * 6).reshape(count, 3, 6, 6).to(device)


@pytest.mark.parametrize("dynamic", [False, True], ids=["fixed batch", "any batch"])
def test_export(device: str, dynamic: bool) -> None:
    """An exported model gives what the model gives, also after it was saved and loaded, and for other batch sizes."""
    model = Net().to(device).eval()
    shapes = {"x": {0: torch.export.Dim("batch")}} if dynamic else None
    program = torch.export.export(model, (_images(device),), dynamic_shapes=shapes)
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    for version in (program, torch.export.load(file)):
        for count in (2, 5) if dynamic else (2,):
            x = _images(device, count)
            result = version.module()(x)
            assert result.device == x.device
            torch.testing.assert_close(result, model(x))


def test_an_exported_model_goes_to_the_host(device: str) -> None:
    """A model that was exported on the device runs on the CPU once it is moved there."""
    from torch.export.passes import move_to_device_pass

    model = Net().to(device).eval()
    program = move_to_device_pass(torch.export.export(model, (_images(device),)), "cpu")
    torch.testing.assert_close(program.module()(_images("cpu")), model(_images(device)).cpu())


@needs.feature("memory statistics")
def test_fake_tensors(device: str) -> None:
    """Models run on fake tensors of the device: shapes, strides and devices are right, and no memory is taken."""
    model = Net().to(device)
    images = _images(device)
    expected = model(images)
    gc.collect()  # what other tests have left goes now, and not while the memory is looked at
    before = torch.accelerator.memory_allocated()
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fake = model(mode.from_tensor(images))
        big = torch.empty(2**20, 2**10, device=device)
        assert (big + 1).shape == (2**20, 2**10)
        assert torch.accelerator.memory_allocated() == before, "fake tensors took memory"
        assert (fake.shape, fake.stride(), fake.dtype) == (expected.shape, expected.stride(), expected.dtype)
        assert fake.device == big.device == expected.device


def test_make_fx(device: str) -> None:
    """The operators that a function runs on the device are recorded and run again."""

    def run(x: Tensor) -> Tensor:
        return F.softmax(x @ x, -1).cumsum(0) + torch.ones(3, device=x.device)

    x = torch.linspace(0, 1, 9).reshape(3, 3).to(device)
    traced = make_fx(run)(x)
    torch.testing.assert_close(traced(x + 1), run(x + 1))


def test_jit(device: str) -> None:
    """A scripted model is saved from the device and loaded onto it, and onto the CPU."""
    model = Net().to(device).eval()
    file = io.BytesIO()
    torch.jit.save(torch.jit.trace(model, _images(device)), file)
    for where in (device, "cpu"):
        file.seek(0)
        loaded = torch.jit.load(file, map_location=where)
        result = loaded(_images(where))
        assert result.device.type == where
        torch.testing.assert_close(result.cpu(), model(_images(device)).cpu())
