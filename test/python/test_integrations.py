"""Libraries on top of PyTorch, with packages of our own in their place: what is changed, when, and what is said."""

from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch
from fixtures import RunPython

from torch_backend.compat import cuda_code

SOURCE = '''
import functools

def choose(index=0):
    """On "cuda"."""
    import torch
    if torch.cuda.is_available():
        return [f"cuda:{number}" for number in range(index)], "cuda", ("cuda", "cpu"), "nccl"
    return "no cuda here"

@functools.lru_cache
def cached():
    import torch
    return torch.cuda.is_available()

def asked():
    return is_torch_cuda_available()

def is_torch_cuda_available():
    return False

def activity():
    from torch.profiler import ProfilerActivity
    return ProfilerActivity.CUDA

def kind(RNGType):
    return RNGType.CUDA

class Chooser:
    @property
    def device(self):
        return "cuda"

    @staticmethod
    def parse(text):
        return text == "cuda"

    def other(self):
        return "cpu"
'''


@pytest.fixture
def library() -> ModuleType:
    module = ModuleType("library")
    exec(SOURCE, module.__dict__)
    return module


def test_functions_that_name_cuda_name_the_device(name: str, library: ModuleType) -> None:
    imported_before, answered_before = library.choose, library.cached()
    cuda_code.retarget_module(library, (), name)
    assert not answered_before
    assert library.cached()
    assert imported_before(2) == ([f"{name}:0", f"{name}:1"], name, (name, "cpu"), f"{name}ccl")
    assert imported_before.__doc__ == 'On "cuda".'
    assert library.Chooser().device == name
    assert library.Chooser.parse(name)
    assert library.asked()  # while everybody else hears what is so about CUDA
    assert not library.is_torch_cuda_available()
    assert library.activity() is torch.profiler.ProfilerActivity.PrivateUse1
    assert library.kind(SimpleNamespace(CUDA="another list")) == "another list"


def test_only_the_functions_that_are_named(name: str, library: ModuleType) -> None:
    cuda_code.retarget_module(library, ("Chooser.device",), name)
    cuda_code.retarget_module(library, ("Chooser.device",), name)  # done before: not an error
    assert library.Chooser().device == name
    assert library.choose() == "no cuda here"


@pytest.mark.parametrize("wrong", ["Chooser.other", "missing"])
def test_functions_that_are_not_as_expected_are_an_error(name: str, library: ModuleType, wrong: str) -> None:
    with pytest.raises(LookupError, match=wrong):
        cuda_code.retarget_module(library, (wrong,), name)


def package(folder: Path, name: str, version: str, code: str = "") -> Path:
    """A package that is called like a library."""
    (folder / name).mkdir()
    (folder / name / "__init__.py").write_text(code)
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    return folder


def run_import(run_python: RunPython, folder: Path, library: str, setting: str = "") -> str:
    """What is warned of when ``library`` is imported."""
    code = f"""
        import warnings
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            import torch, {library}
        print(*(warning.message for warning in caught))
    """
    environment = {"TORCH_BACKEND": "xcpu", "TORCH_BACKEND_INTEGRATIONS": setting}
    return run_python(code, env=environment, packages=[folder]).stdout


def test_unknown_versions_are_left_alone_and_warned_of(run_python: RunPython, tmp_path: Path) -> None:
    package(tmp_path, "safetensors", "99.1", "safe_open = None")
    assert "active device 'xcpu' unused" in run_import(run_python, tmp_path, "safetensors")
    assert run_import(run_python, tmp_path, "safetensors", "-safetensors").strip() == ""


def test_known_versions_that_are_different_are_warned_of(run_python: RunPython, tmp_path: Path) -> None:
    package(tmp_path, "safetensors", "0.8.0")
    assert "has no attribute 'safe_open'" in run_import(run_python, tmp_path, "safetensors")


def test_libraries_without_an_integration_are_warned_of(run_python: RunPython, tmp_path: Path) -> None:
    package(tmp_path, "fastai", "2.8")
    assert 'default_device("xcpu")' in run_import(run_python, tmp_path, "fastai")
    for setting in ("0", "accelerate", "-fastai"):
        assert run_import(run_python, tmp_path, "fastai", setting).strip() == ""


def test_a_library_is_warned_of_only_where_it_runs_on_torch(run_python: RunPython, tmp_path: Path) -> None:
    package(tmp_path, "keras", "3.9")
    backend = tmp_path / "keras" / "src" / "backend" / "torch"
    backend.mkdir(parents=True)
    for folder in (backend, backend.parent, backend.parent.parent):
        (folder / "__init__.py").touch()
    assert run_import(run_python, tmp_path, "keras").strip() == ""
    (tmp_path / "keras" / "__init__.py").write_text("import keras.src.backend.torch")
    assert 'keras.device("xcpu:0")' in run_import(run_python, tmp_path, "keras")


def test_a_setting_that_names_nothing_is_an_error(run_python: RunPython) -> None:
    code = "import torch_backend; torch_backend.activate('xcpu')"
    process = run_python(code, env={"TORCH_BACKEND_INTEGRATIONS": "nothing"}, expect=1)
    assert "TORCH_BACKEND_INTEGRATIONS names nothing; it can be 0, or name accelerate, " in process.stderr


def test_a_library_that_imports_torch_first_is_adapted_when_it_is_complete(
    run_python: RunPython, tmp_path: Path
) -> None:
    package(tmp_path, "safetensors", "0.8.0", "import torch\nclass safe_open: pass\noriginal = safe_open")
    code = "import safetensors; print(safetensors.safe_open is not safetensors.original)"
    assert run_python(code, env={"TORCH_BACKEND": "xcpu"}, packages=[tmp_path], warnings=["error"]).stdout == "True\n"


@pytest.mark.parametrize("imports", ["", "import library.tool"], ids=["", "also imported"])
def test_main_modules_are_adapted(run_python: RunPython, tmp_path: Path, imports: str) -> None:
    package(tmp_path, "library", "1", imports)
    code = "import torch\nif __name__ == '__main__':\n    print(torch.cuda.is_available())"
    (tmp_path / "library" / "tool.py").write_text(code)
    code = """
        import functools, runpy, torch
        from torch_backend.compat.after_import import after_import
        from torch_backend.compat import cuda_code
        after_import("library.tool", lambda: None, as_main=functools.partial(cuda_code.retargeted, device="xcpu"))
        runpy.run_module("library.tool", run_name="__main__")
    """
    assert run_python(code, env={"TORCH_BACKEND": "xcpu"}, packages=[tmp_path]).stdout == "True\n"
