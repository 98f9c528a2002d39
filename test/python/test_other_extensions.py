"""What else is in the process: registrations of extensions for PrivateUse1, and what is everybody's in PyTorch."""

import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from fixtures import PLUGIN_SOURCES, RunPython

NONE = {"TORCH_BACKEND": "none"}

FALLBACK = """
import torch, torch_backend, warnings
calls = []
def serve(op, *args, **kwargs):
    calls.append(op.name())
    return torch.zeros(3)
library = torch.library.Library("_", "IMPL")
def register():
    library.fallback(serve, "PrivateUse1")
"""


@pytest.fixture(scope="session")
def extension(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """test/plugins/extension.cpp, for ctypes."""
    compiler = shutil.which("c++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    root = Path(torch.__file__).parent
    path = tmp_path_factory.mktemp("extension") / "extension.so"
    include = [f"-I{root / 'include'}", f"-I{root / 'include/torch/csrc/api/include'}"]
    abi = f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"
    link = [f"-L{root / 'lib'}", "-ltorch_cpu", "-lc10"]
    source = PLUGIN_SOURCES / "extension.cpp"
    subprocess.run([compiler, "-std=c++20", "-shared", "-fPIC", abi, *include, source, *link, "-o", path], check=True)
    return path


# ---- a fallback of its own ----


def test_a_fallback_that_came_before_is_kept(run_python: RunPython) -> None:
    run_python(
        FALLBACK
        + """
register()
torch_backend.activate("fake")
x = torch.ones(3, device="fake")
assert (x + 1).cpu().tolist() == [2, 2, 2], "what the device has a kernel for is the device's"
assert torch.linalg.eigvals(torch.ones(3, 3, device="fake")).tolist() == [0, 0, 0]
assert calls == ["aten::_linalg_eigvals"], calls
assert torch_backend.operators.operator_sources()["aten::_linalg_eigvals"] == "extension"
""",
        env=NONE,
    )


def test_a_fallback_that_comes_after_is_told_what_to_do(run_python: RunPython) -> None:
    run_python(
        FALLBACK
        + """
torch_backend.activate("fake")
try:
    register()
except RuntimeError as error:
    assert "import an extension with a fallback of its own before the device is activated" in str(error), error
else:
    raise AssertionError
assert torch.linalg.eigvals(torch.eye(3, device="fake")).real.cpu().tolist() == [1, 1, 1]
""",
        env=NONE,
    )


# ---- a generator, and what is attached to tensors ----

LOAD = """
import ctypes, io, pytest, torch, torch_backend
extension = ctypes.CDLL({path!r})
extension.cpu_allocator.restype = ctypes.c_void_p
"""


def test_a_generator_that_came_before_is_refused(run_python: RunPython, extension: Path) -> None:
    run_python(
        LOAD.format(path=str(extension))
        + """
extension.register_generator()
with pytest.raises(RuntimeError, match="registered a generator with REGISTER_GENERATOR_PRIVATEUSE1"):
    torch_backend.activate("fake")
assert torch_backend.active() is None
""",
        env=NONE,
    )


def test_a_generator_that_comes_after_is_refused_when_one_is_wanted(run_python: RunPython, extension: Path) -> None:
    run_python(
        LOAD.format(path=str(extension))
        + """
torch_backend.activate("fake")
torch.rand(2, device="fake")
extension.register_generator()
with pytest.raises(RuntimeError, match="registered a generator with REGISTER_GENERATOR_PRIVATEUSE1"):
    torch.Generator("fake")
""",
        env=NONE,
    )


@pytest.mark.parametrize("before", [True, False])
def test_what_another_extension_attaches_is_its_own(run_python: RunPython, extension: Path, before: bool) -> None:
    first, second = "extension.register_metadata()", 'torch_backend.activate("fake")'
    run_python(
        LOAD.format(path=str(extension))
        + f"""
assert {first if before else second} != 0
assert {second if before else first} != 0
x = torch.ones(2, device="fake")
with pytest.raises(RuntimeError, match="saves what is attached to tensors of fake in its own way"):
    torch_backend.metadata.attach(x, {{}})
""",
        env=NONE,
    )


# ---- what is everybody's ----


@pytest.mark.parametrize(("device", "is_replaced"), [("fake", False), ("xcpu", True)])
def test_cpu_allocator(run_python: RunPython, extension: Path, device: str, is_replaced: bool) -> None:
    """Only a device whose memory the host can access has to see what CPU kernels allocate."""
    run_python(
        LOAD.format(path=str(extension))
        + f"""
before = extension.cpu_allocator()
torch_backend.activate({device!r})
assert extension.cpu_allocator() == before, "nothing has used the device yet"
x = torch.ones(4, device={device!r})
assert (x.sort()[0] + 1).cpu().tolist() == [2] * 4
assert (extension.cpu_allocator() != before) is {is_replaced}
""",
        env=NONE,
    )


def test_copies_of_tensors_are_made_by_pytorch(run_python: RunPython) -> None:
    run_python(
        """
        import torch, torch_backend
        before = [kind.__deepcopy__ for kind in (torch.Tensor, torch.nn.Parameter)]
        torch_backend.activate("xcpu")
        from torch_backend import metadata
        metadata.attach(torch.ones(1, device="xcpu"), {})
        assert [kind.__deepcopy__ for kind in (torch.Tensor, torch.nn.Parameter)] == before
        """,
        env=NONE,
    )


def test_pytorch_can_still_warn_of_a_kernel_that_is_replaced(run_python: RunPython) -> None:
    """As often as this version of PyTorch warns of a kernel of the CPU, without a device."""
    replace = """
        import warnings
        import torch
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            library = torch.library.Library("aten", "IMPL")
            library.impl("relu", lambda self: self + 2, KEY)
        assert all("Overriding a previously registered kernel" in str(one.message) for one in heard)
        print(len(heard))
        """
    activate = """
        import warnings
        import torch, torch_backend
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            torch_backend.activate("xcpu")
            with torch_backend.kernel("aten::relu")(lambda self: self + 1):
                assert torch.ones(1, device="xcpu").relu().item() == 2
        assert [str(one.message) for one in heard] == []
        assert not torch.is_warn_always_enabled()
        """
    without = run_python(replace.replace("KEY", "'CPU'"), env=NONE).stdout
    assert run_python(activate + replace.replace("KEY", "'PrivateUse1'"), env=NONE).stdout == without
    # The libraries of its build for CUDA replace kernels themselves, and it warns once, before this program hears it.
    if torch.__version__.startswith("2.13.") and torch.version.cuda is None:
        assert without == "1\n"
