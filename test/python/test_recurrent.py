"""Recurrent layers run as they do on the CPU: by oneDNN with a gradient, as one call of the CPU's kernel without."""

import copy
import os
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from torch_backend.operators import count_calls

Make = Callable[[], nn.RNNBase]

LAYERS: dict[str, Make] = {
    "lstm": lambda: nn.LSTM(5, 6, num_layers=2, batch_first=True),
    "lstm-bidirectional": lambda: nn.LSTM(5, 6, bidirectional=True),
    "lstm-without-bias": lambda: nn.LSTM(5, 6, bias=False),
    "lstm-projections": lambda: nn.LSTM(5, 6, proj_size=3),
    "lstm-float64": lambda: nn.LSTM(5, 6).double(),
    "gru": lambda: nn.GRU(5, 6, num_layers=2, dropout=0.5).eval(),
    "gru-bidirectional": lambda: nn.GRU(5, 6, bidirectional=True, batch_first=True),
    "rnn-tanh": lambda: nn.RNN(5, 6, num_layers=2),
    "rnn-relu": lambda: nn.RNN(5, 6, nonlinearity="relu", bias=False),
}


def on_both(make: Make, name: str) -> tuple[nn.RNNBase, nn.RNNBase, Tensor]:
    torch.manual_seed(0)
    there = make()
    inputs = torch.randn(4, 3, 5, dtype=there.weight_ih_l0.dtype)
    return copy.deepcopy(there).to(name), there, inputs


def flat(result: tuple[Tensor, Tensor | tuple[Tensor, ...]]) -> list[Tensor]:
    output, state = result
    return [output, *(state if isinstance(state, tuple) else (state,))]


def names(calls: object) -> set[str]:
    return {entry.op for entry in calls.entries}


@pytest.fixture
def inline(name: str) -> None:
    if name != "xcpu" or os.environ.get("TORCH_BACKEND_XCPU_ASYNC", "0") != "0":
        pytest.skip("of a synchronous device that runs the CPU's kernels")


@pytest.mark.parametrize("kind", LAYERS)
def test_training_gives_what_it_gives_on_the_cpu(kind: str, name: str) -> None:
    device_layer, cpu_layer, inputs = on_both(LAYERS[kind], name)
    results = []
    for layer, where in ((device_layer, name), (cpu_layer, "cpu")):
        x = inputs.detach().to(where).requires_grad_()
        outputs = flat(layer(x))
        sum(output.sin().sum() for output in outputs).backward()
        results.append([*outputs, x.grad, *(parameter.grad for parameter in layer.parameters())])
    for actual, expected in zip(*results, strict=True):
        assert actual.device.type == name
        torch.testing.assert_close(actual.cpu(), expected)


@pytest.mark.parametrize("guard", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("kind", LAYERS)
def test_inference_gives_what_it_gives_on_the_cpu(kind: str, guard: type, name: str) -> None:
    device_layer, cpu_layer, inputs = on_both(LAYERS[kind], name)
    with guard():
        actual, expected = flat(device_layer(inputs.to(name))), flat(cpu_layer(inputs))
    for ours, theirs in zip(actual, expected, strict=True):
        assert ours.device.type == name
        torch.testing.assert_close(ours.cpu(), theirs)


@pytest.mark.usefixtures("inline")
def test_lstm_trains_by_onednn(name: str) -> None:
    layer, cpu_layer, inputs = on_both(LAYERS["lstm"], name)
    with count_calls() as calls:
        output, _ = layer(inputs.to(name))
        output.sum().backward()
    assert {"aten::mkldnn_rnn_layer", "aten::mkldnn_rnn_layer_backward"} <= names(calls)
    torch.testing.assert_close(output.cpu(), cpu_layer(inputs)[0], rtol=0, atol=0)


@pytest.mark.usefixtures("inline")
@pytest.mark.parametrize("kind", ["lstm", "gru", "rnn-tanh", "rnn-relu"])
def test_inference_is_one_call(kind: str, name: str) -> None:
    layer, _, inputs = on_both(LAYERS[kind], name)
    there, state = inputs.to(name), layer(inputs.to(name))[1]
    state = tuple(part.detach() for part in state) if isinstance(state, tuple) else state.detach()
    with torch.no_grad(), count_calls() as calls:
        layer(there, state)
    assert calls.calls == 1, calls


def test_packed_sequences(name: str) -> None:
    torch.manual_seed(0)
    layer = nn.GRU(5, 6, bidirectional=True)
    packed = nn.utils.rnn.pack_sequence([torch.randn(4, 5), torch.randn(2, 5)])
    with torch.no_grad():
        expected = layer(packed)
        actual = layer.to(name)(packed.to(name))
    torch.testing.assert_close(actual[0].data.cpu(), expected[0].data)
    torch.testing.assert_close(actual[1].cpu(), expected[1])


def test_dropout_between_layers_draws_from_the_device(name: str) -> None:
    torch.manual_seed(0)
    layer, inputs = nn.LSTM(5, 6, num_layers=2, dropout=0.5).to(name), torch.randn(4, 3, 5).to(name)
    before = torch.get_rng_state()
    with torch.no_grad():
        drawn = [layer(inputs)[0] for _ in range(2)]
        torch.get_device_module(name).manual_seed(7)
        first = layer(inputs)[0]
        torch.get_device_module(name).manual_seed(7)
        again = layer(inputs)[0]
    assert not torch.equal(*drawn)
    assert torch.equal(first, again)
    assert torch.equal(torch.get_rng_state(), before), "the CPU's generator has moved"


@pytest.mark.parametrize("kind", ["lstm", "gru"])
@pytest.mark.parametrize("grad", [True, False])
def test_autocast(kind: str, grad: bool, name: str) -> None:
    layer, _, inputs = on_both(LAYERS[kind], name)
    exact = layer(inputs.to(name))[0]
    with torch.set_grad_enabled(grad), torch.autocast(name, torch.bfloat16):
        output = layer(inputs.to(name))[0]
    assert output.dtype == torch.bfloat16
    torch.testing.assert_close(output.float(), exact, rtol=0.05, atol=0.05)


def test_autocast_of_the_cpu_is_not_the_devices(name: str) -> None:
    layer, _, inputs = on_both(LAYERS["lstm"], name)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        assert layer(inputs.to(name))[0].dtype == torch.float32


def test_operators_of_a_layer_can_be_seen(name: str) -> None:
    """A mode gets what the layer is made of, as on any device."""
    layer, _, inputs = on_both(LAYERS["gru"], name)

    class Seen(torch.utils._python_dispatch.TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()
            self.names: set[str] = set()

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.names.add(func.name())
            return func(*args, **(kwargs or {}))

    with torch.no_grad(), Seen() as seen:
        layer(inputs.to(name))
    assert "aten::_thnn_fused_gru_cell" in seen.names


def test_second_gradient(name: str) -> None:
    layer, cpu_layer, inputs = on_both(lambda: nn.LSTM(5, 6), name)
    seconds = []
    for module, where in ((layer, name), (cpu_layer, "cpu")):
        x = inputs.detach().to(where).requires_grad_()
        (first,) = torch.autograd.grad(module(x)[0].square().sum(), x, create_graph=True)
        seconds.append(torch.autograd.grad(first.square().sum(), x)[0].cpu())
    torch.testing.assert_close(*seconds)


def test_tensors_of_another_device(name: str) -> None:
    layer, _, inputs = on_both(LAYERS["gru"], name)
    with torch.no_grad(), pytest.raises(RuntimeError, match=r"not at the same device|on the same device"):
        torch._VF.gru(inputs.to(name), torch.zeros(2, 3, 6), layer._flat_weights, True, 2, 0.0, False, False, False)
