"""Sparse tensors: COO, CSR, CSC, BSR and BSC on the device give what they give on the CPU."""

import copy
import io
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch
from conftest import clean_environment
from torch import Tensor
from torch.nn import functional as F

from torch_backend import fallback

pytestmark = [pytest.mark.usefixtures("backend"), pytest.mark.filterwarnings("ignore:Sparse")]

DENSE = torch.tensor([[0.0, 2.0, 0.0, -1.0], [3.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 4.5], [0.0, 1.0, 0.0, 0.0]])

CONVERSIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "coo": Tensor.to_sparse,
    "csr": Tensor.to_sparse_csr,
    "csc": Tensor.to_sparse_csc,
    "bsr": lambda x: x.to_sparse_bsr((2, 2)),
    "bsc": lambda x: x.to_sparse_bsc((2, 2)),
}

every_layout = pytest.mark.parametrize("convert", CONVERSIONS.values(), ids=CONVERSIONS)


def parts(x: Tensor) -> list[Tensor]:
    """The strided tensors that a sparse one is made of."""
    if x.layout is torch.sparse_coo:
        return [x._indices(), x._values()]
    if x.layout in (torch.sparse_csr, torch.sparse_bsr):
        return [x.crow_indices(), x.col_indices(), x.values()]
    if x.layout in (torch.sparse_csc, torch.sparse_bsc):
        return [x.ccol_indices(), x.row_indices(), x.values()]
    return [x]


def check(actual: Tensor, expected: Tensor, name: str) -> None:
    assert actual.device.type == name
    assert (actual.layout, actual.dtype, actual.shape) == (expected.layout, expected.dtype, expected.shape)
    if actual.layout is torch.sparse_coo:
        assert actual.is_coalesced() == expected.is_coalesced()
    for one, other in zip(parts(actual), parts(expected), strict=True):
        assert one.device.type == name
        torch.testing.assert_close(one.cpu(), other)


# ---- making them ----


@every_layout
def test_conversion(name: str, convert: Callable[[Tensor], Tensor]) -> None:
    sparse = convert(DENSE.to(name))
    check(sparse, convert(DENSE), name)
    assert sparse.device == torch.device(name, 0)
    check(sparse.to_dense(), DENSE, name)


@every_layout
@pytest.mark.parametrize("target", ["coo", "csr", "csc"])
def test_conversion_between_layouts(name: str, convert: Callable[[Tensor], Tensor], target: str) -> None:
    try:
        expected = CONVERSIONS[target](convert(DENSE))
    except RuntimeError:
        with pytest.raises(RuntimeError):
            CONVERSIONS[target](convert(DENSE.to(name)))
        return
    check(CONVERSIONS[target](convert(DENSE.to(name))), expected, name)


def test_coo_from_parts(name: str) -> None:
    indices, values = torch.tensor([[0, 1, 1], [2, 0, 2]]), torch.tensor([3.0, 4.0, 5.0])
    expected = torch.sparse_coo_tensor(indices, values, (2, 3))
    for one, other in ((indices, values), (indices.to(name), values.to(name)), (indices.tolist(), values.tolist())):
        check(torch.sparse_coo_tensor(one, other, (2, 3), device=name), expected, name)
    check(torch.sparse_coo_tensor(indices.to(name), values.to(name)), expected, name)
    check(torch.sparse_coo_tensor((2, 3), device=name), torch.sparse_coo_tensor((2, 3)), name)


def test_compressed_from_parts(name: str) -> None:
    crow, col, values = torch.tensor([0, 2, 4]), torch.tensor([0, 1, 0, 1]), torch.tensor([1.0, 2.0, 3.0, 4.0])
    expected = torch.sparse_csr_tensor(crow, col, values, (2, 2))
    check(torch.sparse_csr_tensor(crow, col, values, (2, 2), device=name), expected, name)
    check(torch.sparse_csr_tensor(crow.to(name), col.to(name), values.to(name)), expected, name)
    expected = torch.sparse_csc_tensor(crow, col, values, (2, 2))
    check(torch.sparse_csc_tensor(crow, col, values, (2, 2), device=name), expected, name)


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr, torch.sparse_csc])
def test_without_contents(name: str, layout: torch.layout) -> None:
    x = torch.zeros((2, 3), layout=layout, device=name)
    check(x, torch.zeros((2, 3), layout=layout), name)
    assert x.to_dense().tolist() == [[0, 0, 0]] * 2
    empty = torch.empty((2, 3), layout=layout, device=name)
    assert (empty.layout, empty.device.type, empty.shape) == (layout, name, (2, 3))
    check(torch.zeros_like(x), torch.zeros((2, 3), layout=layout), name)


@pytest.mark.parametrize("dtype", [torch.float64, torch.int64, torch.bool, torch.complex64, torch.float16])
def test_dtypes(name: str, dtype: torch.dtype) -> None:
    x = DENSE.to(dtype)
    for convert in (Tensor.to_sparse, Tensor.to_sparse_csr):
        check(convert(x.to(name)), convert(x), name)
        check(convert(x.to(name)).to_dense(), x, name)


def test_hybrid_and_batched(name: str) -> None:
    x = torch.zeros(3, 4, 2)
    x[0, 1], x[2, 3] = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])
    check(x.to(name).to_sparse(2), x.to_sparse(2), name)
    check(x.to(name).to_sparse(2).to_dense(), x, name)
    batch = torch.stack([DENSE, DENSE])
    check(batch.to(name).to_sparse_csr(), batch.to_sparse_csr(), name)


# ---- copies ----


@every_layout
def test_copies(name: str, convert: Callable[[Tensor], Tensor]) -> None:
    host = convert(DENSE)
    x = host.to(name)
    check(x, host, name)
    check(x.clone(), host, name)
    check(x.cpu(), host, "cpu")
    check(x.to(torch.float64), host.to(torch.float64), name)
    check(x.detach(), host, name)
    check((x * 0).copy_(x), host, name)
    if x.layout is torch.sparse_coo:
        check(copy.deepcopy(x), host, name)
        check(torch.zeros_like(host).copy_(x), host, "cpu")
        check(torch.zeros_like(x).copy_(host), host, name)


@every_layout
def test_serialization(name: str, convert: Callable[[Tensor], Tensor]) -> None:
    x = convert(DENSE.to(name))
    buffer = io.BytesIO()
    torch.save({"x": x}, buffer)
    buffer.seek(0)
    check(torch.load(buffer)["x"], convert(DENSE), name)
    buffer.seek(0)
    check(torch.load(buffer, map_location="cpu")["x"], convert(DENSE), "cpu")


@every_layout
def test_printing(name: str, convert: Callable[[Tensor], Tensor]) -> None:
    text = repr(convert(DENSE.to(name)))
    assert f"device='{name}:0'" in text
    assert "4.5" in text
    assert "size=(4, 4)" in text


@pytest.mark.usefixtures("two_devices")
def test_two_devices(name: str) -> None:
    x = DENSE.to(f"{name}:1").to_sparse()
    assert x.device == x._values().device == torch.device(name, 1)
    assert (x * 2).device == torch.device(name, 1)
    assert x.to(f"{name}:0").to_dense().device == torch.device(name, 0)
    made = torch.sparse_coo_tensor([[0]], [1.0], (2,), device=f"{name}:1")
    assert made.device == made._indices().device == torch.device(name, 1)
    with pytest.raises(RuntimeError, match="same device"):
        x.to(f"{name}:0") + x


# ---- operators ----

DIRECT: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "neg": lambda s, d: -s,
    "sin": lambda s, d: s.sin(),
    "relu": lambda s, d: s.relu(),
    "mul scalar": lambda s, d: s * 3,
    "div scalar": lambda s, d: s / 2,
    "add": lambda s, d: s + s * 2,
    "sub": lambda s, d: s - s,
    "mul": lambda s, d: s * s,
    "mm dense": lambda s, d: torch.sparse.mm(s, d),
    "matmul dense": lambda s, d: s @ d,
    "dense plus": lambda s, d: d + s,
    "transpose": lambda s, d: s.t(),
    "sum": lambda s, d: s.sum(),
    "to_dense": lambda s, d: s.to_dense(),
    "addmm": lambda s, d: torch.addmm(d, s, d, beta=0.5, alpha=2),
}

COO: dict[str, Callable[[Tensor, Tensor], Tensor]] = DIRECT | {
    "mv": lambda s, d: s.mv(d[0]),
    "sparse mm sparse": lambda s, d: torch.sparse.mm(s, s),
    "sum dim": lambda s, d: torch.sparse.sum(s, 0),
    "softmax": lambda s, d: torch.sparse.softmax(s, 1),
    "log_softmax": lambda s, d: torch.sparse.log_softmax(s, 0),
    "index": lambda s, d: s[1],
    "index_select": lambda s, d: s.index_select(0, torch.tensor([2, 0], device=s.device)),
    "narrow_copy": lambda s, d: s.narrow_copy(0, 1, 2),
    "permute": lambda s, d: s.permute(1, 0),
    "unsqueeze": lambda s, d: s.unsqueeze(0),
    "cat": lambda s, d: torch.cat([s, s]),
    "stack": lambda s, d: torch.stack([s, s]),
    "coalesce": lambda s, d: (s + s.t()).coalesce(),
    "norm": lambda s, d: s.norm(),
    "pow": lambda s, d: s.pow(2),
    "mask": lambda s, d: d.sparse_mask(s),
    "mask by sparse": lambda s, d: s.sparse_mask((s * 2).coalesce()),
    "mul dense": lambda s, d: s * d,
    "bmm": lambda s, d: torch.bmm(torch.stack([s, s]), torch.stack([d, d])),
    "sspaddmm": lambda s, d: torch.sspaddmm(s, s, d),
    "hspmm": lambda s, d: torch.hspmm(s, d),
    "any": lambda s, d: s.bool().any(),
    "isnan": lambda s, d: s.isnan(),
    "spdiags": lambda s, d: torch.sparse.spdiags(d.cpu(), torch.arange(4), (4, 4)).to(s.device) + s,
    "broadcast": lambda s, d: torch._sparse_broadcast_to(s, (2, 4, 4)),
}

CSR: dict[str, Callable[[Tensor, Tensor], Tensor]] = DIRECT | {
    "select": lambda s, d: s[2],
    "sampled_addmm": lambda s, d: torch.sparse.sampled_addmm(s, d, d),
    "reduce": lambda s, d: torch.sparse.mm(s, d, "amax"),
    "mask": lambda s, d: d.sparse_mask(s),
    "addmv": lambda s, d: torch.addmv(d[0], s, d[1]),
    "fill": lambda s, d: s.clone().fill_(2),
}


def operands(name: str, convert: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
    return convert(DENSE.to(name)), (torch.arange(16.0).view(4, 4) / 4 - 1).to(name)


@pytest.mark.parametrize("use", COO.values(), ids=COO)
def test_coo_operator(name: str, use: Callable[[Tensor, Tensor], Tensor]) -> None:
    check(use(*operands(name, Tensor.to_sparse)), use(*operands("cpu", Tensor.to_sparse)), name)


@pytest.mark.parametrize("use", CSR.values(), ids=CSR)
def test_csr_operator(name: str, use: Callable[[Tensor, Tensor], Tensor]) -> None:
    try:
        expected = use(*operands("cpu", Tensor.to_sparse_csr))
    except RuntimeError:
        with pytest.raises((RuntimeError, NotImplementedError)):
            use(*operands(name, Tensor.to_sparse_csr))
        return
    check(use(*operands(name, Tensor.to_sparse_csr)), expected, name)


IN_PLACE: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "mul_": lambda s, d: s.mul_(2),
    "neg_": lambda s, d: s.neg_(),
    "sin_": lambda s, d: s.sin_(),
    "add_": lambda s, d: s.add_(s.t(), alpha=2) if s.layout is torch.sparse_coo else s.add_(s),
    "zero_": lambda s, d: s.zero_(),
    "copy_": lambda s, d: s.copy_(s * 2),
    "dense add_": lambda s, d: d.add_(s),
    "values": lambda s, d: s.values().fill_(7),
    "addmm_": lambda s, d: d.addmm_(s, d.clone()),
    "out": lambda s, d: torch.mm(s, d, out=torch.empty_like(d)),
    "sin out": lambda s, d: torch.sin(s, out=s.clone()),
    "mul out": lambda s, d: torch.mul(s, s, out=s.clone()),
}


@pytest.mark.parametrize("convert", [Tensor.to_sparse, Tensor.to_sparse_csr], ids=["coo", "csr"])
@pytest.mark.parametrize("use", IN_PLACE.values(), ids=IN_PLACE)
def test_writing(name: str, use: Callable[[Tensor, Tensor], Tensor], convert: Callable[[Tensor], Tensor]) -> None:
    host, device = operands("cpu", convert), operands(name, convert)
    expected, actual = use(*host), use(*device)
    check(actual, expected, name)
    for one, other in zip(device, host, strict=True):
        check(one, other, name)
    assert [actual is x for x in device] == [expected is x for x in host]


def test_resizing(name: str) -> None:
    for device in ("cpu", name):
        x = torch.sparse_coo_tensor([[0, 1]], [1.0, 2.0], (3,), device=device)
        values = x._values()
        assert x.sparse_resize_((5,), 1, 0) is x
        assert x.shape == (5,)
        assert x.to_dense().tolist() == [1, 2, 0, 0, 0]
        assert values.device.type == device
        x.sparse_resize_and_clear_((2, 2), 2, 0)
        assert x.to_dense().tolist() == [[0, 0], [0, 0]]


def test_values_are_a_view(name: str) -> None:
    for convert in (Tensor.to_sparse, Tensor.to_sparse_csr):
        x = convert(DENSE.to(name))
        x.values()[0] = 100
        assert x.to_dense().max().item() == 100


# ---- autograd ----


@pytest.mark.parametrize("use", ["mm", "sum", "softmax", "to_dense", "mul", "add", "coalesce", "transpose"])
def test_gradients(name: str, use: str) -> None:
    uses: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
        "mm": lambda s, d: torch.sparse.mm(s, d).sum(),
        "sum": lambda s, d: torch.sparse.sum(s * 2),
        "softmax": lambda s, d: (torch.sparse.softmax(s, 1).to_dense() * d).sum(),
        "to_dense": lambda s, d: (s.to_dense() * d).sum(),
        "mul": lambda s, d: torch.sparse.sum(s * s),
        "add": lambda s, d: (d + s).square().sum(),
        "coalesce": lambda s, d: (s.coalesce().values() ** 2).sum(),
        "transpose": lambda s, d: (s.t().to_dense() * d).sum(),
    }
    gradients = []
    for device in ("cpu", name):
        leaf = DENSE.to(device, copy=True).requires_grad_()
        dense = torch.arange(16.0).view(4, 4).to(device).requires_grad_()
        uses[use](leaf.to_sparse(), dense).backward()
        gradients.append((leaf.grad, dense.grad))
    for expected, actual in zip(*gradients, strict=True):
        assert (actual is None) == (expected is None)
        if actual is not None and expected is not None:
            torch.testing.assert_close(actual.to_dense().cpu(), expected.to_dense())


def test_gradient_of_parts(name: str) -> None:
    values = torch.tensor([1.0, 2.0], device=name, requires_grad=True)
    x = torch.sparse_coo_tensor(torch.tensor([[0, 1], [1, 0]], device=name), values, (2, 2))
    (x @ torch.tensor([[1.0], [3.0]], device=name)).sum().backward()
    assert values.grad is not None
    assert values.grad.tolist() == [3, 1]


def test_embedding_with_sparse_adam(name: str) -> None:
    weights = []
    for device in ("cpu", name):
        torch.manual_seed(0)
        model = torch.nn.Embedding(20, 4, sparse=True).to(device)
        optimizer = torch.optim.SparseAdam(model.parameters(), lr=0.1)
        for step in range(4):
            optimizer.zero_grad()
            loss = model(torch.tensor([1, 5, 5, step], device=device)).square().sum()
            loss.backward()
            grad = model.weight.grad
            assert grad is not None
            assert grad.is_sparse
            assert grad.device.type == device
            optimizer.step()
        weights.append(model.weight.detach().cpu())
    torch.testing.assert_close(weights[1], weights[0])


def test_accumulating_sparse_gradients_with_sgd(name: str) -> None:
    weights = []
    for device in ("cpu", name):
        torch.manual_seed(0)
        weight = torch.randn(6, 3).to(device).requires_grad_()
        optimizer = torch.optim.SGD([weight], lr=0.1)
        for indices in ([0, 1], [1, 5]):
            F.embedding(torch.tensor(indices, device=device), weight, sparse=True).sum().backward()
        assert weight.grad is not None
        assert weight.grad.is_sparse
        optimizer.step()
        weights.append(weight.detach().cpu())
    torch.testing.assert_close(weights[1], weights[0])


# ---- the fallback ----


def test_fallback_is_counted_and_can_be_forbidden(name: str) -> None:
    x = torch.sparse_coo_tensor([[0, 0]], [1.0, 2.0], (3,), device=name)
    fallback.reset()
    assert x.coalesce().values().tolist() == [3]
    assert "aten::_coalesce" in [entry.op for entry in fallback.report().entries]
    fallback.reset()
    assert (x._nnz(), x.sparse_dim(), x.is_coalesced(), x._values().shape) == (2, 1, False, (2,))
    assert [entry.op for entry in fallback.report().entries] == []
    with fallback.policy("aten::_coalesce", "error"), pytest.raises(NotImplementedError, match="set_policy"):
        x.coalesce()


def test_what_the_cpu_lacks_raises(name: str) -> None:
    x = DENSE.to(name).to_sparse()
    with pytest.raises(NotImplementedError):
        DENSE.to_sparse().cumsum(0)
    with pytest.raises(
        NotImplementedError, match=f"'aten::cumsum.*' with sparse tensors on {name}: .*neither has the CPU"
    ):
        x.cumsum(0)


def test_mixing_with_the_cpu_raises(name: str) -> None:
    x = DENSE.to(name).to_sparse()
    for use in (lambda: x + DENSE.to_sparse(), lambda: x @ DENSE, lambda: DENSE.to_sparse() @ DENSE.to(name)):
        with pytest.raises(RuntimeError, match="same device"):
            use()


def test_invariants_are_checked(name: str) -> None:
    with pytest.raises(RuntimeError, match="found negative index"):
        torch.sparse_coo_tensor(
            torch.tensor([[-1]], device=name), torch.ones(1, device=name), (2,), check_invariants=True
        )
    with pytest.raises(RuntimeError, match="crow_indices"):
        torch.sparse_csr_tensor(
            torch.tensor([0, 5], device=name),
            torch.tensor([0], device=name),
            torch.ones(1, device=name),
            (1, 2),
            check_invariants=True,
        )


# ---- other kinds of device ----

MODES = {
    "protected": {"TORCH_BACKEND_XCPU_PROTECT": "1"},
    "async": {"TORCH_BACKEND_XCPU_ASYNC": "1", "TORCH_BACKEND_XCPU_DELAY_US": "300"},
    "async, protected": {"TORCH_BACKEND_XCPU_ASYNC": "1", "TORCH_BACKEND_XCPU_PROTECT": "1"},
}


@pytest.mark.parametrize("mode", MODES)
def test_in_other_modes(backend: ModuleType, mode: str) -> None:
    if os.environ.get("TORCH_BACKEND_LAYOUT_TESTS"):
        pytest.skip("the other tests of these files run here")
    files = [Path(__file__).with_name(f"test_{layout}.py") for layout in ("sparse", "nested", "quantized")]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *files]
    environment = clean_environment() | MODES[mode] | {"TORCH_BACKEND": "xcpu", "TORCH_BACKEND_LAYOUT_TESTS": "1"}
    process = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=500, check=False)
    assert process.returncode == 0, process.stdout[-6000:]
    assert " passed" in process.stdout


@pytest.mark.parametrize("reduce", ["sum", "mean", "amax", "amin"])
def test_reducing_product(name: str, reduce: str) -> None:
    dense = torch.arange(8.0).view(4, 2)
    expected = torch.sparse.mm(DENSE.to_sparse_csr(), dense, reduce)
    matrix, weight = DENSE.to(name).to_sparse_csr(), dense.to(name).requires_grad_()
    with torch.no_grad():
        torch.testing.assert_close(torch.sparse.mm(matrix, weight, reduce).cpu(), expected)
    if reduce in ("amax", "amin"):
        with pytest.raises(NotImplementedError, match=f"Gradients of torch.sparse.mm with reduce='{reduce}' are not"):
            torch.sparse.mm(matrix, weight, reduce)
        return
    torch.sparse.mm(matrix, weight, reduce).sum().backward()
    host = dense.clone().requires_grad_()
    torch.sparse.mm(DENSE.to_sparse_csr(), host, reduce).sum().backward()
    assert weight.grad is not None
    torch.testing.assert_close(weight.grad.cpu(), host.grad)
