"""The device npu on the simulated AscendCL of this project: what it says where it cannot work, rules, faults."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from torch_conformance import variants
from torch_conformance.processes import RunPython, clean_environment
from torch_conformance.ranks import expect_good, run_ranks
from torch_conformance.simulation import Run, Simulated

PROJECT = Path(__file__).parents[1]
DELAY = "0-300"
NPU = Simulated("npu", "TORCH_BACKEND_NPU_PATH", "ASCEND_SIM_LOG")
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
    return NPU.runner(run_python, simulation, tmp_path / "refusals")


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


def test_no_device(run_python: RunPython, simulation: Path) -> None:
    assert "CANN finds no device" in NPU.said(run_python, simulation, ASCEND_SIM_DEVICES="0")
    assert "CANN finds no device" in NPU.said(run_python, simulation, ASCEND_SIM_FAIL="aclrtGetDeviceCount=507899")


def test_devices_are_counted(run_python: RunPython, simulation: Path) -> None:
    assert "devices: 3" in NPU.said(run_python, simulation, ASCEND_SIM_DEVICES="3")


def test_another_library_was_first(run: Run) -> None:
    code = "import ctypes, os\n"  # by the time that the device starts, AscendCL is initialized
    code += (
        "acl = ctypes.CDLL(os.environ['TORCH_BACKEND_NPU_PATH'] + '/libascendcl.so')\nassert acl.aclInit(None) == 0\n"
    )
    assert run(code + "print((torch.ones(2, device='npu') + 1).tolist())", refused="aclInit twice") == "[2.0, 2.0]\n"


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


def test_copies_of_any_alignment(run: Run) -> None:
    code = """
x = torch.arange(1000, dtype=torch.uint8)
y = x.to("npu")
for start in (0, 1, 63, 64, 65):
    z = torch.zeros(1000, dtype=torch.uint8, device="npu")
    z[3:900 + 3 - start].copy_(y[start:900])
    assert z.cpu()[3:900 + 3 - start].equal(x[start:900])
pinned = x.pin_memory()
assert pinned.to("npu", non_blocking=True).cpu().equal(x)
assert y.to("npu:1").cpu().equal(x) and y[1:].to("npu:1").cpu().equal(x[1:])
print((torch.full((5,), 1.5, device="npu")).tolist())
"""
    assert run(code, ASCEND_SIM_DELAY_US=DELAY) == "[1.5, 1.5, 1.5, 1.5, 1.5]\n"


def test_hfloat32_is_what_a_program_allows(run: Run) -> None:
    code = """
x = torch.full((2, 2), 1 + 2**-13)
one, image, kernel = torch.eye(2).to("npu"), torch.full((1, 1, 4, 4), 1 + 2**-13), torch.ones(1, 1, 1, 1)
def exact():
    products = (x.to("npu") @ one).cpu().equal(x)
    convolutions = torch.conv2d(image.to("npu"), kernel.to("npu")).cpu().equal(image)
    return products, convolutions
usual = exact()
torch.set_float32_matmul_precision("high")
torch.backends.cudnn.allow_tf32 = False
print(usual, exact())
"""
    assert run(code) == "(True, False) (False, True)\n"


def test_streams_and_threads(run: Run) -> None:
    code = """
import threading
def work(device):
    stream, start, end = torch.npu.Stream(device), *(torch.npu.Event(enable_timing=True) for _ in range(2))
    with torch.npu.device(device), torch.npu.stream(stream):
        x = torch.ones(100, device=f"npu:{device}")
        start.record()
        for _ in range(50):
            x = x + 1
        end.record()
    end.synchronize()
    assert x.cpu().eq(51).all() and start.elapsed_time(end) > 0 and end.query() and stream.query()
threads = [threading.Thread(target=work, args=(i % 2,)) for i in range(4)]
[t.start() for t in threads], [t.join() for t in threads]
a, b = torch.npu.Stream(), torch.npu.Stream(priority=-7)
with torch.npu.stream(a):
    x = torch.ones(1000, device="npu")
    for _ in range(20):
        x = x * 2
b.wait_stream(a)
with torch.npu.stream(b):
    y = x + 1
b.synchronize()
print(y.cpu().eq(2**20 + 1).all().item())
"""
    assert run(code, ASCEND_SIM_DELAY_US=DELAY) == "True\n"


def test_nothing_is_left_of_operators(run: Run) -> None:
    code = """
import ctypes, os
sim = ctypes.CDLL(os.environ["TORCH_BACKEND_NPU_PATH"] + "/libopapi.so")
x = torch.randn(8, 8, device="npu", requires_grad=True)
torch.cat([x.relu(), x.sum(0, keepdim=True)]).mean().backward()
torch.npu.synchronize()
print(sim.aclSimLiveObjects())
"""
    assert run(code) == "0\n"


def test_ranges_reach_the_vendors_tools(run: Run, tmp_path: Path) -> None:
    code = """
torch.npu.nvtx.range_push("outer")
with torch.npu.nvtx.range("number {}", 3):
    torch.npu.nvtx.mark("moment")
print(torch.npu.nvtx.range_pop(), torch.npu.nvtx.range_pop())
"""
    ranges = tmp_path / "ranges"
    assert run(code, ASCEND_SIM_RANGES=str(ranges)) == "0 -1\n"
    assert ranges.read_text().split("\n")[:-1] == [
        "begin 1 outer",
        "begin 2 number 3",
        "begin 3 moment",
        "end 3",
        "end 2",
        "end 1",
    ]


# ---- memory that is mapped ----


def test_segments_grow(run: Run) -> None:
    """Tensors lie beside each other in one segment, which empty_cache takes apart, and goes back to the device."""
    code = """
MIB = 2**20
free, total = torch.npu.mem_get_info(1)
a, b, c = (torch.full((15 * MIB,), i, dtype=torch.uint8, device="npu:1") for i in range(3))
assert b.data_ptr() == a.data_ptr() + 15 * MIB and c.data_ptr() == b.data_ptr() + 15 * MIB
assert torch.npu.mem_get_info(1) == (free - 60 * MIB, total), torch.npu.mem_get_info(1)
[segment] = torch.npu.memory._snapshot()["segments"]
assert segment["is_expandable"] and segment["total_size"] == 60 * MIB
assert all((x.cpu() == i).all() for i, x in enumerate((a, b, c)))
del a, b
torch.npu.synchronize(1)
torch.npu.empty_cache()
assert torch.npu.mem_get_info(1)[0] == free - 40 * MIB, torch.npu.mem_get_info(1)
assert (c.cpu() == 2).all()
del c
torch.npu.empty_cache()
assert torch.npu.mem_get_info(1) == (free, total)
"""
    assert run(code, ASCEND_SIM_DELAY_US=DELAY, **EXPANDABLE) == ""


def test_segments_that_grow_waste_less(run: Run) -> None:
    code = """
MIB = 2**20
def tensor(mib):
    return torch.empty(mib * MIB, dtype=torch.uint8, device="npu")
kept = []
try:
    for step in range(1, 9):
        activations = tensor(20 * step)
        del activations
        kept.append(tensor(10 * step))
except torch.OutOfMemoryError:
    pass
print(len(kept))
"""
    assert run(code, ASCEND_SIM_MEMORY_MIB="512", **EXPANDABLE) == "8\n"
    assert run(code, refused="bytes are free", ASCEND_SIM_MEMORY_MIB="512") == "6\n"


def test_mapped_memory_between_devices(run: Run) -> None:
    """Of any alignment, and with memory that is not mapped."""
    code = """
x = torch.arange(100_000, dtype=torch.uint8)
ordinary = x.to("npu:1")
assert not torch.npu.memory._snapshot()["segments"][0]["is_expandable"]
torch._C._accelerator_setAllocatorSettings("expandable_segments:True")
mapped = torch.empty(3 << 20, dtype=torch.uint8, device="npu")[-len(x):].copy_(x)
assert mapped.to("npu:1").cpu().equal(x)
for start in (0, 1, 64):
    ordinary.zero_()[3:1000].copy_(mapped[start:start + 997])
    assert ordinary.cpu()[3:1000].equal(x[start:start + 997]) and ordinary.cpu()[1000:].eq(0).all()
    mapped[5:1002].copy_(ordinary[3:1000])
    assert mapped.cpu()[5:1002].equal(x[start:start + 997])
    mapped.copy_(x)
for round in range(1, 6):  # work that is pending comes first
    for _ in range(10):
        mapped.add_(1)
    ordinary[1:1000].copy_(mapped[:999])
    assert ordinary.cpu()[1:1000].equal(x[:999] + 10 * round)
print(torch.npu.current_device())
"""
    assert run(code, ASCEND_SIM_DELAY_US=DELAY) == "0\n"


def test_threads_share_segments_that_grow(run: Run) -> None:
    """On streams of both devices, with memory that goes back all the time."""
    code = """
import threading
before = [torch.npu.mem_get_info(device)[0] for device in range(2)]
def work(number):
    torch.npu.set_device(number % 2)
    with torch.npu.stream(torch.npu.Stream()):
        for step in range(1, 13):
            x = torch.full((step << 18,), number, dtype=torch.float32, device="npu")
            y = (x + step).to(f"npu:{1 - number % 2}") if step % 5 == 0 else x + step
            results.append(y.sum().item() == (number + step) * (step << 18))
            if step % 3 == 0:
                torch.npu.empty_cache()
results = []
threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
[t.start() for t in threads], [t.join() for t in threads]
torch.npu.synchronize(0), torch.npu.synchronize(1)
torch.npu.empty_cache()
print(len(results), all(results), [torch.npu.mem_get_info(device)[0] for device in range(2)] == before)
"""
    assert run(code, ASCEND_SIM_DELAY_US=DELAY, **EXPANDABLE) == "48 True True\n"


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
    """Two of its first calls fail. What is asked for next is there, and all goes back."""
    program = f"""
MIB = 2**20
before = torch.npu.mem_get_info()
tensors = []
for _ in range(4):
    try:
        tensors.append(torch.full((50 * MIB,), 7, dtype=torch.uint8, device="npu"))
    except RuntimeError as error:
        assert {code} == 507899 and "{function}" in str(error), error
assert len(tensors) >= 2 and all((x.cpu() == 7).all() for x in tensors)
assert torch.npu.memory_allocated() == 50 * MIB * len(tensors)
del tensors
for _ in range(3):
    torch.npu.empty_cache()
assert torch.npu.memory_reserved() == 0
assert torch.npu.mem_get_info() == before, (torch.npu.mem_get_info(), before)
"""
    run(program, refused="ASCEND_SIM_FAIL", ASCEND_SIM_FAIL=f"{function}:1={code},{function}:3={code}", **EXPANDABLE)


@pytest.mark.parametrize("tests", ["async_/test_allocator.py", "async_/test_memory_", "tensor/test_moves.py"])
def test_the_kit_on_segments_that_grow(simulation: Path, tmp_path: Path, tests: str) -> None:
    log = tmp_path / "refusals"
    variables = {NPU.path: str(simulation), NPU.log: str(log), "ASCEND_SIM_DELAY_US": DELAY, **EXPANDABLE}
    command = [sys.executable, "-m", "torch_backend", "check", "npu", "--quick", "--jobs", "1", "--only", tests]
    process = subprocess.run(command, env=clean_environment() | variables, capture_output=True, text=True)
    assert "These tests pass." in process.stdout, process.stdout + process.stderr
    refusals = log.read_text().splitlines() if log.exists() else []
    assert all("bytes are free" in refusal for refusal in refusals), refusals  # some tests ask for more than there is


# ---- collectives ----


@pytest.mark.parametrize("scenarios", ["kit", "slots crossing empty reductions rare_dtypes", "callbacks not_connected"])
@pytest.mark.parametrize("segments", [{}, EXPANDABLE], ids=["", "that_grow"])
def test_ranks_in_two_processes(simulation: Path, tmp_path: Path, scenarios: str, segments: dict[str, str]) -> None:
    """Over HCCL, with the kit's training in parallel (DDP) among them."""
    log = tmp_path / "refusals"
    environment = {
        "TORCH_BACKEND": "npu",
        "TORCH_BACKEND_NPU_PATH": str(simulation),
        "EXPECTED_PATH": "ccl.1",
        "ASCEND_SIM_DELAY_US": DELAY,
        "ASCEND_SIM_LOG": str(log),
        **segments,
    }
    said = run_ranks(tuple(scenarios.split()), tmp_path, 2, environment)
    for scenario in scenarios.split():
        expect_good(scenario, said)
    assert not log.exists(), log.read_text()


def test_without_hccl_gloo_serves(simulation: Path, tmp_path: Path) -> None:
    for library in ("libascendcl.so", "libopapi.so"):
        shutil.copy(simulation / library, tmp_path)
    said = run_ranks(("kit",), tmp_path, 2, {"TORCH_BACKEND": "npu", "TORCH_BACKEND_NPU_PATH": str(tmp_path)})
    expect_good("kit", said)


# ---- variants ----


def test_every_variant_can_be_made() -> None:
    variants.read(PROJECT).check()


# ---- faults ----


def test_out_of_memory_is_pytorchs(run: Run) -> None:
    code = """
try:
    torch.empty(1 << 30, device="npu")
except torch.OutOfMemoryError as error:
    print("out of memory")
print(torch.ones(2, device="npu").tolist())
"""
    assert run(code, refused="bytes are free", ASCEND_SIM_MEMORY_MIB="64") == "out of memory\n[1.0, 1.0]\n"


def test_a_kernel_that_fails_is_told_once(run: Run) -> None:
    code = """
x = torch.ones(4, device="npu")
try:
    torch.npu.synchronize()
except RuntimeError as error:
    print("507015" in str(error), "a kernel failed" in str(error))
torch.npu.synchronize()
print((x + 1).cpu().numel())
"""
    assert run(code, refused="fail", ASCEND_SIM_FAIL="task:1=507015") == "True True\n4\n"


def test_a_lost_device(run: Run) -> None:
    code = """
x = torch.ones(4, device="npu")
for _ in range(2):
    try:
        x + 1
        torch.npu.synchronize()
    except torch.AcceleratorError as error:
        print("lost" in str(error))
"""
    assert run(code, refused="a", ASCEND_SIM_FAIL="aclnnAdd=507010,aclnnAdds=507010") == "True\nTrue\n"
