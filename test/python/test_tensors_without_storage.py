"""Tensors of the device whose values PyTorch cannot reach: only kernels that a vendor registers can use them."""

import contextlib
import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from torch_backend import _C

create = getattr(getattr(torch._C, "_acc", None), "create_empty_tensor", None)
pytestmark = pytest.mark.skipif(create is None, reason="this version of torch makes no such tensors in Python")

CALLS: dict[str, Callable[[Tensor, Tensor], object]] = {
    "add a number": lambda o, x: o + 1,
    "add": lambda o, x: x + o,
    "add_": lambda o, x: o.add_(1),
    "out": lambda o, x: torch.add(x, x, out=o),
    "sin": lambda o, x: torch.sin(o),
    "sin_": lambda o, x: o.sin_(),
    "mm": lambda o, x: torch.mm(o, o),
    "mm with another": lambda o, x: torch.mm(x, o),
    "sum": lambda o, x: o.sum(),
    "cat": lambda o, x: torch.cat([x, o]),
    "max": lambda o, x: o.max(0),
    "sort": lambda o, x: o.sort(),
    "index": lambda o, x: o[torch.tensor([0], device=o.device)],
    "index_put_": lambda o, x: x.index_put_((torch.tensor([0], device=o.device),), o[:1]),
    "convolution": lambda o, x: torch.nn.functional.conv1d(o[None], x[..., None]),
    "fill_": lambda o, x: o.fill_(1),
    "zero_": lambda o, x: o.zero_(),
    "random": lambda o, x: o.uniform_(),
    "item": lambda o, x: o[0, 0].item(),
    "copy to": lambda o, x: o.copy_(x),
    "copy from": lambda o, x: x.copy_(o),
    "cpu": lambda o, x: o.cpu(),
    "dtype": lambda o, x: o.double(),
    "clone": lambda o, x: o.clone(),
    "foreach": lambda o, x: torch._foreach_add([x, o], 1),
    "where": lambda o, x: torch.where(x > 0, x, o),
    "attention": lambda o, x: torch.nn.functional.scaled_dot_product_attention(*[x[None, None]] * 2, o[None, None]),
}


AROUND: dict[str, Callable[[Tensor, Tensor], object]] = {
    "view": lambda o, x: o.view(-1),
    "transpose": lambda o, x: o.t(),
    "set_": lambda o, x: x.set_(o),
    "record_stream": lambda o, x: o.record_stream(torch.get_device_module(o.device).current_stream()),
    "deepcopy": lambda o, x: copy.deepcopy(o),
    "print": lambda o, x: repr(o),
}
"""What needs no values. With some kinds of such tensors PyTorch refuses it."""


@pytest.mark.parametrize("call", CALLS)
def test_nobody_reads_what_is_not_there(name: str, call: str) -> None:
    assert create is not None
    opaque, plain = create((3, 3), torch.float32), torch.ones(3, 3, device=name)
    assert opaque.device.type == name
    with pytest.raises((NotImplementedError, RuntimeError), match=r"(?i)storage|opaque|is not allocated"):
        CALLS[call](opaque, plain)
    assert torch.equal((plain + 1).cpu(), torch.full((3, 3), 2.0))  # the device is well


@pytest.mark.parametrize("whose", ["tensor", "storage"])
@pytest.mark.parametrize("call", CALLS)
def test_who_took_the_memory_says_why(name: str, call: str, whose: str) -> None:
    gone, plain = torch.ones(3, 3, device=name), torch.ones(3, 3, device=name)
    if whose == "tensor":
        _C.forbid_access(gone, "it was overwritten")
    else:
        _C.forbid_storage_access(gone.untyped_storage()._cdata, "it was overwritten")
    with pytest.raises(RuntimeError, match="it was overwritten"):
        CALLS[call](gone, plain)
    assert torch.equal((plain + 1).cpu(), torch.full((3, 3), 2.0))


@pytest.mark.parametrize("call", AROUND)
def test_nobody_stumbles_over_them(name: str, call: str) -> None:
    assert create is not None
    opaque, plain = create((3, 3), torch.float32), torch.ones(3, 3, device=name)
    with contextlib.suppress(NotImplementedError, RuntimeError):
        AROUND[call](opaque, plain)


def test_an_emptied_storage(name: str) -> None:
    x = torch.ones(3, 3, device=name)
    x.untyped_storage().resize_(0)
    with pytest.raises(NotImplementedError, match="storage was emptied"):
        x.cpu()
    with pytest.raises(NotImplementedError, match="storage was emptied"):
        x @ x
    x.untyped_storage().resize_(36)
    assert x.fill_(2).sum().item() == 18


def test_registered_kernels_get_them(name: str) -> None:
    assert create is not None
    opaque = create((3, 3), torch.float32)
    library = torch.library.Library("aten", "IMPL")
    try:
        library.impl("erfinv", lambda x: torch.full(x.shape, 7.0, device=x.device), "PrivateUse1")
        assert torch.erfinv(opaque).tolist() == [[7.0] * 3] * 3
    finally:
        library._destroy()
