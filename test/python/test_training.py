"""Training on the device follows training on the CPU, step by step."""

import copy
import io
import threading
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint, checkpoint_sequential
from torch.utils.data import DataLoader, TensorDataset

pytestmark = pytest.mark.usefixtures("backend")


class LastOutput(nn.Module):
    """A recurrent network with a linear layer on its last output."""

    def __init__(self, kind: Callable[..., nn.Module], **options: Any) -> None:
        super().__init__()
        self.recurrent = kind(8, 12, batch_first=True, **options)
        self.head = nn.Linear(24 if options.get("bidirectional") else 12, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.recurrent(x)[0][:, -1])


class Classifier(nn.Module):
    """A transformer encoder over tokens, pooled."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, 16)
        layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.encoder(self.embedding(x)).mean(1))


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.LayerNorm(32), nn.Linear(32, 16), nn.GELU(), nn.Linear(16, 4))


def cnn() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(8, 8, 3, groups=2), nn.GroupNorm(2, 8), nn.SiLU(), nn.ConvTranspose2d(8, 4, 2)),
        *(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16, 4)),
    )


def vectors() -> Tensor:
    return torch.randn(16, 8)


def images() -> Tensor:
    return torch.randn(4, 3, 8, 8)


def sequences() -> Tensor:
    return torch.randn(6, 5, 8)


def tokens() -> Tensor:
    return torch.randint(20, (6, 7))


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[], Tensor]]] = {
    "mlp": (mlp, vectors),
    "cnn": (cnn, images),
    "rnn": (lambda: LastOutput(nn.RNN), sequences),
    "lstm": (lambda: LastOutput(nn.LSTM), sequences),
    "lstm bidirectional": (lambda: LastOutput(nn.LSTM, num_layers=2, bidirectional=True), sequences),
    "lstm projected": (lambda: LastOutput(nn.LSTM, num_layers=2, bias=False), sequences),
    "gru": (lambda: LastOutput(nn.GRU), sequences),
    "gru stacked": (lambda: LastOutput(nn.GRU, num_layers=2, bias=False), sequences),
    "transformer": (Classifier, tokens),
}

Optimizer = Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]


def sgd(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9)


def batches(sample: Callable[[], Tensor], count: int) -> list[tuple[Tensor, Tensor]]:
    torch.default_generator.manual_seed(1)
    inputs = [sample() for _ in range(count)]
    return [(x, torch.randint(4, (len(x),))) for x in inputs]


def model_of(make: Callable[[], nn.Module]) -> nn.Module:
    torch.default_generator.manual_seed(0)
    return make()


def step(model: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor, y: Tensor) -> float:
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    return loss.item()


def train(
    model: nn.Module, data: list[tuple[Tensor, Tensor]], device: str, make_optimizer: Optimizer = sgd
) -> tuple[list[float], dict[str, Tensor]]:
    """The losses, and what is in the model afterwards."""
    model = copy.deepcopy(model).to(device)
    optimizer = make_optimizer(model.parameters())
    losses = [step(model, optimizer, x.to(device), y.to(device)) for x, y in data]
    return losses, {key: value.cpu() for key, value in model.state_dict().items()}


def assert_same_training(one: Any, other: Any, tolerance: float = 1e-4) -> None:
    assert one[0] == pytest.approx(other[0], rel=tolerance, abs=tolerance)
    torch.testing.assert_close(one[1], other[1], rtol=tolerance * 10, atol=tolerance)


@pytest.mark.parametrize("key", MODELS)
def test_models(name: str, key: str) -> None:
    make, sample = MODELS[key]
    model, data = model_of(make), batches(sample, 6)
    expected = train(model, data, "cpu")
    assert_same_training(train(model, data, name), expected)
    assert expected[0][0] != expected[0][-1]


def test_a_model_learns(name: str) -> None:
    (x, y), *_ = batches(images, 1)
    losses, _ = train(model_of(cnn), [(x, y)] * 40, name)
    assert losses[-1] < 0.3 * losses[0]


def test_running_statistics(name: str) -> None:
    model, data = model_of(cnn), batches(images, 5)
    _, expected = train(model, data, "cpu")
    _, actual = train(model, data, name)
    for key in ("1.running_mean", "1.running_var", "1.num_batches_tracked"):
        torch.testing.assert_close(actual[key], expected[key], rtol=1e-4, atol=1e-5)
    assert actual["1.num_batches_tracked"] == 5
    assert not torch.equal(actual["1.running_mean"], torch.zeros(8))


def test_channels_last(name: str) -> None:
    model, data = model_of(cnn), batches(images, 3)
    expected = train(model, data, "cpu")
    converted = copy.deepcopy(model).to(memory_format=torch.channels_last)
    data = [(x.to(memory_format=torch.channels_last), y) for x, y in data]
    assert_same_training(train(converted, data, name), expected)


def test_evaluation(name: str) -> None:
    for make, sample in MODELS.values():
        model = model_of(make).eval()
        (x, _), *_ = batches(sample, 1)
        with torch.inference_mode():
            expected = model(x)
            actual = copy.deepcopy(model).to(name)(x.to(name))
        torch.testing.assert_close(actual.cpu(), expected, rtol=1e-4, atol=1e-5)


# ---- optimizers ----

OPTIMIZERS: dict[str, Optimizer] = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1),
    "SGD foreach": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, foreach=True),
    "SGD loop": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.1, foreach=False),
    "SGD fused": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, fused=True),
    "Adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "Adam foreach": lambda p: torch.optim.Adam(p, lr=0.01, amsgrad=True, foreach=True),
    "Adam loop": lambda p: torch.optim.Adam(p, lr=0.01, foreach=False),
    "Adam fused": lambda p: torch.optim.Adam(p, lr=0.01, fused=True),
    "Adam capturable": lambda p: torch.optim.Adam(p, lr=0.01, capturable=True),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=0.01),
    "AdamW foreach": lambda p: torch.optim.AdamW(p, lr=0.01, foreach=True),
    "AdamW fused": lambda p: torch.optim.AdamW(p, lr=0.01, amsgrad=True, fused=True),
    "AdamW tensor rate": lambda p: torch.optim.AdamW(p, lr=torch.tensor(0.01), foreach=False),
    "Adagrad": lambda p: torch.optim.Adagrad(p, lr=0.05),
    "Adadelta": lambda p: torch.optim.Adadelta(p),
    "Adamax": lambda p: torch.optim.Adamax(p, lr=0.01),
    "NAdam": lambda p: torch.optim.NAdam(p, lr=0.01),
    "RAdam": lambda p: torch.optim.RAdam(p, lr=0.01),
    "RMSprop": lambda p: torch.optim.RMSprop(p, lr=0.01, momentum=0.5, centered=True),
    "Rprop": lambda p: torch.optim.Rprop(p, lr=0.01),
    "ASGD": lambda p: torch.optim.ASGD(p, lr=0.05),
    "Adafactor": lambda p: torch.optim.Adafactor(p, lr=0.05),
}


@pytest.mark.parametrize("key", OPTIMIZERS)
def test_optimizers(name: str, key: str) -> None:
    def optimizer(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        made = OPTIMIZERS[key](parameters)
        if all(not parameter.is_cpu for group in made.param_groups for parameter in group["params"]):
            return made
        for group in made.param_groups:
            group["capturable"] = False  # which the CPU does not know
        return made

    model, data = model_of(mlp), batches(vectors, 4)
    assert_same_training(train(model, data, name, optimizer), train(model, data, "cpu", optimizer))


def test_optimizer_state_is_on_the_device(name: str) -> None:
    model = mlp().to(name)
    optimizer = torch.optim.Adam(model.parameters())
    (x, y), *_ = batches(vectors, 1)
    step(model, optimizer, x.to(name), y.to(name))
    states = list(optimizer.state.values())
    assert {state["exp_avg"].device.type for state in states} == {name}
    assert len(states) == 8


def test_schedulers_and_clipping(name: str) -> None:
    def run(device: str) -> list[float]:
        model = model_of(mlp).to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.5, total_steps=5)
        norms = []
        for x, y in batches(vectors, 5):
            F.cross_entropy(model(x.to(device)), y.to(device)).backward()
            norms.append(nn.utils.clip_grad_norm_(model.parameters(), 0.5).item())
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        return norms

    assert run(name) == pytest.approx(run("cpu"), rel=1e-3)


# ---- mixed precision ----


def autocast_step(device: str, dtype: torch.dtype) -> tuple[float, list[Tensor]]:
    model = model_of(cnn).to(device)
    (x, y), *_ = batches(images, 1)
    with torch.autocast(device, dtype=dtype):
        output = model(x.to(device))
        loss = F.cross_entropy(output, y.to(device))
    assert output.dtype is dtype
    assert loss.dtype is torch.float32
    loss.backward()
    return loss.item(), [parameter.grad for parameter in model.parameters()]


def test_autocast(name: str, backend: ModuleType) -> None:
    if torch.bfloat16 not in backend.get_amp_supported_dtype():
        pytest.skip("the device has no bfloat16")
    loss, gradients = autocast_step(name, torch.bfloat16)
    expected, expected_gradients = autocast_step("cpu", torch.bfloat16)
    assert loss == pytest.approx(expected, rel=0.03)
    for one, other in zip(gradients, expected_gradients, strict=True):
        assert (one.dtype, one.device.type) == (torch.float32, name)
        torch.testing.assert_close(one.cpu(), other, rtol=0.2, atol=0.05)


def test_grad_scaler(name: str) -> None:
    model, data = model_of(mlp), batches(vectors, 3)
    expected = train(model, data, "cpu")
    scaled = copy.deepcopy(model).to(name)
    optimizer, scaler = sgd(scaled.parameters()), torch.amp.GradScaler(name, init_scale=1024.0)
    losses = []
    for x, y in data:
        optimizer.zero_grad()
        loss = F.cross_entropy(scaled(x.to(name)), y.to(name))
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    assert_same_training((losses, {key: value.cpu() for key, value in scaled.state_dict().items()}), expected)


def test_grad_scaler_skips_overflows(name: str) -> None:
    weight = torch.ones(3, device=name, requires_grad=True)
    optimizer, scaler = torch.optim.SGD([weight], lr=1.0), torch.amp.GradScaler(name, init_scale=4.0)
    scaler.scale((weight * float("inf")).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert weight.tolist() == [1, 1, 1]
    assert scaler.get_scale() == 2.0


# ---- gradients ----


def test_gradient_checkpointing(name: str) -> None:
    model, data = model_of(mlp), batches(vectors, 1)
    x, y = data[0][0].to(name), data[0][1].to(name)
    gradients = []
    for forward in (
        lambda m: m(x),
        lambda m: checkpoint(m, x, use_reentrant=False),
        lambda m: checkpoint_sequential(m, 3, x.clone().requires_grad_(), use_reentrant=True),
    ):
        twin = copy.deepcopy(model).to(name)
        F.cross_entropy(forward(twin), y).backward()
        gradients.append([parameter.grad for parameter in twin.parameters()])
    torch.testing.assert_close(gradients[1], gradients[0])
    torch.testing.assert_close(gradients[2], gradients[0])


def test_checkpointing_repeats_dropout(name: str) -> None:
    x = torch.ones(1000, device=name, requires_grad=True)
    y = checkpoint(lambda t: F.dropout(F.dropout(t, 0.5), 0.5), x, use_reentrant=False)
    y.sum().backward()
    torch.testing.assert_close(x.grad, y.detach())


def test_gradient_accumulation(name: str) -> None:
    model, data = model_of(mlp).to(name), batches(vectors, 4)
    for x, y in data:
        (F.cross_entropy(model(x.to(name)), y.to(name)) / 4).backward()
    gradients = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    x, y = (torch.cat(parts).to(name) for parts in zip(*data, strict=True))
    F.cross_entropy(model(x), y).backward()
    torch.testing.assert_close(gradients, [parameter.grad for parameter in model.parameters()])


def test_double_backward(name: str) -> None:
    def penalty(device: str) -> Tensor:
        torch.default_generator.manual_seed(0)
        x, weight = torch.randn(3, 4), torch.randn(4, 2)
        x = x.to(device).requires_grad_()
        (gradient,) = torch.autograd.grad(torch.tanh(x @ weight.to(device)).sum(), x, create_graph=True)
        gradient.square().sum().backward()
        return x.grad

    torch.testing.assert_close(penalty(name).cpu(), penalty("cpu"))


def test_gradcheck(name: str) -> None:
    x = torch.randn(3, 4, dtype=torch.float64).to(name).requires_grad_()
    w = torch.randn(2, 1, 3, 3, dtype=torch.float64).to(name).requires_grad_()
    assert torch.autograd.gradcheck(lambda t: F.gelu(t).softmax(1).cumsum(0), x)
    assert torch.autograd.gradcheck(lambda t, k: F.conv2d(t[None, None], k), (x.detach(), w))


def test_hooks_and_custom_functions(name: str) -> None:
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> Tensor:
            (x,) = ctx.saved_tensors
            return gradient * 2 + x.detach() * 0

    seen: list[torch.device] = []
    x = torch.ones(3, device=name, requires_grad=True)
    x.register_hook(lambda gradient: seen.append(gradient.device))
    Double.apply(x).sum().backward()
    assert x.grad.tolist() == [2, 2, 2]
    assert seen == [torch.device(name, 0)]


def test_saved_tensors_on_the_host(name: str) -> None:
    x = torch.randn(4, 4).to(name).requires_grad_()
    with torch.autograd.graph.save_on_cpu(pin_memory=True):
        y = (x.sin() * x).sum()
    y.backward()
    torch.testing.assert_close(x.grad, x.detach().cos() * x.detach() + x.detach().sin())


def test_anomaly_detection(name: str) -> None:
    x = torch.zeros(2, device=name, requires_grad=True)
    with torch.autograd.detect_anomaly(check_nan=True), pytest.raises(RuntimeError, match="returned nan values"):
        (x.sqrt() * 0).sum().backward()


def test_parametrizations(name: str) -> None:
    layer = nn.utils.parametrizations.spectral_norm(nn.Linear(4, 4)).to(name)
    layer(torch.ones(2, 4, device=name)).sum().backward()
    assert all(parameter.grad.device.type == name for parameter in layer.parameters())


# ---- around training ----


def test_save_and_resume(name: str) -> None:
    data = batches(vectors, 6)
    expected = train(model_of(mlp), data, name, OPTIMIZERS["Adam"])
    model = model_of(mlp).to(name)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = [step(model, optimizer, x.to(name), y.to(name)) for x, y in data[:3]]
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
    file.seek(0)
    state = torch.load(file, weights_only=True)
    resumed = mlp().to(name)
    resumed.load_state_dict(state["model"])
    optimizer = torch.optim.Adam(resumed.parameters(), lr=0.5)
    optimizer.load_state_dict(state["optimizer"])
    losses += [step(resumed, optimizer, x.to(name), y.to(name)) for x, y in data[3:]]
    assert losses == expected[0]
    assert all(torch.equal(value.cpu(), expected[1][key]) for key, value in resumed.state_dict().items())


def test_same_seed_same_training(name: str, backend: ModuleType) -> None:
    def run() -> list[float]:
        backend.manual_seed(4)
        model = nn.Sequential(model_of(mlp), nn.Dropout(0.5)).to(name)
        optimizer = sgd(model.parameters())
        return [step(model, optimizer, x.to(name), y.to(name)) for x, y in batches(vectors, 4)]

    states = backend.get_rng_state_all()
    assert run() == run()
    backend.set_rng_state_all(states)


@pytest.mark.parametrize("workers", [0, 2])
def test_data_loader_with_pinned_memory(name: str, workers: int) -> None:
    dataset = TensorDataset(torch.arange(24.0).view(12, 2), torch.arange(12))
    seen = []
    for x, y in DataLoader(dataset, batch_size=4, pin_memory=True, num_workers=workers):
        assert x.is_pinned()
        assert y.is_pinned()
        moved = x.to(name, non_blocking=True), y.to(name, non_blocking=True)
        seen.append((moved[0].sum(1) + moved[1]).cpu())
    expected = torch.arange(24.0).view(12, 2).sum(1) + torch.arange(12)
    assert torch.equal(torch.cat(seen), expected)


@pytest.mark.usefixtures("two_devices")
def test_model_over_two_devices(name: str) -> None:
    torch.default_generator.manual_seed(0)
    halves = nn.Linear(8, 16), nn.Linear(16, 4)
    expected = train(nn.Sequential(*halves), batches(vectors, 3), "cpu")
    first, second = halves[0].to(f"{name}:0"), halves[1].to(f"{name}:1")
    optimizer = sgd([*first.parameters(), *second.parameters()])
    losses = []
    for x, y in batches(vectors, 3):
        optimizer.zero_grad()
        loss = F.cross_entropy(second(first(x.to(f"{name}:0")).to(f"{name}:1")), y.to(f"{name}:1"))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses == pytest.approx(expected[0], rel=1e-4)
    assert second.weight.grad.device.index == 1


def test_threads_of_backward_passes(name: str, backend: ModuleType) -> None:
    def thread() -> int:
        threads: list[int] = []
        x = torch.ones(3, device=name, requires_grad=True)
        y = x * 2
        y.register_hook(lambda _: threads.append(threading.get_ident()))
        y.sum().backward()
        assert x.grad is not None
        assert x.grad.tolist() == [2, 2, 2]
        return threads[0]

    asynchronous = "ASYNC" in backend.get_device_properties().capabilities
    assert (thread() == threading.get_ident()) is not asynchronous
    with torch.autograd.set_multithreading_enabled(True):
        assert thread() != threading.get_ident()


@pytest.mark.parametrize("learned", [False, True])
def test_attention_with_a_mask(name: str, learned: bool) -> None:
    torch.default_generator.manual_seed(0)
    inputs = [torch.randn(2, 2, 4, 8) for _ in range(3)]
    mask = torch.randn(4, 4)
    gradients = []
    for device in ("cpu", name):
        leaves = [x.detach().to(device, copy=True).requires_grad_() for x in inputs]
        leaves.append(mask.detach().to(device, copy=True).requires_grad_(learned))
        F.scaled_dot_product_attention(*leaves[:3], attn_mask=leaves[3]).square().sum().backward()
        gradients.append([x.grad if x.grad is None else x.grad.cpu() for x in leaves])
    assert (gradients[1][3] is not None) == learned
    torch.testing.assert_close(gradients[1], gradients[0])


def test_padded_sequences(name: str) -> None:
    lengths = torch.tensor([5, 3, 2])
    torch.default_generator.manual_seed(0)
    x, lstm = torch.randn(3, 5, 8), nn.LSTM(8, 6, batch_first=True)
    results = []
    for device in ("cpu", name):
        packed = nn.utils.rnn.pack_padded_sequence(x.to(device), lengths, batch_first=True)
        output, _ = copy.deepcopy(lstm).to(device)(packed)
        results.append(nn.utils.rnn.pad_packed_sequence(output, batch_first=True))
    torch.testing.assert_close(results[1][0].cpu(), results[0][0])
    assert torch.equal(results[1][1], lengths)


def test_ctc_loss(name: str) -> None:
    torch.default_generator.manual_seed(0)
    scores, targets = torch.randn(10, 2, 5).log_softmax(2), torch.randint(1, 5, (2, 4))
    lengths = torch.tensor([10, 8]), torch.tensor([4, 3])
    expected = F.ctc_loss(scores, targets, *lengths)
    actual = F.ctc_loss(scores.to(name), targets.to(name), *lengths)
    torch.testing.assert_close(actual.cpu(), expected)


def test_embedding_bag(name: str) -> None:
    bag = nn.EmbeddingBag(10, 4, mode="sum")
    tokens, offsets = torch.tensor([1, 2, 4, 5, 4]), torch.tensor([0, 2])
    expected = bag(tokens, offsets)
    on_device = copy.deepcopy(bag).to(name)
    actual = on_device(tokens.to(name), offsets.to(name))
    torch.testing.assert_close(actual.cpu(), expected)
    actual.sum().backward()
    expected.sum().backward()
    torch.testing.assert_close(on_device.weight.grad.cpu(), bag.weight.grad)
