"""torch.save and torch.load: values, layouts, shared memory and devices come back."""

import io
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from torch_conformance import needs
from torch_conformance.routes import has
from torch_conformance.suite.tensor._support import (
    assert_equal,
    assert_same,
    assert_values,
    current_index,
    each,
    every_dtype,
    in_fresh_process,
)

both_unpicklers = pytest.mark.parametrize("weights_only", [True, False], ids=["weights_only", "everything"])


def saved(value: object) -> io.BytesIO:
    """A file that torch.save has written."""
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return file


@both_unpicklers
def test_save_and_load(device: str, weights_only: bool) -> None:
    """Loaded tensors have the values, strides and device of those that were saved, and share memory as they did."""
    x = torch.arange(6.0, device=device)
    state = {"x": x, "view": x.view(2, 3).t(), "long": x.long(), "nothing": x[:0], "0-d": x[3]}
    loaded = torch.load(saved(state), weights_only=weights_only)
    for key, value in state.items():
        assert_same(loaded[key], value.cpu(), device, f"{key} after torch.load")
    if has("storage"):  # PyTorch saves the values alone of tensors without
        loaded["x"].zero_()
        assert_values(loaded["view"], [[0, 0]] * 3, "a loaded view after a write to its loaded base")


@every_dtype
def test_every_dtype(device: str, dtype: torch.dtype) -> None:
    """A tensor of any dtype is the same, bit by bit, after torch.save and torch.load."""
    x = torch.tensor([0.0, 1.0, 0.5, 3.0]).to(dtype)
    loaded = torch.load(saved(x.to(device)))
    assert (loaded.device.type, loaded.dtype) == (device, dtype), (
        f"{dtype} was loaded as {loaded.dtype} on {loaded.device}"
    )
    assert_equal(loaded.cpu().view(torch.uint8), x.view(torch.uint8), f"the bytes of {dtype} after torch.load")


@needs.dtype("complex64")
def test_conj_view(device: str) -> None:
    """A conjugated view is one after torch.load."""
    loaded = torch.load(saved(torch.tensor([1j], device=device).conj()))
    assert_same(loaded, torch.tensor([1j]).conj(), device, "a conj view after torch.load")


TO_HOST: dict[str, Callable[[str], Any]] = {
    "name": lambda d: "cpu",
    "device": lambda d: torch.device("cpu"),
    "mapping": lambda d: {f"{d}:0": "cpu"},
    "function": lambda d: lambda storage, _: storage,
}

TO_DEVICE: dict[str, Callable[[str], Any]] = {
    "name": lambda d: d,
    "name with index": lambda d: f"{d}:0",
    "device": lambda d: torch.device(d),
    "mapping": lambda d: {"cpu": f"{d}:0"},
    "function": lambda d: lambda storage, _: storage.to(device=d),
}


@both_unpicklers
@each("location", TO_HOST, storage=["function"])
def test_map_location_to_the_host(device: str, weights_only: bool, location: Callable[[str], Any]) -> None:
    """A tensor saved on the device is loaded on the CPU if map_location says so."""
    x = torch.arange(3.0, device=device)
    loaded = torch.load(saved(x), map_location=location(device), weights_only=weights_only)
    assert_same(loaded, torch.arange(3.0), "cpu", "a tensor that was saved on the device")


@needs.feature("storage")
@both_unpicklers
@each("location", TO_DEVICE, index=["name with index", "mapping"])
def test_map_location_to_the_device(device: str, weights_only: bool, location: Callable[[str], Any]) -> None:
    """A tensor saved on the CPU is loaded on the device if map_location says so."""
    x = torch.arange(3.0)
    loaded = torch.load(saved(x), map_location=location(device), weights_only=weights_only)
    assert_same(loaded, x, device, "a tensor that was saved on the CPU")


@needs.devices(2)
@both_unpicklers
def test_load_remembers_the_device(device: str, weights_only: bool) -> None:
    """A tensor saved on the second device is loaded there, or on the first if map_location says so."""
    x = torch.arange(3.0, device=f"{device}:1")
    loaded = torch.load(saved(x), weights_only=weights_only)
    assert loaded.device.index == 1, f"a tensor saved on {x.device} was loaded on {loaded.device}"
    assert_equal(loaded, x.cpu(), "a tensor loaded on the second device")
    location = {f"{device}:1": f"{device}:0"}
    assert torch.load(saved(x), map_location=location, weights_only=weights_only).device.index == 0, (
        "a mapping of device 1 to device 0 is ignored"
    )
    assert current_index(device) == 0, "torch.load has changed the current device"


def test_files(device: str, tmp_path: Path) -> None:
    """A file on disk is loaded to the device, memory-mapped or not."""
    x = torch.arange(1000.0, device=device)
    torch.save({"x": x, "on the CPU": x.cpu()}, tmp_path / "file.pt")
    assert_same(torch.load(tmp_path / "file.pt")["x"], x.cpu(), device, "a tensor from a file")
    mapped = torch.load(tmp_path / "file.pt", map_location="cpu", mmap=True)
    assert_same(mapped["x"].to(device), x.cpu(), device, "a tensor from a mapped file, moved to the device")


@pytest.mark.thorough
def test_another_process_loads_the_file(device: str, tmp_path: Path) -> None:
    """A file that one process has saved is loaded by another."""
    file = tmp_path / "file.pt"
    torch.save(torch.arange(5.0, device=device).mul(2), file)
    code = "x = torch.load(sys.argv[1]); print(x.device.type, x.tolist())"
    assert in_fresh_process(code, file).strip() == f"{device} [0.0, 2.0, 4.0, 6.0, 8.0]", (
        "another process has loaded something else"
    )


def test_pickle(device: str) -> None:
    """A pickled tensor comes back with its class, layout, values, device and wish for gradients."""
    base = torch.arange(12.0, device=device)
    for x in (base, base.view(3, 4).t(), base[2:5], base.long(), torch.nn.Parameter(base), base[:0]):
        duplicate = pickle.loads(pickle.dumps(x))
        assert type(duplicate) is type(x), f"a {type(x).__name__} became a {type(duplicate).__name__}"
        assert_same(duplicate, x.detach().cpu(), device, "a tensor after pickle")
        assert duplicate.requires_grad == x.requires_grad, f"requires_grad became {duplicate.requires_grad}"


def test_state_of_a_module(device: str) -> None:
    """A module's state, saved on the device, is loaded into modules on the CPU, on the device and on meta."""
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4)).to(device)
    twin = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    twin.load_state_dict(torch.load(saved(module.state_dict())))
    for (name, a), b in zip(module.named_parameters(), twin.parameters(), strict=True):
        assert b.device.type == "cpu", (
            f"a module on the CPU has the parameter {name} on {b.device} after load_state_dict"
        )
        assert_equal(a, b, f"the parameter {name}")
    with torch.device("meta"):
        lazy = torch.nn.Linear(3, 4)
    lazy.load_state_dict(module[0].state_dict(), assign=True)
    assert lazy.weight.device.type == device, "load_state_dict(assign=True) did not take the tensors of the device"
