"""torch.nn.DataParallel and what it is made of, over the devices of one process, and scalers without a device."""

import pytest
import torch
from torch.nn.parallel import comm

pytestmark = pytest.mark.usefixtures("two_devices")


def network(device: str) -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2)).to(device)


@pytest.mark.parametrize("where", ["cpu", "device"])
def test_gradients_are_those_of_one_device(name: str, where: str) -> None:
    x = torch.randn(7, 4, requires_grad=True)
    expected, model = network("cpu"), torch.nn.DataParallel(network(name))
    expected(x).square().sum().backward()
    y = x.detach().to("cpu" if where == "cpu" else name).requires_grad_()
    output = model(y)
    assert output.device == torch.device(name, 0)
    output.square().sum().backward()
    torch.testing.assert_close(y.grad.cpu(), x.grad)
    for parameter, other in zip(model.module.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(parameter.grad.cpu(), other.grad)


def test_autocast_reaches_the_threads(name: str) -> None:
    model = torch.nn.DataParallel(network(name))
    with torch.autocast(name, dtype=torch.bfloat16):
        assert model(torch.ones(4, 4)).dtype is torch.bfloat16
    assert model(torch.ones(4, 4)).dtype is torch.float32


def test_communication(name: str) -> None:
    x = torch.arange(6.0).view(3, 2)
    parts = comm.scatter(x, [0, 1], chunk_sizes=[1, 2])
    assert [part.device.index for part in parts] == [0, 1]
    assert torch.equal(comm.gather(parts, destination="cpu"), x)
    assert torch.equal(comm.gather(parts, destination=1).cpu(), x)
    assert torch.equal(comm.gather(parts, out=torch.empty(3, 2)), x)
    out = [torch.empty(1, 2, device=f"{name}:1"), torch.empty(2, 2, device=f"{name}:0")]
    assert torch.equal(comm.scatter(x, out=out)[1].cpu(), x[1:])
    copies = comm.broadcast(parts[0], [0, 1])
    assert [copy.device.index for copy in copies] == [0, 1]
    assert comm.reduce_add(copies, 1).tolist() == [[0.0, 2.0]]
    assert comm.broadcast(parts[0], out=[torch.empty(1, 2, device=f"{name}:1")])[0].tolist() == [[0.0, 1.0]]
    assert [len(copy) for copy in comm.broadcast_coalesced([parts[0], parts[0]], [0, 1])] == [2, 2]


def test_a_scaler_without_a_device_is_for_the_active_one(name: str) -> None:
    assert torch.amp.GradScaler().is_enabled()
    assert torch.amp.GradScaler()._device == name
    assert torch.amp.GradScaler(init_scale=4.0).get_scale() == 4.0
    assert torch.amp.GradScaler("cpu", 8.0).get_scale() == 8.0
