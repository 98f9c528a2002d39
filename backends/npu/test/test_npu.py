"""The device npu on the simulated AscendCL of this project: what it says where it cannot work, rules, faults."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from torch_conformance.processes import RunPython, clean_environment
from torch_conformance.ranks import expect_good
from torch_conformance.simulated_tests import SimulatedTests
from torch_conformance.simulation import Run, Simulated

NPU = Simulated("npu", Path(__file__).parents[1], "TORCH_BACKEND_NPU_PATH", "ASCEND_SIM")
EXPANDABLE = {"PYTORCH_ALLOC_CONF": "expandable_segments:True"}
MAPPING = (
    "aclrtMemGetAllocationGranularity",
    "aclrtReserveMemAddress",
    "aclrtReleaseMemAddress",
    "aclrtMallocPhysical",
    "aclrtFreePhysical",
    "aclrtMapMem",
    "aclrtUnmapMem",
)


@pytest.fixture
def run(run_python: RunPython, simulation: Path, tmp_path: Path) -> Run:
    return NPU.runner(run_python, simulation, tmp_path)


class TestNpu(SimulatedTests):
    """What all devices on simulated drivers have."""

    device = NPU
    without_collectives = ("libascendcl.so", "libopapi.so")

    def test_ranks_on_segments_that_grow(self, simulation: Path, tmp_path: Path) -> None:
        scenarios = ("kit", "slots", "crossing")
        said = NPU.ranks(scenarios, simulation, tmp_path, **EXPANDABLE)
        for scenario in scenarios:
            expect_good(scenario, said)


# ---- where it cannot work ----


def test_no_cann(run_python: RunPython, tmp_path: Path) -> None:
    assert "CANN is not installed" in NPU.said(run_python, tmp_path)


def test_a_library_that_is_none(run_python: RunPython, tmp_path: Path) -> None:
    (tmp_path / "libascendcl.so").write_text("no library")
    assert "CANN is not installed, or not where it is looked for" in NPU.said(run_python, tmp_path)


def test_an_old_cann_names_the_function_that_it_lacks(run_python: RunPython, tmp_path: Path) -> None:
    (tmp_path / "old.c").write_text("int aclInit(const char* path) { return path != 0; }")
    subprocess.run(["cc", "-shared", "-fPIC", tmp_path / "old.c", "-o", tmp_path / "libascendcl.so"], check=True)
    assert "has no aclrtGetDeviceCount: this CANN is too old" in NPU.said(run_python, tmp_path)


@pytest.mark.parametrize(
    "variables", [{"ASCEND_SIM_DEVICES": "0"}, {"ASCEND_SIM_FAIL": "aclrtGetDeviceCount=507899"}], ids=["none", "fails"]
)
def test_no_device(run_python: RunPython, simulation: Path, variables: dict[str, str]) -> None:
    assert "CANN finds no device" in NPU.said(run_python, simulation, **variables)


def test_another_library_was_first(run: Run) -> None:
    run("initialized_before", refused="aclInit twice")


def test_without_operators_there_is_memory(run_python: RunPython, simulation: Path, tmp_path: Path) -> None:
    shutil.copy(simulation / "libascendcl.so", tmp_path)
    code = """
    import torch, torch_backend
    torch_backend.activate("npu")
    x = torch.arange(70).to("npu")
    print((x[1:] + 1).sum().item(), len(torch_backend.fallback.report()) > 0)
    """
    assert run_python(code, env={"TORCH_BACKEND_NPU_PATH": tmp_path}).stdout == "2484 True\n"


# ---- rules ----


@pytest.mark.parametrize("program", ["hfloat32", "nothing_is_left"])
def test_operators(run: Run, program: str) -> None:
    run(program)


def test_ranges_reach_the_vendors_tools(run: Run, tmp_path: Path) -> None:
    ranges = tmp_path / "ranges"
    run("ranges", ASCEND_SIM_RANGES=str(ranges))
    assert ranges.read_text().splitlines() == [
        "begin 1 outer",
        "begin 2 number 3",
        "begin 3 moment",
        "end 3",
        "end 2",
        "end 1",
    ]


# ---- memory that is mapped ----


def test_segments_grow(run: Run) -> None:
    run("segments_grow", **EXPANDABLE)


def test_segments_that_grow_waste_less(run: Run) -> None:
    assert run("how_much_fits", ASCEND_SIM_MEMORY_MIB="512", **EXPANDABLE) == "8\n"
    assert run("how_much_fits", refused="bytes are free", ASCEND_SIM_MEMORY_MIB="512") == "6\n"


def test_mapped_memory_between_devices(run: Run) -> None:
    run("mapped_between_devices")


@pytest.mark.parametrize("missing", MAPPING)
def test_an_older_cann_maps_no_memory(run_python: RunPython, simulation: Path, tmp_path: Path, missing: str) -> None:
    path = tmp_path / "older"
    shutil.copytree(simulation, path, ignore=shutil.ignore_patterns("CMake*"))
    library = path / "libascendcl.so"
    name = missing.encode() + b"\0"
    assert name in library.read_bytes()
    library.write_bytes(library.read_bytes().replace(name, b"_" * len(missing) + b"\0"))
    expect_fixed_segments(run_python, path)


def test_an_older_driver_maps_no_memory(run_python: RunPython, simulation: Path) -> None:
    expect_fixed_segments(run_python, simulation, ASCEND_SIM_VIRTUAL_MEMORY="0")


def expect_fixed_segments(run_python: RunPython, path: Path, **variables: str) -> None:
    code = """
    import torch, torch_backend
    torch_backend.activate("npu")
    print((torch.ones(2, device="npu") + 1).tolist())
    print({segment["is_expandable"] for segment in torch.npu.memory._snapshot()["segments"]})
    """
    process = run_python(code, env={NPU.path: path, **EXPANDABLE, **variables})
    assert process.stdout == "[2.0, 2.0]\n{False}\n"
    assert "expandable_segments, which this device does not offer" in process.stderr


@pytest.mark.parametrize("code", [207000, 207001, 507899], ids=["unsupported", "out_of_memory", "failed"])
@pytest.mark.parametrize("function", MAPPING[1:])
def test_a_failing_function_loses_no_memory(run: Run, function: str, code: int) -> None:
    faults = f"{function}:1={code},{function}:3={code}"
    run("failing_maps", function, str(code), refused="ASCEND_SIM_FAIL", ASCEND_SIM_FAIL=faults, **EXPANDABLE)


@pytest.mark.parametrize(
    "tests", ["async_/test_allocator.py", "async_/test_memory_", "async_/test_threads.py", "tensor/test_moves.py"]
)
def test_the_kit_on_segments_that_grow(simulation: Path, tmp_path: Path, tests: str) -> None:
    log = tmp_path / "refusals"
    variables = {**NPU.environment(simulation, log), **EXPANDABLE}
    command = [sys.executable, "-m", "torch_backend", "check", "npu", "--quick", "--jobs", "1", "--only", tests]
    process = subprocess.run(command, env=clean_environment() | variables, capture_output=True, text=True)
    assert "These tests pass." in process.stdout, process.stdout + process.stderr
    refusals = log.read_text().splitlines() if log.exists() else []
    assert all("bytes are free" in refusal for refusal in refusals), refusals  # some tests ask for more than there is


# ---- faults ----


def test_a_kernel_that_fails_is_told_once(run: Run) -> None:
    run("failing_kernel", refused="fail", ASCEND_SIM_FAIL="task:1=507015")


def test_a_lost_device(run: Run) -> None:
    run("lost_device", refused="a", ASCEND_SIM_FAIL="aclnnAdd=507010,aclnnAdds=507010")
