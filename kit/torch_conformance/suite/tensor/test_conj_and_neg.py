"""Conjugated and negated views, which are not computed until an operator needs the numbers."""

import torch

from torch_conformance import needs
from torch_conformance.suite.tensor._support import assert_close, assert_values, each, evaluate

CODE = {
    "conj": "x.conj()",
    "conj of conj": "x.conj().conj()",
    "resolved": "x.conj().resolve_conj()",
    "clone": "x.conj().clone()",
    "sum of both": "x.conj() + x",
    "imag": "x.conj().imag",
    "resolved imag": "x.conj().imag.resolve_neg()",
    "imag plus one": "x.conj().imag + 1",
    "clone of imag": "x.conj().imag.clone()",
    "matrix product": "x.conj() @ x.mT",
    "adjoint": "x.mH",
    "contiguous": "x.conj().contiguous()",
    "sum": "x.conj().sum(0)",
    "in place": "x.conj()[0].add_(1j)",
    "copy from": "x.copy_(x.conj())",
    "copy to": "x.conj().copy_(x)",
    "conj_physical_": "x.conj().conj_physical_()",
    "as real": "torch.view_as_real(x.conj().resolve_conj())",
    "cat": "torch.cat([x.conj(), x])",
    "item": "x.conj()[0, 0].reshape(1) * x[0, 0].conj().item()",
    "index_select": "x.conj().index_select(0, torch.tensor([1], device=x.device))",
    "solve": "torch.linalg.solve(x @ x.mH, x.conj(), left=True)",
    "solve right": "torch.linalg.solve(x.mH @ x, x.conj(), left=False)",
    "lu_solve": "torch.linalg.lu_solve(*torch.linalg.lu_factor(x.mT @ x), x, left=False)",
}


@needs.dtype("complex64")
@each("code", CODE)
def test_conj_and_neg_views(device: str, code: str) -> None:
    """An operator on a conjugated or negated view computes with the numbers that the view shows."""
    source = torch.tensor([[1 + 2j, 3 - 4j], [0.5j, -1.0]], dtype=torch.complex64)
    expected, actual = (evaluate(code, x=source.clone().to(where)) for where in ("cpu", device))
    assert_close(actual, expected, device, code)


@needs.feature("storage")
@needs.dtype("complex64")
def test_conj_is_a_view(device: str) -> None:
    """Conjugation and imaginary parts are views: nothing is computed, and a write through them reaches the base."""
    x = torch.tensor([1 + 2j, 3 - 4j], device=device)
    for name, view in {"conj": x.conj(), "imag": x.imag, "imag of conj": x.conj().imag, "mH": x[None].mH}.items():
        assert view.untyped_storage().data_ptr() == x.untyped_storage().data_ptr(), f"{name} has memory of its own"
    assert x.conj().is_conj(), "conj() computes"
    assert not x.conj().conj().is_conj(), "the conjugate of a conjugate is marked as a conjugate"
    assert x.conj().imag.is_neg(), "the imaginary part of a conjugate is not marked as negated"
    x.conj()[0] = 5 + 1j
    x.conj().imag[1] = 7
    assert_values(x, [5 - 1j, 3 - 7j], "a tensor after writes through its conjugated view")


@needs.dtype("complex128")
def test_conversion_of_a_conj_view(device: str) -> None:
    """A conjugated view converted to another complex dtype has the conjugated numbers."""
    source = torch.tensor([1 + 2j, 3 - 4j], dtype=torch.complex64)
    actual, expected = source.to(device).conj().to(torch.complex128), source.conj().to(torch.complex128)
    assert_close(actual, expected, device, "a converted conj view")
