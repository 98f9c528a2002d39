"""Fourier transforms, against those of the CPU in double precision."""

import itertools
import math

import pytest
import torch
from conftest import DEVICE, to_device

SMALL = (1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 25, 31, 60, 64, 77, 128, 343, 1000, 1024)
PRIME = (37, 97, 1009)  # factors that are transformed as convolutions
SEVERAL_LAUNCHES = (2049, 4096, 30030)
PRECISION = {torch.float32: 2**-24, torch.float64: 2**-53}
TRANSFORMS = {
    "fft": (torch.fft.fft, True),
    "ifft": (torch.fft.ifft, True),
    "rfft": (torch.fft.rfft, False),
    "fft of reals": (torch.fft.fft, False),
    "irfft": (torch.fft.irfft, True),
    "ihfft": (lambda x, n: torch.fft.rfft(x, n, norm="forward"), False),
}


def values(shape, dtype, is_complex):
    generator = torch.Generator().manual_seed(0)
    real, imag = (torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype) for _ in range(2))
    return torch.complex(real, imag) if is_complex else real


def wide(x):
    return x.to(torch.complex128 if x.is_complex() else torch.float64)


def assert_near(actual, exact):
    """As far from the exact values as roundings of as many passes as the transform takes."""
    assert actual.shape == exact.shape
    if exact.numel():
        precision = PRECISION[actual.real.dtype] * math.log2(exact.numel() + 1)
        assert (wide(actual.cpu()) - exact).abs().max() <= 2 * precision * exact.abs().max()


@pytest.mark.parametrize("dtype", PRECISION)
@pytest.mark.parametrize("name", TRANSFORMS)
@pytest.mark.parametrize("size", SMALL + PRIME + SEVERAL_LAUNCHES)
def test_sizes(size, name, dtype):
    transform, is_complex = TRANSFORMS[name]
    x = values((3, size // 2 + 1 if name == "irfft" else size), dtype, is_complex)
    assert_near(transform(to_device(x), n=size), transform(wide(x), n=size))


def test_a_size_that_is_divided_twice():
    size = 5 * 2**20 if DEVICE == "xcpu" else 2**22 if DEVICE == "ocl" else 2**21
    x = torch.zeros(size, dtype=torch.complex64 if DEVICE == "xcpu" else torch.complex128)
    x[12345] = 1
    turns = torch.arange(size) * 12345 % size
    exact = torch.polar(torch.ones(size, dtype=torch.float64), turns.double() * (-2 * torch.pi / size))
    assert_near(torch.fft.fft(x.to(DEVICE)), exact)


LAYOUTS = {
    "contiguous": lambda x: x,
    "transposed": lambda x: x.transpose(0, 2),
    "channels last": lambda x: x.permute(0, 2, 1),
    "every other": lambda x: x[:, ::2, 1:],
    "expanded": lambda x: x[:, :1].expand(-1, 5, -1),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("norm", ["backward", "ortho", "forward"])
def test_dimensions(layout, norm):
    """Of each layout any dimensions in any order; results are laid out as the CPU's."""
    x, real = (LAYOUTS[layout](values((6, 10, 12), torch.float64, is_complex)) for is_complex in (True, False))
    for count in (1, 2, 3):
        for dims in itertools.permutations(range(3), count):
            for transform, given in (
                (torch.fft.fftn, x),
                (torch.fft.ifftn, x),
                (torch.fft.rfftn, real),
                (torch.fft.irfftn, x),
                (torch.fft.fftn, real),
            ):
                actual, expected = (transform(each, dim=dims, norm=norm) for each in (to_device(given), given))
                assert_near(actual, expected)
                assert actual.stride() == expected.stride()


def test_many_dimensions():
    x = values((2, 3, 1, 2, 2, 3, 1, 2, 2), torch.float64, True)[..., ::2].transpose(0, 5)
    for dim in (0, 3, 7):
        assert_near(torch.fft.fft(x.to(DEVICE), dim=dim), torch.fft.fft(x, dim=dim))


@pytest.mark.parametrize("size", [1, 2, 5, 6, 37, 74, 4098])
def test_what_is_real_has_no_imaginary_part(size):
    x = values((2, size), torch.float32, False).to(DEVICE)
    real = [0, size // 2] if size % 2 == 0 else [0]
    for result in (torch.fft.rfft(x), torch.fft.fft(x)):
        assert (result.cpu()[:, real].imag == 0).all()


@pytest.mark.parametrize("size", [1, 2, 5, 8, 37])
def test_imaginary_parts_that_cannot_be_are_ignored(size):
    half = values((2, size // 2 + 1), torch.float64, True)
    assert_near(torch.fft.irfft(to_device(half), n=size), torch.fft.irfft(half, n=size))


@pytest.mark.parametrize("size", [6, 37])
def test_a_row_that_is_not_a_number_leaves_the_others(size):
    x = values((5, size), torch.float32, True)
    x[2, 1] = float("nan")
    for dim, rest in ((1, [0, 1, 3, 4]), (0, [0, *range(2, size)])):
        result = torch.fft.fft(x.to(DEVICE), dim=dim).cpu().movedim(dim, -1)
        assert result[rest].isfinite().all()
        assert not result.isfinite().all(-1).all()


def test_nothing():
    """Where MKL fails."""
    for shape in ((0, 4), (3, 0, 4)):
        x = torch.zeros(shape, device=DEVICE)
        assert torch.fft.fft(x).shape == shape
        assert torch.fft.rfft(x).shape == (*shape[:-1], 3)
        assert torch.fft.irfft(torch.fft.rfft(x)).shape == shape


def test_no_dimension(check):
    check(torch.fft.fftn, values((3,), torch.float32, True), dim=(), exact=True)


def test_out(check):
    x = values((4, 6), torch.float32, True)
    for shape in ((4, 6), (0,)):
        check(lambda a, out: torch.fft.fft(a, out=out), x, torch.empty(shape, dtype=x.dtype))
    check(lambda a, out: torch.fft.fft(a, out=out), x, torch.empty(6, 4, dtype=x.dtype).t())
    check(lambda a, out: torch.fft.rfft(a, out=out), x.real.clone(), torch.empty(4, 4, dtype=x.dtype))
    check(lambda a, out: torch.fft.irfft(a, out=out), x, torch.empty(4, 10))


def test_short_time(check):
    x = values((2, 400), torch.float32, False)
    window = torch.hann_window(64)
    check(lambda a, w: torch.stft(a, 64, 16, window=w, return_complex=True), x, window)
    spectrum = torch.stft(x, 64, 16, window=window, return_complex=True)
    check(lambda a, w: torch.istft(a, 64, 16, window=w), spectrum, window)


def test_what_the_cpu_refuses():
    half = torch.zeros(4, dtype=torch.float16, device=DEVICE)
    for call, text in (
        (lambda: torch.fft.fft(half), "Unsupported dtype Half"),
        (lambda: torch._fft_r2c(half, [0], 0, True), "FFT doesn't support tensors of type: Half"),
        (lambda: torch._fft_c2c(half.float(), [0], 0, True), "Only supports complex dtypes, but found: Float"),
        (lambda: torch._fft_r2c(half.int(), [0], 0, True), "Only supports floating-point dtypes, but found: Int"),
        (lambda: torch._fft_c2r(half.to(torch.complex64), [0], 0, 9), "it must be 5 for 9 elements"),
    ):
        with pytest.raises(RuntimeError, match=text):
            call()
