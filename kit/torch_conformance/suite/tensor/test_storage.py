"""Storages: the memory beneath tensors, shared, resized, replaced and copied."""

import pytest
import torch

from torch_conformance import needs
from torch_conformance.routes import has
from torch_conformance.suite.tensor._support import assert_equal, assert_values, raises

pytestmark = needs.feature("storage")


@pytest.mark.parametrize("size", [(2, 3), (3, 2), (6,), (10,), (0,), (4, 5), (1,), (), (1000,)], ids=str)
def test_resize(device: str, size: tuple[int, ...]) -> None:
    """``resize_`` keeps the elements there are, and has memory for those that are added."""
    x, expected = torch.arange(6.0).reshape(2, 3).to(device), torch.arange(6.0).reshape(2, 3)
    assert x.resize_(size) is x, "resize_ returns another tensor"
    expected.resize_(size)
    assert (x.shape, x.stride()) == (expected.shape, expected.stride()), (
        f"shape and strides are {tuple(x.shape)} and {x.stride()}, on the CPU {expected.stride()}"
    )
    assert x.untyped_storage().nbytes() == expected.untyped_storage().nbytes(), (
        f"the storage has {x.untyped_storage().nbytes()} bytes, on the CPU {expected.untyped_storage().nbytes()}"
    )
    kept = min(6, x.numel())
    assert_equal(x.flatten()[:kept], torch.arange(float(kept)), f"the first elements after resize_({size})")


def test_resize_keeps_strides_of_an_unchanged_size(device: str) -> None:
    """``resize_`` to the size there is changes nothing; with a memory format it lays the tensor out anew."""
    x = torch.arange(6.0).reshape(2, 3).to(device).t()
    assert x.resize_(3, 2).stride() == (1, 3), "resize_ to the size there is changes the strides"
    assert x.resize_(3, 2, memory_format=torch.contiguous_format).stride() == (2, 1), (
        "resize_ to a contiguous format keeps the strides"
    )
    y = torch.empty(1, device=device).resize_(2, 3, 4, 5, memory_format=torch.channels_last)
    assert y.is_contiguous(memory_format=torch.channels_last), f"resize_ with channels_last gives strides {y.stride()}"
    assert torch.empty(0, device=device).resize_as_(x).shape == (3, 2), "resize_as_ gives another shape"


def test_resize_is_seen_by_views(device: str) -> None:
    """A view still shows its base's memory after the base has grown."""
    x = torch.arange(4.0).to(device)
    view = x[1:]
    x.resize_(1000)
    x[1] = 9
    assert_values(view, [9, 2, 3], "a view of a tensor that has grown")
    with raises(RuntimeError, says="cannot resize variables that require grad"):
        torch.ones(2, device=device, requires_grad=True).resize_(3)


def test_set(device: str) -> None:
    """``set_`` makes a tensor show another tensor's or storage's memory."""
    source = torch.arange(6.0).to(device)
    x = torch.empty(0, device=device)
    assert x.set_(source) is x, "set_ returns another tensor"
    assert x.data_ptr() == source.data_ptr(), "set_ to a tensor does not show its memory"
    x.set_(source.untyped_storage(), 1, (2, 2), (1, 2))
    assert_values(x, [[1, 3], [2, 4]], "a tensor set to part of a storage, from an offset")
    x.fill_(0)
    assert_values(source, [0, 0, 0, 0, 0, 5], "a tensor after a write through another on its storage")
    x.set_(source.untyped_storage())
    assert torch.equal(x, source), "set_ to a storage does not show its values"
    assert x.is_set_to(source), "is_set_to does not see that two tensors show the same memory"
    x.set_()
    assert x.shape == (0,), f"set_() leaves shape {tuple(x.shape)}"
    assert x.device.type == device, f"set_() leaves the device for {x.device}"
    assert not x.is_set_to(source), "is_set_to is true for tensors on different memory"


def test_set_checks_device_and_dtype(device: str) -> None:
    """``set_`` to memory of another device, or to a tensor of another dtype, raises."""
    x = torch.ones(2, device=device)
    with pytest.raises(RuntimeError):
        x.set_(torch.ones(2, dtype=torch.int64, device=device))
    for source in (torch.ones(2), torch.ones(2).untyped_storage()) if has("memory of its own") else ():
        with raises(RuntimeError, says="device"):
            x.set_(source)
    assert_values(x, [1, 1], "a tensor after set_ raised")


@needs.dtype("uint8")
def test_storage(device: str) -> None:
    """A storage has its tensor's device, address and bytes, and writes to it reach the tensor."""
    x = torch.tensor([1, 2, 3], dtype=torch.uint8, device=device)
    storage = x.untyped_storage()
    assert (storage.device, storage.nbytes()) == (x.device, 3), (
        f"the storage has {storage.nbytes()} bytes on {storage.device}, its tensor 3 on {x.device}"
    )
    assert storage.cpu().tolist() == storage.tolist() == [1, 2, 3], f"the bytes of the storage are {storage.tolist()}"
    assert storage[1] == 2, f"byte 1 of the storage is {storage[1]}, not 2"
    assert storage.data_ptr() == x.data_ptr(), "the storage has another address than its tensor"
    storage[1] = 7
    assert_values(x, [1, 7, 3], "a tensor after a write to a byte of its storage")
    storage.fill_(9)
    assert_values(x, [9, 9, 9], "a tensor after its storage was filled")
    duplicate = storage.clone()
    assert duplicate.device == x.device, f"a clone of the storage is on {duplicate.device}"
    duplicate.fill_(0)
    assert_values(x, [9, 9, 9], "a tensor after a write to a clone of its storage")
    assert torch.UntypedStorage(8, device=device).device.type == device, "a new storage is not on the device"


@needs.feature("resized storages")
@needs.dtype("uint8")
def test_storages_are_resized(device: str) -> None:
    """A storage that grows keeps its bytes, and one of no bytes has no memory and can grow again."""
    x = torch.tensor([1, 2, 3], dtype=torch.uint8, device=device)
    storage = x.untyped_storage()
    storage.resize_(100_000)
    assert_values(x, [1, 2, 3], "a tensor after its storage has grown")
    storage.resize_(0)
    assert x.untyped_storage().nbytes() == 0, f"a storage that was freed has {x.untyped_storage().nbytes()} bytes"
    storage.resize_(3)
    x.copy_(torch.tensor([4, 5, 6]))
    assert_values(x, [4, 5, 6], "a tensor written to after its storage was freed and made again")


@needs.dtype("uint8")
def test_storage_copies(device: str) -> None:
    """Bytes go from a storage of the host to one of the device and back."""
    there = torch.UntypedStorage(4, device=device)
    host = torch.tensor([1, 2, 3, 4], dtype=torch.uint8).untyped_storage()
    there.copy_(host)
    assert there.tolist() == [1, 2, 3, 4], f"the bytes from the host arrived as {there.tolist()}"
    host.fill_(0)
    host.copy_(there)
    assert host.tolist() == [1, 2, 3, 4], f"the bytes from the device arrived as {host.tolist()}"


@needs.devices(2)
@needs.dtype("uint8")
def test_storage_copies_between_devices(device: str) -> None:
    """Bytes go from a storage on one device to one on another."""
    first = torch.tensor([1, 2, 3, 4], dtype=torch.uint8, device=f"{device}:0").untyped_storage()
    second = torch.UntypedStorage(4, device=f"{device}:1")
    second.copy_(first)
    assert second.tolist() == [1, 2, 3, 4], f"the bytes from the other device arrived as {second.tolist()}"
    assert second.device.index == 1, "a storage that was copied to is on another device now"


def test_tensors_on_one_storage(device: str) -> None:
    """Views share one storage object's memory and size, whatever part of it they show."""
    x = torch.arange(10.0, device=device)
    view = x[4:6]
    assert view.untyped_storage().data_ptr() == x.untyped_storage().data_ptr() == x.data_ptr(), (
        "a view and its base have storages at different addresses"
    )
    assert view.untyped_storage().nbytes() == x.nbytes == 40, "a view's storage has another size than its base"
    assert view.nbytes == 8, f"a view of two numbers has {view.nbytes} bytes"
    assert view.storage_offset() == 4, f"a view has offset {view.storage_offset()}, not 4"
    pointer = x.data_ptr()
    del x
    assert view.untyped_storage().data_ptr() == pointer, "memory moves as the base of a view goes"
    assert_values(view, [4, 5], "a view whose base is gone")


def test_data(device: str) -> None:
    """``x.data`` replaces a tensor's memory, by some of another size too."""
    x = torch.ones(2, device=device, requires_grad=True)
    x.data = torch.zeros(3, device=device)
    assert_values(x, [0, 0, 0], "a tensor with new data")
    assert x.requires_grad, "new data changes requires_grad"
    x.data.add_(1)
    assert_values(x, [1, 1, 1], "a tensor after a write to its data")


@needs.feature("data in place")
def test_data_of_another_device(device: str) -> None:
    """``x.data`` replaces a tensor's memory by some on another device, and requires_grad stays."""
    x = torch.ones(3, device=device, requires_grad=True)
    x.data = x.data.cpu()
    assert x.device.type == "cpu", f"a tensor with data of the CPU is on {x.device}"
    x.data = x.data.to(device)
    assert x.device.type == device, f"a tensor with data of the device is on {x.device}"
    assert_values(x, [1, 1, 1], "a tensor whose data went to the host and back")
    assert x.requires_grad, "data of another device changes requires_grad"
