"""The text of a tensor on the device is the text of its likeness on the CPU, with the device's name."""

import torch

from torch_conformance import needs
from torch_conformance.suite.tensor._support import each, evaluate, shown

PRINTED = {
    "matrix": "torch.arange(6.0, device=d).reshape(2, 3)",
    "0-d": "torch.tensor(1, device=d)",
    "nothing": "torch.empty(0, 3, device=d)",
    "long": "torch.arange(3000, device=d)",
    "integers": "torch.arange(3, device=d)",
    "booleans": "torch.tensor([True, False], device=d)",
    "special values": "torch.tensor([float('nan'), float('-inf'), 1e-10, 1e10], device=d)",
    "transposed": "torch.arange(6.0, device=d).reshape(2, 3).t()",
    "with a gradient": "torch.ones(2, device=d).requires_grad_() * 2",
    "parameter": "torch.nn.Parameter(torch.ones(2, device=d))",
}


@each("code", PRINTED)
def test_repr(device: str, code: str) -> None:
    """repr() of a tensor shows the values and attributes it shows on the CPU, and the device with its index."""
    x = evaluate(code, d=device)
    text, where = repr(x), shown(x)
    assert where in text, f"the device is not in {text}"
    without = text.replace(f", {where}", "").replace(f"{where}, ", "") if where else text
    assert " ".join(without.split()) == " ".join(repr(evaluate(code, d="cpu")).split()), (
        f"the text is not that of the CPU: {text}"
    )


@needs.dtype("complex64")
def test_repr_of_a_conj_view(device: str) -> None:
    """repr() of a conjugated view shows the conjugated numbers."""
    text = repr(torch.tensor([1 + 2j], device=device).conj())
    assert "1.-2.j" in text, f"the numbers are not conjugated in {text}"


@needs.devices(2)
def test_repr_names_the_device(device: str) -> None:
    """repr() of a tensor on another device than the current one names that device."""
    assert f"device='{device}:1'" in repr(torch.ones(2, device=f"{device}:1")), "repr() does not name device 1"


def test_format_of_an_element(device: str) -> None:
    """An element is formatted as the number it is."""
    x = torch.tensor([1.0, 2.0], device=device)
    assert f"{x[1]:.2f}" == "2.00", f"an element is formatted as {x[1]:.2f}"
    seven = torch.tensor(7, device=device)
    where = f", {shown(seven)}" if shown(seven) else ""
    assert str(seven) == f"tensor(7{where})", f"str() gives {seven}"
