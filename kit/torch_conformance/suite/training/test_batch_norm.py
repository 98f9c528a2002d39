"""What batch normalization remembers of the batches it has seen."""

import copy

import torch
from torch import nn
from torch_conformance.suite.training._models import cnn, images
from torch_conformance.suite.training._training import batches, model_of, train


def test_running_statistics(device: str) -> None:
    """Running mean, variance and number of batches follow the batches that were trained on."""
    model, data = model_of(cnn), batches(images, 5)
    expected = train(model, data, "cpu").state
    actual = train(model, data, device).state
    assert not torch.equal(actual["1.running_mean"], torch.zeros(8)), "the running mean was not updated"
    for key in ("1.running_mean", "1.running_var"):
        torch.testing.assert_close(actual[key], expected[key], rtol=1e-4, atol=1e-5)
    count = actual["1.num_batches_tracked"].item()
    assert count == len(data), f"{count} batches were counted of {len(data)}"


def test_evaluation_uses_the_running_statistics(device: str) -> None:
    """In evaluation mode a batch is normalized with the running statistics, and does not change them."""
    generator = torch.Generator().manual_seed(0)
    norm = nn.BatchNorm1d(5, momentum=None)
    for _ in range(3):
        norm(torch.randn(8, 5, generator=generator) * 3 + 1)
    norm.eval()
    on_device, x = copy.deepcopy(norm).to(device), torch.randn(2, 5, generator=generator)
    torch.testing.assert_close(on_device(x.to(device)).cpu(), norm(x))
    for key, before in norm.state_dict().items():
        assert torch.equal(on_device.state_dict()[key].cpu(), before), f"evaluation changed {key}"


def test_a_cumulative_average(device: str) -> None:
    """Without a momentum the running statistics are the average over all batches."""
    generator = torch.Generator().manual_seed(0)
    norms = nn.BatchNorm1d(5, momentum=None), nn.BatchNorm1d(5, momentum=None).to(device)
    for _ in range(4):
        x = torch.randn(8, 5, generator=generator)
        norms[0](x)
        norms[1](x.to(device))
    for key in ("running_mean", "running_var"):
        torch.testing.assert_close(norms[1].state_dict()[key].cpu(), norms[0].state_dict()[key])
