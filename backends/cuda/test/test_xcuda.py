"""The device xcuda on the simulated driver of this project: what it says where it cannot work, rules, faults."""

import ctypes
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from torch_conformance.processes import RunPython
from torch_conformance.ranks import expect_good
from torch_conformance.simulated_tests import SimulatedTests
from torch_conformance.simulation import Run, Simulated

XCUDA = Simulated("xcuda", Path(__file__).parents[1], "TORCH_BACKEND_XCUDA_LIBRARY_PATH", "CUDA_SIM")
INJECTED = "fails because CUDA_SIM_FAIL says so"
DTYPES = ("float32", "float64", "float16", "bfloat16")


@pytest.fixture
def run(run_python: RunPython, simulation: Path, tmp_path: Path) -> Run:
    return XCUDA.runner(run_python, simulation, tmp_path)


@pytest.fixture
def folder_with(simulation: Path, tmp_path: Path) -> Callable[..., Path]:
    """A folder with the driver, and with these libraries beside it."""

    def make(*libraries: str) -> Path:
        folder = tmp_path / "libraries"
        folder.mkdir()
        for library in ("libcuda.so.1", *libraries):
            shutil.copy(simulation / library, folder)
        return folder

    return make


def needs_no_driver() -> None:
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return
    pytest.skip("this machine has NVIDIA's driver, which is found where the option's folder has none")


def needs_no_package(library: str) -> None:
    """A torch that is built for CUDA brings NVIDIA's packages along."""
    found = [path for folder in sys.path for path in Path(folder).glob(f"nvidia/*/lib/{library}*")]
    if found:
        pytest.skip(f"{found[0]} is found where the option's folder has none")


def compile_library(source: str, path: Path) -> None:
    subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", path], input=source, text=True, check=True)


class TestXcuda(SimulatedTests):
    """What all devices on simulated drivers have, with messages that cross in groups of NCCL's."""

    device = XCUDA
    without_collectives = ("libcuda.so.1", "libnvrtc.so.12")
    settings = {
        "EXPECTED_SLOTS": "all_reduce broadcast reduce all_gather reduce_scatter send recv group_begin group_end"
    }

    def test_without_collectives_of_its_own_gloo_serves(self, simulation: Path, tmp_path: Path) -> None:
        needs_no_package("libnccl.so")
        super().test_without_collectives_of_its_own_gloo_serves(simulation, tmp_path)

    @pytest.mark.parametrize("scenario", ["time_out", "abort"])
    def test_what_a_rank_waits_for_in_vain_is_aborted(self, simulation: Path, tmp_path: Path, scenario: str) -> None:
        said = XCUDA.ranks([scenario], simulation, tmp_path, refused="has left", **self.settings)
        expect_good(scenario, said)

    def test_a_rank_that_dies_is_told(self, simulation: Path, tmp_path: Path) -> None:
        said = XCUDA.ranks(["killed"], simulation, tmp_path, refused="has left", **self.settings)
        expect_good("killed", said[:1])


# ---- where it cannot work ----


def test_no_driver(run_python: RunPython, tmp_path: Path) -> None:
    needs_no_driver()
    text = XCUDA.said(run_python, tmp_path)
    assert "NVIDIA's driver is not installed (libcuda.so.1: cannot open shared object file" in text


def test_a_library_that_is_none(run_python: RunPython, tmp_path: Path) -> None:
    needs_no_driver()
    (tmp_path / "libcuda.so.1").write_text("no library")
    text = XCUDA.said(run_python, tmp_path)
    assert f"NVIDIA's driver is not installed ({tmp_path}/libcuda.so.1: " in text


def test_a_library_without_a_function_is_too_old(run_python: RunPython, tmp_path: Path) -> None:
    compile_library("int cuInit(unsigned flags) { return flags; }", tmp_path / "libcuda.so.1")
    text = XCUDA.said(run_python, tmp_path)
    assert "NVIDIA's driver is too old: libcuda.so.1 has no cuDriverGetVersion. xcuda needs CUDA 12.0" in text


@pytest.mark.parametrize(
    ("variable", "value", "expected"),
    [
        (
            "CUDA_SIM_VERSION",
            "11080",
            "is too old: it is made for CUDA 11.8. xcuda needs CUDA 12.0, driver 525 or later",
        ),
        ("CUDA_SIM_DEVICES", "0", "nvidia-smi -L lists them, and CUDA_VISIBLE_DEVICES may hide them"),
        ("CUDA_SIM_FAIL", "cuInit=34", "libcuda.so.1 is the stub to link against, not the driver"),
        ("CUDA_SIM_FAIL", "cuInit=803", "restart the machine after an update"),
        ("CUDA_SIM_FAIL", "cuInit=999", "nvidia-smi shows whether the driver works"),
        ("CUDA_SIM_ARCHS", "100 120", "compiles for sm_100 and later, and this device is sm_90"),
        ("CUDA_SIM_POOLS", "0", "device 0 has no memory pools: set xcuda.stream_alloc to 0"),
        ("TORCH_BACKEND_XCUDA_FMAD", "yes", 'xcuda.fmad is "yes"; expected one of: 0, 1'),
    ],
)
def test_why_it_does_not_work(
    run_python: RunPython, simulation: Path, tmp_path: Path, variable: str, value: str, expected: str
) -> None:
    more = {"TORCH_BACKEND_CACHE": str(tmp_path), "TORCH_BACKEND_XCUDA_STREAM_ALLOC": str(int("POOLS" in variable))}
    assert expected in XCUDA.said(run_python, simulation, **more, **{variable: value})


# ---- NVRTC ----


def test_no_nvrtc(run_python: RunPython, folder_with: Callable[..., Path]) -> None:
    text = XCUDA.said(run_python, folder_with())
    if "[2.0, 2.0]" in text:
        pytest.skip("this machine has an NVRTC, which is found where the option's folder has none")
    assert "NVRTC, CUDA's compiler, is not installed" in text
    assert "pip install nvidia-cuda-nvrtc-cu12, or set the option xcuda.library_path" in text


@pytest.mark.parametrize(
    ("driver", "installed", "taken"),
    [("12080", (12, 13), 12), ("13000", (12, 13), 13), ("13000", (12,), 12)],
)
def test_the_newest_nvrtc_that_the_driver_takes_is_used(
    run: Run, folder_with: Callable[..., Path], driver: str, installed: tuple[int, ...], taken: int
) -> None:
    folder = folder_with("libnvrtc.so.12")
    if 13 in installed:
        shutil.copy(folder / "libnvrtc.so.12", folder / "libnvrtc.so.13")
    else:
        needs_no_package("libnvrtc.so.13")
    text = run("version_of_nvrtc", path=folder, CUDA_SIM_VERSION=driver)
    assert text == f"CUDA {driver}, NVRTC {taken}.4 [2.0, 2.0]\n"


def test_the_library_of_builtins_is_that_beside_nvrtc(run: Run, folder_with: Callable[..., Path]) -> None:
    """NVRTC opens it by name when it compiles, and not every version looks beside itself."""
    folder = folder_with("libnvrtc.so.12")
    said = '#include <stdio.h>\n__attribute__((constructor)) static void say(void) { puts("opened"); fflush(stdout); }'
    compile_library(said, folder / "libnvrtc-builtins.so.12.4")
    assert "opened" in run("version_of_nvrtc", path=folder).splitlines()


def test_an_nvrtc_that_is_older_than_the_device_makes_ptx(run: Run, tmp_path: Path) -> None:
    run("version_of_nvrtc", CUDA_SIM_ARCHS="75 80", TORCH_BACKEND_CACHE=str(tmp_path))


# ---- rules ----


def test_copies_without_access_between_devices(run: Run) -> None:
    run("copies_between_devices", CUDA_SIM_PEERS="0")


@pytest.mark.parametrize("program", ["context_is_given_back", "capture_of_another_user"])
def test_another_user_of_the_driver_is_not_disturbed(run: Run, program: str) -> None:
    run(program)


@pytest.mark.parametrize("program", ["pool_in_order", "graphs_beside_the_pool", "pool_of_peers"])
def test_memory_in_the_order_of_streams(run: Run, program: str) -> None:
    run(program, TORCH_BACKEND_XCUDA_STREAM_ALLOC="1")


def test_memory_of_the_pool_is_there_again_after_it_ran_out(run: Run) -> None:
    settings = {"TORCH_BACKEND_XCUDA_STREAM_ALLOC": "1", "CUDA_SIM_MEMORY_MIB": "64"}
    run("pool_after_it_ran_out", refused="no 20971520 bytes are free", **settings)


# ---- CUDA's libraries ----

LIBRARIES = {
    "products": "libcublasLt.so.12",
    "convolutions": "libcudnn.so.9",
    "attention": "libcudnn.so.9",
    "gradients": "libcudnn.so.9",
}


@pytest.fixture
def run_alone(run: Run, folder_with: Callable[..., Path]) -> Run:
    """Runs a program beside the library that it is about, without NVRTC: what that does not compute fails."""

    def alone(program: str, what: str, *arguments: str) -> str:
        return run(program, *arguments, path=folder_with(LIBRARIES[what]))

    return alone


@pytest.mark.parametrize(
    ("program", "dtype"),
    [
        *(("products", dtype) for dtype in DTYPES),
        *(("convolutions", dtype) for dtype in DTYPES),
        *(("attention", dtype) for dtype in DTYPES[2:]),
    ],
)
def test_libraries_take_tensors_as_they_lie(run_alone: Run, program: str, dtype: str) -> None:
    run_alone(program, program, dtype)


@pytest.mark.parametrize("what", LIBRARIES)
def test_libraries_on_devices_streams_and_threads(run_alone: Run, what: str) -> None:
    run_alone("in_threads", what, what)


@pytest.mark.parametrize(
    ("what", "warm"),
    [("products", "warm"), ("convolutions", "warm"), ("attention", "warm"), ("attention", "cold")],
)
def test_libraries_in_graphs(run_alone: Run, what: str, warm: str) -> None:
    run_alone("in_graphs", what, what, warm)


@pytest.mark.parametrize("what", ["products", "precision", "convolutions"])
def test_tf32_is_what_a_program_allows(run_alone: Run, what: str) -> None:
    run_alone("tf32", "convolutions" if what == "convolutions" else "products", what)


@pytest.mark.parametrize("dtype", DTYPES[2:])
def test_reduced_sums_are_what_a_program_allows(run_alone: Run, dtype: str) -> None:
    run_alone("reduced_sums", "products", dtype)


@pytest.mark.parametrize("what", ["convolutions", "attention"])
def test_results_have_the_same_bits_if_a_program_wants_it(run_alone: Run, what: str) -> None:
    run_alone("same_bits", what, what)


@pytest.mark.parametrize("program", ["products_not_of_cublaslt", "convolutions_not_of_cudnn", "attention_not_of_cudnn"])
def test_what_libraries_do_not_do_is_generated(run: Run, program: str) -> None:
    run(program)


def test_without_libraries_all_is_generated(run: Run, folder_with: Callable[..., Path]) -> None:
    """Too old ones are none."""
    folder = folder_with("libnvrtc.so.12")
    compile_library("int cublasLtCreate(void) { return 0; }", folder / "libcublasLt.so.12")
    compile_library("int cudnnCreate(void) { return 0; }", folder / "libcudnn.so.9")
    run("without_the_library", path=folder)


def test_a_cudnn_for_a_newer_cuda_is_none(run: Run, folder_with: Callable[..., Path]) -> None:
    run("without_the_library", path=folder_with("libnvrtc.so.12", "libcudnn.so.9"), CUDA_SIM_CUDNN_CUDART="13000")


@pytest.mark.parametrize("program", ["who_attends", "compiled_attention", "tangents_of_attention"])
def test_attention_as_pytorch_asks_for_it(run: Run, program: str) -> None:
    run(program)


@pytest.mark.parametrize(
    ("version", "has_it", "causal"),
    [("8907", False, False), ("91600", False, False), ("91900", True, False), ("92000", True, False)],
)
def test_an_older_cudnn(run: Run, version: str, has_it: bool, causal: bool) -> None:
    """Without gradients, or masks, what it lacks is generated."""
    refused = "no gradients of attention" if version == "91900" else ""
    said = run("older_cudnn", refused=refused, CUDA_SIM_CUDNN_VERSION=version)
    assert said == f"{has_it}\n{causal}\n"


# ---- what it has done, and is doing ----


def test_cupti_records_what_devices_do(run: Run) -> None:
    lines = run("records").splitlines()
    for line in [
        "aten::_copy_from Memcpy HtoD (Pinned -> Device) 4800",
        "aten::_copy_from Memcpy HtoD (Pageable -> Device) 2400",
        "aten::mm  ",
        "aten::exp  ",
        "aten::_copy_from Memcpy PtoP (Device -> Device) 3200",
        "aten::mul  ",
        "aten::_copy_from Memcpy DtoH (Device -> Pageable) 3200",
    ]:
        assert line in lines


@pytest.mark.parametrize("program", ["records_of_streams_that_are_gone", "cupti_of_another_profiler"])
def test_traces(run: Run, program: str) -> None:
    run(program)


def test_without_cupti_events_tell_the_times(run: Run, folder_with: Callable[..., Path]) -> None:
    folder = folder_with("libnvrtc.so.12")
    compile_library("int cuptiSubscribe(void) { return 0; }", folder / "libcupti.so.12")
    run("times_by_events", path=folder)


@pytest.mark.parametrize("function", ["cuptiActivityEnable", "cuptiActivityRegisterCallbacks", "cuptiGetTimestamp"])
def test_a_cupti_that_fails(run: Run, function: str) -> None:
    run("times_by_events", refused=INJECTED, CUDA_SIM_FAIL=f"{function}=15")


def test_telemetry(run: Run) -> None:
    assert run("telemetry").splitlines() == [
        "70 30 40 350000 1980",
        "71 31 41 350001 1981",
        "GPU:1",
        "no processes are running",
        "process          7 uses            ? MB GPU memory",
    ]


def test_no_nvml(run: Run, folder_with: Callable[..., Path]) -> None:
    needs_no_driver()
    text = run("telemetry", path=folder_with("libnvrtc.so.12"))
    assert "NVML, which says what a GPU is doing, is not installed (libnvidia-ml.so.1: " in text


def test_an_nvml_without_a_function_is_too_old(run: Run, folder_with: Callable[..., Path]) -> None:
    folder = folder_with("libnvrtc.so.12")
    compile_library("int nvmlInit_v2(void) { return 0; }", folder / "libnvidia-ml.so.1")
    text = run("telemetry", path=folder)
    assert "NVML is too old: libnvidia-ml.so.1 has no nvmlErrorString. xcuda needs driver 525" in text


# ---- faults ----


@pytest.mark.parametrize("function", ["nvmlInit_v2", "nvmlDeviceGetTemperature", "nvmlDeviceGetHandleByUUID"])
def test_what_nvml_refuses_is_named(run: Run, function: str) -> None:
    text = run("telemetry", refused=INJECTED, CUDA_SIM_FAIL=f"{function}=3")
    assert text.startswith(f"{function}: ")
    assert text.endswith(" (3)\n")


@pytest.mark.parametrize("error", [214, 700, 716, 719])
def test_what_sticks_to_a_context_loses_the_device(run: Run, error: int) -> None:
    run("lost_device", refused="e", CUDA_SIM_FAIL=f"task:1={error}")


@pytest.mark.parametrize(
    ("work", "fault", "expected"),
    [
        ("calls", "cuStreamCreateWithPriority=2", "CUDA_ERROR_OUT_OF_MEMORY (2)"),
        ("calls", "cuEventCreate=304", "CUDA's error 304"),
        ("calls", "cuModuleLoadDataEx=222", "CUDA_ERROR_UNSUPPORTED_PTX_VERSION (222)"),
        ("calls", "cuLaunchKernel=701", "CUDA's error 701"),
        ("calls", "cuMemcpyDtoHAsync=1", "CUDA_ERROR_INVALID_VALUE (1)"),
        ("products", "cublasLtMatmul=999", "aten::mm * cublasLtMatmul:  * (13)"),
        ("convolutions", "cudnnConvolutionForward=5000", "convolution * cudnnConvolutionForward:  * (5000)"),
        ("attention", "cudnnBackendExecute=5000", "aten::_scaled_dot_product_efficient_attention * Execute: "),
        ("attention", "cudnnBackendFinalize=5000", "aten::_scaled_dot_product_efficient_attention * Finalize: "),
        ("attention", "cudnnBackendCreateDescriptor:9=5000", "_efficient_attention * cudnnBackendCreateDescriptor: "),
    ],
)
def test_a_call_that_fails_is_named(run: Run, work: str, fault: str, expected: str) -> None:
    said = run("failures", work, refused=INJECTED, CUDA_SIM_FAIL=fault)
    assert all(part in said for part in expected.split(" * ")), said
