"""What PyTorch's CPU kernels themselves refuse, not its meta functions, and what looks like it and is taken."""

import pytest
import torch
import torch.nn.functional as F
from conftest import DEVICE

import torch_backend

BF16, F32, F64, I8, I64, BOOL = torch.bfloat16, torch.float32, torch.float64, torch.int8, torch.int64, torch.bool
F16, C64, C128 = torch.float16, torch.complex64, torch.complex128
aten = torch.ops.aten


def ones(*sizes, dtype=F32):
    """Makes them on a device."""
    return lambda device: torch.ones(sizes, dtype=dtype, device=device)


def permuted(device):
    return torch.arange(1.0, 251.0, device=device).as_strided((5, 10, 5), (1, 5, 50))


def gradient_of_huber_loss(x, target):
    x.requires_grad_()
    F.huber_loss(x, target).backward()
    return x.grad


def group_norm(x, weight, bias):
    return aten.native_group_norm(x, weight, bias, 1, 4, 6, 2, 1e-5)[0]


def _foreach_sub_(xs, others, alpha):
    torch._foreach_sub_(xs, [other.clone() for other in others], alpha=alpha)
    return xs


CALLS = [
    ("cdist of whole numbers", torch.cdist, ones(2, 2), ones(2, 2, dtype=I8)),
    *(
        (f"cdist of two dtypes, {n}, {k}, {p}", lambda x, y, p=p: torch.cdist(x, y, p=p), x, ones(2, k, dtype=F64))
        for n, k, p in ((2, 2, 2.0), (0, 2, 2.0), (2, 0, 0.0))
        for x in (ones(n, k), ones(3, n, k))
    ),
    ("cdist of vectors of nothing", lambda x: torch.cdist(x, x, p=float("inf")), ones(2, 0)),
    *(("cdist", lambda x, p=p: torch.cdist(x, x, p=p), ones(2, 2)) for p in (float("nan"), -1.0, 0.0)),
    ("bincount of a number", torch.bincount, ones(dtype=I64)),
    *(
        (f"group_norm, {weight}, {bias}", group_norm, ones(1, 4, 2, 3), ones(*weight), ones(*bias))
        for weight, bias in (((1, 4), (4,)), ((4,), (1, 4, 1)), ((4,), (4,)))
    ),
    ("unfold with padding below 0", lambda x: F.unfold(x, 2, 1, -1, 1), ones(1, 1, 4, 4)),
    *(
        (f"linspace, {steps}", lambda x, n=steps: torch.linspace(3e38, 1, n, dtype=I64, device=x.device), ones(1))
        for steps in (0, 1)
    ),
    ("addbmm_ into fewer dimensions", lambda x, y: x.addbmm_(y, y), ones(1), ones(1, 1, 1)),
    *(
        (f"histc of {dtype} to {end}", lambda x, end=end: torch.histc(x, 3, 0, end), ones(2, dtype=dtype))
        for dtype, end in ((F16, 2**53 + 1), (F16, 6e4), (F32, 1e300), (F32, 1e38))
    ),
    *(
        (f"histc of {value} alone", lambda x, v=value: torch.histc(x * v, 7), ones(2, dtype=dtype))
        for value, dtype in ((1.0, F16), (1e20, F32), (1e20, F64))
    ),
    *(
        (f"{f.__name__}, {given}", lambda x, f=f, given=given: f(*given, device=x.device), ones(1))
        for f in (torch.tril_indices, torch.triu_indices)
        for given in ((3, 5, 0), (5, 3, -1), (4, 4, 2), (4, 4, -2), (3, 5, 2), (5, 3, -2))
    ),
    *(
        (f"norm {order} of {sizes}", lambda x, p=order: torch.norm(x, p, dim=-1), ones(*sizes))
        for order in (-1.0, 3.0, float("inf"), float("-inf"), 0.0)
        for sizes in ((0,), (2, 0), (0, 2))
    ),
    ("tril_indices of long rows", lambda x: torch.tril_indices(20, 2**31, 0, device=x.device), ones(1)),
    ("bucketize", lambda x, out: torch.bucketize(x, x, out_int32=True, out=out), ones(2), ones(2, dtype=I64)),
    ("searchsorted", lambda x, out: torch.searchsorted(x, x, out=out), ones(2), ones(2, dtype=torch.int32)),
    ("isin of bools", torch.isin, ones(2, dtype=BOOL), ones(2)),
    ("isin into a half", lambda x, out: torch.isin(x, x, out=out), ones(2), ones(2, dtype=F16)),
    ("relu of bools", F.relu, ones(2, dtype=BOOL)),
    ("relu_ of bools", torch.relu_, ones(2, dtype=BOOL)),
    ("rsub of bools", torch.rsub, ones(2, dtype=BOOL), ones(2)),
    ("rsub of no bools", torch.rsub, ones(0, dtype=BOOL), ones(0)),
    ("complex of two dtypes", torch.complex, ones(2, dtype=F64), ones(2)),
    *(
        (f"{f.__name__} of {sizes}, {dtype}", f, ones(*sizes, dtype=dtype), ones(*sizes, dtype=dtype))
        for f in (torch.complex, torch.polar)
        for dtype in (BF16, F32, I64)
        for sizes in ((2,), (0,))
    ),
    ("polar of two dtypes", torch.polar, ones(2, dtype=F64), ones(2)),
    ("clamp of no complex", F.hardtanh, ones(0, dtype=C64)),
    *(
        (f"grid_sample, {grid}", F.grid_sample, ones(1, 1, 2, 2, dtype=F64), ones(1, 2, 2, 2, dtype=grid))
        for grid in (F64, F32, I8)
    ),
    ("grid_sample of a volume", F.grid_sample, ones(1, 1, 2, 2, 2, dtype=F64), ones(1, 2, 2, 2, 3)),
    ("grid_sample of numbers", F.grid_sample, ones(), ones()),
    ("grid_sample of nothing", F.grid_sample, ones(1, 3, 0, 0, 0), ones(1, 2, 2, 2, 3)),
    *(
        (
            f"grid_sampler's padding {padding}",
            lambda x, y, padding=padding: torch.grid_sampler_3d(x, y, 0, padding, False),
            ones(1, 1, 2, 2, 2),
            ones(1, 1, 1, 1, 3),
        )
        for padding in (-1, 3)
    ),
    (
        "cubic grid_sampler's gradient",
        lambda x, y: aten.grid_sampler_3d_backward(x, x, y, 2, 0, False, [True, True])[0],
        ones(1, 1, 1, 1, 1),
        ones(1, 1, 1, 1, 3),
    ),
    ("renorm of complex", lambda x: torch.renorm(x, 2, 0, 0.5), ones(2, 2, dtype=C64)),
    ("renorm of halves", lambda x: torch.renorm(x, 2, 0, 0.5), ones(2, 2, dtype=BF16)),
    ("renorm, permuted", lambda x: torch.renorm(x, float("inf"), 2, 0.5), permuted),
    ("renorm into floats", lambda x, out: torch.renorm(x, 2, 0, 0.5, out=out), ones(2, 2, dtype=BF16), ones(2, 2)),
    ("embedding_bag", lambda i, w: F.embedding_bag(i, w, max_norm=-1), ones(1, 1, dtype=I64), ones(2, 2)),
    *(
        (f"equal, {dtype}", lambda a, b: torch.tensor(torch.equal(a, b)), ones(1), ones(*sizes, dtype=dtype))
        for dtype in (F32, F64, I64)
        for sizes in ((1,), (1, 1), (2,))
    ),
    ("cross of two dtypes", torch.linalg.cross, ones(3), ones(3, dtype=F64)),
    ("cross into its argument", lambda x, y: torch.linalg.cross(x, y, dim=1, out=x), ones(3, 3), ones(3, 3)),
    ("softmax's gradient", lambda x, y: torch._softmax_backward_data(x, y, 0, F32), ones(3, dtype=F64), ones(3)),
    ("binary_cross_entropy of two dtypes", F.binary_cross_entropy, ones(2), ones(2, dtype=F64)),
    ("prelu of two dtypes", torch._prelu_kernel, ones(2), ones(2, dtype=F64)),
    ("prelu's gradient", torch.ops.aten._prelu_kernel_backward, ones(2), ones(2, dtype=F64), ones(2)),
    ("logsigmoid's gradient", torch.ops.aten.log_sigmoid_backward, ones(2, dtype=F64), ones(2), ones(2)),
    *(
        (f"{name} of two dtypes, {sizes}", function, ones(*sizes, dtype=first), ones(*sizes, dtype=second))
        for name, function in {"huber_loss": F.huber_loss, "mse_loss": F.mse_loss}.items()
        for first, second in ((F16, F32), (F32, F64), (F16, BF16))
        for sizes in ((2,), (0,))
    ),
    *(
        (f"{name}'s weight", function, ones(2, 2, *sizes), lambda device, s=sizes: ones(2, *s, dtype=I64)(device), w)
        for w in (ones(2, dtype=F64), ones(2))
        for name, function, sizes in (
            ("nll_loss", F.nll_loss, ()),
            ("nll_loss2d", F.nll_loss, (2, 2)),
            ("nll_loss's gradient", lambda x, t, w: aten.nll_loss_backward(w[0], x, t, w, 1, -100, w[0]), ()),
        )
    ),
    *(
        (f"{name}, reduction {reduction}", lambda *xs, f=f, r=reduction: f(*xs, r), ones(1, 2, 2, 2), target)
        for reduction in (-1, 3)
        for name, f, target in (
            ("mse_loss", aten.mse_loss, ones(1, 2, 2, 2)),
            ("smooth_l1_loss", aten.smooth_l1_loss, ones(1, 2, 2, 2)),
            ("huber_loss", aten.huber_loss, ones(1, 2, 2, 2)),
            ("binary_cross_entropy", lambda x, y, r: aten.binary_cross_entropy(x, y, None, r), ones(1, 2, 2, 2)),
            ("nll_loss2d", lambda x, t, r: aten.nll_loss2d_forward(x, t, None, r, -1)[0], ones(1, 2, 2, dtype=I64)),
        )
    ),
    *((f"_fft_r2c, normalization {n}", lambda x, n=n: aten._fft_r2c(x, [0], n, True), ones(3)) for n in (-1, 3)),
    *(
        (
            f"{f.__name__} of {dtype} into {out}",
            lambda x, out, f=f: f(x, out=out),
            ones(3, 4, dtype=dtype),
            ones(dtype=out),
        )
        for f in (torch.fft.fft, torch.fft.rfft2, torch.fft.irfftn, torch.fft.hfft)
        for dtype, out in ((F32, F64), (F32, C128), (F64, C64), (F64, F32))
    ),
    ("huber_loss's gradient", gradient_of_huber_loss, ones(2), ones(2, dtype=BF16)),
    *(
        (f"{name}, bias {bias}", function, ones(2, 2, 2), ones(2), ones(2, dtype=bias))
        for bias in (F32, F64)
        for name, function in {
            "group_norm": lambda x, w, b: F.group_norm(x, 2, w, b),
            "layer_norm": lambda x, w, b: F.layer_norm(x, (2,), w, b),
            "batch_norm": lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True),
        }.items()
    ),
    *(
        (
            f"{name}, {which} of {sizes}",
            function,
            ones(2, 2, 3),
            *(ones(*sizes if i == which else (2,)) for i in range(4)),
        )
        for which, sizes in ((0, (1, 2)), (1, (2, 1)), (2, ()), (2, (1, 2)), (3, ()), (3, (2, 1)))
        for name, function in {
            "native_batch_norm": lambda x, *xs: torch.native_batch_norm(x, *xs, True, 0.1, 1e-5)[0],
            "_native_batch_norm_legit": lambda x, *xs: torch._native_batch_norm_legit(x, *xs, False, 0.1, 1e-5)[0],
            "_batch_norm_with_update": lambda x, *xs: aten._batch_norm_with_update(x, *xs, 0.1, 1e-5)[0],
            "batch_norm's gradient": lambda x, w, *xs: aten.native_batch_norm_backward(
                x, x, w, xs[0], xs[0], *xs[1:], True, 1e-5, [True, True, True]
            )[0],
        }.items()
    ),
    *(
        (f"{name}, permuted", function, permuted)
        for name, function in {
            "batch_norm": lambda x: F.batch_norm(x, None, None, training=True),
            "batch_norm that does not train": lambda x: F.batch_norm(x, x[0, :, 0] + 1, x[0, :, 0] + 1),
            "_batch_norm_with_update": lambda x: aten._batch_norm_with_update(x, None, None, *x[:2, :, 0] + 1, 0, 1e-5)[
                0
            ],
            "batch_norm's gradient": lambda x: aten.native_batch_norm_backward(
                x, x, None, None, None, x[0, :, 0] + 1, x[0, :, 0] + 1, True, 1e-5, [True, True, True]
            )[0],
        }.items()
    ),
    *(
        (f"cholesky_inverse of {batch} singular matrices", torch.cholesky_inverse, matrix)
        for batch in ((), (1,), (2, 2))
        for matrix in (
            ones(*batch, 0, 0),
            lambda device, b=batch: torch.eye(2, device=device).tril(-1).expand(*b, 2, 2),
        )
    ),
    *(
        (
            f"addr of {dtype}, {factors}",
            lambda x, v, factors=factors: torch.addr(x, v, v, **factors),
            ones(2, 2, dtype=dtype),
            ones(2, dtype=dtype),
        )
        for dtype in (F16, torch.uint8, I64, F32)
        for factors in ({"beta": 3e38}, {"alpha": 3e38}, {"beta": 2**31}, {"alpha": -(2**31)})
    ),
    *(
        (f"addr_ of {sizes}", lambda x, v: x.addr_(v, v), ones(*sizes), ones(2))
        for sizes in ((2, 2), (2, 1), (2,), (1, 2, 2))
    ),
    *((f"addr to {sizes}", torch.addr, ones(*sizes), ones(1), ones(2)) for sizes in ((), (2,), (1, 1), (2, 1), (2, 2))),
    *(
        (f"cholesky_inverse into {dtype}", lambda x, out: torch.cholesky_inverse(x, out=out), ones(2, 3, 3), out)
        for dtype in (BF16, F32, F64, I64, C64)
        for out in (ones(0, dtype=dtype), ones(2, 3, 3, dtype=dtype), ones(1, dtype=dtype))
    ),
    *(
        (
            f"{name} of no elements",
            lambda *xs, f=f: f(*xs),
            *(ones(*sizes, dtype=d) for sizes, d in zip(given, ds, strict=True)),
        )
        for ds in ((F64, F64, torch.int32), (torch.int32, F64, F64))
        for name, f, given in (
            ("mm", lambda self, x, y: torch.mm(x, y), ((), (0, 1), (1, 1))),
            ("mm of no columns", lambda self, x, y: torch.mm(x, y), ((), (1, 1), (1, 0))),
            ("bmm", lambda self, x, y: torch.bmm(x, y), ((), (0, 1, 1), (0, 1, 1))),
            ("mv", lambda self, x, y: torch.mv(x, y), ((), (0, 1), (1,))),
            ("dot", lambda self, x, y: torch.dot(x, y), ((), (0,), (0,))),
            ("addmm", torch.addmm, ((0, 1), (0, 1), (1, 1))),
            ("addmv", torch.addmv, ((0,), (0, 1), (1,))),
            ("baddbmm", torch.baddbmm, ((0, 1, 1), (0, 1, 1), (0, 1, 1))),
        )
        if (name, ds[0]) != ("addmv", F64)  # whose dtypes versions of PyTorch disagree on
    ),
    *(
        (f"{name} by {n} of {index}", function, ones(3), ones(n, dtype=index), ones(n))
        for index in (F32, torch.int32, I8)
        for n in (0, 2)
        for name, function in {
            "put": torch.put,
            "take": lambda x, i, v: torch.take(x, i),
            "index_fill": lambda x, i, v: torch.index_fill(x, 0, i, 1.0),
            "index_select": lambda x, i, v: torch.index_select(x, 0, i),
            "index_select of nothing": lambda x, i, v: torch.index_select(x.expand(0, 3), 1, i),
            "index_put": lambda x, i, v: torch.index_put(x, [i], v),
            "index_add": lambda x, i, v: torch.index_add(x, 0, i, v * 0),
            "embedding's gradient": lambda x, i, v: aten.embedding_dense_backward(v.unsqueeze(1), i, 3, -1, False),
        }.items()
    ),
    *(
        (f"{name} by {sizes}", f, ones(3), ones(*sizes, dtype=I64))
        for sizes in ((0, 3), (1, 2))
        for name, f in {
            "index_fill": lambda x, i: torch.index_fill(x, 0, i, 1.0),
            "index_select": lambda x, i: torch.index_select(x, 0, i),
        }.items()
    ),
    *(
        (f"{name}, alpha {alpha}", lambda x, f=f, alpha=alpha: f([x], [x], alpha=alpha)[0], ones(2, dtype=dtype))
        for name, f in {"_foreach_add": torch._foreach_add, "_foreach_sub_": _foreach_sub_}.items()
        for dtype in (F16, F32, I64)
        for alpha in (True, 2, 0.5)
    ),
    ("_foreach_add of a number, alpha True", lambda x: torch._foreach_add([x], x[0], alpha=True)[0], ones(2)),
    *(
        (f"{name} of a part", lambda x, f=f: f(x[1:], x[:-1], x[:-1].bool()), ones(4, dtype=I64))
        for name, f in {
            "floor_divide_": lambda x, other, mask: x.floor_divide_(other),
            "floor_divide_ by an element": lambda x, other, mask: x.floor_divide_(other[1]),
            "fill_ with an element": lambda x, other, mask: x.fill_(other[1]),
            "masked_fill_ with an element": lambda x, other, mask: x.masked_fill_(mask, other[1]),
            "index_fill_": lambda x, other, mask: x.index_fill_(0, other, 2),
            "index_fill_ with an element": lambda x, other, mask: x.index_fill_(0, other.clone(), other[1]),
            "index_put_": lambda x, other, mask: x.index_put_((other,), other[:1].clone()),
            "index_put_ of values": lambda x, other, mask: x.index_put_((mask,), other),
            "put_": lambda x, other, mask: x.put_(other, other.clone()),
            "put_ of values": lambda x, other, mask: x.put_(other.clone(), other),
            "masked_scatter_": lambda x, other, mask: x.masked_scatter_(mask, other),
        }.items()
    ),
    ("masked_fill_ by a part", lambda x: x[1:].masked_fill_(x[:-1], False), ones(4, dtype=BOOL)),
    *(
        (f"index_put of {sizes}", lambda x, i, v: torch.index_put(x, [i - 1], v), ones(2, 2), index, ones(*sizes))
        for sizes in ((2,), (1, 2), (1, 1, 2))
        for index in (ones(dtype=I64), ones(1, dtype=I64), ones(0, dtype=I64))
    ),
    *(
        (
            f"index_put of {sizes} to a mask",
            lambda x, i, v: torch.index_put(x, [i], v),
            ones(2),
            ones(2, dtype=BOOL),
            ones(*sizes),
        )
        for sizes in ((), (1, 1), (1, 2))
    ),
    *(
        (f"{name}, {groups} groups", lambda *xs, f=f, g=groups: f(*xs, groups=g), ones(1, 2, *sizes, dtype=F64), weight)
        for groups in (1, 2)
        for name, f, sizes in (
            ("conv1d", F.conv1d, (3,)),
            ("conv2d", F.conv2d, (3, 3)),
            ("conv3d", F.conv3d, (3, 3, 3)),
            ("conv_transpose2d", F.conv_transpose2d, (3, 3)),
        )
        for weight in (ones(2, 2 // groups, *sizes), ones(2, 2 // groups, *(1 for _ in sizes), dtype=I64))
    ),
    *(
        (f"index_select in {dim}", lambda x, i, dim=dim: torch.index_select(x, dim, i - 1), ones(), ones(n, dtype=I64))
        for dim, n in ((0, 0), (128, 1), (0, 2))
    ),
    *(
        (f"adaptive_avg_pool of {sizes}", lambda x: F.adaptive_avg_pool2d(x, (2, 2)), ones(*sizes))
        for sizes in ((0, 3, 0, 4), (0, 3, 4, 4), (3, 0, 4))
    ),
    (
        "conv_transpose2d with much padding",
        lambda x, w: F.conv_transpose2d(x, w, output_padding=(2, 1)),
        ones(1, 2, 1, 1, dtype=F64),
        ones(2, 2, 2, 2, dtype=F64),
    ),
    ("rsub, permuted", torch.rsub, ones(2, 2), lambda device: torch.ones(9, device=device).as_strided((2, 2), (1, 5))),
    ("mean into whole numbers", lambda x, out: torch.mean(x, dim=0, out=out), ones(3), ones(dtype=I64)),
    ("floor_divide, permuted", lambda x: torch.floor_divide(x, 2.0), permuted),
    ("floor_divide by a tensor, permuted", torch.floor_divide, permuted, ones()),
    ("normal, permuted", lambda x: torch.normal(x, x) * 0, permuted),
    ("put of more than indices", lambda x, i: x.put(i - 1, x), ones(8), ones(dtype=I64)),
    (
        "repeat_interleave to another size",
        lambda x: torch.repeat_interleave(x, x, output_size=4).cpu(),
        ones(3, dtype=I64),
    ),
    (
        "normal into another size",
        lambda x, out: torch.normal(x, 1.1, out=out),
        ones(2, 3, dtype=F16),
        ones(3, 2, 2, dtype=F16),
    ),
]


@pytest.mark.parametrize(("function", "arguments"), [pytest.param(f, xs, id=name) for name, f, *xs in CALLS])
def test_as_on_the_cpu(function, arguments):
    """The same exception and its words, or the same result, in values and strides."""
    with torch_backend.fallback.policy(None, "allow"):
        expected, found = (_outcome(function, arguments, device) for device in ("cpu", DEVICE))
    if isinstance(expected, Exception) or isinstance(found, Exception):
        assert type(found) is type(expected), (found, expected)
        assert str(expected).split("\n")[0].split(", but")[0].replace("cpu", DEVICE) in str(found).replace(
            "cpu", DEVICE
        )
    else:
        assert found.stride() == expected.stride()
        torch.testing.assert_close(found.cpu(), expected, equal_nan=True)


def _outcome(function, arguments, device):
    try:
        result = function(*(make(device) for make in arguments))
        if device == DEVICE:
            torch.get_device_module(DEVICE).synchronize()
        return result
    except Exception as error:
        return error
