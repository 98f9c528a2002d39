"""Attention of sequences that lie one after the other, against each of them alone in double precision."""

import inspect
import math

import pytest
import torch
from conftest import DEVICE
from torch.nn.attention import varlen

FORWARD = torch.ops.aten._flash_attention_forward
HAS_PAGES = "block_table" in {argument.name for argument in FORWARD.default._schema.arguments}
TOLERANCES = {torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}
# Rows and places of each; some have none.
LENGTHS = ([5, 70, 0, 1, 130], [5, 70, 3, 40, 130]), ([33, 1, 200], [1, 300, 150])


def offsets(lengths):
    return torch.tensor([0, *lengths], dtype=torch.int32).cumsum(0, dtype=torch.int32)


def alone(query, key, value, before=-1, after=-1):
    """Result and logarithms of one, [rows, heads, elements] and [heads, rows]."""
    rows, places = query.size(0), key.size(0)
    key, value = (x.repeat_interleave(query.size(1) // key.size(1), 1) for x in (key, value))
    scores = torch.einsum("qhd,khd->hqk", query, key) / math.sqrt(query.size(2))
    away = torch.arange(places) - torch.arange(rows).unsqueeze(1) - (places - rows)
    is_far = (away > after if after >= 0 else away > places + rows) | (away < -before if before >= 0 else False)
    scores = scores.masked_fill(is_far, -torch.inf)
    weights = scores.softmax(-1).nan_to_num(0)  # rows without a place
    return torch.einsum("hqk,khd->qhd", weights, value), scores.logsumexp(-1)


def wanted_of(query, key, value, rows, places, **window):
    results = [
        alone(q, k, v, **window)
        for q, k, v in zip(query.split(rows), key.split(places), value.split(places), strict=True)
    ]
    return torch.cat([out for out, _ in results]), torch.cat([logs for _, logs in results], 1)


def drawn(*sizes, dtype=torch.float32):
    return torch.randn(sizes).to(dtype)


def close(got, wanted, dtype):
    limit = TOLERANCES[dtype]
    torch.testing.assert_close(got.cpu().double(), wanted.double(), rtol=limit, atol=limit)


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize(("rows", "places"), LENGTHS, ids=("short", "long"))
@pytest.mark.parametrize(
    "window", [{}, {"after": 0}, {"before": 7, "after": 0}, {"before": 20, "after": 3}, {"before": 4}], ids=str
)
def test_windows(dtype, rows, places, window):
    for heads, shared, elements in ((4, 2, 64), (3, 1, 40)):
        query = drawn(sum(rows), heads, elements, dtype=dtype)
        key, value = (drawn(sum(places), heads // shared, elements, dtype=dtype) for _ in range(2))
        out, logarithms, *_ = FORWARD(
            *(x.to(DEVICE) for x in (query, key, value, offsets(rows), offsets(places))),
            max(rows),
            max(places),
            0.0,
            window == {"after": 0},
            return_debug_mask=False,
            window_size_left=window.get("before"),
            window_size_right=window.get("after"),
        )
        wanted, wanted_logarithms = wanted_of(query.double(), key.double(), value.double(), rows, places, **window)
        close(out, wanted, dtype)
        close(logarithms, wanted_logarithms, dtype)


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("is_causal", [False, True], ids=("all", "causal"))
def test_gradients(dtype, is_causal):
    """Keys and values are views of one tensor, as a model's projection leaves them."""
    rows = [40, 1, 0, 129, 20]
    query, both, weight = (
        drawn(190, 4, 64, dtype=dtype),
        drawn(190, 2, 2, 64, dtype=dtype),
        drawn(190, 4, 64, dtype=dtype),
    )
    theirs, own = [
        [x.to(DEVICE).requires_grad_() for x in (query, both)],
        [x.double().requires_grad_() for x in (query, both)],
    ]
    cu = offsets(rows).to(DEVICE)
    has_gqa = "enable_gqa" in inspect.signature(varlen.varlen_attn).parameters
    heads = 4 if has_gqa else 2  # older ones have as many heads on both sides
    options = {"enable_gqa": True} if has_gqa else {}
    if "window_size" in inspect.signature(varlen.varlen_attn).parameters:
        options["window_size"] = (-1, 0) if is_causal else (-1, -1)
    else:
        options["is_causal"] = is_causal
    out = varlen.varlen_attn(
        theirs[0][:, :heads], theirs[1][:, 0], theirs[1][:, 1], cu, cu, max(rows), max(rows), **options
    )
    out.backward(weight[:, :heads].to(DEVICE))
    wanted, _ = wanted_of(own[0][:, :heads], own[1][:, 0], own[1][:, 1], rows, rows, after=0 if is_causal else -1)
    wanted.backward(weight[:, :heads].double())
    close(out.detach(), wanted.detach(), dtype)
    for got, expected in zip(theirs, own, strict=True):
        close(got.grad, expected.grad, dtype)


@pytest.mark.skipif(not HAS_PAGES, reason=f"torch {torch.__version__} has no pages")
@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("page", [1, 16, 48])
def test_pages(dtype, page):
    """A cache: pages in any order, more of them than are used, the last one not full. What is not used is NaN."""
    rows, places, most = [1, 3, 1, 20], [50, 3, 97, 33], -(-97 // page)
    pool = torch.full((2, 4 * most + 3, page, 2, 64), torch.nan).to(dtype)
    table = torch.randperm(4 * most + 3)[: 4 * most].view(4, most).int()
    key, value = drawn(sum(places), 2, 64, dtype=dtype), drawn(sum(places), 2, 64, dtype=dtype)
    for cache, all_places in zip(pool, (key, value), strict=True):
        for pages, own in zip(table, all_places.split(places), strict=True):
            for place, vector in enumerate(own):
                cache[pages[place // page], place % page] = vector
    query = drawn(sum(rows), 4, 64, dtype=dtype)
    out, *_ = FORWARD(
        *(x.to(DEVICE) for x in (query, pool[0], pool[1], offsets(rows))),
        None,
        max(rows),
        max(places),
        0.0,
        True,
        return_debug_mask=False,
        seqused_k=torch.tensor(places, dtype=torch.int32, device=DEVICE),
        block_table=table.to(DEVICE),
    )
    wanted, _ = wanted_of(query.double(), key.double(), value.double(), rows, places, after=0)
    close(out, wanted, dtype)


def test_what_is_refused():
    x, cu = torch.randn(6, 2, 8, device=DEVICE), torch.tensor([0, 4, 6], dtype=torch.int32, device=DEVICE)
    for arguments, message in (
        ((x, x, x, None, None, 4, 4, 0.0), "needs cum_seq_q"),
        ((x, x, x, cu, cu, 4, 4, 0.5), "neither a dropout nor slopes"),
        ((x, x, x, cu, None, 4, 4, 0.0), "cum_seq_k is missing"),
        ((x, x, x, cu, cu[:2], 4, 4, 0.0), "says that there are 2 sequences"),
        ((x, x[0], x, cu, cu, 4, 4, 0.0), "takes .rows, heads, elements."),
        ((x[:, :1].expand(6, 3, 8), x, x, cu, cu, 4, 4, 0.0), "no multiple of the key's 2"),
    ):
        with pytest.raises((RuntimeError, NotImplementedError), match=message):
            FORWARD(*arguments, False, return_debug_mask=False)


def test_compiled():
    rows = offsets([40, 1, 149]).to(DEVICE)
    tensors = [torch.randn(190, 4, 64, device=DEVICE, requires_grad=True) for _ in range(3)]

    def attend(query, key, value):
        return varlen.varlen_attn(query * 2, key, value, rows, rows, 149, 149).relu()

    results = []
    for function in (attend, torch.compile(attend)):
        out = function(*tensors)
        results.append([out, *torch.autograd.grad(out.sum(), tensors)])
    for compiled, eager in zip(*reversed(results), strict=True):
        torch.testing.assert_close(compiled, eager)
