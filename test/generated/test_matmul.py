"""Matrix products by a kernel that the device compiles: every dtype, any strides, sizes around those of its tiles."""

import pytest
import torch
from conftest import DEVICE

REAL = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32)
REAL += (torch.float64,)
COMPLEX = (torch.complex64, torch.complex128)
SIZES = [(1, 1, 1), (3, 5, 7), (2, 300, 70), (300, 70, 2), (121, 129, 193), (130, 40, 600), (64, 64, 64)]


def values(*sizes, dtype=torch.float32):
    if dtype.is_complex:
        return torch.randn(sizes, dtype=dtype)
    return torch.randn(sizes).to(dtype) if dtype.is_floating_point else torch.randint(0, 5, sizes).to(dtype)


@pytest.mark.parametrize("dtype", REAL + COMPLEX, ids=str)
def test_every_dtype(check, dtype):
    left, right, self = values(9, 20, dtype=dtype), values(20, 17, dtype=dtype), values(17, dtype=dtype)
    check(torch.mm, left, right)
    check(torch.addmm, self, left, right, beta=2, alpha=3)
    check(torch.bmm, values(3, 2, 6, dtype=dtype), values(3, 6, 40, dtype=dtype))


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_sizes_and_strides(check, sizes):
    rows, depth, columns = sizes
    left, right = values(rows, depth), values(depth, columns)
    limits = {"rtol": 1e-5, "atol": 1e-4}
    check(torch.mm, left, right, **limits)
    check(torch.mm, left.t().contiguous().t(), right.t().contiguous().t(), **limits)
    check(lambda x, y: torch.mm(x[:, ::2], y[:, ::2]), values(rows, 2 * depth), values(depth, 2 * columns), **limits)
    check(lambda x, y: x @ y, values(2, 3, rows, depth), right, **limits)


@pytest.mark.parametrize("sizes", [(128, 64, 128), (130, 48, 200), (17, 19, 33), (5, 40, 72), (260, 100, 8)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_halves(check, dtype, sizes):
    """Whole numbers, whose sums are exact: matrix units multiply where there are any, from whatever lies however."""
    rows, depth, columns = sizes

    def drawn(*sizes):
        return torch.randint(-2, 3, sizes).to(dtype)

    left, right, bias = drawn(rows, depth), drawn(depth, columns), drawn(columns)
    for x in (left, left.t().contiguous().t()):
        for y in (right, right.t().contiguous().t()):
            check(torch.mm, x, y, exact=True)
            check(torch.addmm, bias, x, y, exact=True)
    check(lambda x, y: x[1:, 1:] @ y[1:, 3:], left, right, exact=True)
    check(lambda x, y: x[:, ::2] @ y[::2, ::2], left, right, exact=True)
    check(lambda x, y: x[:0] @ y, left, right, exact=True)
    check(lambda x, y: x[:, :0] @ y[:0], left, right, exact=True)
    check(torch.bmm, drawn(3, rows, depth), drawn(depth, columns).expand(3, depth, columns), exact=True)
    infinite = left.clone()
    infinite[0, 0], infinite[1, 1] = torch.inf, torch.nan
    # Not the CPU's own product, which makes NaN of infinities where bfloat16 has 8 columns.
    wanted = (infinite.double() @ right.double()).to(dtype)
    torch.testing.assert_close((infinite.to(DEVICE) @ right.to(DEVICE)).cpu(), wanted, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64], ids=str)
def test_few_rows_by_what_lies_in_place(dtype):
    """Whole numbers: vectors of the depth and what is left of it, columns computed together and those after them."""
    sizes = [(2, 17, 1), (3, 16, 2), (5, 100, 3), (8, 65, 5), (9, 1, 7), (16, 48, 11), (7, 130, 2051), (4, 0, 3)]
    for rows, depth, columns in sizes:
        left, weight = (torch.randint(-3, 4, (count, depth + 3)).to(dtype)[:, 2:-1] for count in (rows, columns))
        out = torch.randint(-9, 9, (rows, columns + 2)).to(dtype)
        if dtype.is_floating_point and depth:
            left[1, 0], weight[-1, -1], weight[0, 0] = torch.nan, torch.inf, -torch.inf
        there = out.to(DEVICE)
        padded = [torch.nn.functional.pad(x, (2, 1), value=7).to(DEVICE)[:, 2:-1] for x in (left, weight)]
        there[:, 1:-1].addmm_(padded[0], padded[1].t(), beta=2)
        out[:, 1:-1] = 2 * out[:, 1:-1] + (left[:, None] * weight).sum(-1)
        torch.testing.assert_close(there.cpu(), out, rtol=0, atol=0, equal_nan=True, msg=str((rows, depth, columns)))


def test_what_is_added(check):
    left, right = values(5, 8), values(8, 6)
    for self in (values(5, 6), values(6), values(1, 6), values(5, 1), torch.tensor(0.5)):
        check(torch.addmm, self, left, right, beta=0.5, alpha=-2.0)
    nothing = torch.full((5, 6), torch.nan)
    check(torch.addmm, nothing, left, right, beta=0)
    check(lambda out, x, y: out.addmm_(x, y, alpha=0.1), values(5, 6), left, right)
    check(lambda out, x, y: out.t().addmm_(x, y), values(6, 5), left, right)
    check(torch.baddbmm, values(3, 5, 6), values(3, 5, 8), values(3, 8, 6), beta=2, alpha=0.25)
    check(torch.baddbmm, values(1, 1, 6), values(3, 5, 8), values(3, 8, 6))
    check(torch.addbmm, values(5, 6), values(3, 5, 8), values(3, 8, 6), beta=2, alpha=0.25)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int32], ids=str)
@pytest.mark.parametrize("sizes", [(2, 2), (3,), (3, 1), (1, 2, 1)], ids=str)
def test_what_does_not_expand_is_not_added(dtype, sizes):
    tensors = [values(*each, dtype=dtype) for each in (sizes, (2, 2), (2, 1))]
    for given in (tensors, [x.to(DEVICE) for x in tensors]):
        with pytest.raises(RuntimeError, match=r"expanded size of the tensor|number of sizes provided"):
            torch.addmm(*given)


@pytest.mark.parametrize("dtype", [torch.int64, torch.bfloat16, torch.float32, torch.complex64], ids=str)
def test_vectors(check, dtype):
    matrix, row, column = values(300, 70, dtype=dtype), values(70, dtype=dtype), values(300, dtype=dtype)
    # Sums are rounded once. Those of the CPU come out otherwise from call to call, and from processor to processor.
    close = {"rtol": 1e-5 if dtype == torch.int64 else max(1e-5, torch.finfo(dtype).eps), "atol": 1e-4}
    check(torch.mv, matrix, row, **close)
    check(lambda x, y: x.t().mv(y), matrix, column, **close)
    check(torch.addmv, column, matrix, row, beta=2, alpha=3, **close)
    check(torch.dot, row, row)
    check(torch.vdot, row, row.flip(0))
    check(torch.outer, row, column)
    check(torch.addr, matrix, column, row)


@pytest.mark.parametrize("dtype", [*REAL[-4:], torch.complex64], ids=str)
def test_a_product_of_vectors_that_is_too_large_times_a_small_number(check, dtype):
    largest = torch.finfo(dtype).max
    self, column = values(3, 4, dtype=dtype), values(3, dtype=dtype) + 4
    row = torch.full((4,), largest / 8, dtype=dtype)
    for beta in (0, 1, 0.5):
        check(lambda *x, beta=beta: torch.addr(*x, beta=beta, alpha=0.125).isfinite(), self, column, row)
        check(torch.addr, self, column, row, beta=beta, alpha=0.125)


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64], ids=str)
def test_long_dot_products_are_sums_of_sums(dtype):
    left, right = (values(20000, dtype=dtype).abs().to(dtype) for _ in range(2))
    exact = left.to(torch.complex128).dot(right.to(torch.complex128))
    error = left.to(DEVICE).dot(right.to(DEVICE)).cpu() - exact
    assert error.abs() < 4 * torch.finfo(dtype).eps * exact.abs()


def test_a_product_of_vectors_has_the_dtype_of_all(check):
    column, row = torch.tensor([True, False]), torch.tensor([True, True, False])
    for self in (torch.tensor([[False], [True]]), torch.tensor(0.5, dtype=torch.float64), torch.tensor([2])):
        check(torch.addr, self, column, row, exact=True)
        check(torch.addr, self, column, row, beta=-1, alpha=2, exact=True)


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_complex_sizes_and_strides(check, sizes):
    rows, depth, columns = sizes
    left, right = (values(*each, dtype=torch.complex64) for each in ((rows, depth), (depth, columns)))
    limits = {"rtol": 1e-5, "atol": 1e-4}
    check(torch.mm, left, right, **limits)
    check(lambda x, y: x.conj() @ y.mT.contiguous().mT, left, right, **limits)
    check(lambda x, y: x.mH.contiguous().mH @ y[:, ::2], left, right, **limits)
    check(lambda x, y: (x @ y[:0]).abs() + torch.vdot(y[0], y[-1]), left[:, :0], right, **limits)


@pytest.mark.parametrize("numbers", [(0.5, -2.0), (0, 1j), (1j, 1), (1 - 1j, 2 + 1j), (0j, 3)], ids=str)
def test_complex_numbers_and_what_is_added(check, numbers):
    beta, alpha = numbers
    left, right = values(5, 8, dtype=torch.complex64), values(8, 6, dtype=torch.complex64)
    wanted = values(5, 6, dtype=torch.complex64)
    for self in (wanted, wanted[0], wanted.mT.contiguous().mT, torch.full_like(wanted, torch.nan if beta == 0 else 1)):
        check(torch.addmm, self, left, right, beta=beta, alpha=alpha)
    check(lambda out, x, y: out.addmm_(x, y, beta=beta, alpha=alpha), wanted.clone(), left, right)
    batches = [values(3, *each, dtype=torch.complex128) for each in ((5, 6), (5, 8), (8, 6))]
    check(torch.baddbmm, *batches, beta=beta, alpha=alpha)
    check(torch.addmv, left[:, 0], left, right[:, 0], beta=beta, alpha=alpha)


def rotated(x, angles):
    """As rotary embeddings do it with complex numbers."""
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * torch.polar(torch.ones_like(angles), angles)).flatten(-2).to(x.dtype)


def test_complex_networks(check):
    def train(function, *tensors):
        leaves = [x.detach().requires_grad_() for x in tensors]
        result = function(*leaves)
        return torch.autograd.grad(result, leaves, result.detach())

    linear = [values(*each, dtype=torch.complex64) for each in ((4, 30, 20), (10, 20), (10,))]
    check(lambda *tensors: train(torch.nn.functional.linear, *tensors), *linear, rtol=1e-4, atol=1e-4)
    check(lambda *tensors: train(rotated, *tensors), values(2, 3, 7, 8), values(7, 4), rtol=1e-4, atol=1e-4)


def test_nan_and_infinity(check):
    left, right = values(40, 50), values(50, 60)
    left[3, 4], right[7, 8] = torch.nan, torch.inf
    check(torch.mm, left, right, rtol=1e-5, atol=1e-4)


def test_gradients(check):
    def train(*tensors):
        leaves = [x.detach().requires_grad_() for x in tensors]
        result = torch.nn.functional.linear(*leaves)
        return torch.autograd.grad(result, leaves, result.detach())

    check(train, values(4, 30, 20), values(10, 20), values(10), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("sizes", [*SIZES, (0, 5, 3), (5, 0, 3), (1, 4096, 33)], ids=str)
def test_products_of_eight_bit_integers(check, sizes):
    rows, depth, columns = sizes
    left, right = (torch.randint(-128, 128, size, dtype=torch.int8) for size in ((rows, depth), (depth, columns)))
    left[:1], right[:, :1] = -128, -128
    check(torch._int_mm, left, right)
    check(torch._int_mm, left, right.t().contiguous().t())
    check(torch._int_mm, left.repeat_interleave(2, 1)[:, ::2], right)
    out = torch.empty(rows, columns, dtype=torch.int32)
    check(lambda x, y, out: torch._int_mm(x, y, out=out), left, right, out)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("sizes", [(1, 64, 32), (3, 96, 5), (130, 40, 64), (300, 128, 48), (2, 4096, 16)], ids=str)
def test_products_with_weights_of_eight_bits(dtype, sizes):
    """Against float64: PyTorch's kernel for the CPU reads beyond rows whose length is no multiple of 16."""
    rows, depth, columns = sizes
    weight = torch.randint(-128, 128, (columns, depth), dtype=torch.int8)
    scales = torch.rand(columns).to(dtype)
    x = (torch.randn(rows, 2 * depth) / depth).to(dtype)[:, :depth]
    product = torch._weight_int8pack_mm(x.to(DEVICE), weight.to(DEVICE), scales.to(DEVICE))
    expected = (x.double() @ weight.double().t() * scales.double()).to(dtype)
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(product.cpu(), expected, rtol=4 * eps, atol=128 * eps)


def words_of(numbers, inner_tiles):
    """What CUDA's kernels have of numbers of 0 to 15, element by element."""
    rows, depth = numbers.shape
    words = torch.zeros(rows // 8, depth // (16 * inner_tiles), 32, inner_tiles // 2, dtype=torch.int64)
    for row in range(rows):
        for k in range(depth):
            place = row // 8, k // (16 * inner_tiles), row % 8 * 4 + k % 8 // 2, k % (16 * inner_tiles) // 32
            words[place] |= int(numbers[row, k]) << (4 * (k // 8 % 4) + 16 * (k % 2))
    return words.where(words < 2**31, words - 2**32).int()


@pytest.mark.parametrize("tiles", [2, 4, 8])
def test_weights_of_four_bits_lie_as_on_cuda(tiles):
    numbers = torch.randint(0, 16, (24, 256))
    packed = torch._convert_weight_to_int4pack((numbers[:, ::2] << 4 | numbers[:, 1::2]).byte().to(DEVICE), tiles)
    torch.testing.assert_close(packed.cpu(), words_of(numbers, tiles), rtol=0, atol=0)
    # Of whole numbers sums are exact.
    x = torch.randint(-2, 3, (3, 256)).bfloat16()
    scales_and_zeros = torch.tensor([1.0, 0.0]).bfloat16().expand(8, 24, 2)
    product = torch._weight_int4pack_mm(x.to(DEVICE), packed, 32, scales_and_zeros.to(DEVICE))
    wanted = (x.double() @ (numbers - 8).double().t()).bfloat16()
    torch.testing.assert_close(product.cpu(), wanted, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("group", [32, 128, 256])
def test_products_with_weights_of_four_bits(group, dtype):
    depth, columns = 1280, 72
    numbers = torch.randint(0, 16, (columns, depth))
    packed = torch._convert_weight_to_int4pack((numbers[:, ::2] << 4 | numbers[:, 1::2]).byte().to(DEVICE), 8)
    scales_and_zeros = torch.stack([torch.rand(depth // group, columns), torch.randn(depth // group, columns)], -1)
    scales_and_zeros = scales_and_zeros.to(dtype)
    scales, zeros = (each.t().repeat_interleave(group, 1) for each in scales_and_zeros.double().unbind(-1))
    weight = (numbers - 8) * scales + zeros
    limit = {"rtol": 4 * torch.finfo(dtype).eps, "atol": 1e-4 + 2 * torch.finfo(dtype).eps}
    for rows in (1, 2, 3, 7, 8, 9, 130):
        x = (torch.randn(rows, depth) / depth**0.5).to(dtype)
        product = torch._weight_int4pack_mm(x.to(DEVICE), packed, group, scales_and_zeros.to(DEVICE))
        torch.testing.assert_close(product.cpu(), (x.double() @ weight.t()).to(dtype), **limit)
    x = x.t().contiguous().t()
    x[0, 0], x[1, 1] = torch.nan, torch.inf
    product = torch._weight_int4pack_mm(x.to(DEVICE), packed, group, scales_and_zeros.to(DEVICE)).cpu()
    assert product[0].isnan().all()
    infinite = (weight[:, 1].sign() * torch.inf).to(dtype)  # NaN where a weight is 0
    torch.testing.assert_close(product[1], infinite, rtol=0, atol=0, equal_nan=True)
    assert product[2:].isfinite().all()
    assert torch._weight_int4pack_mm(x[:0].to(DEVICE), packed, group, scales_and_zeros.to(DEVICE)).shape == (0, columns)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"self": torch.zeros(2, 256).int()}, "the input is of Int"),
        ({"self": torch.zeros(2, 128).bfloat16()}, "the input has rows of 128 elements, and the weight of 256"),
        ({"mat2": torch.zeros(2, 256, dtype=torch.int32)}, "it must come from _convert_weight_to_int4pack"),
        ({"qGroupSize": 48}, "groups are of 48 elements; they must be of 32, 64, 128 or 256"),
        ({"qScaleAndZeros": torch.zeros(2, 16, 2)}, r"scales and zeros are of Float and size \[2, 16, 2\]; .*BFloat16"),
    ],
)
def test_weights_of_four_bits_that_there_are_not(change, says):
    given = {"self": torch.zeros(2, 256).bfloat16(), "mat2": torch.zeros(2, 2, 32, 4, dtype=torch.int32)}
    given |= {"qGroupSize": 128, "qScaleAndZeros": torch.zeros(2, 16, 2).bfloat16()} | change
    there = {name: value.to(DEVICE) if isinstance(value, torch.Tensor) else value for name, value in given.items()}
    with pytest.raises(RuntimeError, match=says):
        torch.ops.aten._weight_int4pack_mm(**there)


@pytest.mark.parametrize(
    ("weight", "tiles", "says"),
    [
        (torch.zeros(8, 128), 8, "it must be a matrix of uint8"),
        (torch.zeros(7, 128).byte(), 8, "7 rows, which is no multiple of 8"),
        (torch.zeros(8, 32).byte(), 8, "64 elements, which is no multiple of 128"),
        (torch.zeros(8, 128).byte(), 3, "there are 3 inner tiles"),
    ],
)
def test_weights_that_are_not_packed(weight, tiles, says):
    with pytest.raises(RuntimeError, match=says):
        torch._convert_weight_to_int4pack(weight.to(DEVICE), tiles)


E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, E4M3], ids=str)
@pytest.mark.parametrize("kinds", [(E4M3, E4M3), (E5M2, E4M3)], ids=str)
def test_scaled_products(check, kinds, dtype):
    left, right = torch.randn(16, 32).to(kinds[0]), torch.randn(48, 32).to(kinds[1]).t()
    scales = torch.tensor(0.5), torch.tensor(0.125)
    limits = {"rtol": 1e-5, "atol": 1e-5} if dtype == torch.float32 else {"rtol": 0.13, "atol": 0.04}

    def product(left, right, *arguments, **options):
        left, right = left.view(kinds[0]), right.view(kinds[1])
        return torch._scaled_mm(left, right, *arguments, out_dtype=dtype, **options).float()

    left, right = left.view(torch.uint8), right.view(torch.uint8)  # those of eight bits are not compared with limits
    check(product, left, right, *scales, **limits)
    check(product, left[::2], right, *scales, bias=torch.randn(48).bfloat16(), **limits)
    rows, columns = torch.rand(16, 1), torch.rand(1, 48)
    if dtype != E4M3:
        check(product, left, right, rows, columns, **limits)
    else:
        check(product, left, right, *scales, scale_result=torch.tensor(2.0), **limits)


@pytest.mark.parametrize("kinds", [(E4M3, E4M3), (E5M2, E4M3), (E4M3, E5M2)], ids=str)
def test_every_float8_is_multiplied(kinds):
    """All of their bits, in both places, however these lie: against float64."""
    every = torch.arange(256).byte()
    for rows in (1, 3, 8, 40):
        left = every.roll(7).repeat(rows, 1).view(kinds[0])
        left = torch.where(left.float().isfinite(), left.float(), 0.5).to(kinds[0])
        right = every.diag().view(kinds[1])
        one = torch.ones((), device=DEVICE)
        for laid in (right, every.diag().t().clone(memory_format=torch.contiguous_format).t().view(kinds[1])):
            product = torch._scaled_mm(left.to(DEVICE), laid.to(DEVICE), one, one, out_dtype=torch.float32)
            wanted = left.double() @ right.double()
            torch.testing.assert_close(product.cpu().double(), wanted, rtol=1e-6, atol=0, equal_nan=True)


def test_scaled_products_of_any_size():
    """Around those of tiles and of a few rows, with all that may be added, against float64."""
    for rows, depth, columns in ((1, 1, 1), (2, 1100, 33), (5, 513, 700), (8, 64, 16), (9, 40, 30), (130, 600, 200)):
        left, right = (torch.randn(size).to(E4M3) for size in ((rows, depth), (columns, depth)))
        scales = torch.rand(rows, 1), torch.rand(1, columns)
        bias = torch.randn(columns)
        there = [x.to(DEVICE) for x in (left, right, *scales, bias)]
        product = torch._scaled_mm(there[0], there[1].t(), *there[2:], out_dtype=torch.bfloat16)
        wanted = (left.double() @ right.double().t()) * scales[0] * scales[1] + bias
        torch.testing.assert_close(product.cpu(), wanted.bfloat16(), rtol=2**-7, atol=1e-3)
    nothing = torch._scaled_mm(there[0][:0], there[1].t(), *[there[2][0, 0]] * 2, out_dtype=torch.float32)
    assert nothing.shape == (0, columns)
    nothing = torch._scaled_mm(there[0][:, :0], there[1][:, :0].t(), *[there[2][0, 0]] * 2, out_dtype=torch.float32)
    assert nothing.eq(0).all()


def test_scaled_products_by_recipes(check):
    from torch.nn.functional import ScalingType, scaled_mm

    left, right = torch.randn(16, 32).to(E4M3), torch.randn(48, 32).to(E4M3)
    limits = {"rtol": 1e-5, "atol": 1e-5}
    kinds = {ScalingType.TensorWise: (torch.tensor(0.5), torch.tensor(0.125)),
             ScalingType.RowWise: (torch.rand(16, 1), torch.rand(1, 48))}  # fmt: skip
    for kind, scales in kinds.items():

        def product(left, right, one, other, kind=kind, **options):
            left, right = left.view(E4M3), right.view(E4M3).t()
            return scaled_mm(left, right, one, kind, other, kind, output_dtype=torch.float32, **options)

        check(product, left.view(torch.uint8), right.view(torch.uint8), *scales, **limits)
        check(
            product, left.view(torch.uint8), right.view(torch.uint8), *scales, bias=torch.randn(48).bfloat16(), **limits
        )
    there = [x.to(DEVICE) for x in (left, right, *kinds[ScalingType.TensorWise])]
    with pytest.raises(ValueError, match="scales of blocks are not supported"):
        scaled_mm(there[0], there[1].t(), there[2], ScalingType.BlockWise1x128, there[3], ScalingType.BlockWise1x128)
    with pytest.raises(ValueError, match="one side has a scale for each row"):
        scaled_mm(there[0], there[1].t(), there[2], ScalingType.TensorWise, there[3], ScalingType.RowWise)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"input": torch.zeros(4, 32)}, "a matrix is of Float; both must be of float8"),
        ({"input": torch.zeros(4, 31).to(E4M3)}, r"shapes cannot be multiplied \(4x31 and 32x16\)"),
        ({"input": torch.zeros(4).to(E4M3)}, "mat1 must be a matrix"),
        ({"scale_a": torch.ones(3, 1)}, r"scale_a is of Float and size \[3, 1\]; .* or be of size \[4, 1\]"),
        ({"scale_b": torch.ones(16)}, r"scale_b .* size \[1, 16\], one for each column"),
        ({"bias": torch.ones(3)}, "Bias must be size 16 but got 3"),
        ({"out_dtype": torch.int32}, "out_dtype is Int"),
    ],
    ids=["dtype", "depth", "vector", "rows", "columns", "bias", "out_dtype"],
)
def test_scaled_products_that_there_are_not(change, says):
    given = {"input": torch.zeros(4, 32).to(E4M3), "mat2": torch.zeros(32, 16).to(E4M3)}
    given |= {"scale_a": torch.ones(()), "scale_b": torch.ones(())} | change
    there = {name: value.to(DEVICE) if isinstance(value, torch.Tensor) else value for name, value in given.items()}
    with pytest.raises((RuntimeError, ValueError), match=says):
        torch._scaled_mm(**there)


@pytest.mark.parametrize("name", ["mat2", "scale_a", "scale_b", "bias"])
def test_scaled_products_of_what_lies_elsewhere(name):
    given = {"input": torch.zeros(4, 32).to(E4M3), "mat2": torch.zeros(32, 16).to(E4M3), "bias": torch.zeros(16)}
    given |= {"scale_a": torch.ones(()), "scale_b": torch.ones(()), "out_dtype": torch.bfloat16}
    there = {key: value.to(DEVICE) if hasattr(value, "to") and key != name else value for key, value in given.items()}
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        torch._scaled_mm(**there)
