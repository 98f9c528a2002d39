"""Softmax and normalization: every element with what all of its row, group or channel have in common."""

import math

import pytest
import torch
import torch.nn.functional as F
from conftest import values

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
# The CPU rounds half numbers in between; sums are in another order.
LIMITS = {
    torch.float32: {"rtol": 1e-4, "atol": 1e-5},
    torch.float64: {"rtol": 1e-7, "atol": 1e-7},
    torch.bfloat16: {"rtol": 2e-2, "atol": 2e-2},
    torch.float16: {"rtol": 3e-3, "atol": 3e-3},
}
SHAPES = {"rows": (9, 70), "odd": (5, 3, 33), "short": (4, 1), "one": (1,), "long": (2, 70000), "many": (3000, 5)}


def with_gradients(function):
    """The results, and the gradients of every floating argument that wants one."""

    def run(*arguments):
        leaves = [x for x in arguments if isinstance(x, torch.Tensor) and x.requires_grad]
        result = function(*arguments)
        first = result[0] if isinstance(result, tuple) else result
        weights = torch.linspace(-1, 1, first.numel(), dtype=torch.float64).reshape(first.shape).to(first)
        return (first.detach(), *torch.autograd.grad(first, leaves, weights.to(first.device)))

    return run


SOFTMAX = {"softmax": torch.softmax, "log_softmax": torch.log_softmax}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", SOFTMAX)
def test_softmax_of_every_dtype(check, name, dtype):
    x = values(6, 40, 5, dtype=dtype).requires_grad_()
    for dim in (1, 2):
        check(with_gradients(lambda x, dim=dim: SOFTMAX[name](x, dim)), x, **LIMITS[dtype])


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", SOFTMAX)
def test_softmax_of_every_shape(check, name, shape):
    x = values(*SHAPES[shape]).requires_grad_()
    for dim in range(len(SHAPES[shape])):
        check(with_gradients(lambda x, dim=dim: SOFTMAX[name](x, dim)), x)
    check(lambda x: SOFTMAX[name](x.t() if x.dim() == 2 else x, -1), x.detach())


LENGTHS = (2, 7, 16, 17, 63, 64, 65, 256, 257, 513, 1024, 1025, 2048, 2049)


@pytest.mark.parametrize("count", LENGTHS)
def test_rows_of_every_length(check, count):
    x, weight, bias = (values(*shape).requires_grad_() for shape in ((37, count), (count,), (count,)))
    for name in SOFTMAX:
        check(with_gradients(lambda x, name=name: SOFTMAX[name](x, 1)), x, **LIMITS[torch.float32])
        check(lambda x, name=name: SOFTMAX[name](x, 1), x.detach().bfloat16(), **LIMITS[torch.bfloat16])
    check(with_gradients(lambda x, w, b: F.layer_norm(x, (count,), w, b)), x, weight, bias, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("offset", [0, 1, 2, 4])
@pytest.mark.parametrize("shape", [(70, 64), (70, 1040), (5, 1040), (2, 9000)])
def test_rows_that_are_part_of_others(check, shape, offset):
    """Of which some are aligned, and some are several elements that lie together."""
    backward = torch.ops.aten._softmax_backward_data
    for dtype in (torch.float32, torch.bfloat16):
        x, grad = (values(*shape, dtype=dtype)[:, offset : shape[1] - 8 + offset] for _ in range(2))
        weight = values(*x.shape[1:])
        for name in SOFTMAX:
            check(lambda x, name=name: SOFTMAX[name](x, 1), x, **LIMITS[dtype])
            check(lambda x, name=name: SOFTMAX[name](x, 1, out=x), x.clone(), **LIMITS[dtype])
        check(lambda g, y: backward(g, y, 1, y.dtype), grad, x.softmax(1), **LIMITS[dtype])
        check(lambda x, w: F.layer_norm(x, w.shape, w, w), x, weight.to(dtype), **LIMITS[dtype])


@pytest.mark.parametrize("name", SOFTMAX)
def test_softmax_of_infinities(check, name):
    nan, inf = math.nan, math.inf
    x = torch.tensor([[1, 2, -inf], [-inf, -inf, -inf], [inf, 1, 2], [nan, 1, 2], [1e4, -1e4, 0]])
    for dim in (0, 1):
        check(lambda x, dim=dim: SOFTMAX[name](x, dim), x)
    check(lambda x: SOFTMAX[name](x, 0), torch.tensor(3.0))
    check(lambda x: SOFTMAX[name](x, 1, dtype=torch.float32), values(3, 50, dtype=torch.bfloat16))


@pytest.mark.parametrize("dtype", DTYPES)
def test_layer_norm_of_every_dtype(check, dtype):
    x, weight, bias = (values(*shape, dtype=dtype).requires_grad_() for shape in ((7, 50), (50,), (50,)))
    check(with_gradients(lambda x, w, b: F.layer_norm(x, (50,), w, b)), x, weight, bias, **LIMITS[dtype])
    if dtype is torch.bfloat16:
        weight, bias = (values(50).requires_grad_() for _ in range(2))
        check(with_gradients(lambda x, w, b: F.layer_norm(x, (50,), w, b)), x, weight, bias, **LIMITS[dtype])


@pytest.mark.parametrize("shape", [(3, 4, 10), (2, 70000), (1000, 3), (5, 1), (4,)])
def test_layer_norm_of_every_shape(check, shape):
    x = values(*shape).requires_grad_()
    limits = {"rtol": 1e-3, "atol": 5e-3}  # the CPU is off that far from the same in float64
    for count in range(1, min(len(shape), 2) + 1):
        weight, bias = values(*shape[-count:]).requires_grad_(), values(*shape[-count:]).requires_grad_()
        check(with_gradients(lambda x, n=count: F.layer_norm(x, shape[-n:])), x, **limits)
        check(with_gradients(lambda x, w, n=count: F.layer_norm(x, shape[-n:], w)), x, weight, **limits)
        check(with_gradients(lambda x, w, b, n=count: F.layer_norm(x, shape[-n:], w, b)), x, weight, bias, **limits)
        check(with_gradients(lambda x, b, n=count: F.layer_norm(x, shape[-n:], None, b)), x.detach(), bias, **limits)
    check(with_gradients(lambda x: F.layer_norm(x.transpose(0, -1), shape[:1])), x, **limits)


def test_layer_norm_far_from_zero(check):
    check(
        lambda x: torch.native_layer_norm(x, (500,), None, None, 1e-5),
        values(9, 500) * 0.1 + 1000,
        rtol=5e-3,
        atol=5e-3,
    )


@pytest.mark.parametrize("dtype", DTYPES)
def test_group_norm(check, dtype):
    weight, bias = (values(6, dtype=dtype).requires_grad_() for _ in range(2))
    for shape in ((4, 6), (2, 6, 5), (2, 6, 4, 5)):
        x = values(*shape, dtype=dtype).requires_grad_()
        for groups in (1, 3):
            run = with_gradients(lambda x, w, b, g=groups: F.group_norm(x, g, w, b))
            check(run, x, weight, bias, **LIMITS[dtype])
    check(with_gradients(lambda x: F.group_norm(x, 2)), x, **LIMITS[dtype])
    check(lambda x: F.group_norm(x, 2), x.detach().to(memory_format=torch.channels_last), **LIMITS[dtype])


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("shape", [(20, 6), (4, 6, 9), (4, 6, 5, 7), (2, 6, 3, 2, 4)])
def test_batch_norm(check, shape, training):
    limits = LIMITS[torch.float32]
    x = values(*shape).requires_grad_()
    weight, bias = values(6).requires_grad_(), values(6).requires_grad_()
    mean, var = values(6), values(6).abs() + 0.5
    run = with_gradients(lambda x, m, v, w, b: F.batch_norm(x, m, v, w, b, training=training, momentum=0.2))
    check(run, x, mean.clone(), var.clone(), weight, bias, **limits)
    check(run, x.detach(), mean.clone(), var.clone(), weight, bias, **limits)
    check(
        with_gradients(lambda x, m, v: F.batch_norm(x, m, v, training=training)), x, mean.clone(), var.clone(), **limits
    )
    if training:
        check(with_gradients(lambda x: F.batch_norm(x, None, None, training=True)), x, **limits)
    if len(shape) == 4:
        last = x.detach().to(memory_format=torch.channels_last).requires_grad_()
        check(run, last, mean.clone(), var.clone(), weight, bias, **limits)


@pytest.mark.parametrize("dtype", DTYPES[1:])
def test_batch_norm_of_every_dtype(check, dtype):
    x = values(8, 3, 10, dtype=dtype).requires_grad_()
    own, wide = (dtype, torch.float32 if dtype.itemsize == 2 else dtype)
    for parameters in {own, wide}:
        weight = values(3, dtype=parameters).requires_grad_()
        for training in (True, False):
            mean, var = values(3, dtype=parameters), values(3, dtype=parameters).abs() + 0.5
            run = with_gradients(lambda x, m, v, w, t=training: F.batch_norm(x, m, v, w, training=t))
            check(run, x, mean, var, weight, **LIMITS[dtype])
