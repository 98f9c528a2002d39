"""Work that is captured in a graph and replayed."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn
from torch_conformance import needs
from torch_conformance.suite.training._training import model_of

pytestmark = needs.feature("graphs")

_SIZE = 1 << 16


def test_copies_and_fills_are_replayed(device: str, backend: ModuleType) -> None:
    """Captured copies and fills do not run in the capture, and run at each replay with what memory then holds."""
    source, middle, target = (torch.full((_SIZE,), value, device=device) for value in (1.0, 2.0, 3.0))
    graph = backend.Graph()
    with backend.graph(graph):
        middle.copy_(source)
        target.copy_(middle)
        source.fill_(9)
    seen = [tensor[0].item() for tensor in (source, middle, target)]
    assert seen == [1, 2, 3], f"after a capture, which runs nothing, memory holds {seen} and not [1, 2, 3]"
    for value in (4.0, 5.0):
        source.fill_(value)
        graph.replay()
        ends = [tensor[i].item() for tensor in (source, middle, target) for i in (0, -1)]
        assert ends == [9, 9, value, value, value, value], (
            f"a replay of two copies of {value} and a fill with 9 leaves {ends}"
        )


def test_a_graph_keeps_its_memory(device: str, backend: ModuleType) -> None:
    """Memory that was freed in a capture is used by replays, and not given to others before the graph is gone."""
    source, target = torch.full((_SIZE,), 7.0, device=device), torch.zeros(_SIZE, device=device)
    graph = backend.Graph()
    with backend.graph(graph):
        between = torch.empty_like(source)
        between.copy_(source)
        target.copy_(between)
        del between
    others = [torch.full((_SIZE,), 1.0, device=device) for _ in range(4)]
    graph.replay()
    backend.synchronize()
    overwritten = sum(int(other.cpu().ne(1).any()) for other in others)
    assert not overwritten, f"a replay wrote to {overwritten} of {len(others)} tensors that were made after its capture"
    assert target.cpu().eq(7).all(), "a replay through memory of the graph brought other values"


@needs.feature("torch_backend")
def test_a_failed_capture_leaves_the_device_usable(device: str, backend: ModuleType) -> None:
    """A value that is read in a capture raises an error that names it; the stream, and the device, work on."""
    x = torch.ones(4, device=device)
    with pytest.raises(RuntimeError, match="aten::item cannot be captured"), backend.graph(backend.Graph()):
        x[0].item()
    assert not backend.is_current_stream_capturing(), "the stream captures still after a capture has failed"
    y = x.clone()
    assert y.tolist() == [1] * 4, "after a failed capture a copy brings other values"
    graph = backend.Graph()
    with backend.graph(graph):
        y.fill_(5)
    graph.replay()
    assert y.tolist() == [5] * 4, "after a failed capture the next one does not replay its work"


def test_a_training_step_is_replayed(device: str, backend: ModuleType) -> None:
    """A captured training step gives the losses of the step itself."""
    batches = torch.randn(4, 8, 6, generator=torch.Generator().manual_seed(0)).to(device)
    losses: list[list[float]] = []
    for captured in (False, True):
        model = model_of(lambda: nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 1))).to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        x = batches[0].clone()

        def step(
            x: torch.Tensor = x, model: nn.Module = model, optimizer: torch.optim.Optimizer = optimizer
        ) -> torch.Tensor:
            optimizer.zero_grad(set_to_none=False)
            loss: torch.Tensor = model(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        side = backend.Stream()
        side.wait_stream(backend.current_stream())
        with backend.stream(side):
            step()
        backend.synchronize()
        replay: Callable[[], torch.Tensor] = step
        if captured:
            graph = backend.Graph()
            try:
                with backend.graph(graph):
                    loss = step()
            except RuntimeError as error:
                if "cannot be captured" not in str(error):
                    raise
                needs.not_offered(f"the capture of a training step says: {error}")

            def replayed(graph: Any = graph, loss: torch.Tensor = loss) -> torch.Tensor:
                graph.replay()
                return loss

            replay = replayed

        values = []
        for batch in batches[1:]:
            x.copy_(batch)
            values.append(replay().item())
        losses.append(values)
    torch.testing.assert_close(losses[1], losses[0], rtol=1e-4, atol=1e-6)
