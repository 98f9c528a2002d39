"""Attention by kernels that the device compiles, against the CPU's in double precision."""

import gc
import math
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from conftest import DEVICE
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
NAMES = ("result", "query", "key", "value")
# Matrix units, where there are any, multiply halves alone.
with_and_without_matrices = pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)


@pytest.fixture(autouse=True)
def _only_ours() -> Iterator[None]:
    """No call is made of other operators."""
    with sdpa_kernel(SDPBackend.OVERRIDEABLE):
        yield


def drawn(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Normally distributed numbers of the CPU, others each time."""
    return torch.randn(shape, dtype=torch.float64).to(dtype)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def of_device(inputs: list[Tensor], grad: Tensor, **options: Any) -> list[Tensor]:
    """The result, and gradients for those of ``inputs`` that lie as they do on the CPU."""
    leaves = [x.detach().requires_grad_() for x in inputs]
    result = F.scaled_dot_product_attention(*leaves, **options)
    # Where there is nothing PyTorch asks no kernel.
    assert "FusedAttentionOverrideable" in result.grad_fn.name() or not all(x.numel() for x in inputs)
    return [result.detach(), *torch.autograd.grad(result, leaves, grad)]


def of_cpu(inputs: list[Tensor], grad: Tensor, **options: Any) -> list[Tensor]:
    with sdpa_kernel(SDPBackend.MATH):
        leaves = [x.double().requires_grad_() for x in inputs]
        result = F.scaled_dot_product_attention(*leaves, **options)
        return [result.detach(), *torch.autograd.grad(result, leaves, grad.double())]


def compare(inputs: list[Tensor], *, attn_mask: Tensor | None = None, **options: Any) -> None:
    query, _, value = inputs
    grad = drawn(*query.shape[:3], value.shape[3], dtype=query.dtype)
    there = None if attn_mask is None else attn_mask.to(DEVICE)
    got = of_device([x.to(DEVICE) for x in inputs], grad.to(DEVICE), attn_mask=there, **options)
    wide = attn_mask if attn_mask is None or attn_mask.dtype == torch.bool else attn_mask.double()
    wanted = of_cpu(inputs, grad, attn_mask=wide, **options)
    for name, left, right in zip(NAMES, got, wanted, strict=True):
        assert left.shape == right.shape
        bound = 64 * torch.finfo(query.dtype).eps * max(1.0, float(right.abs().amax()) if right.numel() else 0)
        torch.testing.assert_close(
            left.cpu().double(), right, rtol=0, atol=bound, msg=lambda text, name=name: f"{name}: {text}"
        )


@pytest.mark.parametrize("causal", [False, True], ids=["all", "causal"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("width", [8, 64, 80, 7])
def test_dtypes_and_heads(dtype: torch.dtype, causal: bool, width: int) -> None:
    compare([drawn(2, 3, 70, width, dtype=dtype) for _ in range(3)], is_causal=causal)


@pytest.mark.parametrize("causal", [False, True], ids=["all", "causal"])
@pytest.mark.parametrize("rows", [1, 17, 128, 200])
@pytest.mark.parametrize("places", [1, 64, 131])
@with_and_without_matrices
def test_lengths(dtype: torch.dtype, rows: int, places: int, causal: bool) -> None:
    compare([drawn(1, 2, n, 16, dtype=dtype) for n in (rows, places, places)], is_causal=causal)


@pytest.mark.parametrize("widths", [(256, 256), (16, 40), (128, 8), (128, 128), (100, 99), (1, 1)])
@with_and_without_matrices
def test_widths(dtype: torch.dtype, widths: tuple[int, int]) -> None:
    compare([drawn(1, 2, 40, width, dtype=dtype) for width in (widths[0], *widths)], is_causal=True)


@pytest.mark.parametrize("shared", [2, 6])
@with_and_without_matrices
def test_heads_that_share_keys(dtype: torch.dtype, shared: int) -> None:
    kept = 6 // shared
    compare([drawn(2, n, 33, 16, dtype=dtype) for n in (6, kept, kept)], enable_gqa=True, is_causal=True)
    compare([drawn(2, n, 33, 16, dtype=dtype) for n in (6, kept, kept)], enable_gqa=True, scale=-0.3)


@pytest.mark.parametrize("shape", [(2, 3, 40, 50), (40, 50), (1, 3, 40, 50), (2, 1, 1, 50), (40, 1), (1, 1)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bool], ids=str)
def test_masks(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    inputs = [drawn(2, 3, n, 16) for n in (40, 50, 50)]
    mask = drawn(*shape) > -1 if dtype == torch.bool else drawn(*shape)
    compare(inputs, attn_mask=mask)
    if mask.shape[-1] > 1:
        compare(inputs, attn_mask=mask.mT.contiguous().mT)
        doubled = torch.stack((mask, mask), -1).flatten(-2)
        compare(inputs, attn_mask=doubled[..., ::2])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_masks_of_halves(dtype: torch.dtype) -> None:
    compare([drawn(2, 3, 40, 16, dtype=dtype) for _ in range(3)], attn_mask=drawn(40, 40, dtype=dtype))


@with_and_without_matrices
def test_rows_without_any_place(dtype: torch.dtype) -> None:
    """Their results and gradients are 0, as the CPU's."""
    mask = torch.ones(40, 40, dtype=torch.bool).tril_(-3)
    inputs = [drawn(2, 3, 40, 16, dtype=dtype) for _ in range(3)]
    compare(inputs, attn_mask=mask)
    compare(inputs, attn_mask=torch.zeros(40, 40, dtype=dtype).masked_fill_(~mask, -math.inf))
    result = F.scaled_dot_product_attention(*(x.to(DEVICE) for x in inputs), attn_mask=mask.to(DEVICE))
    assert not result[:, :, :3].any()


def test_rows_of_which_all_scores_are_the_least_float() -> None:
    """Beside it every score is lost, and so is the logarithm of how many there are: each place has the same weight."""
    least = torch.finfo(torch.float32).min
    for length in (5, 70):
        inputs = [drawn(2, 2, length, 16) for _ in range(3)]
        grad = drawn(2, 2, length, 16)
        mask = torch.zeros(2, 1, length, length)
        mask[0, :, :3] = mask[1, :, 1] = mask[1, :, 2, 1:] = least
        got = of_device([x.to(DEVICE) for x in inputs], grad.to(DEVICE), attn_mask=mask.to(DEVICE))
        with sdpa_kernel(SDPBackend.MATH):  # in float32: more digits tell the scores apart
            leaves = [x.clone().requires_grad_() for x in inputs]
            result = F.scaled_dot_product_attention(*leaves, attn_mask=mask)
            wanted = [result.detach(), *torch.autograd.grad(result, leaves, grad)]
        for left, right in zip(got, wanted, strict=True):
            torch.testing.assert_close(left.cpu(), right, rtol=1e-5, atol=1e-5)


@with_and_without_matrices
def test_numbers_that_are_not_finite(dtype: torch.dtype) -> None:
    """A row that sees NaN or an infinite score is NaN, and no other."""
    query, key, value = (drawn(1, 1, 40, 8, dtype=dtype) for _ in range(3))
    query[0, 0, 5] = math.nan
    key[0, 0, 30, 0], key[0, 0, 30, 1:], query[0, 0, 35, 0] = math.inf, 0, 1
    got = F.scaled_dot_product_attention(*(x.to(DEVICE) for x in (query, key, value)), is_causal=True).cpu()
    # PyTorch's own way adds a mask, so that what is infinite is NaN where it is left out.
    scores = (query.double() @ key.double().mT / math.sqrt(8)).masked_fill(torch.ones(40, 40).triu(1) != 0, -math.inf)
    wanted = scores.softmax(-1) @ value.double()
    assert got.isnan().equal(wanted.isnan())
    assert got[0, 0, 5].isnan().all()
    bound = 8 * torch.finfo(dtype).eps
    torch.testing.assert_close(got.double(), wanted, equal_nan=True, rtol=bound, atol=bound)


@pytest.mark.parametrize("sizes", [(0, 2, 5, 7), (2, 2, 0, 7), (2, 2, 5, 0), (2, 2, 0, 0)], ids=str)
def test_nothing(sizes: tuple[int, ...]) -> None:
    batch, heads, rows, places = sizes
    compare([drawn(batch, heads, n, 8) for n in (rows, places, places)])


@with_and_without_matrices
def test_strides(dtype: torch.dtype) -> None:
    def laid_out(order: tuple[int, ...], step: int = 1) -> Tensor:
        sizes = (2, 3, 40, 16 * step)
        made = drawn(*(sizes[dim] for dim in order), dtype=dtype)
        return made.permute([order.index(dim) for dim in range(4)])[..., ::step]

    compare([laid_out((0, 2, 1, 3)), laid_out((2, 0, 1, 3)), laid_out((0, 1, 3, 2))])
    compare([laid_out((0, 1, 2, 3), 2), laid_out((0, 2, 1, 3), 2), laid_out((0, 1, 2, 3))], is_causal=True)
    packed = drawn(2, 40, 3, 3, 16, dtype=dtype).permute(2, 0, 3, 1, 4)
    compare(list(packed.unbind(0)), is_causal=True)


@with_and_without_matrices
def test_views_of_the_device(dtype: torch.dtype) -> None:
    """Offsets, strides that are expanded, and a gradient without memory of its own."""
    packed = drawn(2, 41, 3, 3, 16, dtype=dtype)
    there = packed.to(DEVICE)[:, 1:].permute(2, 0, 3, 1, 4)
    query, key, value = there[0], there[1, :1].expand(2, -1, -1, -1), there[2, :, :1].expand(-1, 3, -1, -1)
    here = [x.cpu() for x in (query, key, value)]
    grad = torch.ones((), device=DEVICE, dtype=dtype).expand(2, 3, 40, 16)
    got, wanted = of_device([query, key, value], grad), of_cpu(here, grad.cpu())
    bound = max(1e-4, 32 * torch.finfo(dtype).eps)
    for left, right in zip(got, wanted, strict=True):
        torch.testing.assert_close(left.cpu().double(), right, rtol=bound, atol=bound)


@pytest.mark.parametrize("causal", [False, True], ids=["all", "causal"])
@pytest.mark.parametrize("rows", [1, 20])
@with_and_without_matrices
def test_few_rows_of_many_places(dtype: torch.dtype, rows: int, causal: bool) -> None:
    """Which several blocks have parts of, where there are."""
    for batches, heads, places in ((2, 1, 300), (1, 2, 1001)):
        query, key, value = (drawn(batches, *sizes) for sizes in ((heads, rows, 40), (1, places, 40), (1, places, 24)))
        compare([x.to(dtype) for x in (query, key, value)], is_causal=causal, enable_gqa=True)
    mask = torch.rand(1, 2, rows, 1001) < 0.3
    mask[:, 0, :, :700] = False
    mask[:, 1, 0] = False
    compare([x.to(dtype) for x in (query, key, value)], attn_mask=mask, enable_gqa=True)
    least = torch.full((rows, 1001), torch.finfo(torch.float32).min)
    if dtype == torch.float32:
        compare([query, key, value], attn_mask=least, enable_gqa=True)
    with torch.no_grad():
        far = F.scaled_dot_product_attention(
            *(x.to(DEVICE, dtype) * 200 for x in (query, key, value)), is_causal=causal, enable_gqa=True
        )
    assert far.isfinite().all()


@pytest.mark.parametrize("p", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("causal", [False, True], ids=["all", "causal"])
@with_and_without_matrices
def test_dropout(dtype: torch.dtype, p: float, causal: bool) -> None:
    """The weights that are dropped are those of native_dropout, in the result and in gradients."""
    query, key, value = (drawn(2, 3, n, 16, dtype=dtype) for n in (40, 50, 50))
    grad = drawn(2, 3, 40, 16, dtype=dtype)
    torch.manual_seed(3)
    got = of_device([x.to(DEVICE) for x in (query, key, value)], grad.to(DEVICE), dropout_p=p, is_causal=causal)
    torch.manual_seed(3)
    kept = torch.native_dropout(torch.ones(2, 3, 40, 50, device=DEVICE), p, True)[1].cpu() if 0 < p < 1 else p == 0
    leaves = [x.double().requires_grad_() for x in (query, key, value)]
    scores = leaves[0] @ leaves[1].mT / 4
    if causal:
        scores = scores.masked_fill(torch.ones(40, 50, dtype=torch.bool).triu_(1), -math.inf)
    result = (scores.softmax(-1) * kept / (1 - p if p < 1 else 1)) @ leaves[2]
    for name, left, right in zip(
        NAMES, got, [result, *torch.autograd.grad(result, leaves, grad.double())], strict=True
    ):
        bound = max(1e-4, 32 * torch.finfo(dtype).eps)
        torch.testing.assert_close(
            left.cpu().double(), right.detach(), rtol=bound, atol=bound, msg=lambda text, name=name: f"{name}: {text}"
        )


def test_dropout_goes_on() -> None:
    x = drawn(1, 1, 64, 8).to(DEVICE)
    first, second = (F.scaled_dot_product_attention(x, x, x, dropout_p=0.5) for _ in range(2))
    assert not first.equal(second)


def test_the_same_bits_each_time() -> None:
    inputs = [drawn(2, 2, 150, 32, dtype=torch.float16).to(DEVICE) for _ in range(3)]
    first, second = (of_device(inputs, inputs[0], is_causal=True) for _ in range(2))
    assert all(left.equal(right) for left, right in zip(first, second, strict=True))


def test_memory_is_linear_in_the_length() -> None:
    device = torch.get_device_module(DEVICE)

    def peak(length: int) -> int:
        inputs = [drawn(1, 1, length, 8, dtype=torch.float16).to(DEVICE) for _ in range(3)]
        gc.collect()
        device.synchronize()
        before = device.memory_allocated()
        device.reset_peak_memory_stats()
        of_device(inputs, inputs[0], is_causal=True)
        device.synchronize()
        return int(device.max_memory_allocated() - before)

    assert 0 < peak(4096) < 2.2 * peak(2048)


def test_two_threads() -> None:
    inputs = [[drawn(1, 2, 90, 16) for _ in range(3)] for _ in range(2)]
    wanted = [of_cpu(each, each[0], is_causal=True) for each in inputs]
    failures: list[BaseException] = []

    def work(which: int) -> None:
        try:
            there = [x.to(DEVICE) for x in inputs[which]]
            for _ in range(5):
                got = of_device(there, there[0], is_causal=True)
                for left, right in zip(got, wanted[which], strict=True):
                    torch.testing.assert_close(left.cpu().double(), right, rtol=1e-4, atol=1e-4)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=work, args=(which,)) for which in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_what_goes_elsewhere() -> None:
    """Double precision, wide heads and gradients of masks are PyTorch's own way."""
    query = drawn(1, 1, 4, 8).to(DEVICE)
    wide, mask = drawn(1, 1, 4, 300).to(DEVICE), torch.zeros(4, 4, device=DEVICE, requires_grad=True)
    with sdpa_kernel([SDPBackend.OVERRIDEABLE, SDPBackend.MATH]):
        for inputs, added in ((query.double(), None), (wide, None), (query, mask)):
            inputs = inputs.detach().requires_grad_()
            result = F.scaled_dot_product_attention(inputs, inputs, inputs, attn_mask=added)
            assert "FusedAttentionOverrideable" not in result.grad_fn.name()
            result.sum().backward()
    with pytest.raises(NotImplementedError, match="is of float16, bfloat16 or float32 and four dimensions"):
        torch.ops.aten._scaled_dot_product_fused_attention_overrideable(wide, wide, wide)


def test_compiled_graphs_call_it() -> None:
    def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(query, key, value, is_causal=True) * 2

    inputs = [drawn(2, 2, 24, 16).to(DEVICE) for _ in range(3)]
    results = []
    for function in (attend, torch.compile(attend, fullgraph=True)):
        leaves = [x.detach().requires_grad_() for x in inputs]
        result = function(*leaves)
        results.append([result.detach(), *torch.autograd.grad(result, leaves, inputs[0])])
    for left, right in zip(*results, strict=True):
        torch.testing.assert_close(left, right)
