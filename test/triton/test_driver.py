"""What ``DeviceDriver`` makes of a launch of Triton's, and says of the device."""

from collections.abc import Sequence
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from triton.backends.compiler import GPUTarget

from torch_backend.triton.driver import Argument, DeviceDriver


class Recording(DeviceDriver):
    def __init__(self) -> None:
        super().__init__()
        self.launched: list[Any] = []

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("acme", "x100", 32)

    def load(self, device: int, name: str, image: bytes, shared_bytes: int) -> tuple[Any, ...]:
        return device, name, image, shared_bytes

    def launch(
        self, function: Any, grid: tuple[int, int, int], stream: int, arguments: Sequence[Argument], metadata: Any
    ) -> None:
        self.launched.append((function, grid, stream, arguments, metadata))


def launch(signature: dict[str, Any], *arguments: Any, grid: tuple[int, int, int] = (2, 1, 1)) -> Any:
    driver, hooks = Recording(), []
    launcher = driver.launcher_cls(SimpleNamespace(signature=signature), "metadata")
    enter, leave = (lambda given, name=name: hooks.append((name, given)) for name in ("enter", "leave"))
    launcher(*grid, 7, "function", "packed", "launch metadata", enter, leave, *arguments)
    assert hooks == ([("enter", "launch metadata"), ("leave", "launch metadata")] if driver.launched else [])
    return driver.launched


def test_arguments_are_values_and_addresses(device: str) -> None:
    x = torch.ones(4, device=device)
    kinds = {"x": "*fp32", "n": "i32", "BLOCK": "constexpr", "pair": ("*fp32", "constexpr", "fp32")}
    expected = [("*fp32", x.data_ptr()), ("i32", 4), ("*fp32", x[1:].data_ptr()), ("fp32", 0.5)]
    assert launch(kinds, x, 4, 128, (x[1:], 3, 0.5)) == [("function", (2, 1, 1), 7, expected, "metadata")]


def test_constants_may_be_left_out(device: str) -> None:
    assert launch({"n": "i32", "BLOCK": "constexpr"}, 4)[0][3] == [("i32", 4)]


def test_no_block_is_no_launch_and_no_hook(device: str) -> None:
    assert launch({"n": "i32"}, 4, grid=(2, 0, 1)) == []


def test_descriptors_are_refused(device: str) -> None:
    with pytest.raises(NotImplementedError, match="passes no tensor descriptors"):
        launch({"x": "tensordesc<fp32[16]>"}, torch.ones(16, device=device))


def test_what_it_says_of_the_device(backend: ModuleType, device: str) -> None:
    driver = Recording()
    assert driver.is_active()
    assert driver.get_active_torch_device() == torch.device(device, backend.current_device())
    assert driver.get_device_interface() is backend
    assert driver.get_current_stream(0) == backend.current_stream(0).native_handle
    properties = backend.get_device_properties(0)
    assert driver.get_device_capability(0) == (properties.major, properties.minor)
    assert driver.utils.get_device_properties(0)["multiprocessor_count"] == properties.multi_processor_count
    assert driver.utils.load_binary("add", b"image", 16, 0)[1] == (0, "add", b"image", 16)
    types = [driver.map_python_to_cpp_type(kind) for kind in ("*fp32", "i32", "u64", "i1", "bf16")]
    assert types == ["void*", "int32_t", "uint64_t", "int8_t", "double"]
    cache = driver.get_empty_cache_for_benchmark()
    driver.clear_cache(cache)
    assert cache.device.type == device
    assert not cache[:8].any()
