"""Structured operators: one kernel serves the functional, the in-place and the out= form, as on CPU."""

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch_conformance.suite.ops._samples import LAID_OUT_AS_ON_CUDA, arranged, moved, samples, tensors

FLOAT = torch.tensor([[1.5, -2.0, 0.25], [3.0, -0.5, 8.0]])
LONG = torch.tensor([[1, 2, 3], [4, 5, 6]])


@pytest.fixture
def device(name: str) -> str:
    return f"{name}:0"


def both(function, *tensors, device):
    expected = function(*(tensor.clone() for tensor in tensors))
    actual = function(*(tensor.to(device) for tensor in tensors))
    assert actual.device.type == torch.device(device).type
    return actual, expected


def assert_same(actual, expected):
    assert actual.stride() == expected.stride()
    torch.testing.assert_close(actual.cpu(), expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, n: x + n,
        lambda x, n: n * x,
        lambda x, n: x / n,
        lambda x, n: torch.sqrt(n),
        lambda x, n: n / 2,
        lambda x, n: x * 2.5,
        lambda x, n: 1 - x,
        lambda x, n: x.double() + x,
        lambda x, n: x > n,
        lambda x, n: n == 3,
        lambda x, n: torch.maximum(x, n),
        lambda x, n: torch.lerp(x, x + 1, 0.25),
        lambda x, n: torch.clamp(n, 1.5, 4),
        lambda x, n: torch.pow(2, n),
        lambda x, n: torch.bitwise_and(n, 6),
        lambda x, n: torch.nn.functional.gelu(x),
    ],
)
def test_mixed_dtypes_and_numbers(function, device) -> None:
    assert_same(*both(function, FLOAT, LONG, device=device))


def test_broadcasting_and_layouts(device) -> None:
    images = torch.arange(2 * 3 * 4 * 5.0).reshape(2, 3, 4, 5)
    column = torch.arange(4.0).reshape(4, 1)
    for select in (
        lambda x: x,
        lambda x: x.contiguous(memory_format=torch.channels_last),
        lambda x: x[:, ::2],
        lambda x: x[..., :1].expand(2, 3, 4, 5),
        lambda x: x.permute(3, 1, 2, 0).permute(3, 1, 2, 0),
        lambda x: x.permute(0, 3, 2, 1)[..., :1],
    ):
        expected, actual = select(images), select(images.to(device))
        assert actual.stride() == expected.stride()
        assert_same(torch.add(actual, column.to(device)), torch.add(expected, column))
        assert_same(actual * 2, expected * 2)


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,)])
def test_empty_and_scalar_shapes(shape, device) -> None:
    tensor = torch.ones(shape)
    assert_same(torch.exp(tensor.to(device)), torch.exp(tensor))
    assert_same(tensor.to(device) + tensor.to(device), tensor + tensor)


def test_out_is_resized_and_returned(device) -> None:
    out = torch.empty(0, device=device)
    result = torch.add(FLOAT.to(device), 1, out=out)
    assert result is out
    assert_same(out, FLOAT + 1)


def test_out_of_another_dtype(device) -> None:
    out = torch.empty(2, 3, dtype=torch.double, device=device)
    torch.mul(FLOAT.to(device), FLOAT.to(device), out=out)
    assert_same(out, (FLOAT * FLOAT).double())
    comparison = torch.empty(2, 3, device=device)
    torch.gt(FLOAT.to(device), 0, out=comparison)
    assert_same(comparison, (FLOAT > 0).float())


def test_out_with_other_strides_keeps_them(device) -> None:
    out = torch.empty(3, 2, device=device).t()
    torch.add(FLOAT.to(device), FLOAT.to(device), out=out)
    assert out.stride() == (1, 2)
    torch.testing.assert_close(out.cpu(), FLOAT + FLOAT)
    values, indices = torch.empty(3, 2, device=device).t(), torch.empty(3, 2, dtype=torch.long, device=device).t()
    torch.sort(FLOAT.to(device), out=(values, indices))
    torch.testing.assert_close(values.cpu(), FLOAT.sort().values)


@pytest.mark.filterwarnings("ignore")
def test_results_on_images_are_laid_out_as_on_cpu(device) -> None:
    """Also where the CPU's kernel changes the strides of the output that it was given."""
    other = set()
    for op in op_db:
        given = samples(op, torch.float32, 4) if torch.float32 in op.supported_dtypes("cpu") else ()
        for sample in (images for each in given for images in list(arranged(each))[1:]):
            there = moved(sample, op, device)
            actual, expected = (tensors(op(x.input, *x.args, **x.kwargs)) for x in (there, sample))
            pairs = [(a, e) for a, e in zip(actual, expected, strict=True) if a.layout is torch.strided]
            if any(a.stride() != e.stride() for a, e in pairs):
                other.add(op.name)
    assert other == LAID_OUT_AS_ON_CUDA


def test_in_place_keeps_the_tensor(device) -> None:
    tensor = FLOAT.to(device)
    address, version = tensor.data_ptr(), tensor._version
    assert tensor.add_(LONG.to(device)) is tensor
    assert (tensor.data_ptr(), tensor._version) == (address, version + 1)
    torch.testing.assert_close(tensor.cpu(), FLOAT + LONG)


@pytest.mark.parametrize(
    "call",
    [
        lambda x, n: n.add_(x),
        lambda x, n: n.div_(2),
        lambda x, n: x[:1].add_(x),
        lambda x, n: x.view(-1)[1:].add_(x.view(-1)[:-1]),
        lambda x, n: x[:1].expand(2, 3).add_(1),
        lambda x, n: torch.add(x, 1, out=n),
        lambda x, n: torch.mm(x, x),
    ],
)
def test_refused_as_on_cpu(call, device) -> None:
    with pytest.raises(RuntimeError) as expected:
        call(FLOAT.clone(), LONG.clone())
    with pytest.raises(RuntimeError) as actual:
        call(FLOAT.to(device), LONG.to(device))
    assert str(actual.value).split("\n")[0] == str(expected.value).split("\n")[0]


@pytest.mark.parametrize(
    "call",
    [
        lambda x: torch.add(x, torch.ones(2, 3)),
        lambda x: torch.exp(x, out=torch.empty(2, 3)),
        lambda x: torch.mm(x, torch.ones(3, 1)),
        lambda x: torch.cat((x, torch.ones(2, 3))),
    ],
)
def test_tensors_of_the_host_are_refused(call, device, name) -> None:
    with pytest.raises(RuntimeError, match=rf"device.*{name}"):
        call(FLOAT.to(device))


def test_conjugates_and_negatives(device) -> None:
    z = torch.tensor([1 + 2j, 3 - 1j])
    assert_same(torch.add(z.to(device).conj(), z.to(device)), torch.add(z.conj(), z))
    assert_same(z.to(device).conj().imag * 2, z.conj().imag * 2)
    assert_same(torch.mm(z.to(device)[None].conj(), z.to(device)[:, None]), torch.mm(z[None].conj(), z[:, None]))


def test_tensors_of_another_device_than_the_current_one(two_devices, name) -> None:
    tensor = FLOAT.to(f"{name}:1")
    result = torch.add(tensor, 1)
    assert (result.device.index, torch.accelerator.current_device_index()) == (1, 0)
    assert_same(result, FLOAT + 1)
    with pytest.raises(RuntimeError, match="all tensors to be on the same device"):
        torch.add(tensor, FLOAT.to(f"{name}:0"))


def test_gradients_of_structured_operators(device) -> None:
    def loss(x):
        return (torch.sigmoid(x) * x.clamp(min=-1)).sum()

    expected, actual = FLOAT.clone().requires_grad_(), FLOAT.to(device).requires_grad_()
    loss(expected).backward()
    loss(actual).backward()
    torch.testing.assert_close(actual.grad.cpu(), expected.grad)


def test_inference_mode(device) -> None:
    with torch.inference_mode():
        assert_same(*both(lambda x: torch.relu(x).add_(1).mul(2), FLOAT, device=device))
    assert_same(*both(lambda x: torch.relu(x).add_(1).mul(2), FLOAT, device=device))
