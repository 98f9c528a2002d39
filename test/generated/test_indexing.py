"""Elements that tensors of indices name: read, written, added to; and what is out of range."""

import math
import os

import pytest
import torch
from conftest import DEVICE, to_device, values
from torch_conformance.threads import in_threads

import torch_backend

DTYPES = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16)
DTYPES += (torch.float32, torch.float64, torch.complex64, torch.complex128)
NAN, INF = float("nan"), float("inf")
MATRIX = torch.arange(-30.0, 30.0).reshape(5, 12)
CUBE = torch.arange(120.0).reshape(4, 5, 6)
ROWS = torch.tensor([3, 0, 3, 1])
MASK = torch.arange(60).reshape(5, 12) % 3 == 1


def places(*shape, size, dtype=torch.int64):
    return (torch.arange(torch.Size(shape).numel()) * 7 % size).reshape(shape).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes(check, dtype):
    x, there, source = MATRIX.to(dtype), places(3, 12, size=5), MATRIX[:3].to(dtype)
    check(torch.index_select, x, 1, ROWS, exact=True)
    check(torch.gather, x, 0, there, exact=True)
    check(torch.scatter_add, x, 0, there, source, exact=True)
    check(torch.scatter, x, 1, places(5, 3, size=12), 3, exact=True)
    check(lambda a, b, i: a.index_put_((i,), b, accumulate=True), x.clone(), MATRIX[:4].to(dtype), ROWS, exact=True)
    check(lambda a, i: a[i, 2:4], x, ROWS, exact=True)
    check(lambda a, i: a.index_fill_(0, i, 7), x.clone(), ROWS, exact=True)
    check(torch.nonzero, x, exact=True)
    check(torch.masked_select, x, MASK, exact=True)
    check(torch.masked_scatter, x, MASK, x.flip(0), exact=True)
    check(torch.take, x, places(2, 3, size=20), exact=True)
    check(lambda a, i: a.put_(i, a[0, :6].clone(), accumulate=True), x.clone(), places(6, size=20), exact=True)


@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint32, torch.uint64])
def test_unsigned_numbers(check, dtype):
    x = MATRIX.abs().to(dtype)
    check(lambda a, i: (a[i], a.index_select(1, i), a[a != 3], a.repeat_interleave(2)), x, ROWS, exact=True)
    check(lambda a: (torch.cat([a, a]), a.flip(0), a.roll(1, 0), a.t().contiguous()), x, exact=True)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_complex_numbers(check, dtype):
    x, there = torch.complex(MATRIX, MATRIX.flip(0)).to(dtype), places(3, 12, size=5)
    check(torch.scatter, x, 1, places(5, 3, size=12), 3 - 1j, exact=True)
    check(lambda a, i: a.index_fill_(1, i, 2j), x.clone(), ROWS, exact=True)
    check(lambda a, i, b: a.scatter_add_(0, i, b), x.mT.contiguous().mT, there, x[:3], exact=True)
    check(lambda a, i, b: a.index_add_(0, i, b, alpha=2), x.clone(), ROWS[:2], x[:2].conj(), exact=True)
    check(lambda a, i, b: a.index_put_((i, i + 1), b, accumulate=True), x.clone(), ROWS, x[0, :4], exact=True)
    check(lambda a, i, b: a.index_copy_(1, i, b), x.clone(), ROWS[:2], x[:, :2] + 1, exact=True)
    check(lambda a: a.__setitem__(a.real > 3, 1j), x.clone(), exact=True)
    check(lambda a, i: a.conj()[i], x, ROWS, exact=True)
    check(torch.nonzero, torch.complex(MATRIX * 0, MATRIX), exact=True)
    check(lambda a: (a.renorm(2, 0, 3.0), a.renorm(1, 1, 50.0)), x)


@pytest.mark.parametrize(
    "index",
    [
        (ROWS,),
        (slice(None), ROWS),
        (ROWS, slice(None), ROWS + 1),
        (ROWS, ROWS),
        (slice(None), ROWS, ROWS[:, None]),
        (ROWS.to(torch.int32),),
        (-1 - ROWS,),
        (None, ROWS),
        (torch.tensor(2), slice(None), ROWS),
        (CUBE % 7 == 2,),
        (CUBE[:, :, 0] % 4 == 2,),
        (slice(None), CUBE[0] % 4 == 1),
        (torch.tensor([True, False, True, True]), slice(None), torch.tensor([0, 4, 5])),
        (CUBE > 500,),
        (ROWS[:0],),
    ],
    ids=str,
)
def test_lists_of_indices(check, index):
    for x in (CUBE, CUBE.transpose(0, 2).contiguous().transpose(0, 2)):
        check(lambda a, i: a[tuple(i)], x, list(index), exact=True)
        check(lambda a, i: a.__setitem__(tuple(i), 5.0), x.clone(), list(index), exact=True)
    check(lambda a, i, b: a.__setitem__(tuple(i), b), CUBE.clone(), list(index), CUBE[tuple(index)] + 1, exact=True)


@pytest.mark.parametrize(
    "index",
    [ROWS, ROWS.to(torch.int32), MASK, MASK[:, 0], (slice(None), ROWS), (ROWS, ROWS)],
    ids=["int64", "int32", "mask", "mask of rows", "columns", "pairs"],
)
def test_indices_on_the_host(check, index):
    check(lambda a: a[index], MATRIX, exact=True)
    check(lambda a: a.__setitem__(index, 5.0), MATRIX.clone(), exact=True)
    check(lambda a: a.__setitem__(index, torch.tensor(7.0)), MATRIX.clone(), exact=True)
    check(lambda a, b: a.__setitem__(index, b), MATRIX.clone(), MATRIX[index] + 1, exact=True)
    x = MATRIX.to(DEVICE).requires_grad_()
    x[index].sum().backward()
    picked = MATRIX.clone().requires_grad_()
    picked[index].sum().backward()
    assert torch.equal(x.grad.cpu(), picked.grad)


def test_an_index_on_the_host_that_is_out_of_range():
    with pytest.raises(IndexError, match=r"out of range|out of bounds"):
        MATRIX.to(DEVICE)[torch.tensor([99])].cpu()


@pytest.mark.parametrize(
    "layout", [lambda x: x, lambda x: x.t().contiguous().t(), lambda x: x[:, ::2], lambda x: x[1:]]
)
def test_layouts(check, layout):
    x = layout(MATRIX.clone())
    there = places(*x.shape, size=x.shape[0])
    check(torch.gather, x, 0, there, exact=True)
    check(torch.gather, x, -1, there.t().contiguous().t()[:, :3], exact=True)
    check(lambda a, i, b: a.scatter_(0, i, b), x.clone(), places(1, x.shape[1], size=x.shape[0]), x + 1, exact=True)
    check(lambda a, i, b: a.scatter_add_(0, i, b), x.clone(), there, x + 1)
    check(lambda a, i, b: a.index_add_(0, i, b, alpha=2), x.clone(), ROWS[:2], x[:2] + 1)
    check(lambda a, i, b: a.index_copy_(1, i, b), x.clone(), ROWS[:2], x[:, :2] + 1, exact=True)
    check(lambda a, i: a.index_fill_(0, i, 7), x.clone(), -1 - ROWS, exact=True)
    check(torch.take, x, places(2, 3, size=20) - 10, exact=True)
    check(lambda a, i, b: a.put_(i, b, accumulate=True), x.clone(), places(2, 3, size=20), x.flatten()[:6])
    check(lambda a, i: torch.index_select(a, 0, i), x, ROWS, exact=True)


@pytest.mark.parametrize("reduce", ["sum", "prod", "amin", "amax"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.uint8])
def test_reductions(check, reduce, dtype):
    x, source = MATRIX.remainder(5).to(dtype), MATRIX.remainder(3).to(dtype)
    if dtype.is_floating_point:
        source[1, 1] = float("nan")
    for include_self in (True, False):
        check(
            lambda a, i, b: a.scatter_reduce(0, i, b, reduce, include_self=include_self),  # noqa: B023
            *(x, places(5, 12, size=5), source),
        )
        if reduce != "sum":
            check(lambda a, i, b: a.index_reduce(0, i, b, reduce, include_self=include_self), x, ROWS, source[:4])  # noqa: B023


@pytest.mark.parametrize("alpha", [0, 1, 2, -1])
def test_answers_are_added_times_a_number(check, alpha):
    check(torch.index_add, MATRIX > 1, 0, ROWS[:2], MATRIX[2:4] > 0, alpha=alpha, exact=True)


def test_no_dimensions_and_no_elements(check):
    number, first = torch.tensor(3.0), torch.tensor(0)
    check(torch.gather, number, 0, first, exact=True)
    check(torch.index_select, number, 0, first, exact=True)
    check(torch.scatter_add, number, 0, first, number, exact=True)
    check(torch.index_add, MATRIX, 0, ROWS[:0], MATRIX[:0], exact=True)
    check(torch.scatter, MATRIX, 0, ROWS[:0].reshape(0, 1), MATRIX, exact=True)
    check(torch.take, number, first, exact=True)
    check(torch.masked_scatter, MATRIX, MATRIX > 100, MATRIX[0, 12:], exact=True)  # from where the row ends


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_embedding(check, dtype):
    weight = torch.randn(10, 6).to(dtype)
    words = torch.tensor([[1, 2, 1], [3, 9, 1]])
    grad = torch.randn(2, 3, 6).to(dtype)
    check(torch.nn.functional.embedding, words, weight, exact=True)
    for padding, scale in ((-1, False), (1, False), (-1, True), (2, True)):
        check(
            lambda g, w: torch.ops.aten.embedding_dense_backward(g, w, 10, padding, scale),  # noqa: B023
            grad,
            words,
            rtol=0.02,
            atol=0.02,
        )


def test_many_elements(check):
    x, there = torch.randn(300, 200), torch.randint(0, 300, (300, 200))
    check(torch.gather, x, 0, there, exact=True)
    check(torch.scatter_add, x, 0, there, x)
    check(lambda a, i: a[i], x, torch.randint(0, 300, (1000,)), exact=True)
    check(lambda a, m: a[m], x, x > 0, exact=True)
    check(torch.nonzero, x > 0, exact=True)


def test_masks(check):
    check(torch.nonzero, MASK, exact=True)
    check(torch.nonzero, torch.tensor(1.0), exact=True)
    check(torch.nonzero, MATRIX.t(), exact=True)
    check(torch.masked_select, MATRIX, MASK, exact=True)
    check(torch.masked_select, MATRIX.t(), MASK.t()[:, :1], exact=True)
    check(torch.masked_scatter, MATRIX, MASK, torch.arange(60.0), exact=True)
    check(torch.masked_scatter, MATRIX, MASK[:1], torch.arange(60.0), exact=True)


@pytest.mark.parametrize("count", [0, 1, 31, 33, 2047, 2048, 2049, 100003])
@pytest.mark.parametrize("share", [0, 0.5, 1])
def test_masks_of_every_size(check, count, share):
    x = torch.arange(count)
    mask = torch.rand(count, generator=torch.Generator().manual_seed(0)) < share
    check(torch.nonzero, mask, exact=True)
    check(torch.nonzero, mask.to(torch.bfloat16).expand(2, count), exact=True)
    check(torch.masked_select, x, mask, exact=True)
    check(torch.masked_select, x.to(torch.int8), mask, exact=True)
    check(torch.masked_select, x.to(torch.complex128), mask, exact=True)
    check(torch.masked_scatter, x, mask, x, exact=True)
    check(torch.masked_scatter, x.half(), mask, x.half(), exact=True)
    check(lambda m: torch.nonzero(m[1:]), mask, exact=True)  # not aligned
    check(lambda m: torch.nonzero(m[m.numel() % 3 :].reshape(3, m.numel() // 3)), mask * x.double(), exact=True)
    if count:
        x = x * mask // 3
        check(lambda x: torch.unique(x, return_inverse=True, return_counts=True), x, exact=True)
        check(lambda x: torch.unique(x, return_inverse=True)[1], x.float(), exact=True)
        check(lambda x: torch.unique_consecutive(x, return_counts=True)[1], x.short(), exact=True)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_what_is_not_zero(check, dtype):
    least = torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps  # a subnormal number
    row = torch.tensor([0.0, -0.0, NAN, INF, -INF, least, -least, 1], dtype=dtype)
    for x in (row, row.repeat(1000), row[3:], row.expand(3, 8), row.repeat(9, 1).t()):
        check(torch.nonzero, x, exact=True)


@pytest.mark.parametrize("members", [[NAN, 2, 1, NAN, 5, -INF, -0.0], [NAN], [INF, NAN, -3], [4, 1]])
def test_members_are_found_beside_nan(check, members):
    x = torch.tensor([[0, 1, 2, 3], [5, NAN, INF, -INF]])
    for dtype in (torch.float32, torch.bfloat16, torch.float64):
        for invert in (False, True):
            check(torch.isin, x.to(dtype), torch.tensor(members).to(dtype), invert=invert, exact=True)
    check(torch.isin, torch.tensor([1, 4, 7]), torch.tensor(members), exact=True)
    limits = torch.tensor([-(2**63), 2**63 - 1, 0])
    check(torch.isin, limits, limits.flip(0)[:2], exact=True)


@pytest.mark.parametrize("value", [NAN, INF, -INF])
def test_limits_of_norms_leave_nan_where_it_is(check, value):
    weight = torch.arange(12.0).reshape(4, 3)
    weight[1, 2] = value
    for order in (0.5, 1, 2, INF):
        check(torch.renorm, weight, order, 0, 2.0)
        check(torch.renorm, weight, order, 1, 2.0)
        check(torch.nn.functional.embedding, torch.tensor([1, 3, 1]), weight.clone(), max_norm=2.0, norm_type=order)


@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
@pytest.mark.parametrize("value", [NAN, INF, -INF, 1e30])
def test_places_of_a_grid_that_are_none(check, value, mode, padding, align_corners):
    if padding == "reflection" and value == 1e30:
        value = 3.5  # where 1e30 is reflected to is a matter of rounding
    image = torch.arange(1.0, 19.0).reshape(1, 2, 3, 3)
    grid = torch.zeros(1, 1, 3, 2)
    grid[..., 0, 0] = grid[..., 1, :] = value
    options = {"mode": mode, "padding_mode": padding, "align_corners": align_corners}
    check(lambda x, at: torch.nn.functional.grid_sample(x, at, **options), image, grid)
    if mode == "bicubic":
        return
    cube, places = image[:, :, None].expand(-1, -1, 3, -1, -1), torch.zeros(1, 1, 1, 2, 3)
    places[..., 0, 2] = value
    if padding == "zeros":
        check(lambda x, at: torch.nn.functional.grid_sample(x, at, **options), cube, places)
    # The CPU's gradients of others read other memory. Where no place is, none flows.
    x, at = (to_device(each).requires_grad_() for each in (cube, places))
    torch.nn.functional.grid_sample(x, at, **options).sum().backward()
    assert value == 3.5 or at.grad.cpu()[..., 0, 2].item() == 0
    assert x.grad.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_sums_leave_what_lies_beside_them(check, dtype):
    """Where halves are added in pairs, or the word that they are in is exchanged."""
    x = torch.tensor([-0.0, 0.0, math.nan, math.inf, -math.inf, 1e-7, -1e-40, 3e4, 1.0], dtype=dtype).repeat(3)

    def add(x, index, source, start):
        y = x.clone()
        y[start:].index_add_(0, index, source).scatter_add_(0, index, source)
        return y, torch.signbit(y) & (y == 0)

    for start in range(3):
        index = torch.arange(1, len(x) - start, 3)
        check(lambda x, i, s, start=start: add(x, i, s, start), x, index, values(len(index), dtype=dtype), exact=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int32, torch.int64, torch.int8])
def test_many_sums_into_one_row(check, dtype):
    source = torch.randint(-3, 4, (1000, 5), generator=torch.Generator().manual_seed(0)).to(dtype)
    rows = torch.arange(1000) % 2
    limits = {"rtol": 0, "atol": 2} if dtype is torch.bfloat16 else {"exact": True}
    check(torch.index_add, torch.zeros(3, 5, dtype=dtype), 0, rows, source, **limits)


OUT_OF_RANGE = {
    "index_select": lambda x, i: torch.index_select(x, 0, i),
    "gather": lambda x, i: torch.gather(x, 0, i[:, None]),
    "index.Tensor": lambda x, i: x[i],
    "scatter_add": lambda x, i: torch.scatter_add(x, 0, i[:, None], x),
    "_index_put_impl_": lambda x, i: x.clone().index_put_((i,), x[:3]),
    "embedding_dense_backward": lambda x, i: torch.ops.aten.embedding_dense_backward(x[:3], i, 5, -1, False),
}


@pytest.mark.parametrize("index", [77, torch.iinfo(torch.int64).min])
@pytest.mark.parametrize("name", OUT_OF_RANGE)
@pytest.mark.parametrize("wait", [torch.accelerator.synchronize, lambda: torch.ones(1, device=DEVICE).item()])
def test_out_of_range_is_found_when_the_device_is_waited_for(name, wait, index):
    x, i = to_device(MATRIX), to_device(torch.tensor([0, index, 2]))

    def call_and_wait():
        OUT_OF_RANGE[name](x, i)
        wait()

    with pytest.raises(
        (IndexError, RuntimeError), match=rf"aten::{name}.*index {index} is out of range for a dimension of size 5"
    ):
        call_and_wait()
    wait()  # not again
    assert torch.equal(x.cpu(), MATRIX)


@pytest.mark.parametrize("classes", [-1, 3])
def test_classes_below_zero_have_no_code(classes):
    labels = torch.tensor([1, -1, 2]).to(DEVICE)
    with pytest.raises(RuntimeError, match=r"index -1 is out of range|must be non-negative"):
        torch.nn.functional.one_hot(labels, classes).cpu()


@pytest.mark.parametrize(
    "name", ["scatter", "scatter_add", "scatter_reduce", "index_add", "index_copy", "index_reduce", "one_hot"]
)
def test_no_index_is_in_range_of_nothing(name):
    nothing, zero, one = torch.empty(0, device=DEVICE), torch.tensor([0], device=DEVICE), torch.ones(1, device=DEVICE)
    calls = {
        "scatter": lambda: nothing.scatter(0, zero, 1.0),
        "scatter_reduce": lambda: nothing.scatter_reduce(0, zero, one, "amax"),
        "index_reduce": lambda: nothing.index_reduce(0, zero, one, "amax"),
        "one_hot": lambda: torch.nn.functional.one_hot(zero - 1),
    }

    def call_and_wait():
        calls.get(name, lambda: getattr(nothing, name)(0, zero, one))()
        torch.accelerator.synchronize()

    with pytest.raises((IndexError, RuntimeError), match=r"out of (range|bounds)|must be non-negative"):
        call_and_wait()


@pytest.mark.parametrize("reduce", ["mean", "amax"])
@pytest.mark.parametrize("size", [0, 2])
def test_nothing_is_reduced_into_nothing(reduce, size):
    """Of whole numbers, that divide; along one dimension there are indices, along others no elements."""
    index, source = torch.zeros(3, dtype=torch.int64).to(DEVICE), torch.ones(0, 3, 0, dtype=torch.int64).to(DEVICE)
    for include_self in (False, True):
        nothing = source[:, :size].clone()
        nothing.index_reduce_(1, index, source, reduce, include_self=include_self)
        nothing.scatter_reduce_(1, source, source, reduce, include_self=include_self)
        torch.accelerator.synchronize()
        assert nothing.shape == (0, size, 0)


def test_counts_of_the_largest_number():
    with pytest.raises(RuntimeError, match="maximum value of input overflowed"):
        torch.bincount(torch.tensor([1, 2**63 - 1]).to(DEVICE))


def test_a_source_that_is_too_short():
    x, mask = to_device(MATRIX), to_device(MASK)
    with pytest.raises(RuntimeError, match=r"masked_scatter_: element \d+ of a source is wanted, which has 2"):
        x.masked_scatter(mask, x[0, :2]).cpu()


def test_each_error_is_raised_once_by_whichever_thread_waits():
    x, bad = to_device(MATRIX), to_device(torch.tensor([99]))
    raised = []

    def work():
        for _ in range(20):
            try:
                torch.index_select(x, 0, bad)
                torch.accelerator.synchronize()
            except IndexError as error:
                raised.append(str(error))

    in_threads([work] * 2)
    assert 0 < len(raised) <= 40
    assert all("index 99 is out of range" in text for text in raised)
    torch.accelerator.synchronize()


@pytest.mark.skipif(os.environ.get("TORCH_BACKEND_XCPU_ASYNC") != "1", reason="graphs are captured on streams")
def test_replays_report_too():
    x, i = to_device(MATRIX), to_device(torch.tensor([0, 1]))
    graph = torch.accelerator.Graph()
    with torch.Stream(DEVICE), graph:
        y = torch.index_select(x, 0, i)
    graph.replay()
    assert torch.equal(y.cpu(), MATRIX[:2])
    i.fill_(50)
    graph.replay()
    with pytest.raises(IndexError, match="index 50 is out of range"):
        torch.accelerator.synchronize()


def test_deterministic_mode():
    """Sums are the device's where items come one after the other, and the CPU's where their order is not known."""
    comes_in_order = torch_backend._C.device_properties().warp_size == 1
    torch.use_deterministic_algorithms(True)
    try:
        with torch_backend.fallback.policy(None, "allow"):
            torch_backend.fallback.reset()
            sums = MATRIX.to(DEVICE).index_add(0, ROWS.to(DEVICE), MATRIX[:4].to(DEVICE))
            largest = MATRIX.to(DEVICE).index_reduce(0, ROWS.to(DEVICE), MATRIX[:4].to(DEVICE), "amax")
            whole = MATRIX.long().to(DEVICE).index_add(0, ROWS.to(DEVICE), MATRIX[:4].long().to(DEVICE))
        fell_back = {entry.op for entry in torch_backend.fallback.report()}
    finally:
        torch.use_deterministic_algorithms(False)
    assert fell_back == (set() if comes_in_order else {"aten::index_add"})
    expected = MATRIX.index_add(0, ROWS, MATRIX[:4])
    assert torch.equal(sums.cpu(), expected)
    assert torch.equal(whole.cpu(), expected.long())
    assert torch.equal(largest.cpu(), MATRIX.index_reduce(0, ROWS, MATRIX[:4], "amax"))


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x.masked_fill_(x > 0, 1.0),
        lambda x: x.normal_(),
        lambda x: torch.mul(x, 2, out=x),
        lambda x: x.fill_(1),
        lambda x: x.copy_(x + 1),
        lambda x: x.cumsum_(1),
    ],
)
def test_tensors_without_elements_that_look_expanded(check, change):
    check(change, torch.empty_strided((3, 0), (0, 1)))
