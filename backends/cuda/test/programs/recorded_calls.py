"""Calls of each family of generated kernels in the dtypes that differ, at shapes that a GPU should be busy with.

Nothing is computed: CUDA_SIM_RUN is 0. Prints a line of JSON for each call: its name, what it launched, and how many
bytes it moved, of how many at least: operands and results once. What else it has allocated was written and read.
"""

import functools
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

import torch_backend

DEVICE = "xcuda"
ATEN = torch.ops.aten
RECORD = Path(os.environ["CUDA_SIM_RECORD"]) / "launches"
N = 1 << 22
ROWS, COLUMNS = 4096, 1024
FLOATS = (torch.float32, torch.bfloat16, torch.float64)
ALL = (*FLOATS, torch.float16, torch.int64, torch.int32, torch.uint8, torch.bool, torch.complex64)
Call = tuple[str, Callable[..., Any], tuple[Any, ...]]


def new(*shape: int, dtype: torch.dtype = torch.float32, grad: bool = False) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device=DEVICE, requires_grad=grad)


def indices(*shape: int) -> torch.Tensor:
    return new(*shape, dtype=torch.int64)


def short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


# ---- the calls; names end with the dtype ----


def pointwise() -> Iterator[Call]:
    for dtype in ALL:
        x, y = new(N, dtype=dtype), new(N, dtype=dtype)
        yield f"add {short(dtype)}", torch.add, (x, y)
        yield f"where {short(dtype)}", torch.where, (new(N, dtype=torch.bool), x, y)
        yield f"equal {short(dtype)}", torch.eq, (x, y)
    for dtype in FLOATS:
        x = new(N, dtype=dtype)
        yield f"relu {short(dtype)}", torch.relu, (x,)
        yield f"gelu {short(dtype)}", F.gelu, (x,)
        yield f"exp {short(dtype)}", torch.exp, (x,)
        yield f"lgamma {short(dtype)}", torch.lgamma, (x,)
        yield f"mul_ by a number {short(dtype)}", lambda x: x.mul_(2), (x,)
        yield f"add a bias {short(dtype)}", torch.add, (new(ROWS, COLUMNS, dtype=dtype), new(COLUMNS, dtype=dtype))
        x = new(2048, 2048, dtype=dtype)
        yield f"add transposed {short(dtype)}", torch.add, (x, torch.empty_like(x).t())
    casts = (torch.float16, torch.bfloat16, torch.float64, torch.uint8, torch.int64, torch.bool)
    for dtype in (*casts, torch.float8_e4m3fn, torch.float8_e5m2):
        yield f"cast to float32 {short(dtype)}", lambda x: x.float(), (new(N, dtype=dtype),)
        yield f"cast from float32 {short(dtype)}", lambda x, d=dtype: x.to(d), (new(N),)
    for dtype in (torch.int64, torch.int32, torch.uint8):
        yield f"floor_divide {short(dtype)}", torch.floor_divide, (new(N, dtype=dtype), new(N, dtype=dtype))
        yield f"gcd {short(dtype)}", torch.gcd, (new(N, dtype=dtype), new(N, dtype=dtype))


def copies() -> Iterator[Call]:
    for dtype in (torch.float32, torch.bfloat16, torch.uint8, torch.int64, torch.complex64):
        yield f"transpose {short(dtype)}", lambda x: x.t().contiguous(), (new(4096, 4096, dtype=dtype),)
        heads = new(64, 12, 256, 64, dtype=dtype)
        yield f"permute heads {short(dtype)}", lambda x: x.transpose(1, 2).contiguous(), (heads,)
        x = new(ROWS, COLUMNS, dtype=dtype)
        yield f"cat {short(dtype)}", lambda x: torch.cat([x, x], 1), (x,)
        yield f"flip {short(dtype)}", lambda x: x.flip(0), (x,)


def reductions() -> Iterator[Call]:
    shapes = {
        "everything": ((N,), None),
        "rows": ((ROWS, COLUMNS), 1),
        "short rows": ((N // 64, 64), 1),
        "columns": ((ROWS, COLUMNS), 0),
        "few columns": ((N // 16, 16), 0),
    }
    others = {
        "argmax": (lambda x, dim: x.argmax(dim), (torch.float32, torch.int64)),
        "var": (lambda x, dim: x.var(dim), (torch.float32, torch.bfloat16)),
        "any": (lambda x, dim: x.any() if dim is None else x.any(dim), (torch.bool,)),
        "norm": (lambda x, dim: torch.linalg.vector_norm(x, dim=dim), (torch.float32,)),
    }
    for where, (shape, dim) in shapes.items():
        for dtype in ALL if where in ("everything", "rows") else (torch.float32, torch.bfloat16, torch.int64):
            yield f"sum {where} {short(dtype)}", lambda x, d=dim: x.sum(d), (new(*shape, dtype=dtype),)
        for name, (function, dtypes) in others.items():
            for dtype in dtypes:
                x = new(*shape, dtype=dtype)
                yield f"{name} {where} {short(dtype)}", lambda x, f=function, d=dim: f(x, d), (x,)


def rows() -> Iterator[Call]:
    for dtype in (*FLOATS, torch.float16):
        shapes = ((N // 64, 64), (N // 256, 256), (ROWS, COLUMNS), (256, 16384))
        for shape in shapes if dtype in (torch.float32, torch.bfloat16) else shapes[2:3]:
            x, w = new(*shape, dtype=dtype), new(shape[1], dtype=dtype)
            end = f"of {shape[1]} {short(dtype)}"
            yield f"softmax {end}", lambda x: x.softmax(1), (x,)
            yield f"log_softmax {end}", lambda x: x.log_softmax(1), (x,)
            yield f"layer_norm {end}", lambda x, w: F.layer_norm(x, w.shape, w, w), (x, w)
            y = new(*shape, dtype=dtype)
            yield f"softmax_backward {end}", lambda g, y: torch._softmax_backward_data(g, y, 1, y.dtype), (x, y)
        x, w = new(ROWS, COLUMNS, dtype=dtype), new(COLUMNS, dtype=dtype)
        mean = new(ROWS, 1, dtype=torch.float64 if dtype is torch.float64 else torch.float32)
        yield (
            f"layer_norm_backward {short(dtype)}",
            lambda g, x, m, r, w: ATEN.native_layer_norm_backward(g, x, [COLUMNS], m, r, w, w, [True] * 3),
            (new(ROWS, COLUMNS, dtype=dtype), x, mean, mean.clone(), w),
        )
        yield f"cross_entropy {short(dtype)}", F.cross_entropy, (x, indices(ROWS))
        image = new(64, 64, 56, 56, dtype=dtype)
        v = new(64, dtype=dtype)
        yield f"batch_norm {short(dtype)}", lambda x, v: F.batch_norm(x, None, None, v, v, training=True), (image, v)


def scans() -> Iterator[Call]:
    for dtype in (torch.float32, torch.bfloat16, torch.float64, torch.int64, torch.complex64):
        for where, shape, dim in (("a line", (N,), 0), ("rows", (ROWS, COLUMNS), 1), ("columns", (ROWS, COLUMNS), 0)):
            x = new(*shape, dtype=dtype)
            yield f"cumsum {where} {short(dtype)}", lambda x, d=dim: x.cumsum(d), (x,)
            if dtype in (torch.float32, torch.int64):
                yield f"cummax {where} {short(dtype)}", lambda x, d=dim: x.cummax(d), (x,)
                yield f"cumprod {where} {short(dtype)}", lambda x, d=dim: x.cumprod(d), (x,)
            if dtype is torch.float32:
                yield f"logcumsumexp {where} {short(dtype)}", lambda x, d=dim: x.logcumsumexp(d), (x,)


def compactions() -> Iterator[Call]:
    mask = new(N, dtype=torch.bool)
    yield "nonzero bool", torch.nonzero, (mask,)
    for dtype in (torch.float32, torch.bfloat16, torch.int64):
        yield f"nonzero {short(dtype)}", torch.nonzero, (new(N, dtype=dtype),)
        yield f"masked_select {short(dtype)}", torch.masked_select, (new(N, dtype=dtype), mask)
        # It needs no count on the host, so that what moves elements is launched though nothing is computed.
        scatter = (new(N, dtype=dtype), mask, new(N, dtype=dtype))
        yield f"masked_scatter {short(dtype)}", lambda x, m, s: x.masked_scatter_(m, s), scatter
        yield f"unique {short(dtype)}", torch.unique, (new(N, dtype=dtype),)


def indexed() -> Iterator[Call]:
    i = indices(ROWS)
    for dtype in (*FLOATS, torch.float16, torch.int64, torch.int32):
        x, source = new(ROWS, COLUMNS, dtype=dtype), new(ROWS, COLUMNS, dtype=dtype)
        wide = indices(ROWS, COLUMNS)
        end = short(dtype)
        yield f"index_add {end}", lambda x, i, s: x.index_add_(0, i, s), (x, i, source)
        yield f"scatter_add {end}", lambda x, i, s: x.scatter_add_(0, i, s), (x, wide, source)
        yield f"index_put_accumulate {end}", lambda x, i, s: x.index_put_((i,), s, accumulate=True), (x, i, source)
        if dtype.is_floating_point:
            backward = functools.partial(ATEN.embedding_dense_backward, num_weights=ROWS, padding_idx=-1)
            yield f"embedding_backward {end}", functools.partial(backward, scale_grad_by_freq=False), (x, i)
        if dtype in (torch.float32, torch.bfloat16, torch.int64):
            yield f"index_select {end}", lambda x, i: x.index_select(0, i), (x, i)
            yield f"gather {end}", lambda x, i: x.gather(1, i), (x, wide)
            yield f"index {end}", lambda x, i: x[i], (x, i)
        if dtype in (torch.float32, torch.bfloat16):
            yield f"embedding {end}", lambda w, i: F.embedding(i, w), (x, i)
            yield (
                f"embedding_bag {end}",
                lambda w, i, o: F.embedding_bag(i, w, o, mode="sum"),
                (x, i, indices(64)),
            )
            yield f"scatter_amax {end}", lambda x, i, s: x.scatter_reduce_(0, i, s, "amax"), (x, wide, source)


def sorts() -> Iterator[Call]:
    for dtype in (torch.float32, torch.bfloat16, torch.float64, torch.int64, torch.int32, torch.uint8):
        x = new(ROWS, COLUMNS, dtype=dtype)
        if dtype not in (torch.float32, torch.bfloat16, torch.int64):
            yield f"sort rows {short(dtype)}", lambda x: x.sort(1), (x,)
            continue
        line = new(N, dtype=dtype)
        yield f"sort a line {short(dtype)}", torch.sort, (line,)
        yield f"topk of a line {short(dtype)}", lambda x: x.topk(50), (line,)
        yield f"kthvalue of a line {short(dtype)}", lambda x: x.kthvalue(50), (line,)
        yield f"sort rows {short(dtype)}", lambda x: x.sort(1), (x,)
        yield f"topk of rows {short(dtype)}", lambda x: x.topk(50), (x,)
    yield "median of rows float32", lambda x: x.median(1), (new(ROWS, COLUMNS),)
    yield "searchsorted float32", torch.searchsorted, (new(COLUMNS), new(N))
    yield "bucketize int64", torch.bucketize, (indices(N), indices(COLUMNS))


def random() -> Iterator[Call]:
    for dtype in FLOATS:
        x = new(N, dtype=dtype)
        yield f"normal_ {short(dtype)}", lambda x: x.normal_(), (x,)
        yield f"uniform_ {short(dtype)}", lambda x: x.uniform_(), (x,)
        yield f"dropout {short(dtype)}", lambda x: F.dropout(x, 0.1), (x,)
    yield "exponential_ float32", lambda x: x.exponential_(), (new(N),)
    yield "bernoulli_ float32", lambda x: x.bernoulli_(0.5), (new(N),)
    yield "random_ int64", lambda x: x.random_(1000), (indices(N),)
    yield "randperm int64", lambda: torch.randperm(N, device=DEVICE), ()
    yield "multinomial float32", lambda x: x.multinomial(4, True), (new(64, COLUMNS),)
    yield "arange int64", lambda: torch.arange(N, device=DEVICE), ()
    yield "linspace float32", lambda: torch.linspace(0, 1, N, device=DEVICE), ()


def images() -> Iterator[Call]:
    for dtype in (torch.float32, torch.bfloat16):
        x = new(32, 64, 56, 56, dtype=dtype)
        end = short(dtype)
        yield f"max_pool2d {end}", lambda x: F.max_pool2d(x, 2, return_indices=True), (x,)
        yield f"avg_pool2d {end}", lambda x: F.avg_pool2d(x, 2), (x,)
        yield f"adaptive_avg_pool2d {end}", lambda x: F.adaptive_avg_pool2d(x, 7), (x,)
        for mode in ("nearest", "bilinear", "bicubic"):
            yield f"interpolate {mode} {end}", lambda x, m=mode: F.interpolate(x, (112, 112), mode=m), (x,)
        yield f"conv2d {end}", lambda x, w: F.conv2d(x, w, padding=1), (x, new(64, 64, 3, 3, dtype=dtype))
        yield (
            f"conv2d depthwise {end}",
            lambda x, w: F.conv2d(x, w, padding=1, groups=64),
            (x, new(64, 1, 3, 3, dtype=dtype)),
        )
        yield f"unfold {end}", lambda x: F.unfold(x, 3), (x,)
        grown = new(32, 64, 56, 56, dtype=dtype, grad=True)
        weight = new(64, 64, 3, 3, dtype=dtype, grad=True)
        yield f"conv2d_backward {end}", gradients(lambda x, w: F.conv2d(x, w, padding=1)), (grown, weight)
        yield f"max_pool2d_backward {end}", gradients(lambda x: F.max_pool2d(x, 2)), (grown,)
        enlarge = gradients(lambda x: F.interpolate(x, (112, 112), mode="bilinear"))
        yield f"interpolate_backward bilinear {end}", enlarge, (grown,)
    x = new(32, 64, 56, 56)
    yield "interpolate antialias float32", lambda x: F.interpolate(x, 28, mode="bilinear", antialias=True), (x,)
    yield "grid_sample float32", lambda x, g: F.grid_sample(x, g, align_corners=False), (x, new(32, 56, 56, 2))


def products() -> Iterator[Call]:
    for dtype in (*FLOATS, torch.int64, torch.complex64):
        x = new(1024, 1024, dtype=dtype)
        yield f"mm {short(dtype)}", torch.mm, (x, new(1024, 1024, dtype=dtype))
    for dtype in (torch.float32, torch.bfloat16):
        x, w = new(64, 256, 64, dtype=dtype), new(64, 64, 256, dtype=dtype)
        yield f"bmm {short(dtype)}", torch.bmm, (x, w)
        x = new(1024, 1024, dtype=dtype)
        bias = new(1024, dtype=dtype)
        yield f"addmm of a transposed {short(dtype)}", lambda b, x, w: torch.addmm(b, x, w.t()), (bias, x, x)
    x, w = new(1024, 1024, dtype=torch.int8), new(1024, 1024, dtype=torch.int8)
    yield "mm int8", torch._int_mm, (x, w)
    x, scales = new(1024, 1024, dtype=torch.bfloat16), new(1024, dtype=torch.bfloat16)
    yield "mm bfloat16 with weights int8", torch._weight_int8pack_mm, (x, w, scales)
    yield "cholesky float32", torch.linalg.cholesky, (new(64, 128, 128),)
    yield (
        "solve_triangular float32",
        lambda a, b: torch.linalg.solve_triangular(a, b, upper=False),
        (
            new(64, 128, 128),
            new(64, 128, 32),
        ),
    )
    yield "fft complex64", torch.fft.fft, (new(1024, 1024, dtype=torch.complex64),)
    yield "rfft float32", torch.fft.rfft, (new(1024, 1024),)
    yield (
        "ctc_loss float32",
        lambda x, t, n, m: ATEN._ctc_loss(x, t, n, m),
        (
            new(100, 64, 32),
            indices(64, 20),
            [100] * 64,
            [20] * 64,
        ),
    )


def attention() -> Iterator[Call]:
    attend = F.scaled_dot_product_attention
    for dtype in (torch.float32, torch.bfloat16):
        q = new(4, 12, 256, 64, dtype=dtype, grad=True)
        yield f"attention {short(dtype)}", lambda q: attend(q, q, q).detach(), (q,)
        yield f"attention causal {short(dtype)}", lambda q: attend(q, q, q, is_causal=True).detach(), (q,)
        yield f"attention causal, backward {short(dtype)}", gradients(lambda q: attend(q, q, q, is_causal=True)), (q,)
        row, long = new(1, 16, 1, 128, dtype=dtype), new(1, 16, 8192, 128, dtype=dtype)
        yield f"attention, one row {short(dtype)}", attend, (row, long, new(1, 16, 8192, 128, dtype=dtype))
    for dtype in (torch.float32, torch.bfloat16):
        sequences, begin = new(16 * 256, 12, 64, dtype=dtype), new(17, dtype=torch.int32)
        yield (
            f"attention of sequences {short(dtype)}",
            lambda x, begin: ATEN._flash_attention_forward(x, x, x, begin, begin, 256, 256, 0.0, True, False)[0],
            (sequences, begin),
        )


def optimizers() -> Iterator[Call]:
    def parameters(dtype: torch.dtype, *shapes: tuple[int, ...]) -> list[torch.Tensor]:
        made = [new(*shape, dtype=dtype, grad=True) for shape in shapes]
        for each in made:
            each.grad = torch.empty_like(each)
        return made

    shapes = [(1024, 1024), (1024,)] * 6
    for dtype in (torch.float32, torch.bfloat16):
        for name, kind, options in (
            ("Adam", torch.optim.Adam, {}),
            ("AdamW", torch.optim.AdamW, {}),
            ("AMSGrad", torch.optim.Adam, {"amsgrad": True}),
            ("SGD with momentum", torch.optim.SGD, {"momentum": 0.9}),
            ("Adagrad", torch.optim.Adagrad, {}),
        ):
            if dtype is torch.bfloat16 and name not in ("AdamW", "SGD with momentum"):
                continue
            made = parameters(dtype, *shapes)
            optimizer = kind(made, lr=0.1, fused=True, **options)
            optimizer.step()
            yield f"fused {name} {short(dtype)}", lambda *_, o=optimizer: o.step(), tuple(made)
        made = parameters(dtype, *shapes)
        yield f"clip_grad_norm_ {short(dtype)}", lambda *p: nn.utils.clip_grad_norm_(p, 1.0), tuple(made)
        with torch.no_grad():
            whole = [each.detach() for each in made]
        yield f"foreach add {short(dtype)}", lambda *p: torch._foreach_add(p, p), tuple(whole)
        yield f"foreach norm {short(dtype)}", lambda *p: torch._foreach_norm(p), tuple(whole)
    unscale = torch._amp_foreach_non_finite_check_and_unscale_
    grads = tuple(new(*shape) for shape in shapes)
    yield "amp unscale float32", lambda *g: unscale(list(g), new(1), new(1)), grads
    update, growth = torch._amp_update_scale_, new(1, dtype=torch.int32)
    yield "amp update float32", lambda s, g, found: update(s, g, found, 2.0, 0.5, 9), (new(1), growth, new(1))


def graphs() -> Iterator[Call]:
    def block(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(F.gelu(x + b) * 2 + x, w.shape, w, b)

    def heads(x: torch.Tensor, m: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = torch.where(m, x, -1e4).softmax(-1)
        return y.to(torch.bfloat16), y.sum(0), (y * y).sum()

    for dtype in (torch.float32, torch.bfloat16):
        x, w = new(ROWS, COLUMNS, dtype=dtype, grad=True), new(COLUMNS, dtype=dtype, grad=True)
        compiled = torch.compile(block)
        yield f"compiled block {short(dtype)}", lambda *a, f=compiled: f(*a).detach(), (x, w, w)
        bias = new(COLUMNS, dtype=dtype, grad=True)
        yield f"compiled block, backward {short(dtype)}", gradients(compiled), (x, w, bias)
        yield f"compiled gelu {short(dtype)}", torch.compile(lambda x: F.gelu(x) * 2), (x.detach(),)
        yield f"compiled sums of columns {short(dtype)}", torch.compile(lambda x: x.sum(0)), (x.detach(),)
    mask = new(ROWS, COLUMNS, dtype=torch.bool)
    yield "compiled softmax and sums float32", torch.compile(heads), (new(ROWS, COLUMNS), mask)


def gradients(function: Callable[..., torch.Tensor]) -> Callable[..., tuple[torch.Tensor, ...]]:
    """Calls it and then what is for its gradients."""

    def run(*operands: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = function(*operands)
        return torch.autograd.grad(y, operands, torch.empty_like(y))

    return run


FAMILIES = (
    pointwise,
    copies,
    reductions,
    rows,
    scans,
    compactions,
    indexed,
    sorts,
    random,
    images,
    products,
    attention,
    optimizers,
    graphs,
)


# ---- what they did ----


def tensors_in(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value, *([value.grad] if value.is_leaf and value.grad is not None else [])]
    return [each for entry in value for each in tensors_in(entry)] if isinstance(value, (list, tuple)) else []


def size_of(x: torch.Tensor) -> int:
    return min(x.numel() * x.element_size(), x.untyped_storage().nbytes())


def allocated() -> int:
    return torch.xcuda.memory_stats()["allocated_bytes.all.allocated"]


def lines() -> list[list[str]]:
    text = RECORD.read_text() if RECORD.exists() else ""
    return [line.split("\t") for line in text.splitlines()]


def record(family: str, call: Call) -> dict[str, Any]:
    name, function, operands = call
    function(*operands)  # what is kept from one call to the next
    begun, before = len(lines()), allocated()
    results = function(*operands)
    spare = allocated() - before
    launches = lines()[begun:]
    given = {(x.data_ptr(), size_of(x)) for x in tensors_in(operands)}
    made = {(x.data_ptr(), size_of(x)) for x in tensors_in(results)}
    spare -= sum(size for _, size in made - given)
    known = given | made
    moved = 2 * max(spare, 0)
    for *_, pointers in launches:
        touched = {at for each in map(int, pointers.split()) for at in known if at[0] <= each < at[0] + max(at[1], 1)}
        moved += sum(size for _, size in touched)
    texts = [
        {"text": text, "kernel": kernel, "grid": grid, "block": block, "shared": int(shared)}
        for text, kernel, grid, block, shared, _ in launches
    ]
    least = sum(size for _, size in known)
    return {"family": family, "name": name, "moved": moved, "least": least, "spare": spare, "launches": texts}


def main() -> None:
    torch_backend.fallback.set_policy(None, "error")
    for family in FAMILIES:
        for call in family():
            print(json.dumps(record(family.__name__, call)), flush=True)


main()
