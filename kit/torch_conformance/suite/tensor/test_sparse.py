"""Sparse tensors: COO, CSR, CSC, BSR and BSC are made, moved, saved and printed as on the CPU."""

import copy
import io
import re
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from torch_conformance import needs
from torch_conformance.suite.tensor._sparse import CONVERSIONS, DENSE, check, every_layout
from torch_conformance.suite.tensor._support import dtypes, each, raises, shown

pytestmark = [needs.feature("sparse"), pytest.mark.filterwarnings("ignore:Sparse")]

compressed = needs.feature("sparse compressed")


@every_layout
def test_conversion(device: str, convert: Callable[[Tensor], Tensor]) -> None:
    """A dense tensor made sparse in any layout has the parts it has on the CPU, and is dense again as it was."""
    x = DENSE.to(device)
    sparse = convert(x)
    check(sparse, convert(DENSE), device)
    assert sparse.device == x.device, f"the sparse tensor is on {sparse.device}"
    check(sparse.to_dense(), DENSE, device)


@compressed
@every_layout
@pytest.mark.parametrize("target", ["coo", "csr", "csc"])
def test_conversion_between_layouts(device: str, convert: Callable[[Tensor], Tensor], target: str) -> None:
    """A sparse tensor converts to every layout that the CPU converts it to."""
    try:
        expected = CONVERSIONS[target](convert(DENSE))
    except RuntimeError:
        with pytest.raises(RuntimeError):
            CONVERSIONS[target](convert(DENSE.to(device)))
        return
    check(CONVERSIONS[target](convert(DENSE.to(device))), expected, device)


def test_coo_from_parts(device: str) -> None:
    """A COO tensor is made of indices and values from the CPU, from the device, or from lists."""
    indices, values = torch.tensor([[0, 1, 1], [2, 0, 2]]), torch.tensor([3.0, 4.0, 5.0])
    expected = torch.sparse_coo_tensor(indices, values, (2, 3))
    for one, other in ((indices, values), (indices.to(device), values.to(device)), (indices.tolist(), values.tolist())):
        check(torch.sparse_coo_tensor(one, other, (2, 3), device=device), expected, device)
    check(torch.sparse_coo_tensor(indices.to(device), values.to(device)), expected, device)
    check(torch.sparse_coo_tensor((2, 3), device=device), torch.sparse_coo_tensor((2, 3)), device)


@pytest.mark.parametrize("is_coalesced", [True, False, None])
@pytest.mark.parametrize("rows", [[0, 1, 1], [1, 0, 1], [1, 1, 1], [0, 1, 7], [0, -1, 1]])
def test_coo_with_invariants_checked(device: str, rows: list[int], is_coalesced: bool | None) -> None:
    """With checks of invariants on, COO parts are accepted or refused as on the CPU."""
    indices, values = torch.tensor([rows, [2, 0, 2]]), torch.tensor([3.0, 4.0, 5.0])

    def make(place: str) -> Tensor:
        parts = indices.to(place), values.to(place)
        return torch.sparse_coo_tensor(*parts, (2, 3), is_coalesced=is_coalesced, check_invariants=True)

    try:
        expected = make("cpu")
    except RuntimeError as error:
        with pytest.raises(RuntimeError, match=re.escape(str(error).split("\n")[0])):
            make(device)
        return
    check(make(device), expected, device)


@compressed
def test_compressed_from_parts(device: str) -> None:
    """CSR and CSC tensors are made of their parts."""
    crow, col, values = torch.tensor([0, 2, 4]), torch.tensor([0, 1, 0, 1]), torch.tensor([1.0, 2.0, 3.0, 4.0])
    expected = torch.sparse_csr_tensor(crow, col, values, (2, 2))
    check(torch.sparse_csr_tensor(crow, col, values, (2, 2), device=device), expected, device)
    check(torch.sparse_csr_tensor(crow.to(device), col.to(device), values.to(device)), expected, device)
    expected = torch.sparse_csc_tensor(crow, col, values, (2, 2))
    check(torch.sparse_csc_tensor(crow, col, values, (2, 2), device=device), expected, device)


@each(
    "layout",
    {"coo": torch.sparse_coo, "csr": torch.sparse_csr, "csc": torch.sparse_csc},
    **{"sparse compressed": ["csr", "csc"]},
)
def test_without_contents(device: str, layout: torch.layout) -> None:
    """Sparse tensors without elements exist in every layout."""
    x = torch.zeros((2, 3), layout=layout, device=device)
    check(x, torch.zeros((2, 3), layout=layout), device)
    assert x.to_dense().tolist() == [[0, 0, 0]] * 2, f"zeros without elements are {x.to_dense().tolist()}"
    empty = torch.empty((2, 3), layout=layout, device=device)
    assert (empty.layout, empty.device.type, empty.shape) == (layout, device, (2, 3)), (
        "an empty tensor has another layout, device or shape"
    )
    check(torch.zeros_like(x), torch.zeros((2, 3), layout=layout), device)


@compressed
@pytest.mark.parametrize("dtype", dtypes("float64", "int64", "bool", "complex64", "float16"))
def test_dtypes(device: str, dtype: torch.dtype) -> None:
    """Sparse tensors of any dtype keep their values."""
    x = DENSE.to(dtype)
    for convert in (Tensor.to_sparse, Tensor.to_sparse_csr):
        check(convert(x.to(device)), convert(x), device)
        check(convert(x.to(device)).to_dense(), x, device)


@compressed
def test_hybrid_and_batched(device: str) -> None:
    """Sparse tensors with dense dimensions, and batches of them, keep their parts."""
    x = torch.zeros(3, 4, 2)
    x[0, 1], x[2, 3] = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])
    check(x.to(device).to_sparse(2), x.to_sparse(2), device)
    check(x.to(device).to_sparse(2).to_dense(), x, device)
    batch = torch.stack([DENSE, DENSE])
    check(batch.to(device).to_sparse_csr(), batch.to_sparse_csr(), device)


@needs.dtype("float64")
@every_layout
def test_copies(device: str, convert: Callable[[Tensor], Tensor]) -> None:
    """Sparse tensors are moved, cloned, converted and copied in every layout."""
    host = convert(DENSE)
    x = host.to(device)
    check(x, host, device)
    check(x.clone(), host, device)
    check(x.cpu(), host, "cpu")
    check(x.to(torch.float64), host.to(torch.float64), device)
    check(x.detach(), host, device)
    check((x * 0).copy_(x), host, device)
    if x.layout is torch.sparse_coo:
        check(copy.deepcopy(x), host, device)
        check(torch.zeros_like(host).copy_(x), host, "cpu")
        check(torch.zeros_like(x).copy_(host), host, device)


@every_layout
def test_serialization(device: str, convert: Callable[[Tensor], Tensor]) -> None:
    """A sparse tensor is the same after torch.save and torch.load, on the device and on the CPU."""
    x = convert(DENSE.to(device))
    buffer = io.BytesIO()
    torch.save({"x": x}, buffer)
    buffer.seek(0)
    check(torch.load(buffer)["x"], convert(DENSE), device)
    buffer.seek(0)
    check(torch.load(buffer, map_location="cpu")["x"], convert(DENSE), "cpu")


@every_layout
def test_printing(device: str, convert: Callable[[Tensor], Tensor]) -> None:
    """repr() of a sparse tensor shows its device, values and size."""
    x = convert(DENSE.to(device))
    text = repr(x)
    assert shown(x) in text, f"the device is not in {text}"
    assert "4.5" in text, f"the values are not in {text}"
    assert "size=(4, 4)" in text, f"the size is not in {text}"


@needs.devices(2)
def test_two_devices(device: str) -> None:
    """A sparse tensor, and its parts, are on the device it was made on or moved to."""
    x = DENSE.to(f"{device}:1").to_sparse()
    assert x.device == x._values().device == torch.device(device, 1), (
        f"a tensor made on device 1, or its values, are on {x.device} and {x._values().device}"
    )
    assert (x * 2).device == torch.device(device, 1), f"a product with a number is on {(x * 2).device}"
    assert x.to(f"{device}:0").to_dense().device == torch.device(device, 0), (
        f"a tensor moved to device 0 is on {x.to(f'{device}:0').device}"
    )
    made = torch.sparse_coo_tensor([[0]], [1.0], (2,), device=f"{device}:1")
    assert made.device == made._indices().device == torch.device(device, 1), (
        f"a tensor made of lists on device 1 is on {made.device}"
    )
    with raises(RuntimeError, says="same device"):
        x.to(f"{device}:0") + x


def test_resizing(device: str) -> None:
    """A COO tensor grows with its values, and is cleared, as on the CPU."""
    for where in ("cpu", device):
        x = torch.sparse_coo_tensor([[0, 1]], [1.0, 2.0], (3,), device=where)
        values = x._values()
        assert x.sparse_resize_((5,), 1, 0) is x, "sparse_resize_ returns another tensor"
        assert x.shape == (5,), f"the shape is {tuple(x.shape)} after sparse_resize_"
        assert x.to_dense().tolist() == [1, 2, 0, 0, 0], f"the values are {x.to_dense().tolist()} after sparse_resize_"
        assert values.device.type == where, f"the values are on {values.device}"
        x.sparse_resize_and_clear_((2, 2), 2, 0)
        assert x.to_dense().tolist() == [[0, 0], [0, 0]], (
            f"the values are {x.to_dense().tolist()} after sparse_resize_and_clear_"
        )


@compressed
def test_values_are_a_view(device: str) -> None:
    """A write to the values of a sparse tensor changes the tensor."""
    for convert in (Tensor.to_sparse, Tensor.to_sparse_csr):
        x = convert(DENSE.to(device))
        x.values()[0] = 100
        assert x.to_dense().max().item() == 100, "a write to the values is not seen in the tensor"


@compressed
@needs.feature("torch_backend")
def test_invariants_are_checked(device: str) -> None:
    """Parts that make no sparse tensor raise if the check is asked for."""
    with pytest.raises(RuntimeError, match="found negative index"):
        torch.sparse_coo_tensor(
            torch.tensor([[-1]], device=device), torch.ones(1, device=device), (2,), check_invariants=True
        )
    with pytest.raises(RuntimeError, match="crow_indices"):
        torch.sparse_csr_tensor(
            torch.tensor([0, 5], device=device),
            torch.tensor([0], device=device),
            torch.ones(1, device=device),
            (1, 2),
            check_invariants=True,
        )


@needs.feature("memory of its own")
def test_mixing_with_the_cpu_raises(device: str) -> None:
    """An operator on sparse tensors of the device and of the CPU raises."""
    x = DENSE.to(device).to_sparse()
    for use in (lambda: x + DENSE.to_sparse(), lambda: x @ DENSE, lambda: DENSE.to_sparse() @ DENSE.to(device)):
        with raises(RuntimeError, says="same device"):
            use()
