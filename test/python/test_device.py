"""torch.<name>: when the driver starts, what names a device, and what a forked process may do."""

import pickle
from types import ModuleType

import pytest
import torch
from fixtures import RunPython


def test_asking_starts_nothing(run_python: RunPython) -> None:
    run_python(
        """
        import torch
        assert torch.xcpu.is_available() and torch.xcpu.device_count() == 2
        assert torch.xcpu.current_device() == 0
        torch.manual_seed(1)
        assert not torch.xcpu.is_initialized()
        torch.xcpu.init()
        torch.xcpu.init()
        assert torch.xcpu.is_initialized()
        """,
        env={"TORCH_BACKEND": "xcpu"},
    )


@pytest.mark.parametrize(
    "first_use",
    ["torch.ones(1, device='xcpu')", "torch.xcpu.synchronize()", "torch.xcpu.Stream()", "torch.xcpu.get_device_name()"],
)
def test_first_use_starts_the_driver(run_python: RunPython, first_use: str) -> None:
    code = f"import torch; assert not torch.xcpu.is_initialized(); {first_use}; assert torch.xcpu.is_initialized()"
    run_python(code, env={"TORCH_BACKEND": "xcpu"})


def test_device_of_another_type(backend: ModuleType, name: str) -> None:
    with pytest.raises(ValueError, match=f"Expected a {name} device, but got 'cpu'"):
        backend.synchronize("cpu")
    with pytest.raises(TypeError, match="Expected a device index, a string or a torch"):
        backend.synchronize(1.5)


def test_get_device_index(backend: ModuleType, name: str) -> None:
    get = backend._utils._get_device_index
    assert get(3) == 3
    assert get(f"{name}:63") == 63  # torch.load asks before it says that there is no such device
    assert get(None, optional=True) == get(name, True) == backend.current_device()
    assert get("cpu", allow_cpu=True) == -1
    assert get(backend.device(0)) == 0
    with pytest.raises(ValueError, match="Expected a device with an index"):
        get(name)
    with pytest.raises(ValueError, match=f"Expected a {name} or cpu device"):
        get("meta", allow_cpu=True)


def test_properties(backend: ModuleType, name: str) -> None:
    properties = backend.get_device_properties(0)
    assert backend.get_device_properties() is properties
    assert pickle.loads(pickle.dumps(properties)) == properties
    assert repr(properties).startswith(f"_DeviceProperties(name='{properties.name}', type='{name}', index=0")


def test_architectures(backend: ModuleType) -> None:
    assert all(isinstance(arch, str) and arch for arch in backend.get_arch_list())


def test_everything_public_has_a_doc(backend: ModuleType) -> None:
    for attribute in backend.__all__:
        assert getattr(getattr(backend, attribute), "__doc__", None), attribute


def test_compiled_code_knows_the_current_device(backend: ModuleType) -> None:
    compiled = torch.compile(lambda x: x + backend.current_device(), backend="eager", fullgraph=True)
    assert compiled(torch.ones(1)).item() == 1 + backend.current_device()


def test_load_says_which_device_is_missing(backend: ModuleType, name: str) -> None:
    with pytest.raises(RuntimeError, match=r"(?i)deserialize object on a?.*device 63 but .*map_location"):
        torch.serialization._validate_device(f"{name}:63", name)  # type: ignore[no-untyped-call]


def test_bfloat16_is_not_emulated(backend: ModuleType) -> None:
    assert backend.is_bf16_supported(including_emulation=False) is backend.is_bf16_supported()
