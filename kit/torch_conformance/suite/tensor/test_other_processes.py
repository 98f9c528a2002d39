"""Tensors that torch.multiprocessing sends to another process, which shares their memory."""

import gc
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

from torch_conformance import needs
from torch_conformance.suite._other_process import OtherProcess
from torch_conformance.suite.tensor._support import assert_equal, assert_same, assert_values, each

pytestmark = needs.feature("shared memory")


@pytest.fixture(scope="module")
def other() -> Iterator[OtherProcess]:
    """Another process, for all tests of this file."""
    process = OtherProcess()
    yield process
    process.kill()


# ---- what the other process does ----

_kept: dict[str, Any] = {}
"""What it keeps from one piece of work to the next."""


def _describe(x: Tensor) -> dict[str, object]:
    return {
        "class": type(x).__name__,
        "device": str(x.device),
        "dtype": x.dtype,
        "shape": tuple(x.shape),
        "strides": x.stride(),
        "offset": x.storage_offset(),
        "requires_grad": x.requires_grad,
        "conj": x.is_conj(),
        "neg": x.is_neg(),
        "is_shared": x.is_shared(),
    }


def _received(x: Tensor) -> tuple[dict[str, object], Tensor]:
    """What the tensor is there, and its values."""
    return _describe(x), x.detach().cpu().resolve_conj().resolve_neg()


def _dense(x: Tensor) -> Tensor:
    return x.to_dense().cpu()


def _write(x: Tensor, value: float) -> None:
    with torch.no_grad():
        x.fill_(value)
    torch.accelerator.synchronize(x.device)


def _keep(name: str, x: Any) -> None:
    _kept[name] = x


def _values(name: str) -> list[float]:
    values: list[float] = _kept[name].cpu().tolist()
    return values


def _extremes(name: str) -> tuple[float, float]:
    values = _kept[name].cpu()
    return values.min().item(), values.max().item()


def _release(*names: str) -> None:
    for name in names:
        del _kept[name]
    gc.collect()


def _is_one_storage(a: str, b: str) -> bool:
    return bool(_kept[a].untyped_storage()._cdata == _kept[b].untyped_storage()._cdata)


def _make(device: str, value: float) -> Tensor:
    return torch.full((1000,), value, device=device)


def _refused(name: str) -> str:
    from multiprocessing.reduction import ForkingPickler

    try:
        ForkingPickler.dumps(_kept[name])
    except RuntimeError as error:
        return str(error)
    return ""


# ---- what is sent ----

TENSORS: dict[str, Callable[[str], Tensor]] = {
    "contiguous": lambda d: torch.arange(1000.0, device=d),
    "part of a storage": lambda d: torch.arange(1000.0, device=d)[300:310],
    "transposed": lambda d: torch.arange(6.0, device=d).view(2, 3).t(),
    "expanded": lambda d: torch.arange(3.0, device=d).expand(4, 3),
    "0-d": lambda d: torch.arange(5.0, device=d)[3],
    "empty": lambda d: torch.empty(0, 3, device=d),
    "with a gradient": lambda d: torch.arange(3.0, device=d).requires_grad_(),
    "parameter": lambda d: torch.nn.Parameter(torch.arange(3.0, device=d)),
    "frozen parameter": lambda d: torch.nn.Parameter(torch.arange(3, device=d), requires_grad=False),
    "bool": lambda d: torch.tensor([True, False, True], device=d),
    "large": lambda d: torch.arange(3_000_000, device=d),
}


@each("make", TENSORS)
def test_tensors_arrive_as_they_were(device: str, other: OtherProcess, make: Callable[[str], Tensor]) -> None:
    """A tensor sent to another process has there its class, device, dtype, geometry, values, and wish for gradients."""
    x = make(device)
    there, values = other.run(_received, x)
    here = _describe(x)
    assert there == here, f"sent as {here}, but received as {there}"
    assert_equal(values, make("cpu").detach(), "a tensor in another process")


@needs.dtype("complex64")
@pytest.mark.parametrize("view", ["conj", "imag"])
def test_conj_and_neg_views_arrive(device: str, other: OtherProcess, view: str) -> None:
    """A conjugated or negated view is one in another process too."""
    x = torch.tensor([1 + 2j, 3 - 4j], device=device).conj()
    x = x.imag if view == "imag" else x
    there, values = other.run(_received, x)
    assert there == _describe(x), f"sent as {_describe(x)}, but received as {there}"
    assert_equal(values, x.cpu(), "a conj or neg view in another process")


def test_sparse_tensors_arrive(device: str, other: OtherProcess) -> None:
    """Sparse tensors of both families have their values in another process."""
    dense = torch.tensor([[0.0, 1, 0], [2, 0, 3]])
    assert_equal(other.run(_dense, dense.to(device).to_sparse()), dense, "a sparse tensor in another process")
    assert_equal(other.run(_dense, dense.to(device).to_sparse_csr()), dense, "a CSR tensor in another process")


@needs.devices(2)
def test_tensors_arrive_on_their_device(device: str, other: OtherProcess) -> None:
    """A tensor of the second device is on the second device in another process."""
    x = torch.arange(4.0, device=f"{device}:1")
    there, values = other.run(_received, x)
    assert there["device"] == f"{device}:1", f"a tensor on {device}:1 was received on {there['device']}"
    assert_equal(values, torch.arange(4.0), "a tensor of the second device in another process")


def test_what_was_enqueued_is_seen(device: str, other: OtherProcess) -> None:
    """Another process sees the results of everything that was enqueued before a tensor was sent, on any stream."""
    for _ in range(3):
        x = torch.zeros(100_000, device=device)
        stream = torch.Stream(device)
        stream.wait_stream(torch.accelerator.current_stream())
        before = torch.accelerator.current_stream()
        torch.accelerator.set_stream(stream)
        try:
            for _ in range(20):
                x = x + 1
        finally:
            torch.accelerator.set_stream(before)
        _, values = other.run(_received, x)
        assert_equal(values, torch.full((100_000,), 20.0), "a tensor that was sent right after it was computed")


# ---- one memory ----


def test_both_processes_see_what_one_writes(device: str, other: OtherProcess) -> None:
    """What another process writes to a tensor it received shows in the sender's, and the other way around."""
    base = torch.zeros(10, device=device)
    other.run(_write, base[2:4], 7.0)
    assert_values(base, [0, 0, 7, 7, 0, 0, 0, 0, 0, 0], "after another process wrote to a part that was sent")
    other.run(_keep, "x", base)
    base.fill_(3)
    torch.accelerator.synchronize()
    there = other.run(_values, "x")
    assert there == [3.0] * 10, f"after the sender wrote, another process sees {there}"
    other.run(_release, "x")


def test_tensors_of_one_storage_stay_together(device: str, other: OtherProcess) -> None:
    """Two views, sent one after the other, have one storage in another process, and are no copies of each other."""
    base = torch.zeros(8, device=device)
    other.run(_keep, "first", base[:3])
    other.run(_keep, "second", base[2:])
    assert other.run(_is_one_storage, "first", "second"), "two views of one storage have two in another process"
    other.run(_release, "first")
    base.fill_(5)
    torch.accelerator.synchronize()
    there = other.run(_values, "second")
    assert there == [5.0] * 6, f"after another view was released there, the one that is left shows {there}"
    other.run(_release, "second")


def test_tensors_are_told_apart(device: str, other: OtherProcess) -> None:
    """Each of many tensors arrives with its own values: small ones, which share an allocation, and large ones."""
    sizes = [4] * 12 + [300_000, 3_000_000] * 2
    many = [torch.full((size,), float(i), device=device) for i, size in enumerate(sizes)]
    for i, x in enumerate(many):
        other.run(_keep, f"many {i}", x)
    for i, size in enumerate(sizes):
        smallest, largest = other.run(_extremes, f"many {i}")
        assert smallest == largest == i, (
            f"tensor {i}, of {size} elements, shows other values in another process: {smallest} to {largest}"
        )
    other.run(_release, *(f"many {i}" for i in range(len(sizes))))


# ---- who keeps the memory ----


def _active_bytes(backend: ModuleType) -> int:
    backend.ipc_collect()
    return int(backend.memory_stats()["active_bytes.all.current"])


@pytest.mark.parametrize("elements", [1000, 2_000_000])
def test_memory_is_kept_until_it_is_released(
    device: str, backend: ModuleType, other: OtherProcess, elements: int
) -> None:
    """A received tensor keeps its values though the sender's is gone and its memory is asked for; then it is freed."""
    gc.collect()
    before = _active_bytes(backend)
    x = torch.full((elements,), 4.0, device=device)
    other.run(_keep, "x", x)
    del x
    new = [torch.full((elements,), 9.0, device=device) for _ in range(3)]
    backend.empty_cache()
    torch.accelerator.synchronize()
    there = other.run(_values, "x")
    assert set(there) == {4.0}, f"after the sender's tensor was freed, the received one holds {set(there)}"
    del new
    assert _active_bytes(backend) > before, "memory that another process uses is not in use here"
    other.run(_release, "x")
    left = _active_bytes(backend) - before
    assert left == 0, f"{left} bytes stay in use after another process has released the tensor"


@needs.feature("torch_backend")  # CUDA counts references that a killed process cannot give back
def test_memory_of_a_killed_process_comes_back(device: str, backend: ModuleType, other: OtherProcess) -> None:
    """What a process had received is free again after that process was killed."""
    gc.collect()
    before = _active_bytes(backend)
    x = torch.ones(1000, device=device)
    other.run(_keep, "x", x)
    del x
    other.kill()
    left = _active_bytes(backend) - before
    assert left == 0, f"{left} bytes stay in use after the process that used them was killed"


def test_results_come_back(device: str, other: OtherProcess) -> None:
    """Tensors that another process made and did not keep have their values here, and keep them."""
    results = [other.run(_make, device, float(i)) for i in range(5)]
    for i, x in enumerate(results):
        assert_same(x, torch.full((1000,), float(i)), device, f"result {i} of another process")
    x = results[0].clone().add_(1)  # memory of this process like any other
    assert_values(x[:2], [1, 1], "a copy of a received tensor")


def test_received_tensors_are_not_sent_on(device: str, other: OtherProcess) -> None:
    """A process that wants to send on what it has received is told that it cannot."""
    x = torch.ones(3, device=device)
    other.run(_keep, "x", x)
    said = other.run(_refused, "x")
    assert "received from another process" in said, f"a received tensor was sent on, or refused with {said!r}"
    other.run(_release, "x")


def test_received_tensors_are_not_resized(device: str, other: OtherProcess) -> None:
    """The storage of a received tensor, which belongs to another process, cannot grow."""
    x = other.run(_make, device, 1.0)
    with pytest.raises(RuntimeError, match="not resizable"):
        x.resize_(5000)


def test_sharing_changes_nothing_here(device: str) -> None:
    """As with CUDA, ``share_memory_`` leaves device tensors as they are."""
    x = torch.ones(3, device=device)
    address = x.data_ptr()
    assert x.share_memory_() is x, "share_memory_ returns another tensor"
    model = torch.nn.Linear(2, 2).to(device)
    assert model.share_memory() is model, "Module.share_memory returns another module"
    assert x.data_ptr() == address, "share_memory_ has moved the tensor"
