"""The example's kernels against CPU. Run by test_plugin_kernels.py in a process whose device is ``example``."""

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from torch import Tensor

from torch_backend import operators

DEVICE = torch.device("example", 0)
TRACE = Path(os.environ["TORCH_BACKEND_EXAMPLE_TRACE"])


@contextmanager
def kernels_that_run(*expected: str) -> Iterator[None]:
    """Exactly these kernels of the device library compute inside, in order."""
    TRACE.write_text("")
    yield
    assert TRACE.read_text().split() == list(expected)


def to_cpu(value: object) -> object:
    if isinstance(value, Tensor):
        return value.detach().cpu()
    return type(value)(map(to_cpu, value)) if isinstance(value, (tuple, list)) else value


def check(function: Callable[..., object], *inputs: Tensor, ran: tuple[str, ...]) -> None:
    """``function`` gives the same on the device as on CPU, and these kernels computed it."""
    expected = function(*inputs)
    on_device = [copy_to_device(tensor) for tensor in inputs]
    with kernels_that_run(*ran):
        actual = function(*on_device)
    for result in actual if isinstance(actual, (tuple, list)) else [actual]:
        assert result.device == DEVICE
    torch.testing.assert_close(to_cpu(actual), expected, check_stride=False)


def copy_to_device(tensor: Tensor) -> Tensor:
    """With the same strides and offset."""
    storage = torch.empty(tensor.untyped_storage().nbytes() // tensor.element_size(), dtype=tensor.dtype)
    storage.untyped_storage().copy_(tensor.untyped_storage())
    return storage.to(DEVICE).as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())


def layouts() -> list[tuple[str, Tensor]]:
    """A [3, 4] tensor in many layouts."""
    generator = torch.Generator().manual_seed(3)
    base = torch.randn(8, 9, generator=generator)
    return [
        ("contiguous", base[:3, :4].contiguous()),
        ("transposed", base[:4, :3].t()),
        ("strided", base[1:7:2, ::2][:, :4]),
        ("expanded", base[:3, :1].expand(3, 4)),
        ("offset", base[2:5, 3:7]),
    ]


LAYOUTS = pytest.mark.parametrize("x", [pytest.param(tensor, id=name) for name, tensor in layouts()])
OTHER = torch.linspace(-2, 2, 12).view(3, 4)


# ---- each kernel, whatever the layout ----


@LAYOUTS
def test_pointwise(x: Tensor) -> None:
    check(lambda a, b: a + b, x, OTHER, ran=("aten::add.out",))
    check(lambda a, b: torch.add(a, b, alpha=3), x, OTHER, ran=("aten::add.out",))
    check(lambda a, b: torch.sub(a, b, alpha=0.5), x, OTHER, ran=("aten::sub.out",))
    check(lambda a, b: a * b, x, OTHER, ran=("aten::mul.out",))
    check(torch.relu, x, ran=("aten::relu",))
    check(lambda a: torch.clamp(a, -0.5, 0.5), x, ran=("aten::clamp.out",))
    check(lambda a: torch.clamp(a, max=0), x, ran=("aten::clamp.out",))
    check(
        lambda a, b: torch.ops.aten.threshold_backward(a, b, 0.1),
        x,
        OTHER,
        ran=("aten::threshold_backward.grad_input",),
    )
    check(torch.where, OTHER > 0, x, OTHER, ran=("aten::where.self_out",))


@LAYOUTS
def test_reductions(x: Tensor) -> None:
    for arguments in ({"dim": 0}, {"dim": -1, "keepdim": True}, {"dim": (0, 1)}, {"dim": None}):
        check(lambda a, arguments=arguments: torch.sum(a, **arguments), x, ran=("aten::sum.IntList_out",))
    for dim in (0, 1, -1):
        check(lambda a, dim=dim: torch.softmax(a, dim), x, ran=("aten::_softmax.out",))
    check(torch.nonzero, x.relu(), ran=("aten::nonzero.out",))


@LAYOUTS
def test_products(x: Tensor) -> None:
    check(torch.mm, x, OTHER.t(), ran=("aten::mm.out",))
    for bias in (torch.tensor(2.0), torch.arange(3.0), torch.arange(9.0).view(3, 3)):
        check(lambda c, a, b: torch.addmm(c, a, b, beta=0.5, alpha=2), bias, x, OTHER.t(), ran=("aten::addmm.out",))
    check(
        lambda c, a, b: torch.addmm(c, a, b, beta=0),
        torch.full((3,), torch.nan),
        x,
        OTHER.t(),
        ran=("aten::addmm.out",),
    )


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("groups", [1, 2])
def test_convolution(channels_last: bool, groups: int) -> None:
    torch.manual_seed(0)
    x, weight, bias = torch.randn(2, 4, 7, 6), torch.randn(6, 4 // groups, 3, 2), torch.randn(6)
    if channels_last:
        x = x.to(memory_format=torch.channels_last)
    options = {"stride": (2, 1), "padding": (1, 2), "dilation": (1, 2), "groups": groups}
    ran = ("aten::convolution_overrideable",)
    check(lambda a, w, b: torch.conv2d(a, w, b, **options), x, weight, bias, ran=ran)
    check(lambda a, w: torch.conv2d(a, w, **options), x, weight, ran=ran)


def test_convolutions_that_the_kernel_lacks_are_computed() -> None:
    check(torch.conv3d, torch.randn(2, 3, 4, 4, 4), torch.randn(4, 3, 3, 3, 3), ran=())
    check(torch.conv_transpose2d, torch.randn(2, 3, 4, 4), torch.randn(3, 2, 3, 3), ran=())


# ---- forms of one operator ----


@LAYOUTS
def test_out(x: Tensor) -> None:
    for out in (torch.empty(3, 4, device=DEVICE), torch.empty(4, 3, device=DEVICE).t(), torch.empty(0, device=DEVICE)):
        version = out._version
        with kernels_that_run("aten::add.out"):
            result = torch.add(copy_to_device(x), OTHER.to(DEVICE), out=out)
        assert result is out
        assert out._version > version
        torch.testing.assert_close(out.cpu(), x + OTHER)


def test_out_of_another_size_is_resized_with_a_warning() -> None:
    out = torch.empty(2, device=DEVICE)
    with kernels_that_run("aten::mm.out"), pytest.warns(UserWarning, match="was resized"):
        torch.mm(OTHER.to(DEVICE), OTHER.t().to(DEVICE), out=out)
    torch.testing.assert_close(out.cpu(), OTHER @ OTHER.t())


def test_out_into_part_of_a_tensor() -> None:
    whole = torch.zeros(5, 6, device=DEVICE)
    with kernels_that_run("aten::mul.out"):
        torch.mul(OTHER.to(DEVICE), OTHER.to(DEVICE), out=whole[1:4, 2:])
    expected = torch.zeros(5, 6)
    expected[1:4, 2:] = OTHER * OTHER
    torch.testing.assert_close(whole.cpu(), expected)


def test_in_place() -> None:
    x = OTHER.to(DEVICE)
    view, version, address = x.t(), x._version, x.data_ptr()
    with kernels_that_run("aten::add.out", "aten::mul.out", "aten::relu"):
        assert x.add_(x, alpha=2) is x
        x.mul_(copy_to_device(OTHER[0]))
        x.relu_()
    assert (x.data_ptr(), x._version) == (address, version + 3)
    torch.testing.assert_close(view.cpu(), ((OTHER * 3) * OTHER[0]).relu().t())


def test_in_place_where_it_must_not_be() -> None:
    x = torch.randn(3, 3)
    expected = x.clone().addmm_(x, x)
    with kernels_that_run("aten::addmm.out"):
        actual = copy_to_device(x)
        result = actual.addmm_(actual, actual)  # not pointwise: through a fresh output
    assert result is actual
    torch.testing.assert_close(actual.cpu(), expected)
    with kernels_that_run(), pytest.raises(RuntimeError, match="more than one element of the written-to tensor"):
        torch.zeros(1, device=DEVICE).expand(3).add_(torch.ones(3, device=DEVICE))
    line = torch.arange(5.0, device=DEVICE)
    with kernels_that_run(), pytest.raises(RuntimeError, match="some elements of the input tensor and the written-to"):
        torch.add(line[:-1], line[:-1], out=line[1:])


# ---- what a kernel is and is not given ----


def test_broadcast_and_numbers() -> None:
    row = torch.tensor([1.0, -2.0, 3.0, 0.5])
    check(lambda a, b: a + b, OTHER, row, ran=("aten::add.out",))
    check(lambda a, b: a * b, row, OTHER, ran=("aten::mul.out",))
    check(lambda a, b: a + b, row[:, None], row, ran=("aten::add.out",))
    check(lambda a: a + 2.5, OTHER, ran=("aten::add.out",))
    check(lambda a: a * 2, OTHER, ran=("aten::mul.out",))
    check(lambda a: a + torch.tensor(2.0, dtype=torch.float64), OTHER, ran=("aten::add.out",))
    check(lambda a, b: a + b, torch.tensor(1.5), torch.tensor(2.0), ran=("aten::add.out",))
    check(lambda a: torch.where(a > 0, a, 0.0), OTHER, ran=("aten::where.self_out",))


def test_empty_tensors_reach_no_kernel() -> None:
    check(lambda a, b: a + b, torch.empty(0, 4), torch.empty(4), ran=())
    check(torch.mm, torch.empty(3, 0), torch.empty(0, 2), ran=())
    check(torch.sum, torch.empty(0), ran=())
    check(torch.nonzero, torch.empty(0, 2), ran=())


def test_dtypes() -> None:
    for dtype in (torch.float64, torch.int64):
        check(lambda a, b: torch.add(a, b, alpha=2), OTHER.to(dtype), OTHER.to(dtype), ran=("aten::add.out",))
    for dtype in (torch.float16, torch.int32, torch.complex64):  # UNSUPPORTED, or not in the mask
        check(lambda a, b: a + b, OTHER.to(dtype), OTHER.to(dtype), ran=())
        check(lambda a, b: a * b, OTHER.to(dtype), OTHER.to(dtype), ran=())
    check(lambda a, b: a + b, OTHER, OTHER.to(torch.int64), ran=("aten::add.out",))
    check(lambda a: a + 1.5, OTHER.to(torch.int64), ran=("aten::add.out",))
    out = torch.empty(3, 4, dtype=torch.float64, device=DEVICE)
    with kernels_that_run():
        torch.add(OTHER.to(DEVICE), OTHER.to(DEVICE), out=out)
    torch.testing.assert_close(out.cpu(), (OTHER + OTHER).double())


def test_inputs_of_several_dtypes() -> None:
    """Of a kernel with TB_KERNEL_MIXED_DTYPES and TB_KERNEL_NUMBERS."""
    wide, whole = OTHER.double().t(), (10 * OTHER).to(torch.int64)
    ran = ("aten::sub.out",)
    for other in (wide.t(), whole, whole.int(), OTHER[0], wide[:3, 0].view(3, 1)):
        check(lambda a, b: a - b, OTHER, other, ran=ran)
        check(lambda a, b: torch.sub(b, a, alpha=0.5), OTHER, other, ran=ran)
    for number in (2, 2.5):
        check(lambda a, number=number: a - torch.tensor(number), OTHER, ran=ran)
    check(lambda a: a - 2.5, whole, ran=ran)
    check(lambda a: torch.rsub(a, 3), wide, ran=ran)
    check(lambda a: a.clone().sub_(whole[0].to(a.device)), OTHER, ran=ran)
    check(lambda a, b: a - b, whole, whole, ran=())  # computed in int64
    check(lambda a, b: a - b, OTHER, OTHER.half(), ran=())  # UNSUPPORTED
    out = torch.empty(3, 4, dtype=torch.float64, device=DEVICE)
    with kernels_that_run("aten::sub.out"):
        torch.sub(OTHER.to(DEVICE), whole.to(DEVICE), out=out)
    torch.testing.assert_close(out.cpu(), (OTHER - whole).double())


def test_random_numbers() -> None:
    """Of a kernel that is given a generator."""
    torch.manual_seed(0)
    x = torch.empty(4, device=DEVICE)
    with kernels_that_run("aten::bernoulli_.float"):
        assert x.bernoulli_(0.7) is x
    assert x.cpu().tolist() == [1, 0, 0, 1], (
        "0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8 by the paper's known answers"
    )
    many = [torch.empty(100, 100, device=DEVICE).bernoulli_(0.3).cpu() for _ in range(2)]
    for drawn in many:
        assert set(drawn.unique().tolist()) == {0, 1}
        assert abs(drawn.mean().item() - 0.3) < 0.03
    assert 0.3 < (many[0] == many[1]).float().mean() < 0.8, "each call has its own numbers"
    own = torch.Generator(DEVICE)
    first, again = (x.bernoulli_(generator=own.manual_seed(seed)).cpu() for seed in (12, 12))
    torch.testing.assert_close(first, again)
    torch.testing.assert_close(torch.empty(8, 2, device=DEVICE).t().bernoulli_(1).cpu(), torch.ones(2, 8))


def test_conj_bits_are_resolved() -> None:
    z = torch.complex(OTHER, OTHER.flip(0))
    check(lambda a: torch.mm(a.conj(), a.t()), z, ran=())  # the mask has no complex dtype
    check(lambda a: a.imag + torch.ones(3, 4, device=a.device), z, ran=("aten::add.out",))


def test_nonzero_out_and_unfound() -> None:
    check(torch.nonzero, torch.zeros(3, 2), ran=("aten::nonzero.out",))
    assert torch.nonzero(OTHER.to(DEVICE)).stride() == OTHER.nonzero().stride()  # by columns, which tracing promises
    check(torch.nonzero, torch.tensor(3.0), ran=("aten::nonzero.out",))
    out = torch.empty(0, dtype=torch.int64, device=DEVICE)
    with kernels_that_run("aten::nonzero.out"):
        assert torch.nonzero(OTHER.to(DEVICE), out=out) is out
    torch.testing.assert_close(out.cpu(), OTHER.nonzero())
    with kernels_that_run(), pytest.raises(RuntimeError, match="Long"):
        torch.nonzero(OTHER.to(DEVICE), out=torch.empty(0, device=DEVICE))


def test_errors_are_pytorch_own() -> None:
    x = OTHER.to(DEVICE)
    for function in (lambda a: torch.mm(a, a), lambda a: a + torch.ones(5, device=a.device), lambda a: a.sum(7)):
        with kernels_that_run(), pytest.raises((RuntimeError, IndexError)) as on_device:
            function(x)
        with pytest.raises(on_device.type) as on_cpu:
            function(OTHER)
        assert str(on_device.value).splitlines()[0] == str(on_cpu.value).splitlines()[0]
    with kernels_that_run(), pytest.raises(RuntimeError, match="same device"):
        x + OTHER


# ---- the rest of PyTorch ----


def test_autograd() -> None:
    def step(device: torch.device | str) -> list[Tensor]:
        torch.manual_seed(0)
        model = torch.nn.Sequential(
            torch.nn.Conv2d(1, 2, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(32, 3), torch.nn.Softmax(1)
        ).to(device)
        model(torch.randn(2, 1, 6, 6).to(device)).square().sum().backward()
        return [parameter.grad.cpu() for parameter in model.parameters() if parameter.grad is not None]

    TRACE.write_text("")
    torch.testing.assert_close(step(DEVICE), step("cpu"))
    assert {
        "aten::convolution_overrideable",
        "aten::addmm.out",
        "aten::threshold_backward.grad_input",
        "aten::_softmax.out",
    } <= set(TRACE.read_text().split())


def test_sources() -> None:
    sources = operators.operator_sources()
    for op in ("add.out", "add.Tensor", "add_.Tensor", "relu", "relu_", "sum.dim_IntList", "nonzero", "addmm_"):
        assert sources[f"aten::{op}"] == "plugin", op
    assert sources["aten::add.Scalar"] != "plugin"
    assert sources["aten::div.Tensor"] == "fallback"
    with operators.count_calls() as counts:
        torch.relu(torch.ones(3, device=DEVICE))
    assert counts.by_source()["plugin"] == 1


def test_kernels_of_extensions_stay_first() -> None:
    library = torch.library.Library("aten", "IMPL")
    library.impl("threshold_backward", lambda grad, x, threshold: grad * 0 + 5, "PrivateUse1", allow_override=True)
    assert operators.operator_sources()["aten::threshold_backward"] == "extension"
    x = torch.ones(2, device=DEVICE)
    assert torch.ops.aten.threshold_backward(x, x, 0).cpu().tolist() == [5, 5]
    library._destroy()
    assert operators.operator_sources()["aten::threshold_backward"] == "plugin"


def test_custom_operator(capfd: pytest.CaptureFixture[str]) -> None:
    library = torch.library.Library("example", "DEF")
    library.define("scale(Tensor x, float factor) -> Tensor")
    with pytest.raises(ValueError, match=r"no operator 'example::scale\.out'"):
        operators.register_plugin_kernel("example::scale.out")
    assert operators.register_plugin_kernel("example::scale") == ["example::scale"]
    assert operators.register_plugin_kernel("example::scale") == []
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        with pytest.raises(NotImplementedError):
            torch.ops.example.scale(torch.ones(3, device=DEVICE), 2.5)
    # Where a call of C++ leads, PyTorch prints warnings up to 2.14.
    told = "".join(str(one.message) for one in heard) + capfd.readouterr().err
    assert "example::scale has no meta kernel" in told
    torch.library.register_fake("example::scale", lambda x, factor: torch.empty_like(x))
    check(lambda x: torch.ops.example.scale(x, 2.5) if x.device == DEVICE else x * 2.5, OTHER, ran=("example::scale",))
    assert operators.operator_sources()["example::scale"] == "plugin"


def test_operators_without_kernel() -> None:
    with pytest.raises(ValueError, match=r"device library of 'example' has no kernel for 'aten::div\.out'"):
        operators.register_plugin_kernel("aten::div.out")
    with pytest.raises(ValueError, match="no operator 'example::absent'"):
        operators.register_plugin_kernel("example::absent")


def test_calls_that_need_no_meta_function() -> None:
    """After a first call of a form, plain calls skip the meta function: what is not plain must be noticed still."""
    a, b = OTHER.to(DEVICE), OTHER.flip(0).to(DEVICE)
    out = torch.empty(3, 4, device=DEVICE)
    for _ in range(3):
        with kernels_that_run("aten::add.out"):
            assert torch.add(a, b, alpha=2, out=out) is out
        torch.testing.assert_close(out.cpu(), OTHER + 2 * OTHER.flip(0))
    for alpha, error in ((2j, "complex"), (True, "Boolean alpha only supported for Boolean results")):
        with kernels_that_run(), pytest.raises(RuntimeError, match=error):
            torch.add(a, b, alpha=alpha, out=out)
    with kernels_that_run("aten::add.out"):
        torch.add(a, b[:1], out=out)
    torch.testing.assert_close(out.cpu(), OTHER + OTHER.flip(0)[:1])
    small = torch.empty(0, device=DEVICE)
    with kernels_that_run("aten::add.out"):
        torch.add(a, b, out=small)
    torch.testing.assert_close(small.cpu(), OTHER + OTHER.flip(0))
    strided = torch.empty(4, 3, device=DEVICE).t()
    with kernels_that_run("aten::add.out"):
        torch.add(a, b, out=strided)
    torch.testing.assert_close(strided.cpu(), OTHER + OTHER.flip(0))
    memory = torch.zeros(24, device=DEVICE)
    with kernels_that_run(), pytest.raises(RuntimeError, match="single memory location"):
        torch.add(memory[:12].view(3, 4), b, out=memory[4:16].view(3, 4))
    with kernels_that_run("aten::add.out"):
        a.add_(a)
    torch.testing.assert_close(a.cpu(), 2 * OTHER)
    with kernels_that_run(), pytest.raises(RuntimeError, match="all tensors to be on the same device"):
        torch.add(OTHER, OTHER, out=out)
