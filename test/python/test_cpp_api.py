"""torch_backend/api.h: the example program of libtorch's users, built with CMake, in processes without Python."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.utils
from fixtures import RunPython

from torch_backend.files import installed, patience

EXAMPLE = Path(__file__).parents[2] / "examples" / "cpp"
QUICK = ["-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_CXX_FLAGS_DEBUG=-O0"]  # to build; without -g, which takes as long again
LIBRARY = installed.reference_library("xcpu")


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Building it takes a minute."""
    folder = tmp_path_factory.mktemp("cpp")
    prefix = f"{installed.cmake_dir()};{torch.utils.cmake_prefix_path}"
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    for command in (
        ["cmake", "-S", EXAMPLE, "-B", folder, f"-DCMAKE_PREFIX_PATH={prefix}", *QUICK],
        ["cmake", "--build", folder],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        if "PyTorch: CUDA cannot be found" in done.stderr:
            pytest.skip("this torch is built for CUDA: programs that link it need CUDA's toolkit, which is not here")
        assert done.returncode == 0, done.stdout + done.stderr
    return folder / "train"


def run(program: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    plain = {key: value for key, value in os.environ.items() if not key.startswith("TORCH_BACKEND")}
    limit = patience.seconds(300)
    return subprocess.run(
        [program, *arguments], capture_output=True, text=True, check=False, timeout=limit, env=plain | environment
    )


def test_no_python_takes_part(program: Path) -> None:
    libraries = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    assert "libtorch_backend.so" in libraries
    assert "python3" not in "".join(line.split("=>")[0] for line in libraries.splitlines())


@pytest.mark.parametrize(
    ("arguments", "environment", "devices"),
    [
        (["xcpu", "devices=1"], {}, 1),
        (["xcpu", "async=1", "delay_us=0-200", "devices=2"], {}, 2),
        ([str(LIBRARY), "async=1"], {"TORCH_BACKEND_XCPU_DEVICES": "3"}, 3),
        (["xcpu"], {"TORCH_BACKEND_PATH": str(LIBRARY), "TORCH_BACKEND_XCPU_DEVICES": "4"}, 4),
    ],
    ids=["by name", "asynchronous", "by path", "by TORCH_BACKEND_PATH"],
)
def test_the_example(program: Path, arguments: list[str], environment: dict[str, str], devices: int) -> None:
    done = run(program, *arguments, **environment)
    assert done.returncode == 0, done.stderr
    first, losses, product, pool, memory, swish = done.stdout.splitlines()
    assert first == f"xcpu has {devices} devices"
    device, cpu = (float(part.split()[-1]) for part in losses.split(","))
    assert device == pytest.approx(cpu, rel=0.02)
    assert cpu < 0.1  # it has learned
    assert product == "a product on another stream is 256, in a positive time: yes"
    assert pool == "the pool is held by 2"
    assert memory == "at its peak the process held memory, after emptyCache less: yes"
    assert swish == "swish(2) is 1.7616"


@pytest.mark.parametrize("modules", ["0", "1"])
def test_a_package_without_python(
    program: Path, name: str, modules: str, run_python: RunPython, tmp_path: Path
) -> None:
    """On memory that the host reaches, and with kernels that the device compiles."""
    path = tmp_path / "model.pt2"
    environment = {"TORCH_BACKEND": name, "TORCH_BACKEND_XCPU_MODULES": modules}
    expected = run_python(
        f"""
        import torch
        x = torch.ones(3, 4, device={name!r})
        model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Softplus()).to({name!r})
        torch._inductor.aoti_compile_and_package(torch.export.export(model, (x,)), package_path={str(path)!r})
        print(f"{{model(x).sum().item():.4f}}")
        """,
        env=environment,
    )
    done = run(program.parent / "serve", name, str(path), **environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"1 result on {name}:0, in all {expected.stdout.splitlines()[-1]}\n"
    done = run(program.parent / "serve", "fake", str(path))
    assert f"Unsupported device key found: {name}" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "environment", "message"),
    [
        (["nodevice"], {}, "There is no device library for 'nodevice': looked for libtorch_backend_nodevice.so in /"),
        (["nodevice"], {"TORCH_BACKEND_PATH": "/nowhere"}, "in /nowhere, /"),
        (["nodevice"], {}, "Found there: fake"),
        (["nodevice"], {}, "written in Python, are found from Python only"),
        (["./nothing.so"], {}, "./nothing.so"),
        (["./other.so", "async=1"], {}, "Options cannot be given to './other.so'"),
        ([], {}, "xcpu"),
        (["xcpu", "devices=0"], {}, "devices"),
    ],
)
def test_what_is_wrong_is_said(program: Path, arguments: list[str], environment: dict[str, str], message: str) -> None:
    done = run(program, *arguments, **environment)
    assert done.returncode == 1
    assert message in done.stderr


def test_a_kernel_that_fails(program: Path) -> None:
    """An error of the device is an exception with its text, and the process ends in order."""
    done = run(program, "xcpu", TORCH_BACKEND_XCPU_FAULT="memory_allocate=OUT_OF_MEMORY")
    assert done.returncode == 1, done.stdout
    assert "memory" in done.stderr
