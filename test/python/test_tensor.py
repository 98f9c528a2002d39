"""Tensors on the device: creation, views, storage, serialization and interchange behave as they do on the CPU."""

import copy
import io
import pickle
from collections.abc import Callable
from functools import reduce
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

pytestmark = pytest.mark.usefixtures("backend")


def assert_same(actual: Tensor, expected: Tensor, name: str) -> None:
    """`actual` is on the device, and all else about it is as in `expected`, which is on the CPU."""
    assert actual.device.type == name
    assert (actual.dtype, actual.shape, actual.stride()) == (expected.dtype, expected.shape, expected.stride())
    assert (actual.is_conj(), actual.is_neg()) == (expected.is_conj(), expected.is_neg())
    torch.testing.assert_close(actual.cpu(), expected, rtol=0, atol=0, equal_nan=True)


def evaluate(code: str, **names: Any) -> Any:
    """The value of an expression: tests that are parametrized with one are named after it."""
    return eval(code, {"torch": torch, **names})


def outcome(function: Callable[[str], Any], device: str) -> Any:
    """What `function` returns, or the type of what it raises with the start of the message."""
    try:
        result = function(device)
        torch.accelerator.synchronize()  # an asynchronous operator may raise only here
        return result
    except (RuntimeError, IndexError, TypeError, ValueError) as error:
        return type(error), str(error)[:60]


def assert_same_outcome(function: Callable[[str], Any], name: str) -> None:
    expected, actual = outcome(function, "cpu"), outcome(function, name)
    if isinstance(expected, Tensor):
        assert isinstance(actual, Tensor), actual
        assert_same(actual, expected, name)
    else:
        assert actual == expected


# ---- creation ----

FACTORIES: dict[str, Callable[[str], Tensor]] = {
    "tensor": lambda d: torch.tensor([[1, 2], [3, 4]], device=d),
    "tensor 0-d": lambda d: torch.tensor(2.5, device=d),
    "tensor of nothing": lambda d: torch.tensor([], device=d),
    "tensor from numpy": lambda d: torch.tensor(np.arange(6).reshape(2, 3).T, device=d),
    "as_tensor": lambda d: torch.as_tensor([1.0, 2.0], device=d),
    "asarray": lambda d: torch.asarray(np.ones(3), device=d),
    "scalar_tensor": lambda d: torch.scalar_tensor(3, device=d),
    "zeros": lambda d: torch.zeros(2, 3, device=d),
    "ones": lambda d: torch.ones(2, 3, dtype=torch.int16, device=d),
    "full": lambda d: torch.full((2, 3), 7, device=d),
    "full complex": lambda d: torch.full((2,), 1 + 2j, device=d),
    "arange": lambda d: torch.arange(1, 10, 3, device=d),
    "arange float": lambda d: torch.arange(0.0, 1.0, 0.25, device=d),
    "range of nothing": lambda d: torch.arange(0, device=d),
    "linspace": lambda d: torch.linspace(0, 1, 7, device=d),
    "logspace": lambda d: torch.logspace(0, 2, 5, device=d),
    "eye": lambda d: torch.eye(3, 4, device=d),
    "tril_indices": lambda d: torch.tril_indices(3, 3, device=d),
    "triu_indices": lambda d: torch.triu_indices(3, 4, 1, device=d),
    "hann_window": lambda d: torch.hann_window(8, device=d),
    "kaiser_window": lambda d: torch.kaiser_window(8, device=d),
    "fftfreq": lambda d: torch.fft.fftfreq(5, device=d),
    "zeros_like": lambda d: torch.zeros_like(torch.ones(2, 3, device=d).t()),
    "full_like": lambda d: torch.full_like(torch.ones(2, 3, device=d), 5, dtype=torch.int32),
    "new_zeros": lambda d: torch.ones(2, device=d).new_zeros(3, 4),
    "new_full": lambda d: torch.ones(2, device=d).new_full((3,), 9),
    "new_tensor": lambda d: torch.ones(2, device=d).new_tensor([1, 2]),
    "new": lambda d: torch.ones(2, device=d).new([1, 2]),
    "complex": lambda d: torch.complex(torch.ones(2, device=d), torch.zeros(2, device=d)),
    "from the CPU": lambda d: torch.arange(5).to(d),
    "channels_last": lambda d: torch.ones(2, 3, 4, 5, device=d).to(memory_format=torch.channels_last),
}


@pytest.mark.parametrize("factory", FACTORIES.values(), ids=FACTORIES)
def test_factory(name: str, factory: Callable[[str], Tensor]) -> None:
    assert_same(factory(name), factory("cpu"), name)


EMPTY: dict[str, Callable[[str], Tensor]] = {
    "empty": lambda d: torch.empty(2, 3, device=d),
    "nothing": lambda d: torch.empty(0, 3, device=d),
    "0-d": lambda d: torch.empty((), device=d),
    "channels_last": lambda d: torch.empty(2, 3, 4, 5, device=d, memory_format=torch.channels_last),
    "channels_last_3d": lambda d: torch.empty(2, 3, 2, 4, 5, device=d, memory_format=torch.channels_last_3d),
    "strided": lambda d: torch.empty_strided((2, 3), (1, 2), device=d),
    "strided with gaps": lambda d: torch.empty_strided((2, 3), (10, 2), device=d),
    "strided overlapping": lambda d: torch.empty_strided((2, 3), (1, 1), device=d),
    "permuted": lambda d: torch.empty_permuted((2, 3, 4), (2, 0, 1), device=d),
    "like expanded": lambda d: torch.empty_like(torch.ones(3, 1, device=d).expand(3, 4)),
    "like transposed": lambda d: torch.empty_like(torch.ones(3, 4, 5, device=d).transpose(0, 2)),
    "new_empty_strided": lambda d: torch.ones(1, device=d).new_empty_strided((2, 2), (1, 2)),
    "half": lambda d: torch.empty(5, dtype=torch.float16, device=d),
}


@pytest.mark.parametrize("factory", EMPTY.values(), ids=EMPTY)
def test_layout_of_empty(name: str, factory: Callable[[str], Tensor]) -> None:
    expected, actual = factory("cpu"), factory(name)
    assert actual.device.type == name
    assert (actual.dtype, actual.shape, actual.stride()) == (expected.dtype, expected.shape, expected.stride())
    assert actual.untyped_storage().nbytes() == expected.untyped_storage().nbytes()


@pytest.mark.parametrize(
    "code",
    [
        "torch.empty(-1, device=d)",
        "torch.empty_strided((2,), (1, 1), device=d)",
        "torch.tensor([[1], [1, 2]], device=d)",
        "torch.ones(2, 3, device=d).view(7)",
    ],
)
def test_wrong_sizes_raise(name: str, code: str) -> None:
    assert isinstance(outcome(lambda device: evaluate(code, d=device), name), tuple)
    assert_same_outcome(lambda device: evaluate(code, d=device), name)


def test_more_memory_than_there_is(name: str) -> None:
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty(1 << 50, device=name)
    assert torch.ones(2, device=name).sum().item() == 2


def test_deterministic_mode_fills_empty(name: str) -> None:
    torch.use_deterministic_algorithms(True)
    try:
        assert torch.empty(100, device=name).isnan().all()
        assert (torch.empty_strided((3,), (1,), dtype=torch.int32, device=name) == 2**31 - 1).all()
        assert torch.ones(2, device=name).resize_(50)[2:].isnan().all()
    finally:
        torch.use_deterministic_algorithms(False)


def test_default_device(name: str) -> None:
    with torch.device(name):
        assert torch.ones(2).device.type == torch.nn.Linear(2, 2).weight.device.type == name
        assert torch.ones(2, device="cpu").device.type == "cpu"
    assert torch.ones(2).device.type == "cpu"


@pytest.mark.usefixtures("two_devices")
def test_current_device_is_the_default(name: str, backend: ModuleType) -> None:
    with backend.device(1):
        assert torch.ones(2, device=name).device.index == 1
        assert torch.ones(2, device=f"{name}:0").add(1).device.index == 0
        assert torch.ones(2, device=f"{name}:0").clone().device.index == 0
        assert backend.current_device() == 1


def test_no_such_device(name: str, backend: ModuleType) -> None:
    with pytest.raises((RuntimeError, IndexError)):
        torch.ones(1, device=f"{name}:{backend.device_count()}")


def test_every_dtype(name: str, backend: ModuleType) -> None:
    dtypes = backend.get_device_properties().dtypes
    assert {torch.float32, torch.int64, torch.bool} <= set(dtypes)
    for dtype in dtypes:
        expected = torch.arange(4).to(dtype)
        actual = expected.to(name)
        assert actual.dtype is dtype
        assert torch.equal(actual.cpu().view(torch.uint8), expected.view(torch.uint8)), dtype
        assert actual.element_size() == expected.element_size()


@pytest.mark.parametrize("cast", ["half", "bfloat16", "double", "int", "long", "bool", "char", "cfloat"])
def test_casts(name: str, cast: str) -> None:
    source = torch.tensor([0.0, 1.5, 3.0])
    assert_same(getattr(source.to(name), cast)(), getattr(source, cast)(), name)


def test_tensor_attributes(name: str) -> None:
    x = torch.ones(2, 3, device=name)
    assert getattr(x, f"is_{name}") is True
    assert not x.is_cpu
    assert x.device == torch.device(name, 0)
    assert x.get_device() == 0
    assert x.type() == f"torch.{name}.FloatTensor"
    assert x.layout is torch.strided
    assert not x.is_pinned()
    moved = getattr(torch.ones(2), name)()
    assert moved.device == x.device
    assert x.to(name) is x
    assert x.cpu().device.type == "cpu"


# ---- as Python objects ----


@pytest.mark.parametrize(
    "code",
    [
        "torch.arange(6.0, device=d).reshape(2, 3)",
        "torch.tensor(1, device=d)",
        "torch.empty(0, 3, device=d)",
        "torch.arange(3000, device=d)",
        "torch.tensor([1 + 2j], device=d).conj()",
        "torch.ones(2, dtype=torch.float64, device=d)",
        "torch.tensor([True, False], device=d)",
        "torch.ones(2, device=d).requires_grad_() * 2",
        "torch.nn.Parameter(torch.ones(2, device=d))",
    ],
)
def test_repr(name: str, code: str) -> None:
    text = repr(evaluate(code, d=name))
    assert f"device='{name}:0'" in text
    without = text.replace(f", device='{name}:0'", "").replace(f"device='{name}:0', ", "")
    assert " ".join(without.split()) == " ".join(repr(evaluate(code, d="cpu")).split())


def test_conversions_to_python(name: str) -> None:
    x = torch.arange(4.0, device=name).reshape(2, 2)
    assert x.tolist() == [[0.0, 1.0], [2.0, 3.0]]
    assert x[1, 1].item() == float(x[1, 1]) == int(x[1, 1]) == 3
    assert f"{x[1, 0]:.2f}" == "2.00"
    assert ["a", "b", "c"][torch.tensor(1, device=name)] == "b"
    assert bool(torch.tensor([True], device=name)) is True
    assert [row.tolist() for row in x] == x.tolist()
    assert 3 in x
    assert len({x, x, x.clone()}) == 2
    assert torch.tensor(1 + 2j, device=name).conj().item() == 1 - 2j
    assert torch.tensor(1 + 2j, device=name).conj().imag.item() == -2
    with pytest.raises(RuntimeError, match="cannot be converted to Scalar"):
        x.item()


def test_numpy_asks_for_a_copy(name: str) -> None:
    x = torch.arange(3.0, device=name)
    for use in (x.numpy, lambda: np.asarray(x), lambda: np.add(x, 1)):
        with pytest.raises(TypeError, match=f"can't convert {name}:0 device type tensor to numpy"):
            use()
    assert x.numpy(force=True).tolist() == x.cpu().numpy().tolist() == [0, 1, 2]
    assert not hasattr(x, "__cuda_array_interface__")


def test_deepcopy(name: str) -> None:
    base = torch.arange(12.0, device=name)
    whole, transposed, part = copy.deepcopy([base, base.view(3, 4).t(), base[2:5]])
    assert_same(transposed, base.cpu().view(3, 4).t(), name)
    assert part.storage_offset() == 2
    assert whole.data_ptr() != base.data_ptr()
    whole.fill_(7)
    assert (transposed == 7).all()
    assert (part == 7).all()
    assert base[1] == 1


def test_pickle(name: str) -> None:
    base = torch.arange(12.0, device=name)
    for x in (base, base.view(3, 4).t(), base[2:5], base.half(), torch.nn.Parameter(base), base[:0]):
        duplicate = pickle.loads(pickle.dumps(x))
        assert type(duplicate) is type(x)
        assert_same(duplicate, x.detach().cpu(), name)
        assert duplicate.requires_grad == x.requires_grad


def test_deepcopy_of_a_module(name: str) -> None:
    module = torch.nn.BatchNorm1d(3).to(name)
    twin = copy.deepcopy(module)
    assert all(value.device.type == name for value in twin.state_dict().values())
    with torch.no_grad():
        twin.weight.fill_(5)
    assert (module.weight == 1).all()


# ---- serialization ----


def saved(value: object) -> io.BytesIO:
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return file


@pytest.mark.parametrize("weights_only", [True, False])
def test_save_and_load(name: str, weights_only: bool) -> None:
    x = torch.arange(6.0, device=name)
    state = {"x": x, "view": x.view(2, 3).t(), "half": x.half()}
    loaded = torch.load(saved(state), weights_only=weights_only)
    for key, value in state.items():
        assert_same(loaded[key], value.cpu(), name)
    loaded["x"].zero_()
    assert (loaded["view"] == 0).all()
    assert_same(torch.load(saved(torch.tensor([1j], device=name).conj())), torch.tensor([1j]).conj(), name)


@pytest.mark.parametrize("weights_only", [True, False])
def test_map_location(name: str, weights_only: bool) -> None:
    x = torch.arange(3.0, device=name)
    for location in ("cpu", torch.device("cpu"), {f"{name}:0": "cpu"}, lambda storage, _: storage):
        loaded = torch.load(saved(x), map_location=location, weights_only=weights_only)
        assert loaded.device.type == "cpu"
        assert loaded.tolist() == [0, 1, 2]
    for location in (name, f"{name}:0", torch.device(name), {"cpu": f"{name}:0"}):
        assert_same(torch.load(saved(x.cpu()), map_location=location, weights_only=weights_only), x.cpu(), name)


@pytest.mark.usefixtures("two_devices")
def test_load_remembers_the_device(name: str) -> None:
    x = torch.ones(2, device=f"{name}:1")
    assert torch.load(saved(x)).device.index == 1
    assert torch.load(saved(x), map_location={f"{name}:1": f"{name}:0"}).device.index == 0


def test_load_of_a_module(name: str) -> None:
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4)).to(name)
    twin = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    twin.load_state_dict(torch.load(saved(module.state_dict())))
    assert all(torch.equal(a.cpu(), b) for a, b in zip(module.parameters(), twin.parameters(), strict=True))
    with torch.device("meta"):
        lazy = torch.nn.Linear(3, 4)
    lazy.load_state_dict(module[0].state_dict(), assign=True)
    assert lazy.weight.device.type == name


# ---- views ----

BASE = torch.arange(24.0).reshape(2, 3, 4)
COMPLEX = torch.complex(BASE, BASE + 1)
SQUARE = torch.arange(16.0).reshape(4, 4)

VIEWS: dict[str, tuple[Tensor, Callable[[Tensor], Any]]] = {
    "_conj": (COMPLEX, lambda x: torch._conj(x)),
    "_neg_view": (BASE, lambda x: torch._neg_view(x)),
    "_reshape_alias": (BASE, lambda x: torch.ops.aten._reshape_alias(x, (6, 4), (4, 1))),
    "adjoint": (COMPLEX, lambda x: x.adjoint()),
    "alias": (BASE, lambda x: torch.ops.aten.alias(x)),
    "as_strided": (BASE, lambda x: x.as_strided((2, 3), (3, 2), 5)),
    "broadcast_to": (BASE, lambda x: x.broadcast_to(2, 3, 4)),
    "chunk": (BASE, lambda x: x.chunk(2, 2)),
    "conj": (COMPLEX, lambda x: x.conj()),
    "detach": (BASE, lambda x: x.detach()),
    "diagonal": (BASE, lambda x: x.diagonal(1, 1, 2)),
    "dsplit.array": (BASE, lambda x: x.dsplit([1, 3])),
    "dsplit.int": (BASE, lambda x: x.dsplit(2)),
    "expand": (BASE, lambda x: x.expand(2, 3, 4)),
    "expand_as": (BASE, lambda x: x.expand_as(x)),
    "flatten.using_ints": (BASE, lambda x: x.flatten(1)),
    "hsplit.array": (BASE, lambda x: x.hsplit([1])),
    "hsplit.int": (BASE, lambda x: x.hsplit(3)),
    "imag": (COMPLEX, lambda x: x.imag),
    "linalg_diagonal": (BASE, lambda x: torch.linalg.diagonal(x)),
    "mH": (COMPLEX, lambda x: x.mH),
    "mT": (BASE, lambda x: x.mT),
    "matrix_H": (SQUARE, lambda x: x.H),
    "moveaxis.int": (BASE, lambda x: x.moveaxis(0, 2)),
    "moveaxis.intlist": (BASE, lambda x: x.moveaxis((0, 1), (2, 0))),
    "movedim.int": (BASE, lambda x: x.movedim(2, 0)),
    "movedim.intlist": (BASE, lambda x: x.movedim((2, 0), (0, 1))),
    "narrow": (BASE, lambda x: x.narrow(2, 1, 2)),
    "narrow.Tensor": (BASE, lambda x: x.narrow(2, torch.tensor(1), 2)),
    "numpy_T": (SQUARE, lambda x: x.T),
    "permute": (BASE, lambda x: x.permute(2, 0, 1)),
    "ravel": (BASE, lambda x: x.ravel()),
    "real": (COMPLEX, lambda x: x.real),
    "reshape": (BASE, lambda x: x.reshape(4, 6)),
    "reshape_as": (BASE, lambda x: x.reshape_as(torch.empty(6, 4))),
    "select.int": (BASE, lambda x: x.select(1, 2)),
    "slice.Tensor": (BASE, lambda x: x[:, ::2, 1:]),
    "split": (BASE, lambda x: torch.functional.torch._VF.split(x, 2, 2)),
    "split.Tensor": (BASE, lambda x: x.split(3, 2)),
    "split.sizes": (BASE, lambda x: torch.ops.aten.split.sizes(x, [1, 3], 2)),
    "split_with_sizes": (BASE, lambda x: x.split_with_sizes([1, 2, 1], 2)),
    "squeeze": (BASE[:, :1], lambda x: x.squeeze()),
    "squeeze.dim": (BASE[:, :1], lambda x: x.squeeze(1)),
    "squeeze.dims": (BASE[:, :1], lambda x: x.squeeze((1, 2))),
    "swapaxes": (BASE, lambda x: x.swapaxes(0, 1)),
    "swapdims": (BASE, lambda x: x.swapdims(0, 2)),
    "t": (SQUARE, lambda x: x.t()),
    "tensor_split.indices": (BASE, lambda x: x.tensor_split([1, 2], 2)),
    "tensor_split.sections": (BASE, lambda x: x.tensor_split(3, 2)),
    "tensor_split.tensor_indices_or_sections": (BASE, lambda x: x.tensor_split(torch.tensor([1, 3]), 2)),
    "transpose.int": (BASE, lambda x: x.transpose(0, 2)),
    "unbind.int": (BASE, lambda x: x.unbind(1)),
    "unflatten.int": (BASE, lambda x: x.unflatten(2, (2, 2))),
    "unfold": (BASE, lambda x: x.unfold(2, 2, 2)),
    "unsqueeze": (BASE, lambda x: x.unsqueeze(1)),
    "view": (BASE, lambda x: x.view(4, 6)),
    "view.dtype": (BASE, lambda x: x.view(torch.int32)),
    "view_as": (BASE, lambda x: x.view_as(torch.empty(6, 4))),
    "view_as_complex": (BASE.reshape(2, 3, 2, 2), lambda x: torch.view_as_complex(x)),
    "view_as_real": (COMPLEX, lambda x: torch.view_as_real(x)),
    "vsplit.array": (BASE, lambda x: x.vsplit([1])),
    "vsplit.int": (BASE, lambda x: x.vsplit(2)),
}

# Operators whose schema promises a view, and that are not views of strided tensors one can write to.
NOT_VIEWS = {
    # the tensor itself if there is nothing to do, else a copy
    *("contiguous", "positive", "resolve_conj", "resolve_neg", "_grad_sum_to_size", "lift_fresh", "pin_memory"),
    *("_autocast_to_full_precision", "_autocast_to_reduced_precision", "coalesce"),
    *("to.device", "to.dtype", "to.dtype_layout", "to.other"),
    # sparse and nested layouts
    *("_indices", "_values", "indices", "values", "_sparse_broadcast_to"),
    *("ccol_indices", "col_indices", "crow_indices", "row_indices"),
    *("_nested_get_values", "_nested_view_from_buffer", "_nested_view_from_jagged"),
    # parts of forward differentiation, of the dispatcher's tests and of distributed tensors
    *("_fw_primal", "_make_dual", "_unpack_dual", "_test_autograd_multiple_dispatch_view", "slice_inverse"),
}


def tensors_of(value: Any) -> list[Tensor]:
    return [value] if isinstance(value, Tensor) else list(value)


def test_no_view_operator_is_left_out() -> None:
    registered = set(torch._C._dispatch_get_all_op_names())
    promised = {
        f"{schema.name}.{schema.overload_name}".rstrip(".").removeprefix("aten::")
        for schema in torch._C._jit_get_all_schemas()
        if any(r.alias_info is not None and not r.alias_info.is_write for r in schema.returns)
        and f"{schema.name}.{schema.overload_name}".rstrip(".") in registered
        and schema.name.startswith("aten::")
    }
    assert promised - NOT_VIEWS - set(VIEWS) == set()


@pytest.mark.parametrize("view", VIEWS)
def test_view(name: str, view: str) -> None:
    source, take = VIEWS[view]
    bases = source.clone(), source.clone().to(name)
    expected, actual = (tensors_of(take(base)) for base in bases)
    for one, other in zip(actual, expected, strict=True):
        assert_same(one, other, name)
        assert one.storage_offset() == other.storage_offset()
        assert one.untyped_storage().data_ptr() == bases[1].untyped_storage().data_ptr()
        for base, part in zip(bases, (other, one), strict=True):
            base.add_(1)
            part.mul_(2)
            part.copy_(part.flip(0))
    for one, other in zip([*actual, bases[1]], [*expected, bases[0]], strict=True):
        assert_same(one, other, name)


@pytest.mark.parametrize("view", [key for key in VIEWS if key not in {"detach", "view.dtype"}])
def test_gradient_through_a_view(name: str, view: str) -> None:
    source, take = VIEWS[view]
    grads = []
    for device in ("cpu", name):
        leaf = source.clone().to(device).requires_grad_()
        for part in tensors_of(take(leaf * 2)):
            part.mul(part).abs().sum().backward(retain_graph=True)
        grads.append(leaf.grad)
    assert grads[1].device.type == name
    torch.testing.assert_close(grads[1].cpu(), grads[0])


@pytest.mark.parametrize(
    "code",
    [
        "x.t_()",
        "x.transpose_(0, 1)",
        "x.unsqueeze_(1)",
        "x.unsqueeze_(0).squeeze_(0)",
        "x.swapaxes_(0, 1)",
        "x.swapdims_(0, 1)",
        "x.as_strided_((2, 2), (1, 2))",
        "x.detach_()",
    ],
)
def test_in_place_views(name: str, code: str) -> None:
    expected, x = (torch.arange(12.0).reshape(3, 4).clone().to(device) for device in ("cpu", name))
    assert evaluate(code, x=x) is x
    assert_same(x, evaluate(code, x=expected), name)


STEPS: list[Callable[[Tensor], Tensor]] = [
    lambda x: x.transpose(0, -1),
    lambda x: x[1:],
    lambda x: x[..., ::2],
    lambda x: x.unsqueeze(1),
    lambda x: x.flatten(),
    lambda x: x[:, :1],
    lambda x: x.diagonal(0, 0, -1),
    lambda x: x.squeeze(),
    lambda x: x.reshape(-1, 2),
    lambda x: torch.view_as_real(x) if x.is_complex() and not x.is_conj() else x.real,
    lambda x: x.conj(),
    lambda x: x.imag,
    lambda x: x.narrow(0, 0, 1),
]


@settings(derandomize=True, deadline=None, max_examples=150)
@given(indices=st.lists(st.integers(0, len(STEPS) - 1), min_size=1, max_size=5))
def test_chains_of_views(name: str, indices: list[int]) -> None:
    def run(device: str) -> Tensor:
        base = COMPLEX.clone().to(device)
        view = reduce(lambda x, index: STEPS[index](x), indices, base)
        view.mul_(3)
        view.fill_(5) if view.numel() < 4 else view.add_(view.clone())
        return base

    assert_same_outcome(run, name)


# ---- indexing ----

INDICES: dict[str, Callable[[str], Any]] = {
    "integer": lambda d: 1,
    "negative": lambda d: -1,
    "slice": lambda d: slice(0, 3, 2),
    "ellipsis": lambda d: (..., 1),
    "none": lambda d: (None, 1, None),
    "tuple": lambda d: (slice(None), 2, 1),
    "list": lambda d: [0, 2],
    "tensor": lambda d: torch.tensor([2, 0, 0], device=d),
    "tensor of the CPU": lambda d: torch.tensor([2, 0, 0]),
    "negative tensor": lambda d: torch.tensor([-1, -3], device=d),
    "matrix": lambda d: torch.tensor([[0, 1], [2, 0]], device=d),
    "pair": lambda d: (torch.tensor([0, 1], device=d), torch.tensor([1, 1], device=d)),
    "split pair": lambda d: (torch.tensor([0, 1], device=d), slice(None), torch.tensor([1, 3], device=d)),
    "broadcast pair": lambda d: (torch.tensor([[0], [1]], device=d), torch.tensor([0, 2], device=d)),
    "mixed": lambda d: (slice(1, 3), torch.tensor([0, 1], device=d)),
    "mask": lambda d: torch.tensor([True, False, True], device=d),
    "mask of the CPU": lambda d: torch.tensor([True, False, True]),
    "full mask": lambda d: (torch.arange(60).reshape(3, 4, 5) % 7 == 0).to(d),
    "0-d": lambda d: torch.tensor(1, device=d),
    "boolean": lambda d: True,
    "nothing": lambda d: torch.tensor([], dtype=torch.int64, device=d),
    "numpy": lambda d: np.array([0, 2]),
    "out of range": lambda d: torch.tensor([3], device=d),
    "too many": lambda d: (0, 0, 0, 0),
    "wrong mask": lambda d: torch.tensor([True, False], device=d),
}


@pytest.mark.parametrize("index", INDICES.values(), ids=INDICES)
def test_index(name: str, index: Callable[[str], Any]) -> None:
    def read(device: str) -> Tensor:
        result = torch.arange(60.0, device=device).reshape(3, 4, 5)[index(device)]
        return result

    def write(value: Callable[[str], Any]) -> Callable[[str], Tensor]:
        def run(device: str) -> Tensor:
            x = torch.arange(60.0, device=device).reshape(3, 4, 5)
            x[index(device)] = value(device)
            return x

        return run

    assert_same_outcome(read, name)
    assert_same_outcome(write(lambda d: 7), name)
    assert_same_outcome(write(lambda d: torch.tensor(8.0)), name)
    assert_same_outcome(write(lambda d: torch.arange(5.0, device=d)), name)


def test_accumulating_index_put(name: str) -> None:
    def run(device: str) -> Tensor:
        index = torch.tensor([0, 1, 0, 0], device=device)
        return torch.zeros(3, device=device).index_put_((index,), torch.ones(4, device=device), accumulate=True)

    assert_same(run(name), run("cpu"), name)


def test_host_tensor_indexed_by_the_device(name: str) -> None:
    with pytest.raises(RuntimeError):
        torch.ones(3)[torch.tensor([1], device=name)]


# ---- size, storage and identity ----


@pytest.mark.parametrize("size", [(2, 3), (3, 2), (6,), (10,), (0,), (4, 5), (1,), ()])
def test_resize(name: str, size: tuple[int, ...]) -> None:
    x, expected = torch.arange(6.0).reshape(2, 3).to(name), torch.arange(6.0).reshape(2, 3)
    assert x.resize_(size) is x
    expected.resize_(size)
    assert (x.shape, x.stride()) == (expected.shape, expected.stride())
    assert x.untyped_storage().nbytes() == expected.untyped_storage().nbytes()
    kept = min(6, x.numel())
    assert torch.equal(x.flatten()[:kept].cpu(), torch.arange(float(kept)))


def test_resize_keeps_strides_of_an_unchanged_size(name: str) -> None:
    x = torch.arange(6.0).reshape(2, 3).to(name).t()
    assert x.resize_(3, 2).stride() == (1, 3)
    assert x.resize_(3, 2, memory_format=torch.contiguous_format).stride() == (2, 1)
    y = torch.empty(1, device=name).resize_(2, 3, 4, 5, memory_format=torch.channels_last)
    assert y.is_contiguous(memory_format=torch.channels_last)
    assert torch.empty(0, device=name).resize_as_(x).shape == (3, 2)


def test_resize_is_seen_by_views(name: str) -> None:
    x = torch.arange(4.0).to(name)
    view = x[1:]
    x.resize_(1000)
    x[1] = 9
    assert view.tolist() == [9, 2, 3]
    with pytest.raises(RuntimeError, match="cannot resize variables that require grad"):
        torch.ones(2, device=name, requires_grad=True).resize_(3)


def test_set(name: str) -> None:
    source = torch.arange(6.0).to(name)
    x = torch.empty(0, device=name)
    assert x.set_(source) is x
    assert x.data_ptr() == source.data_ptr()
    x.set_(source.untyped_storage(), 1, (2, 2), (1, 2))
    assert x.tolist() == [[1, 3], [2, 4]]
    x.set_(source.untyped_storage())
    assert torch.equal(x, source)
    assert x.is_set_to(source)
    x.set_()
    assert x.shape == (0,)
    assert x.device.type == name
    assert not x.is_set_to(source)


def test_set_checks_device_and_dtype(name: str) -> None:
    x = torch.ones(2, device=name)
    for source in (torch.ones(2), torch.ones(2).untyped_storage()):
        with pytest.raises(RuntimeError, match="device"):
            x.set_(source)
    with pytest.raises(RuntimeError):
        x.set_(torch.ones(2, dtype=torch.int32, device=name))
    assert x.tolist() == [1, 1]


def test_storage(name: str) -> None:
    x = torch.tensor([1, 2, 3], dtype=torch.uint8, device=name)
    storage = x.untyped_storage()
    assert (storage.device, storage.nbytes()) == (x.device, 3)
    assert storage.cpu().tolist() == storage.tolist() == [1, 2, 3]
    assert storage[1] == 2
    assert storage.data_ptr() == x.data_ptr()
    assert storage.clone().device.type == name
    storage.fill_(9)
    assert x.tolist() == [9, 9, 9]
    storage.resize_(100)
    assert x.tolist() == [9, 9, 9]
    storage.resize_(0)
    assert x.untyped_storage().nbytes() == 0
    assert torch.UntypedStorage(8, device=name).device.type == name


def test_storage_copies(name: str) -> None:
    device, host = torch.UntypedStorage(4, device=name), torch.ByteStorage([1, 2, 3, 4]).untyped()
    device.copy_(host)
    assert device.tolist() == [1, 2, 3, 4]
    host.fill_(0)
    host.copy_(device)
    assert host.tolist() == [1, 2, 3, 4]


def test_data(name: str) -> None:
    x = torch.ones(2, device=name, requires_grad=True)
    x.data = torch.zeros(3, device=name)
    assert x.tolist() == [0, 0, 0]
    assert x.requires_grad
    x.data.add_(1)
    assert x.tolist() == [1, 1, 1]
    x.data = x.data.cpu()
    assert x.device.type == "cpu"
    x.data = x.data.to(name)
    assert x.device.type == name


def test_module_to_keeps_parameters(name: str) -> None:
    module = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(module.parameters(), lr=1.0)
    before = [id(parameter) for parameter in module.parameters()]
    module.to(name)
    assert [id(parameter) for parameter in module.parameters()] == before
    module(torch.ones(1, 2, device=name)).sum().backward()
    bias = module.bias.tolist()
    optimizer.step()
    assert module.bias.tolist() == pytest.approx([value - 1 for value in bias])
    module.cpu()
    assert [id(parameter) for parameter in module.parameters()] == before
    assert module.weight.device.type == "cpu"


def test_module_on_the_device(name: str) -> None:
    module = torch.nn.BatchNorm2d(3, device=name)
    assert {value.device.type for value in module.state_dict().values()} == {name}
    assert getattr(torch.nn.Linear(2, 2), name)().weight.device.type == name
    assert torch.nn.Linear(2, 2, device="meta").to_empty(device=name).weight.device.type == name
    assert module.half().weight.dtype is torch.float16
    swapped = torch.nn.Linear(2, 2)
    weight = swapped.weight
    swapped.to(name).double()
    assert swapped.weight is weight
    assert weight.dtype is torch.float64


def test_record_stream(name: str, backend: ModuleType) -> None:
    stream = backend.Stream()
    x = torch.ones(100, device=name)
    x.record_stream(stream)
    x[10:].record_stream(stream)
    torch.empty(0, device=name).record_stream(stream)
    del x
    assert torch.ones(100, device=name).sum().item() == 100


# ---- interchange ----


def test_dlpack(name: str) -> None:
    x = torch.arange(6.0).to(name).reshape(2, 3).t()
    for y in (torch.from_dlpack(x), torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(x))):
        assert_same(y, x.cpu(), name)
        assert y.data_ptr() == x.data_ptr()
        y.mul_(2)
    assert x.tolist() == [[0, 12], [4, 16], [8, 20]]
    device_type, index = x.__dlpack_device__()
    assert (int(device_type), index) == (12, 0)


def test_dlpack_to_the_host(name: str) -> None:
    x = torch.arange(3.0).to(name)
    y = torch.from_dlpack(x, device="cpu")
    y.zero_()
    assert x.tolist() == [0, 1, 2]
    with pytest.raises(BufferError):
        torch.from_dlpack(torch.ones(2, dtype=torch.complex64, device=name).conj())
    with pytest.raises(BufferError):
        torch.from_dlpack(torch.ones(2, device=name, requires_grad=True))


@pytest.mark.usefixtures("two_devices")
def test_dlpack_of_another_device(name: str) -> None:
    x = torch.ones(2, device=f"{name}:1")
    assert torch.from_dlpack(x).device == x.device


def test_pinned_memory(name: str) -> None:
    x = torch.arange(4.0).pin_memory()
    assert x.is_pinned()
    assert x.pin_memory() is x
    assert x[1:].is_pinned()
    assert torch.empty(3, pin_memory=True).is_pinned()
    assert not torch.arange(4.0).is_pinned()
    moved = x.to(name, non_blocking=True)
    assert moved.tolist() == [0, 1, 2, 3]
    for wrong in (lambda: moved.pin_memory(), lambda: torch.empty(3, device=name, pin_memory=True)):
        with pytest.raises(RuntimeError, match=r"pin"):
            wrong()


# ---- conj, neg, sizes that are special, layouts ----


@pytest.mark.parametrize(
    "code",
    [
        "x.conj()",
        "x.conj().conj()",
        "x.conj().resolve_conj()",
        "x.conj().clone()",
        "x.conj() + x",
        "x.conj().imag",
        "x.conj().imag.resolve_neg()",
        "x.conj().imag + 1",
        "x.conj().imag.clone()",
        "x.conj() @ x.mT",
        "x.mH",
        "x.conj().contiguous()",
        "x.conj().sum(0)",
        "x.conj()[0].add_(1j)",
        "x.conj().to(torch.complex128)",
        "x.copy_(x.conj())",
        "x.conj().copy_(x)",
        "x.conj().conj_physical_()",
        "torch.view_as_real(x.conj().resolve_conj())",
        "torch.cat([x.conj(), x])",
        "x.conj().index_select(0, torch.tensor([1], device=x.device))",
        "torch.linalg.solve(x @ x.mH, x.conj(), left=True)",
        "torch.linalg.solve(x.mH @ x, x.conj(), left=False)",
        "torch.linalg.lu_solve(*torch.linalg.lu_factor(x.mT @ x), x, left=False)",
    ],
)
def test_conj_and_neg_views(name: str, code: str) -> None:
    source = torch.tensor([[1 + 2j, 3 - 4j], [0.5j, -1.0]], dtype=torch.complex64)
    expected, actual = (evaluate(code, x=source.clone().to(device)) for device in ("cpu", name))
    assert actual.device.type == name
    torch.testing.assert_close(actual.resolve_conj().resolve_neg().cpu(), expected.resolve_conj().resolve_neg())


SPECIAL_SIZES: list[str] = [
    "torch.ones(0, device=d).sum()",
    "torch.ones(0, device=d).mean()",
    "torch.ones(0, device=d).max()",
    "torch.ones(0, 3, device=d).sum(0)",
    "torch.ones(0, 3, device=d) @ torch.ones(3, 4, device=d)",
    "torch.ones(2, 0, device=d) @ torch.ones(0, 4, device=d)",
    "torch.cat([torch.ones(0, device=d), torch.ones(2, device=d)])",
    "torch.ones(0, device=d).sort()[0]",
    "torch.ones(0, 3, device=d)[torch.zeros(0, dtype=torch.int64, device=d)]",
    "torch.ones(0, 3, device=d).t().contiguous().add_(1)",
    "torch.nonzero(torch.zeros(3, device=d))",
    "torch.nn.functional.linear(torch.ones(0, 3, device=d), torch.ones(2, 3, device=d))",
    "torch.linalg.inv(torch.ones(0, 3, 3, device=d))",
    "torch.tensor(2.0, device=d) * torch.tensor(3.0, device=d)",
    "torch.tensor(2.0, device=d).expand(3) + 1",
    "torch.tensor([2, 1], device=d).sum()",
    "torch.tensor(2, device=d) + torch.tensor(0.5)",
    "torch.tensor(2, device=d).cumsum(0)",
    "torch.tensor(5.0, device=d).sort()[1]",
    "torch.tensor(5.0, device=d)[None]",
    "torch.tensor(5.0, device=d)[0]",
    "torch.stack([torch.tensor(1.0, device=d), torch.tensor(2.0, device=d)])",
]


@pytest.mark.parametrize("code", SPECIAL_SIZES)
def test_zero_size_and_zero_dimensions(name: str, code: str) -> None:
    assert_same_outcome(lambda device: evaluate(code, d=device), name)


@pytest.mark.parametrize(
    "code",
    [
        "x + 1",
        "x.relu()",
        "x.clone()",
        "x.contiguous()",
        "torch.zeros_like(x)",
        "x.half()",
        "x.to(memory_format=torch.channels_last)",
        "x.permute(0, 2, 3, 1)",
        "torch.nn.functional.max_pool2d(x, 2)",
        "torch.nn.functional.avg_pool2d(x, 2)",
        "torch.nn.functional.interpolate(x, scale_factor=2)",
        "torch.nn.functional.conv2d(x, torch.ones(3, 3, 2, 2, device=x.device))",
        "torch.nn.functional.batch_norm(x, None, None, training=True)",
        "torch.cat([x, x], 1)",
        "x[:, :2]",
        "x.sum(1)",
        "x.mul_(2)",
        "x.softmax(1)",
    ],
)
def test_channels_last(name: str, code: str) -> None:
    source = torch.arange(96.0).reshape(2, 3, 4, 4)
    expected = evaluate(code, x=source.clone(memory_format=torch.channels_last))
    actual = evaluate(code, x=source.to(name).to(memory_format=torch.channels_last))
    assert (actual.device.type, actual.shape, actual.stride()) == (name, expected.shape, expected.stride())
    torch.testing.assert_close(actual.cpu(), expected)


def test_channels_last_3d(name: str) -> None:
    x = torch.arange(48.0).reshape(1, 2, 2, 3, 4).to(name).to(memory_format=torch.channels_last_3d)
    assert x.is_contiguous(memory_format=torch.channels_last_3d)
    assert_same(x * 2, x.cpu() * 2, name)


OVERLAPS: list[str] = [
    # several elements in one place
    "torch.ones(1, device=d).expand(3).add_(1)",
    "torch.ones(1, device=d).expand(3).copy_(torch.ones(3))",
    "torch.ones(1, device=d).expand(3).mul_(torch.ones(3, device=d))",
    "torch.ones(1, device=d).expand(3).sub(torch.ones(3, device=d), out=torch.ones(1, device=d).expand(3))",
    "torch.ones(1, device=d).expand(3).sigmoid_()",
    # expanded inputs are fine
    "torch.ones(1, 3, device=d).expand(4, 3) * 2",
    "torch.arange(3.0, device=d).expand(4, 3).sum(0)",
    "torch.arange(3.0, device=d).expand(4, 3).contiguous()",
    "torch.arange(3.0, device=d).expand(4, 3).clone()",
    "torch.arange(3.0, device=d).expand(4, 3).t() @ torch.ones(4, 2, device=d)",
    "torch.arange(6.0, device=d).as_strided((3, 3), (1, 1)).add(1)",
    # the same elements in the same order are fine
    "(lambda x: torch.add(x, x, out=x))(torch.arange(4.0, device=d))",
    "(lambda x: x.copy_(x))(torch.arange(4.0, device=d))",
]

PARTIAL_OVERLAPS: list[str] = [
    "(lambda x: x[1:].copy_(x[:-1]))(torch.arange(4.0, device=d))",
    "(lambda x: x[1:].copy_(x[:-1].view(torch.int32)))(torch.arange(4.0, device=d))",
    "(lambda x: torch.add(x[:-1], 1, out=x[1:]))(torch.arange(4.0, device=d))",
    "(lambda x: x[1:].add_(x[:-1]))(torch.arange(4.0, device=d))",
    "(lambda x: torch.cat([x[1:], x[:1]], out=x))(torch.arange(4.0, device=d))",
    "(lambda x: torch.exp(x[:-1], out=x[1:]))(torch.arange(4.0, device=d))",
    "(lambda x: torch.gather(x, 0, torch.tensor([1, 2], device=d), out=x[:2]))(torch.arange(4.0, device=d))",
]


@pytest.mark.parametrize("code", OVERLAPS)
def test_overlapping_memory(name: str, code: str) -> None:
    assert_same_outcome(lambda device: evaluate(code, d=device), name)


@pytest.mark.parametrize("code", PARTIAL_OVERLAPS)
def test_partial_overlap_raises(name: str, code: str) -> None:
    assert isinstance(outcome(lambda device: evaluate(code, d=device), "cpu"), tuple)
    assert_same_outcome(lambda device: evaluate(code, d=device), name)


# ---- what operators return ----

IN_PLACE: dict[str, Callable[[Tensor], Tensor]] = {
    "add_": lambda x: x.add_(1),
    "add_ tensor": lambda x: x.add_(x),
    "mul_": lambda x: x.mul_(2),
    "zero_": lambda x: x.zero_(),
    "fill_": lambda x: x.fill_(3),
    "copy_": lambda x: x.copy_(torch.ones(4)),
    "clamp_": lambda x: x.clamp_(1, 2),
    "relu_": lambda x: torch.relu_(x),
    "sqrt_": lambda x: x.sqrt_(),
    "lgamma_": lambda x: x.lgamma_(),
    "erfinv_": lambda x: x.erfinv_(),
    "cumsum_": lambda x: x.cumsum_(0),
    "addcmul_": lambda x: x.addcmul_(x, x),
    "lerp_": lambda x: x.lerp_(x * 2, 0.5),
    "index_add_": lambda x: x.index_add_(0, torch.tensor([0, 1], device=x.device), torch.ones(2, device=x.device)),
    "index_copy_": lambda x: x.index_copy_(0, torch.tensor([3], device=x.device), torch.ones(1, device=x.device)),
    "scatter_": lambda x: x.scatter_(0, torch.tensor([2], device=x.device), 7.0),
    "scatter_reduce_": lambda x: x.scatter_reduce_(0, torch.tensor([2, 2], device=x.device), x * 2, "sum"),
    "masked_fill_": lambda x: x.masked_fill_(x > 2, -1),
    "masked_scatter_": lambda x: x.masked_scatter_(x > 1, x.flip(0)),
    "index_put_": lambda x: x.index_put_((torch.tensor([1], device=x.device),), torch.tensor(5.0)),
    "put_": lambda x: x.put_(torch.tensor([1], device=x.device), torch.tensor([5.0], device=x.device)),
    "tril_": lambda x: x.view(2, 2).tril_().view(4).mul_(1),
    "renorm_": lambda x: x.view(2, 2).renorm_(2, 0, 1).view(4),
    "floor_divide_": lambda x: x.floor_divide_(2),
    "ne_": lambda x: x.ne_(2),
    "fmod_": lambda x: x.fmod_(2),
    "igamma_": lambda x: x.igamma_(x + 1),
    "nan_to_num_": lambda x: x.nan_to_num_(),
    "polygamma_": lambda x: x.polygamma_(1),
    "dropout_": lambda x: torch.dropout_(x, 0.0, True),
}


@pytest.mark.parametrize("change", IN_PLACE.values(), ids=IN_PLACE)
def test_in_place_operators_return_self(name: str, change: Callable[[Tensor], Tensor]) -> None:
    expected, x = torch.tensor([0.25, 1.0, 2.0, 3.0]), torch.tensor([0.25, 1.0, 2.0, 3.0]).to(name)
    pointer, version = x.data_ptr(), x._version
    result = change(x)
    change(expected)
    assert result is x or result._base is x
    assert x.data_ptr() == pointer
    assert x._version - version == expected._version
    torch.testing.assert_close(x.cpu(), expected, equal_nan=True)


OUT: dict[str, Callable[..., Any]] = {
    "add": lambda x, **k: torch.add(x, x, **k),
    "matmul": lambda x, **k: torch.matmul(x, x.t(), **k),
    "sum": lambda x, **k: torch.sum(x, 1, **k),
    "cat": lambda x, **k: torch.cat([x, x], **k),
    "stack": lambda x, **k: torch.stack([x, x], **k),
    "arange": lambda x, **k: torch.arange(5.0, **k),
    "cumsum": lambda x, **k: torch.cumsum(x, 0, **k),
    "nonzero": lambda x, **k: torch.nonzero(x, **k),
    "index_select": lambda x, **k: torch.index_select(x, 1, torch.tensor([1, 0], device=x.device), **k),
    "linalg_inv": lambda x, **k: torch.linalg.inv(x @ x.t() + torch.eye(3, device=x.device), **k),
    "median": lambda x, **k: torch.nanmedian(x, 0, **k)[0] if not k else torch.nanmedian(x, 0, **k),
    "svdvals": lambda x, **k: torch.linalg.svdvals(x, **k),
    "lgamma": lambda x, **k: torch.lgamma(x.t(), **k),
    "masked_select": lambda x, **k: torch.masked_select(x, x > 2, **k),
    "bucketize": lambda x, **k: torch.bucketize(x, torch.tensor([1.0, 2.0], device=x.device), **k),
    "conv out": lambda x, **k: torch.nn.functional.avg_pool2d(x[None], 2, **k) if not k else None,
}


@pytest.mark.parametrize("key", [key for key in OUT if key not in {"median", "conv out"}])
def test_out(name: str, key: str) -> None:
    def run(device: str, size: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        x = torch.arange(12.0).reshape(3, 4).to(device)
        out = torch.empty(size, dtype=OUT[key](x).dtype, device=device)
        return OUT[key](x, out=out), out

    size = run("cpu", (0,))[0].shape
    for start in ((0,), tuple(size)):
        expected, _ = run("cpu", start)
        result, out = run(name, start)
        assert result is out
        assert (out.device.type, out.shape, out.stride()) == (name, expected.shape, expected.stride())
        torch.testing.assert_close(out.cpu(), expected)


def test_out_of_several_tensors(name: str) -> None:
    x = torch.tensor([[3.0, 1.0], [2.0, 5.0]], device=name)
    for call in (lambda out: torch.sort(x, out=out), lambda out: torch.topk(x, 1, out=out)):
        out = torch.empty(0, device=name), torch.empty(0, dtype=torch.int64, device=name)
        result = call(out)
        assert all(one is other for one, other in zip(result, out, strict=True))
    assert out[0].tolist() == [[3], [5]]
    assert out[1].tolist() == [[0], [1]]
    q, r = torch.empty(0, device=name), torch.empty(0, device=name)
    torch.linalg.qr(x, out=(q, r))
    torch.testing.assert_close(q @ r, x)


def test_out_keeps_memory_and_layout(name: str) -> None:
    buffer = torch.zeros(4, 6, device=name)
    out = buffer[:, ::2].t()
    x = torch.arange(12.0).reshape(3, 4).to(name)
    for function in (torch.exp, torch.lgamma, torch.neg):
        assert function(x, out=out) is out
        assert out.stride() == (2, 6)
        assert out.data_ptr() == buffer.data_ptr()
        torch.testing.assert_close(out.cpu(), function(x.cpu()))
        assert (buffer[:, 1::2] == 0).all()


def test_out_of_another_size_is_resized_with_a_warning(name: str) -> None:
    x, out = torch.ones(3, device=name), torch.zeros(5, device=name)
    with pytest.warns(UserWarning, match="was resized"):
        torch.add(x, x, out=out)
    assert out.tolist() == [2, 2, 2]
    larger = torch.ones(1000, device=name)
    with pytest.warns(UserWarning, match="was resized"):
        torch.add(larger, larger, out=out)
    assert out.shape == (1000,)
    assert (out == 2).all()


def test_out_checks(name: str) -> None:
    x = torch.ones(3, device=name)
    with pytest.raises(RuntimeError, match="can't be cast"):
        torch.add(x, x, out=torch.empty(3, dtype=torch.int32, device=name))
    for inputs, out in ((x, torch.empty(3)), (torch.ones(3), torch.empty(3, device=name))):
        with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
            torch.add(inputs, inputs, out=out)


def test_results_are_on_the_device(name: str) -> None:
    x = torch.arange(16.0).reshape(4, 4).to(name) + torch.eye(4, device=name) * 20
    results = [
        *torch.linalg.qr(x),
        *torch.linalg.slogdet(x),
        *torch.linalg.eig(x),
        *torch.sort(x),
        *torch.unique(x, return_inverse=True, return_counts=True),
        torch.fft.rfft(x),
        torch.histc(x, 4),
        torch.nonzero(x),
        torch.tril_indices(3, 3, device=name),
        torch.cdist(x, x),
        *torch.split(x, 2),
        *torch.nn.functional.max_pool1d(x, 2, return_indices=True),
        *torch.ops.aten._foreach_add([x, x], 1),
        *torch._foreach_lerp([x], [x], 0.5),
    ]
    assert {result.device for result in results} == {torch.device(name, 0)}


@pytest.mark.usefixtures("two_devices")
def test_results_are_on_the_inputs_device(name: str, backend: ModuleType) -> None:
    x = torch.eye(3, device=f"{name}:1")
    for result in (x + 1, x @ x, torch.linalg.inv(x), torch.lgamma(x), torch.rand_like(x), x.nonzero(), x.t().clone()):
        assert result.device.index == 1
    assert backend.current_device() == 0


def test_mixing_devices_raises(name: str) -> None:
    x, host = torch.ones(2, 2, device=name), torch.ones(2, 2)
    uses = [
        lambda: x + host,
        lambda: host + x,
        lambda: x @ host,
        lambda: torch.cat([x, host]),
        lambda: torch.where(x > 0, x, host),
        lambda: x.mul_(host),
        lambda: host.mul_(x),
        lambda: torch.nn.functional.linear(x, host),
        lambda: torch.lerp(x, host, 0.5),
        lambda: host.index_select(0, torch.tensor([0], device=name)),
    ]
    for use in uses:
        with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
            use()
    with pytest.raises(RuntimeError):  # PyTorch looks at the outputs before any kernel does
        torch.linalg.solve(x, host)


@pytest.mark.usefixtures("two_devices")
def test_mixing_two_devices_raises(name: str) -> None:
    x, other = torch.ones(2, device=name), torch.ones(2, device=f"{name}:1")
    for use in (lambda: x + other, lambda: torch.cat([x, other]), lambda: torch.dot(x, other), lambda: x.mul_(other)):
        with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
            use()


def test_host_scalars_mix_with_the_device(name: str) -> None:
    x = torch.ones(2, device=name)
    assert (x + torch.tensor(2.0)).tolist() == (torch.tensor(2.0) + x).tolist() == [3, 3]
    assert (x * torch.tensor(2, dtype=torch.int64)).dtype is torch.float32
    assert torch.where(x > 0, torch.tensor(5.0), x).tolist() == [5, 5]
    assert torch.add(x, 1, alpha=2).tolist() == [3, 3]


def test_layouts_that_are_not_offered(name: str) -> None:
    x = torch.eye(3, device=name)
    with pytest.raises((NotImplementedError, RuntimeError)):
        x.to_mkldnn()
    assert x.sum().item() == 3


def test_function_transforms(name: str) -> None:
    x = torch.arange(3.0, device=name)
    assert torch.func.grad(lambda a: (a * a).sum())(x).tolist() == [0, 2, 4]
    assert torch.vmap(torch.sum)(torch.ones(2, 3, device=name)).tolist() == [3, 3]
    _, tangent = torch.func.jvp(torch.sin, (x,), (torch.ones_like(x),))
    torch.testing.assert_close(tangent, x.cos())
    assert torch.func.hessian(lambda a: (a**3).sum())(x).diagonal().tolist() == [0, 6, 12]
