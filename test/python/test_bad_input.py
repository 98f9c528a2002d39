"""What a user can get wrong: sizes, devices, mixed devices, options, a second device. The text says what is wrong."""

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch
from fixtures import BuildPlugin, RunPython, in_process
from torch import Tensor

import torch_backend

MIB = 2**20
HUGE = 2**62

Make = Callable[[str], object]


# ---- sizes ----


@pytest.mark.parametrize(
    "make",
    [
        lambda name: torch.empty(HUGE, dtype=torch.uint8, device=name),
        lambda name: torch.zeros(2**63 - 1, dtype=torch.bool, device=name),
        lambda name: torch.empty(2**31, 2**31, dtype=torch.uint8, device=name),
        lambda name: torch.UntypedStorage(HUGE, device=name),
        lambda name: torch.empty(1, device=name).untyped_storage().resize_(HUGE),
    ],
    ids=["elements", "largest", "product", "storage", "storage-resize"],
)
def test_more_than_there_is(backend: ModuleType, name: str, make: Make) -> None:
    before = backend.memory_allocated()
    with pytest.raises(torch.OutOfMemoryError, match=rf"^{name}:0 out of memory\. Tried to allocate \d+\.00 GiB\. "):
        make(name)
    assert backend.memory_allocated() == before
    assert torch.ones(2, device=name).sum().item() == 2


@pytest.mark.parametrize(
    "make",
    [
        lambda name: torch.empty(HUGE, device=name),
        lambda name: torch.empty(2**32, 2**32, device=name),
        lambda name: torch.empty_strided((2, 2), (HUGE, HUGE), device=name),
        lambda name: torch.empty(1, device=name).resize_(HUGE),
    ],
    ids=["bytes", "product", "strides", "resize"],
)
def test_size_that_overflows(name: str, make: Make) -> None:
    with pytest.raises(RuntimeError, match="Storage size calculation overflowed with sizes="):
        make(name)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda name: torch.empty(-1, device=name), r"negative dimension -1: \[-1\]"),
        (lambda name: torch.zeros(3, -2, device=name), "must be non-negative"),
        (lambda name: torch.empty_strided((2, 2), (1,), device=name), r"sizes \(2\) must match .* strides \(1\)"),
        (lambda name: torch.ones(4, device=name).as_strided((10,), (1,)), "out of bounds for storage of size 16"),
        (lambda name: torch.ones(4, device=name).copy_(torch.ones(5)), r"size of the tensor \(4\) .*size \(5\)"),
    ],
    ids=["negative", "second-negative", "strides", "outside", "copy"],
)
def test_wrong_shape(name: str, make: Make, text: str) -> None:
    with pytest.raises(RuntimeError, match=text):
        make(name)


def test_huge_pinned_memory(name: str) -> None:
    with pytest.raises(
        torch.OutOfMemoryError, match=r"Out of pinned host memory of \w+:\d+: tried to allocate \d+\.00 GiB"
    ):
        torch.empty(2**60, dtype=torch.uint8, pin_memory=True)
    assert torch.empty(4, pin_memory=True).is_pinned()


def test_raw_allocation_that_cannot_be(backend: ModuleType) -> None:
    for size in (2**63, 2**64 - 1):
        with pytest.raises(torch.OutOfMemoryError, match="out of memory"):
            backend.caching_allocator_alloc(size)
    with pytest.raises(TypeError):
        backend.caching_allocator_alloc(-1)


# ---- kinds of tensors ----


def test_layout_that_is_not_offered(name: str) -> None:
    with pytest.raises((NotImplementedError, RuntimeError), match=f"(?i){name}"):
        torch.empty((2, 2), device=name, layout=torch._mkldnn)  # type: ignore[attr-defined]


def test_pinned_device_memory(name: str) -> None:
    with pytest.raises(RuntimeError, match=f"Only CPU memory can be pinned; a tensor on {name} cannot be created with"):
        torch.empty(2, device=name, pin_memory=True)
    with pytest.raises(RuntimeError, match="only dense CPU tensors can be pinned"):
        torch.empty(2, device=name).pin_memory()


# ---- devices that do not exist ----


@pytest.mark.parametrize(
    "use",
    [
        lambda device: torch.empty(1, device=device),
        lambda device: torch.ones(1).to(device),
        lambda device: torch.nn.Linear(1, 1, device=device),
        lambda device: torch.Generator(device),
        lambda device: torch.Stream(device),
        lambda device: torch.UntypedStorage(8, device=device),
        lambda device: torch.accelerator.set_device_index(device),
    ],
    ids=["empty", "to", "module", "generator", "stream", "storage", "set"],
)
def test_device_out_of_range(backend: ModuleType, name: str, use: Make) -> None:
    count = backend.device_count()
    text = f"Device index 63 is out of range: {name} has {count} devices?, 0 to {count - 1}"
    with pytest.raises(IndexError, match=text):
        use(f"{name}:63")
    assert backend.current_device() == 0


@pytest.mark.parametrize("index", [63, 300, 2**40])
def test_index_out_of_every_range(backend: ModuleType, name: str, index: int) -> None:
    text = f"There is no device {name}:{index}: this process has {backend.device_count()}"
    for use in (backend.set_device, backend.Stream, backend.mem_get_info, backend.get_rng_state, backend.synchronize):
        with pytest.raises(IndexError, match=text):
            use(index)


def test_device_strings_that_are_none(name: str) -> None:
    for text in (f"{name}:-1", f"{name}:x", f"{name}:", f"{name}:1.5", f"{name}:01"):
        with pytest.raises(RuntimeError, match=r"[Dd]evice string"):
            torch.empty(1, device=text)
    with pytest.raises(RuntimeError, match="must not be negative"):
        torch.device(name, -1)


@in_process({"TORCH_BACKEND": "xcpu"})
def test_stream_that_does_not_exist() -> None:
    key = {"device_index": 0, "device_type": torch.xcpu.default_stream().device_type}
    for number in (32 << 4 | 1, 2**40 + 1, 2**62 + 1, -1, -(2**31) - 1):
        with pytest.raises(RuntimeError, match=f"There is no stream with id {number}"):
            torch.Stream(stream_id=number, **key).synchronize()


def test_stream_on_a_device_that_does_not_exist(backend: ModuleType) -> None:
    key = {"stream_id": 0, "device_type": backend.default_stream().device_type}
    for index in (63, 100):
        with pytest.raises(IndexError, match=f"Device index {index} is out of range"):
            torch.Stream(device_index=index, **key).synchronize()


def test_handle_that_is_no_pointer(backend: ModuleType) -> None:
    with pytest.raises(ValueError, match="A stream handle is a pointer to an aligned object; got the odd number 3"):
        backend.ExternalStream(3)


# ---- tensors of several devices ----

MIXED: dict[str, Callable[[torch.Tensor, torch.Tensor], object]] = {
    "add": lambda x, y: x + y,
    "add-reversed": lambda x, y: y + x,
    "add_": lambda x, y: x.add_(y),
    "mm": lambda x, y: x.view(2, 2) @ y.view(2, 2),
    "cat": lambda x, y: torch.cat([x, y]),
    "stack": lambda x, y: torch.stack([x, y]),
    "where": lambda x, y: torch.where(x > 1, x, y),
    "equal": torch.equal,
    "allclose": torch.allclose,
    "linear": lambda x, y: torch.nn.functional.linear(x, y.view(1, 4)),
    "embedding": lambda x, y: torch.nn.functional.embedding(y.long(), x.view(4, 1)),
    "foreach": lambda x, y: torch._foreach_add([x], [y]),
    "out": lambda x, y: torch.add(x, x, out=torch.empty_like(y)),
    "out-of-two": lambda x, y: torch.sort(x, out=(torch.empty_like(x), torch.empty_like(y, dtype=torch.long))),
    "out-of-reduction": lambda x, y: torch.sum(x, 0, out=torch.empty_like(y[0])),
    "index-assigned": lambda x, y: x.index_add_(0, torch.zeros(4, dtype=torch.long, device=x.device), y),
}


def message(x: torch.device, y: torch.device) -> str:
    found = f"found at least two devices, ({x} and {y}|{y} and {x})!"
    got = rf"got \w+ is on ({x}|{y}), different from other tensors on ({x}|{y}) \(when checking argument in method"
    return f"Expected all tensors to be on the same device, but ({found}|{got})"


HOST = torch.ones(3, 4)


@pytest.mark.parametrize(
    ("call", "argument"),
    [
        (lambda x: torch.addmm(x[:, :3], x, HOST.t()), "mat2"),
        (lambda x: torch.bmm(x[None], HOST.t()[None]), "mat2"),
        (lambda x: torch.mm(HOST, x.t()), "mat2"),
        (lambda x: torch.gather(x, 0, torch.zeros(1, 4, dtype=torch.long)), "index"),
        (lambda x: x.index_select(0, torch.tensor([0])), "index"),
        (lambda x: torch.cat([x, HOST]), "tensors"),
        (lambda x: torch.mm(x, x.t(), out=torch.empty(3, 3)), "self"),
        (lambda x: torch.nn.functional.embedding(torch.tensor([1]), x), "index"),
    ],
)
def test_arguments_that_pytorch_names(name: str, call: Callable[[Tensor], Tensor], argument: str) -> None:
    pattern = (
        r"Expected all tensors to be on the same device, but "
        rf"(got {argument} is on .*, different from other tensors on .* \(when checking argument in method"
        rf"|found at least two devices, .* and .*! \(when checking argument for argument {argument} in method)"
    )
    with pytest.raises(RuntimeError, match=pattern):
        call(torch.ones(3, 4, device=name))


@pytest.mark.parametrize("operation", MIXED.values(), ids=MIXED)
def test_host_and_device(name: str, operation: Callable[..., object]) -> None:
    x, y = torch.arange(4.0, device=name), torch.arange(4.0)
    with pytest.raises(RuntimeError, match=message(x.device, y.device)):
        operation(x, y)
    assert x.cpu().tolist() == [0, 1, 2, 3]


@pytest.mark.usefixtures("two_devices")
@pytest.mark.parametrize("operation", MIXED.values(), ids=MIXED)
def test_two_devices(name: str, operation: Callable[..., object]) -> None:
    x, y = torch.arange(4.0, device=name), torch.arange(4.0, device=f"{name}:1")
    with pytest.raises(RuntimeError, match=message(x.device, y.device)):
        operation(x, y)
    assert x.cpu().tolist() == y.cpu().tolist() == [0, 1, 2, 3]


def test_out_on_the_device_of_host_tensors(name: str) -> None:
    x = torch.arange(4.0)
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        torch.add(x, x, out=torch.empty(4, device=name))


def test_storage_of_another_device(name: str) -> None:
    with pytest.raises(RuntimeError, match=rf"on device \"{name}:0\" to a storage on different device \"cpu\""):
        torch.empty(0, device=name).set_(torch.ones(2).untyped_storage())


def test_gradient_of_another_device(name: str) -> None:
    x = torch.ones(2, device=name, requires_grad=True)
    with pytest.raises(RuntimeError, match="attempting to assign a gradient with device type 'cpu'"):
        x.grad = torch.ones(2)


def test_generator_of_another_device(name: str) -> None:
    with pytest.raises(RuntimeError, match=f"Expected a '{name}' device type for generator but found 'cpu'"):
        torch.rand(2, device=name, generator=torch.Generator())


@pytest.mark.usefixtures("two_devices")
def test_events_of_two_devices(backend: ModuleType) -> None:
    start, end = backend.Event(enable_timing=True), backend.Event(enable_timing=True)
    start.record(backend.Stream(0))
    end.record(backend.Stream(1))
    with pytest.raises(RuntimeError, match=r"An event of \w+:0 cannot be recorded on a stream of \w+:1"):
        start.record(backend.Stream(1))
    with pytest.raises(ValueError, match="time between events of different devices cannot be measured"):
        start.elapsed_time(end)


def test_events_that_were_not_recorded(backend: ModuleType) -> None:
    start, end = backend.Event(enable_timing=True), backend.Event(enable_timing=True)
    start.record()
    with pytest.raises((RuntimeError, ValueError), match="Both events must be recorded before"):
        start.elapsed_time(end)


# ---- libraries and options ----


def test_loading_twice(run_python: RunPython, build_plugin: BuildPlugin, tmp_path: Path) -> None:
    path = build_plugin()
    link, copy = tmp_path / "libtorch_backend_acme.so", tmp_path / "copy.so"
    os.symlink(path, link)
    shutil.copy(path, copy)
    run_python(
        f"""
        import os, pytest, torch, torch_backend
        from torch_backend import _C
        path, link, copy = {str(path)!r}, {str(link)!r}, {str(copy)!r}
        plugin = torch_backend.load(path)
        assert torch_backend.load(path) is torch_backend.load(link) is plugin
        os.chdir(os.path.dirname(path))
        assert torch_backend.load(os.path.basename(path)) is plugin
        assert _C.load_plugin(link).path == plugin.path == os.path.realpath(path)
        torch_backend.activate(plugin)
        assert torch_backend.active() is torch_backend.activate(torch_backend.load(link)) is plugin
        other = torch_backend.load(copy)  # another file, so another plugin, with the same name
        assert other is not plugin and other.name == plugin.name
        with pytest.raises(RuntimeError, match="is active, so 'acme' .*copy.so. cannot be activated"):
            torch_backend.activate(other)
        """
    )


@in_process({"TORCH_BACKEND": "xcpu"})
def test_second_device_names_both() -> None:
    with pytest.raises(RuntimeError, match="one out-of-tree device type per process") as error:
        torch_backend.activate("fake")
    for part in ("'xcpu' (", "_xcpu.so) is active", "'fake' (", "_fake.so) cannot be activated", "TORCH_BACKEND"):
        assert part in str(error.value), part
    assert torch_backend.active().name == "xcpu"
    assert not hasattr(torch, "fake")
    assert torch.ones(2, device="xcpu").sum().item() == 2


@in_process({"TORCH_BACKEND": "xcpu"})
def test_options_after_loading() -> None:
    plugin = torch_backend.active()
    text = r"options {'devices': 3} for 'xcpu' come too late: .* TORCH_BACKEND_XCPU_DEVICES=3 in the environment"
    for use in (torch_backend.activate, torch_backend.load):
        with pytest.raises(RuntimeError, match=text):
            use("xcpu" if use is torch_backend.activate else plugin.path, {"devices": 3})
    with pytest.raises(RuntimeError, match="come too late"):
        torch_backend.activate(plugin, {"devices": 3})
    assert torch.xcpu.device_count() == 2


REFUSED = {
    "devices=65": 'xcpu.devices is "65"; expected a whole number from 1 to 64',
    "devices=0": "expected a whole number from 1 to 64",
    "memory=lots": 'xcpu.memory is "lots"; expected a size such as 512MiB',
    "memory=99999999999TiB": "expected a size such as 512MiB",
    "async=yes": 'xcpu.async is "yes"; expected 0 or 1',
    "delay_us=5": "xcpu.delay_us delays asynchronous work; set xcpu.async=1 as well",
    "fault=memory_allocate": '"memory_allocate" is not slot[:device]=STATUS[@n]',
}


def test_options_that_are_refused(run_python: RunPython) -> None:
    run_python(
        f"""
        import pytest, re, torch_backend
        for option, text in {REFUSED!r}.items():
            key, _, value = option.partition("=")
            with pytest.raises(RuntimeError, match="^Device library '.*' refused to load: .*" + re.escape(text)):
                torch_backend.activate("xcpu", {{key: value}})
            assert torch_backend.active() is None
            with pytest.raises(RuntimeError, match="refused"):
                torch_backend.activate("xcpu")  # what was set stays
            torch_backend._C.set_option("xcpu." + key, "")
        assert torch_backend.activate("xcpu").device_count() == 2
        """
    )


def test_unknown_option(run_python: RunPython) -> None:
    process = run_python(
        """
        import torch, torch_backend
        torch_backend.activate("xcpu", options={"device": 3, "devices": 3})
        assert torch.xcpu.device_count() == 3
        """,
        env={"TORCH_BACKEND_XCPU_ASYNCH": "1"},
    )
    known = (
        r"It has: devices, memory, async, protect, ipc, delay_us, fault, ccl, modules, threads, virtual_memory, races, "
        r"compiler\."
    )
    assert re.search(rf"Device 'xcpu' has no option 'xcpu\.device'\. {known}", process.stderr)
    assert re.search(rf"Device 'xcpu' has no option 'TORCH_BACKEND_XCPU_ASYNCH'\. {known}", process.stderr)
    assert process.stderr.count("has no option") == 2


# ---- out of memory ----


@pytest.mark.parametrize("asynchronous", ["0", "1"])
@in_process(
    lambda asynchronous: {
        "TORCH_BACKEND": "xcpu",
        "TORCH_BACKEND_XCPU_MEMORY": "64MiB",
        "TORCH_BACKEND_XCPU_ASYNC": asynchronous,
    }
)
def test_out_of_memory_and_back() -> None:
    def block(size: int, device: str = "xcpu") -> Tensor:
        return torch.empty(size * MIB, dtype=torch.uint8, device=device)

    held = [block(10) for _ in range(6)]
    for _ in range(3):
        with pytest.raises(torch.OutOfMemoryError) as error:
            block(10)
        text = str(error.value)
        for part in (
            "xcpu:0 out of memory. Tried to allocate 10.00 MiB. The device has a total capacity of 64.00 MiB",
            "60.00 MiB allocated by PyTorch",
            "torch.xcpu.memory_summary()",
            "4.00 MiB is free",
            "The device says: xcpu:0: asked for 10485760 bytes, 62914560 of 67108864 bytes are in use",
        ):
            assert part in text, (part, text)
        assert "\n" not in text.split("Exception raised from")[0].strip()
    assert torch.xcpu.memory_allocated() == 60 * MIB
    assert torch.xcpu.memory_stats()["num_ooms"] == 3
    x = torch.ones(64, 1024, 128, device="xcpu:1")
    with pytest.raises(torch.OutOfMemoryError, match=r"xcpu:1 out of memory\. Tried to allocate (32|64).00 MiB"):
        torch.cat([x + 0, x])
    with pytest.raises(torch.OutOfMemoryError, match=r"xcpu:0 out of memory\. Tried to allocate 32\.00 MiB"):
        x.to("xcpu:0")
    assert x.sum().item() == x.numel()
    del held, x
    assert block(64).numel() == 64 * MIB
    torch.xcpu.empty_cache()
    big = block(60)
    assert big.fill_(1)[-1].item() == 1
    del big
    torch.xcpu.empty_cache()
    for device in (0, 1):
        assert torch.xcpu.mem_get_info(device) == (64 * MIB, 64 * MIB), device
        assert torch.xcpu.memory_reserved(device) == 0
