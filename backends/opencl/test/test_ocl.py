"""The device ocl: what it says where it cannot work, its memory, and its library of matrix products.

What it does as a device is tested by the conformance kit. Where there is no driver only its messages are.
"""

import ctypes.util
import importlib.util
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import said
from torch_conformance.processes import RunPython, clean_environment

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("torch_backend_ocl") is None or ctypes.util.find_library("OpenCL") is None,
    reason="ocl was not built, or OpenCL's loader is not installed",
)


def icd(folder: Path, source: str) -> Path:
    """A folder for OCL_ICD_VENDORS with a driver of our own."""
    (folder / "driver.c").write_text(source)
    subprocess.run(["cc", "-shared", "-fPIC", folder / "driver.c", "-o", folder / "driver.so"], check=True)
    (folder / "driver.icd").write_text(f"{folder / 'driver.so'}\n")
    return folder


def commands_say(environment: dict[str, str]) -> str:
    """What doctor, list, info and `import torch` say where the device cannot work, as one line."""
    code = """
import torch
from torch_backend.__main__ import main
for command in (["doctor", "ocl"], ["list"], ["info"]):
    main(command)
"""
    process = subprocess.run(
        [sys.executable, "-c", code],
        env=clean_environment() | {"TORCH_BACKEND": "ocl"} | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=True,
    )
    assert "Traceback" not in process.stdout
    return re.sub(r"\s+", " ", process.stdout)


def test_no_driver(tmp_path: Path) -> None:
    text = commands_say({"OCL_ICD_VENDORS": str(tmp_path)})
    assert (
        text.count("OpenCL's loader finds no driver. Install one: that of your device, or one for the CPU") == 5
    )  # a warning, doctor, list twice, info
    assert "The library has nothing to work with on this machine" in text


def test_no_loader(tmp_path: Path) -> None:
    source = """
        #define _GNU_SOURCE
        #include <dlfcn.h>
        #include <string.h>
        void* dlopen(const char* name, int flags) {
          void* (*next)(const char*, int);
          *(void**)&next = dlsym(RTLD_NEXT, "dlopen");
          return next(name && !strcmp(name, "libOpenCL.so.1") ? "libOpenCL.so.none" : name, flags);
        }"""
    (tmp_path / "none.c").write_text(source)
    subprocess.run(["cc", "-shared", "-fPIC", tmp_path / "none.c", "-o", tmp_path / "none.so", "-ldl"], check=True)
    preload = " ".join(filter(None, [os.environ.get("LD_PRELOAD"), str(tmp_path / "none.so")]))
    text = commands_say({"LD_PRELOAD": preload})
    assert (
        text.count("OpenCL's loader is not installed (libOpenCL.so.none: cannot open shared object file") == 5
    )  # a warning, doctor, list twice, info
    assert "It needs libOpenCL.so.none, which the loader does not find." in text


def test_a_driver_that_crashes(run_python: RunPython, tmp_path: Path) -> None:
    source = "#include <stdlib.h>\n__attribute__((constructor)) static void start(void) { abort(); }"
    assert "an OpenCL driver crashed or hung" in said(run_python, icd(tmp_path, source))


def test_a_library_that_is_no_driver(run_python: RunPython, tmp_path: Path) -> None:
    assert "finds no driver" in said(run_python, icd(tmp_path, "int not_a_driver;"))


@pytest.mark.parametrize(("key", "choices"), [("memory", "auto, svm, buffer"), ("device_type", "all, cpu, gpu")])
def test_a_choice_that_is_none(run_python: RunPython, key: str, choices: str) -> None:
    assert f'ocl.{key} is "often"; expected one of: {choices}' in said(run_python, **{key: "often"})


@pytest.mark.usefixtures("driver")
def test_a_choice_that_leaves_no_device(run_python: RunPython) -> None:
    assert 'let through by ocl.platform ("nobody\'s")' in said(run_python, platform="nobody's")


@pytest.mark.usefixtures("driver")
def test_the_host_cannot_read_buffers(run_python: RunPython) -> None:
    run_python(
        """
        import ctypes, torch
        x = torch.ones(3, device="ocl")
        assert x.tolist() == [1, 1, 1]
        ctypes.string_at(x.data_ptr(), 1)
        """,
        env={"TORCH_BACKEND": "ocl", "TORCH_BACKEND_OCL_MEMORY": "buffer"},
        expect=-signal.SIGSEGV,
    )


@pytest.mark.usefixtures("driver")
@pytest.mark.parametrize("memory", ["buffer", "svm"])
def test_matrix_products(run_python: RunPython, memory: str) -> None:
    if ctypes.util.find_library("clblast") is None:
        pytest.skip("CLBlast is not installed")
    run_python(
        """
        import torch, torch_backend

        def compare(function, *shapes):
            tensors = [torch.randn(shape) for shape in shapes]
            result = function(*(tensor.to("ocl") for tensor in tensors))
            torch.testing.assert_close(result.cpu(), function(*tensors), atol=1e-4, rtol=1e-4)

        for m, k, n in [(1, 1, 1), (1, 5, 3), (4, 1, 2), (33, 65, 17)]:
            compare(torch.mm, (m, k), (k, n))
            compare(lambda a, b: a.T @ b, (k, m), (k, n))
            compare(lambda a, b: a @ b.T, (m, k), (n, k))
            compare(lambda a, b: a[:, :k] @ b[1:].T, (m, k + 3), (n + 1, k))
            compare(lambda c, a, b: torch.addmm(c, a, b, beta=0.5, alpha=3), (m, n), (m, k), (k, n))
            compare(torch.addmm, (n,), (m, k), (k, n))
            compare(lambda a, b: torch.addmm(a.new_full((n,), torch.nan), a, b, beta=0), (m, k), (k, n))
            compare(torch.bmm, (3, m, k), (3, k, n))
            compare(lambda a, b: torch.bmm(a, b.expand(3, k, n)), (3, m, k), (1, k, n))
            compare(torch.baddbmm, (3, m, n), (3, m, k), (3, k, n))
            compare(torch.baddbmm, (n,), (3, m, k), (3, k, n))
        fallen_back = str(torch_backend.fallback.report())
        assert not any(f"aten::{name} " in fallen_back for name in ("mm", "bmm", "addmm", "baddbmm")), fallen_back
        """,
        env={"TORCH_BACKEND": "ocl", "TORCH_BACKEND_OCL_MEMORY": memory, "TORCH_BACKEND_OCL_CLBLAST": "1"},
    )
