"""The device xcuda on the simulated driver of this project: what it says where it cannot work, rules, faults."""

import ctypes
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from torch_conformance import variants
from torch_conformance.processes import RunPython
from torch_conformance.ranks import expect_good, run_ranks
from torch_conformance.simulation import Run, Simulated

PROJECT = Path(__file__).parents[1]
DELAY = "0-300"
XCUDA = Simulated("xcuda", "TORCH_BACKEND_XCUDA_LIBRARY_PATH", "CUDA_SIM_LOG")


@pytest.fixture
def run(run_python: RunPython, simulation: Path, tmp_path: Path) -> Run:
    return XCUDA.runner(run_python, simulation, tmp_path / "refusals")


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


def test_a_driver_for_cuda_11(run_python: RunPython, simulation: Path) -> None:
    text = XCUDA.said(run_python, simulation, CUDA_SIM_VERSION="11080")
    assert "NVIDIA's driver is too old: it is made for CUDA 11.8. xcuda needs CUDA 12.0, driver 525 or later" in text


@pytest.mark.parametrize(
    ("variable", "value", "expected"),
    [
        ("CUDA_SIM_DEVICES", "0", "nvidia-smi -L lists them, and CUDA_VISIBLE_DEVICES may hide them"),
        ("CUDA_SIM_FAIL", "cuInit=34", "libcuda.so.1 is the stub to link against, not the driver"),
        ("CUDA_SIM_FAIL", "cuInit=803", "restart the machine after an update"),
        ("CUDA_SIM_FAIL", "cuInit=999", "nvidia-smi shows whether the driver works"),
    ],
)
def test_a_driver_that_does_not_start(
    run_python: RunPython, simulation: Path, variable: str, value: str, expected: str
) -> None:
    assert expected in XCUDA.said(run_python, simulation, **{variable: value})


def test_devices_are_counted(run_python: RunPython, simulation: Path) -> None:
    assert "devices: 3\n[2.0, 2.0]\n" in XCUDA.said(run_python, simulation, CUDA_SIM_DEVICES="3")


# ---- NVRTC ----


@pytest.fixture
def versions(simulation: Path, tmp_path: Path) -> Callable[..., Path]:
    """A folder with the driver, and with NVRTC of these versions."""

    def make(*numbers: int) -> Path:
        folder = tmp_path / "libraries"
        folder.mkdir()
        shutil.copy(simulation / "libcuda.so.1", folder)
        for number in numbers:
            shutil.copy(simulation / "libnvrtc.so.12", folder / f"libnvrtc.so.{number}")
        return folder

    return make


def test_no_nvrtc(run_python: RunPython, versions: Callable[..., Path]) -> None:
    text = XCUDA.said(run_python, versions())
    if "[2.0, 2.0]" in text:
        pytest.skip("this machine has an NVRTC, which is found where the option's folder has none")
    assert "NVRTC, CUDA's compiler, is not installed" in text
    assert "pip install nvidia-cuda-nvrtc-cu12, or set the option xcuda.library_path" in text


@pytest.mark.parametrize(
    ("driver", "installed", "taken"),
    [("12080", (12, 13), 12), ("13000", (12, 13), 13), ("13000", (12,), 12)],
)
def test_the_newest_nvrtc_that_the_driver_takes_is_used(
    run: Run, versions: Callable[..., Path], driver: str, installed: tuple[int, ...], taken: int
) -> None:
    code = """
from torch_conformance import bare
library, _ = bare.open_library("xcuda")
print(library.properties(0).driver_version.decode(), (torch.ones(2, device="xcuda") + 1).tolist())
"""
    if installed == (12,):
        needs_no_package("libnvrtc.so.13")
    text = run(code, path=versions(*installed), CUDA_SIM_VERSION=driver)
    assert text == f"CUDA {driver}, NVRTC {taken}.4 [2.0, 2.0]\n"


def test_an_nvrtc_that_is_older_than_the_device_makes_ptx(run: Run, tmp_path: Path) -> None:
    code = "print((torch.ones(2, device='xcuda') + 1).tolist())"
    assert run(code, CUDA_SIM_ARCHS="75 80", TORCH_BACKEND_CACHE=str(tmp_path)) == "[2.0, 2.0]\n"


def test_an_nvrtc_that_is_too_new_for_the_device(run_python: RunPython, simulation: Path, tmp_path: Path) -> None:
    text = XCUDA.said(run_python, simulation, CUDA_SIM_ARCHS="100 120", TORCH_BACKEND_CACHE=str(tmp_path))
    assert "compiles for sm_100 and later, and this device is sm_90" in text


# ---- rules ----


def test_copies(run: Run) -> None:
    code = """
x = torch.arange(1000, dtype=torch.uint8)
y = x.to("xcuda")
for start in (0, 1, 63, 64, 65):
    z = torch.zeros(1000, dtype=torch.uint8, device="xcuda")
    z[3:900 + 3 - start].copy_(y[start:900])
    assert z.cpu()[3:900 + 3 - start].equal(x[start:900])
pinned = x.pin_memory()
assert pinned.to("xcuda", non_blocking=True).cpu().equal(x)
assert y.to("xcuda:1").cpu().equal(x) and y[1:].to("xcuda:1").cpu().equal(x[1:])
assert y.view(10, 100)[:, 3:50].cpu().equal(x.view(10, 100)[:, 3:50])
for value in (1, -1.5, 1 + 2j):
    filled = torch.full((5,), value, device="xcuda")
    assert filled.cpu().equal(torch.full((5,), value)), filled
"""
    assert run(code, CUDA_SIM_DELAY_US=DELAY) == ""


def test_copies_without_access_between_devices(run: Run) -> None:
    code = """
x = torch.arange(1000.0)
print(x.to("xcuda").to("xcuda:1").cpu().equal(x))
"""
    assert run(code, CUDA_SIM_DELAY_US=DELAY, CUDA_SIM_PEERS="0") == "True\n"


def test_streams_and_threads(run: Run) -> None:
    code = """
import threading
def work(device):
    stream, start, end = torch.xcuda.Stream(device), *(torch.xcuda.Event(enable_timing=True) for _ in range(2))
    with torch.xcuda.device(device), torch.xcuda.stream(stream):
        x = torch.ones(100, device=f"xcuda:{device}")
        start.record()
        for _ in range(50):
            x = x + 1
        end.record()
    end.synchronize()
    assert x.cpu().eq(51).all() and start.elapsed_time(end) > 0 and end.query() and stream.query()
    done.append(device)
done = []
threads = [threading.Thread(target=work, args=(i % 2,)) for i in range(4)]
[t.start() for t in threads], [t.join() for t in threads]
a, b = torch.xcuda.Stream(), torch.xcuda.Stream(priority=-5)
with torch.xcuda.stream(a):
    x = torch.ones(1000, device="xcuda")
    for _ in range(20):
        x = x * 2
b.wait_stream(a)
with torch.xcuda.stream(b):
    y = x + 1
b.synchronize()
print(sorted(done), y.cpu().eq(2**20 + 1).all().item())
"""
    assert run(code, CUDA_SIM_DELAY_US=DELAY) == "[0, 0, 1, 1] True\n"


DRIVER = """
import ctypes, os
driver = ctypes.CDLL(os.environ["TORCH_BACKEND_XCUDA_LIBRARY_PATH"] + "/libcuda.so.1")
def current():
    context = ctypes.c_void_p()
    assert driver.cuCtxGetCurrent(ctypes.byref(context)) == 0
    return context.value
def context_of(device):
    context = ctypes.c_void_p()
    assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0
    return context
"""


def test_the_threads_context_is_given_back(run: Run) -> None:
    code = """
x = torch.ones(2, device="xcuda")
other = context_of(1)
assert driver.cuCtxSetCurrent(other) == 0
y = (x + 1).to("xcuda:1").to("xcuda:0") * 2
torch.xcuda.synchronize()
print(y.tolist(), current() == other.value)
"""
    assert run(DRIVER + code) == "[4.0, 4.0] True\n"


def test_another_users_capture_forbids_no_allocation(run: Run) -> None:
    code = """
x = torch.ones(2, device="xcuda")
assert driver.cuCtxSetCurrent(context_of(1)) == 0  # such as torch.cuda's
stream, graph = ctypes.c_void_p(), ctypes.c_void_p()
assert driver.cuStreamCreateWithPriority(ctypes.byref(stream), 1, 0) == 0
assert driver.cuStreamBeginCapture_v2(stream, 0) == 0
y = torch.empty(64 << 20, dtype=torch.uint8, device="xcuda")
z = torch.empty(1 << 20, dtype=torch.uint8, pin_memory=True)
print((x.exp() > 2).tolist())
assert driver.cuStreamEndCapture(stream, ctypes.byref(graph)) == 0
"""
    assert run(DRIVER + code) == "[True, True]\n"


# ---- memory in the order of streams ----

IN_ORDER = {"TORCH_BACKEND_XCUDA_STREAM_ALLOC": "1", "CUDA_SIM_DELAY_US": DELAY}


def test_memory_of_the_pool_is_used_and_given_back_in_order(run: Run) -> None:
    code = """
streams = [torch.xcuda.Stream(device) for device in (0, 1, 0)]
inputs = [torch.randn(1 << 18) for _ in streams]
for turn in range(6):
    results = []
    for stream, x in zip(streams, inputs):
        with torch.xcuda.stream(stream):
            results.append((x.pin_memory().to(stream.device, non_blocking=True) * 2).exp())
            torch.xcuda.empty_cache()  # while the stream is busy
    for stream, x, result in zip(streams, inputs, results):
        stream.synchronize()
        torch.testing.assert_close(result.cpu(), (x * 2).exp())
    del results, result
torch.xcuda.synchronize(0)
torch.xcuda.empty_cache()
free, total = torch.xcuda.mem_get_info(0)
print(total - free < 8 << 20)
"""
    assert run(code, **IN_ORDER) == "True\n"


def test_memory_of_the_pool_is_there_again_after_it_ran_out(run: Run) -> None:
    code = """
for turn in range(3):
    with torch.xcuda.stream(torch.xcuda.Stream()):
        x = torch.ones(20 << 18, device="xcuda") + 1  # 40 MiB, of 64
        last = x[-1].item()
    del x
print(last)
"""
    assert run(code, refused="no 20971520 bytes are free", CUDA_SIM_MEMORY_MIB="64", **IN_ORDER) == "2.0\n"


def test_graphs_beside_the_pool(run: Run) -> None:
    code = """
x, graph = torch.ones(1 << 20, device="xcuda"), torch.xcuda.CUDAGraph()
(x * 2).exp()
torch.xcuda.empty_cache()
before = torch.xcuda.memory_reserved()
with torch.xcuda.graph(graph):
    y = (x * 2).exp()
for value in (0.0, 0.5):
    x.fill_(value)
    graph.replay()
    torch.testing.assert_close(y.cpu(), (torch.full((1 << 20,), value) * 2).exp())
del y
graph.reset()
torch.xcuda.empty_cache()
print(torch.xcuda.memory_reserved() == before)
"""
    assert run(code, **IN_ORDER) == "True\n"


def test_the_pool_is_for_devices_that_have_access(run: Run) -> None:
    code = """
x, y = torch.zeros(2, device="xcuda"), torch.ones(2, device="xcuda:1")
x.to("xcuda:1"), y.to("xcuda")
torch.xcuda.synchronize(0), torch.xcuda.synchronize(1)
assert driver.cuCtxSetCurrent(context_of(0)) == 0
to, source, size = ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr()), ctypes.c_size_t(8)
assert driver.cuMemcpyDtoDAsync_v2(to, source, size, None) == 0
print(x.tolist())
"""
    assert run(DRIVER + code, **IN_ORDER) == "[1.0, 1.0]\n"


def test_a_device_without_pools(run_python: RunPython, simulation: Path) -> None:
    text = XCUDA.said(run_python, simulation, CUDA_SIM_POOLS="0", **IN_ORDER)
    assert "device 0 has no memory pools: set xcuda.stream_alloc to 0" in text


# ---- products of matrices ----


@pytest.fixture
def run_with(run: Run, simulation: Path, tmp_path: Path) -> Callable[..., Callable[..., str]]:
    """``run_with(library, start)`` runs code after ``start`` where there is this library beside the driver and no
    NVRTC: what the library does not compute fails."""

    def make(library: str, start: str) -> Callable[..., str]:
        folder = tmp_path / "alone"
        folder.mkdir()
        for each in ("libcuda.so.1", library):
            shutil.copy(simulation / each, folder)
        return lambda code, **variables: run(start + code, path=folder, CUDA_SIM_DELAY_US=DELAY, **variables)

    return make


@pytest.fixture
def products(run_with: Callable[..., Callable[..., str]]) -> Callable[..., str]:
    return run_with("libcublasLt.so.12", PRODUCTS)


PRODUCTS = """
import itertools
torch.manual_seed(0)
def upload(x, device="xcuda"):
    whole = torch.empty(0, dtype=x.dtype).set_(x.untyped_storage())
    return whole.to(device).as_strided(x.size(), x.stride(), x.storage_offset())
def matrices(rows, columns, dtype):
    def draw(rows, columns):
        return torch.randn(rows, columns).to(dtype)
    yield draw(rows, columns)
    yield draw(columns, rows).t()
    yield draw(rows, columns + 3)[:, 1:columns + 1]
    yield draw(columns, rows + 5)[:, 2:rows + 2].t()
ACCURACY = {torch.float64: 1e-12, torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 4e-2}
def expect(got, wanted):
    accuracy = ACCURACY[got.dtype]
    torch.testing.assert_close(got.cpu().double(), wanted, rtol=accuracy, atol=10 * accuracy)
"""


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_products_take_rows_and_columns_as_they_lie(products: Callable[..., str], dtype: str) -> None:
    code = f"""
dtype = torch.{dtype}
for m, k, n in [(3, 4, 5), (1, 7, 2), (6, 1, 1), (17, 33, 9), (4, 160, 8)]:
    for a, b in itertools.product(matrices(m, k, dtype), matrices(k, n, dtype)):
        expect(torch.mm(upload(a), upload(b)), a.double() @ b.double())
    for c in matrices(m, n, dtype):
        for beta, alpha in [(1, 1), (0.5, -2), (0, 3)]:
            wanted = torch.addmm(c.double(), a.double(), b.double(), beta=beta, alpha=alpha)
            if c.is_contiguous() or beta == 0:
                expect(torch.addmm(upload(c), upload(a), upload(b), beta=beta, alpha=alpha), wanted)
    for bias in (torch.randn(n).to(dtype), torch.randn(1, n + 1).to(dtype)[:, 1:]):
        wanted = torch.addmm(bias.double(), a.double(), b.double(), alpha=2)
        expect(torch.addmm(upload(bias), upload(a), upload(b), alpha=2), wanted)
"""
    assert products(code) == ""


def test_products_of_batches(products: Callable[..., str]) -> None:
    code = """
for dtype in ACCURACY:
    for batch in (1, 3):
        a, b = torch.randn(batch, 5, 6).to(dtype), torch.randn(batch, 7, 6).to(dtype).transpose(1, 2)
        others = [a, a.transpose(0, 1).contiguous().transpose(0, 1), a[:1].expand(batch, 5, 6)]
        c = torch.randn(batch, 5, 7).to(dtype)
        for a in others:
            expect(torch.bmm(upload(a), upload(b)), torch.bmm(a.double(), b.double()))
            wanted = torch.baddbmm(c.double(), a.double(), b.double(), beta=0.5, alpha=2)
            expect(torch.baddbmm(upload(c), upload(a), upload(b), beta=0.5, alpha=2), wanted)
"""
    assert products(code) == ""


def test_products_write_where_out_lies(products: Callable[..., str]) -> None:
    code = """
a, b = torch.randn(5, 6), torch.randn(6, 7)
for out in matrices(5, 7, torch.float32):
    there = upload(out)
    torch.mm(upload(a), upload(b), out=there)
    expect(there, a.double() @ b.double())
nothing = torch.full((5, 7), float("nan"))
expect(torch.addmm(upload(nothing), upload(a), upload(b), beta=0), a.double() @ b.double())
"""
    assert products(code) == ""


def test_products_on_devices_streams_and_threads(products: Callable[..., str]) -> None:
    code = """
import threading
inputs = [(torch.randn(20, 96), torch.randn(96, 30)) for _ in range(4)]
def work(index):
    a, b = inputs[index]
    device = f"xcuda:{index % 2}"
    stream = torch.xcuda.Stream(device)
    with torch.xcuda.stream(stream):
        x, y = upload(a, device), upload(b, device)
        for _ in range(20):
            z = x @ y
    stream.synchronize()
    expect(z, a.double() @ b.double())
    done.append(index)
done = []
threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
[t.start() for t in threads], [t.join() for t in threads]
print(sorted(done))
"""
    assert products(code) == "[0, 1, 2, 3]\n"


def test_products_in_graphs(products: Callable[..., str]) -> None:
    code = """
a, b = torch.randn(20, 96), torch.randn(96, 30)
x, y, graph = upload(a), upload(b), torch.xcuda.CUDAGraph()
x @ y
with torch.xcuda.graph(graph):
    z = x @ y
for _ in range(2):
    a = torch.randn(20, 96)
    x.copy_(a)
    graph.replay()
    expect(z, a.double() @ b.double())
"""
    assert products(code) == ""


def test_products_that_cublaslt_does_not_take_are_generated(run: Run) -> None:
    code = """
a, b = torch.randn(5, 12), torch.randn(6, 7)
x, y = a.to("xcuda"), b.to("xcuda")
for left, right, there, here in [(a[:, ::2], b, x[:, ::2], y), (a[:1, :6].expand(4, 6), b, x[:1, :6].expand(4, 6), y)]:
    torch.testing.assert_close((there @ here).cpu(), left @ right)
c = torch.randn(5, 1)
torch.testing.assert_close(torch.addmm(c.to("xcuda"), x[:, :6], y).cpu(), torch.addmm(c, a[:, :6], b))
bias = torch.randn(7)
found = torch.addmm(bias.to("xcuda"), x[:, :6], y, beta=0.5)
torch.testing.assert_close(found.cpu(), torch.addmm(bias, a[:, :6], b, beta=0.5))
batches, others = torch.randn(3, 5, 6), torch.randn(3, 6, 7)
for part in (torch.randn(5, 7), torch.randn(1, 5, 7), torch.randn(7), torch.randn(3, 1, 7), torch.randn(3, 5, 1)):
    wanted = torch.baddbmm(part, batches, others, beta=0.5, alpha=2)
    found = torch.baddbmm(part.to("xcuda"), batches.to("xcuda"), others.to("xcuda"), beta=0.5, alpha=2)
    torch.testing.assert_close(found.cpu(), wanted)
whole = torch.ones(3, 3, dtype=torch.int32, device="xcuda")
print((whole @ whole)[0].tolist())
"""
    assert run(code) == "[3, 3, 3]\n"


def test_without_cublaslt_products_are_generated(run: Run, versions: Callable[..., Path]) -> None:
    folder = versions(12)
    compile_library("int cublasLtCreate(void) { return 0; }", folder / "libcublasLt.so.12")
    code = """
x = torch.ones(2, 3, device="xcuda")
print("plugin" in str(torch_backend.explain("mm", x, x.t())), (x @ x.t()).tolist())
"""
    assert run(code, path=folder) == "False [[3.0, 3.0], [3.0, 3.0]]\n"


@pytest.mark.parametrize(("precision", "exact"), [("highest", True), ("high", False)])
def test_tf32_is_what_a_program_allows(products: Callable[..., str], precision: str, exact: bool) -> None:
    code = f"""
x = torch.full((2, 2), 1 + 2**-12)
torch.set_float32_matmul_precision({precision!r})
print((upload(x) @ upload(torch.eye(2))).cpu().equal(x))
"""
    assert products(code) == f"{exact}\n"


@pytest.mark.parametrize("allowed", [False, True])
@pytest.mark.parametrize(("dtype", "base"), [("float16", 2048), ("bfloat16", 256)])
def test_reduced_sums_are_what_a_program_allows(
    products: Callable[..., str], allowed: bool, dtype: str, base: int
) -> None:
    """Sums of four parts, each one more than the type can hold, but for the last."""
    kind = "fp16" if dtype == "float16" else "bf16"
    code = f"""
parts = torch.full((4, 256), {base} / 256)
parts[:, 0] += torch.tensor([1, 1, 1, -3])
x = parts.reshape(1, 1024).to(torch.{dtype})
torch.backends.xcuda.matmul.allow_{kind}_reduced_precision_reduction = {allowed}
print((upload(x) @ upload(torch.ones(1024, 1, dtype=x.dtype))).item() == {base} * 4)
"""
    assert products(code) == f"{not allowed}\n"


def test_a_program_may_change_its_mind(products: Callable[..., str]) -> None:
    code = """
x = torch.full((2, 2), 1 + 2**-12)
found = []
for allowed in (False, True, False):
    torch.backends.xcuda.matmul.allow_tf32 = allowed
    found.append((upload(x) @ upload(torch.eye(2))).cpu().equal(x))
print(found)
"""
    assert products(code) == "[True, False, True]\n"


def test_an_option_that_is_no_switch(run_python: RunPython, simulation: Path) -> None:
    text = XCUDA.said(run_python, simulation, TORCH_BACKEND_XCUDA_FMAD="yes")
    assert 'xcuda.fmad is "yes"; expected one of: 0, 1' in text


def test_a_product_on_a_lost_device(run: Run) -> None:
    code = """
x = torch.ones(4, 4, device="xcuda")
for _ in range(2):
    try:
        x @ x
        torch.xcuda.synchronize()
    except torch.AcceleratorError as error:
        print("lost" in str(error))
"""
    assert run(code, refused="e", CUDA_SIM_FAIL="task:2=700") == "True\nTrue\n"


def test_a_product_that_fails_is_named(run: Run) -> None:
    code = """
x = torch.ones(4, 4, device="xcuda")
try:
    x @ x
except RuntimeError as error:
    print(error)
"""
    text = run(code, refused="fails because CUDA_SIM_FAIL says so", CUDA_SIM_FAIL="cublasLtMatmul=999")
    assert all(part in text for part in ("aten::mm", "cublasLtMatmul: ", "(13)"))


# ---- convolutions ----

CONVOLUTIONS = """
import torch.nn.functional as F
torch.backends.cudnn.allow_tf32 = False
torch.manual_seed(0)
ACCURACY = {torch.float64: 1e-12, torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 4e-2}
def drawn(*shape, dtype=torch.float32, last=False):
    x = torch.randn(shape).to(dtype)
    return x.to(memory_format={4: torch.channels_last, 5: torch.channels_last_3d}[x.dim()]) if last else x
def close(got, wanted):
    accuracy = ACCURACY[got.dtype]
    torch.testing.assert_close(got.cpu().double(), wanted, rtol=accuracy, atol=30 * accuracy)
def compare(function, x, w, bias, **numbers):
    results = []
    for tensors in ([x, w, bias], [t if t is None else t.double() for t in (x, w, bias)]):
        on = "xcuda" if not results else "cpu"
        tensors = [t if t is None else t.to(on).requires_grad_() for t in tensors]
        y = function(*tensors, **numbers)
        seed = torch.linspace(-1, 1, y.numel()).reshape(y.shape).to(y.dtype)
        if not y.is_contiguous():
            seed = seed.to(memory_format={4: torch.channels_last, 5: torch.channels_last_3d}[y.dim()])
        results.append([y, *torch.autograd.grad(y, [t for t in tensors if t is not None], seed.to(on))])
    for got, wanted in zip(*results):
        close(got.detach(), wanted.detach())
    return results[0][0]
"""


@pytest.fixture
def convolutions(run_with: Callable[..., Callable[..., str]]) -> Callable[..., str]:
    return run_with("libcudnn.so.9", CONVOLUTIONS)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_convolutions_and_their_gradients(convolutions: Callable[..., str], dtype: str) -> None:
    code = f"""
dtype = torch.{dtype}
for last in (False, True):
    x, bias = drawn(2, 4, 7, 6, dtype=dtype, last=last), drawn(6, dtype=dtype)
    y = compare(F.conv2d, x, drawn(6, 4, 3, 2, dtype=dtype, last=last), bias, padding=(1, 0), stride=(2, 1))
    assert y.is_contiguous() != last
    compare(F.conv2d, x, drawn(6, 2, 3, 3, dtype=dtype, last=last), None, groups=2, dilation=2, padding=2)
    w = drawn(4, 3, 3, 3, dtype=dtype, last=last)
    compare(F.conv_transpose2d, x, w, drawn(6, dtype=dtype), stride=2, output_padding=1, groups=2)
    compare(F.conv3d, drawn(1, 2, 4, 5, 4, dtype=dtype, last=last), drawn(3, 2, 2, 3, 1, dtype=dtype, last=last), None)
compare(F.conv1d, drawn(2, 4, 9, dtype=dtype), drawn(6, 4, 3, dtype=dtype), drawn(6, dtype=dtype), padding=1)
compare(F.conv2d, drawn(1, 4, 5, 5, dtype=dtype), drawn(4, 1, 1, 1, dtype=dtype), None, groups=4)
"""
    assert convolutions(code) == ""


IN_THREADS = """
import threading
def in_threads(function, *arguments):
    wanted, done = function(*(x.double() for x in arguments)), []
    def work(index):
        device = f"xcuda:{index % 2}"
        stream = torch.xcuda.Stream(device)
        with torch.xcuda.stream(stream):
            for _ in range(5):
                y = function(*(x.to(device) for x in arguments))
        stream.synchronize()
        close(y, wanted)
        done.append(index)
    for _ in range(2):
        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        [t.start() for t in threads], [t.join() for t in threads]
    return sorted(done)
"""
"""With two devices, a stream a thread: which threads have got what the CPU gives."""


def test_convolutions_on_devices_streams_and_threads(convolutions: Callable[..., str]) -> None:
    code = """
x, w = drawn(2, 3, 8, 8), drawn(4, 3, 3, 3)
print(in_threads(F.conv2d, x, w))
"""
    assert convolutions(IN_THREADS + code) == "[0, 0, 1, 1, 2, 2, 3, 3]\n"


def test_convolutions_in_graphs(convolutions: Callable[..., str]) -> None:
    code = """
x, w, graph = drawn(2, 3, 8, 8).to("xcuda"), drawn(4, 3, 3, 3), torch.xcuda.CUDAGraph()
there = w.to("xcuda")
F.conv2d(x, there)
with torch.xcuda.graph(graph):
    y = F.conv2d(x, there)
for _ in range(2):
    new = drawn(2, 3, 8, 8)
    x.copy_(new)
    graph.replay()
    close(y, F.conv2d(new.double(), w.double()))
"""
    assert convolutions(code) == ""


def test_convolutions_in_tf32_are_what_a_program_allows(convolutions: Callable[..., str]) -> None:
    code = """
x, found = torch.full((1, 1, 2, 2), 1 + 2**-12), []
for allowed in (False, True, False):
    torch.backends.cudnn.allow_tf32 = allowed
    found.append(F.conv2d(x.to("xcuda"), torch.ones(1, 1, 1, 1, device="xcuda")).cpu().equal(x))
print(found)
"""
    assert convolutions(code) == "[True, False, True]\n"


@pytest.mark.parametrize("wanted", [False, True])
def test_gradients_have_the_same_bits_if_a_program_wants_it(convolutions: Callable[..., str], wanted: bool) -> None:
    code = f"""
torch.use_deterministic_algorithms({wanted})
x, w = drawn(2, 3, 8, 8).to("xcuda"), drawn(4, 3, 3, 3).to("xcuda").requires_grad_()
seed = drawn(2, 4, 6, 6).to("xcuda")
gradients = [torch.autograd.grad(F.conv2d(x, w), w, seed)[0].cpu() for _ in range(4)]
print(all(each.equal(gradients[0]) for each in gradients))
"""
    assert convolutions(code) == f"{wanted}\n"


def test_convolutions_that_cudnn_does_not_do_are_generated(run: Run) -> None:
    code = """
compare(F.conv2d, drawn(2, 3, 8, 9)[..., ::2], drawn(4, 3, 3, 3), drawn(4))
compare(F.conv2d, drawn(2, 4, 8, 8), drawn(4, 4, 3, 3, last=True), drawn(4))
compare(F.conv_transpose2d, drawn(1, 3, 4, 4), drawn(3, 2, 3, 3), None, dilation=2, output_padding=1)
y = F.conv2d(drawn(2, 3, 8, 8).to("xcuda"), drawn(4, 3, 3, 3).to("xcuda").requires_grad_())
y.sum().backward()  # of which the gradient is one number
"""
    assert run(CONVOLUTIONS + code) == ""


@pytest.mark.parametrize("why", ["there is no cudnnSetStream in libcudnn.so.8", "cuDNN is made for a newer CUDA"])
def test_without_cudnn_convolutions_are_generated(
    run: Run, versions: Callable[..., Path], simulation: Path, why: str
) -> None:
    folder = versions(12)
    if "newer" in why:
        shutil.copy(simulation / "libcudnn.so.9", folder)
    else:
        compile_library("int cudnnCreate(void) { return 0; }", folder / "libcudnn.so.9")
    code = """
x, w = torch.ones(1, 1, 2, 2, device="xcuda"), torch.ones(1, 1, 1, 1, device="xcuda")
print("plugin" in str(torch_backend.explain("conv2d", x, w)), torch.conv2d(x, w).sum().item())
"""
    assert run(code, path=folder, CUDA_SIM_CUDNN_CUDART="13000") == "False 4.0\n"


def test_a_convolution_that_fails_is_named(run: Run) -> None:
    code = """
try:
    torch.conv2d(torch.ones(1, 1, 2, 2, device="xcuda"), torch.ones(1, 1, 1, 1, device="xcuda"))
except RuntimeError as error:
    print(error)
"""
    text = run(code, refused="fails because CUDA_SIM_FAIL says so", CUDA_SIM_FAIL="cudnnConvolutionForward=5000")
    assert all(part in text for part in ("convolution", "cudnnConvolutionForward: ", "(5000)"))


# ---- attention ----

ATTENTION = """
import torch.nn.functional as F
torch.manual_seed(0)
ACCURACY = {torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 4e-2}
def drawn(*shape, dtype=torch.float16):
    return torch.randn(shape).to(dtype)
def close(got, wanted, is_gradient=False):  # which begins with the rounded result
    accuracy = ACCURACY[got.dtype] * (5 if is_gradient else 1)
    torch.testing.assert_close(got.cpu().double(), wanted, rtol=accuracy, atol=accuracy)
def as_it_lies(x):
    whole = torch.empty(0, dtype=x.dtype).set_(x.untyped_storage())
    return whole.to("xcuda").as_strided(x.shape, x.stride(), x.storage_offset())
def compare(q, k, v, **options):
    mask = options.pop("attn_mask", None)
    there, here = mask if mask is None else mask.to("xcuda"), mask
    if mask is not None and mask.is_floating_point():
        here = mask.double()
    results = []
    for leaves, added in ((list(map(as_it_lies, (q, k, v))), there), ([x.double() for x in (q, k, v)], here)):
        y = F.scaled_dot_product_attention(*leaves, attn_mask=added, **options)
        results.append([y])
        if torch.is_grad_enabled() and "enable_gqa" not in options:
            leaves = [x.requires_grad_() for x in leaves]
            y = F.scaled_dot_product_attention(*leaves, attn_mask=added, **options)
            results[-1] += [y.detach(), *torch.autograd.grad(y, leaves, y.detach())]
    for i, (got, wanted) in enumerate(zip(*results)):
        close(got, wanted, is_gradient=i > 1)
"""


@pytest.fixture
def attention(run_with: Callable[..., Callable[..., str]]) -> Callable[..., str]:
    return run_with("libcudnn.so.9", ATTENTION)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_attention_by_cudnn(attention: Callable[..., str], dtype: str) -> None:
    code = f"""
def draw(*shape):
    return drawn(*shape, dtype=torch.{dtype})
for options in ({{}}, {{"scale": 0.5}}, {{"is_causal": True}}):
    compare(draw(2, 3, 5, 16), draw(2, 3, 7, 16), draw(2, 3, 7, 16), **options)
compare(draw(1, 2, 40, 8), draw(1, 2, 40, 8), draw(1, 2, 40, 24), is_causal=True)
compare(draw(1, 2, 1, 8), draw(1, 2, 1, 8), draw(1, 2, 1, 24))
compare(*(draw(2, 5, 3, 16).transpose(1, 2) for _ in range(3)))
compare(*draw(2, 5, 3, 3, 16).permute(3, 0, 2, 1, 4), is_causal=True)
with torch.inference_mode():
    compare(draw(2, 4, 5, 16), draw(2, 2, 7, 16), draw(2, 2, 7, 16), enable_gqa=True)
    compare(draw(2, 3, 5, 16), draw(2, 3, 7, 16), draw(2, 3, 7, 16))
with torch.no_grad():
    compare(draw(2, 3, 5, 16).requires_grad_(), draw(2, 3, 7, 16), draw(2, 3, 7, 16))
"""
    assert attention(code) == ""


def test_who_attends(run: Run) -> None:
    """cuDNN as torch.nn.attention calls it, for what it has and unless a program says otherwise."""
    code = """
from torch.nn.attention import SDPBackend, sdpa_kernel
def name(dtype=torch.float16, **options):
    x = drawn(2, 3, 8, 16, dtype=dtype).to("xcuda").requires_grad_()
    return F.scaled_dot_product_attention(x, x, x, **options).grad_fn.name()
print("EfficientAttention" in name(), "EfficientAttention" in name(is_causal=True))
print("EfficientAttention" in name(torch.float32), "EfficientAttention" in name(dropout_p=0.5))
with sdpa_kernel(SDPBackend.MATH):
    print("EfficientAttention" in name())
with sdpa_kernel([SDPBackend.MATH, SDPBackend.EFFICIENT_ATTENTION], set_priority=True):
    print("EfficientAttention" in name())
with sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION):
    print("EfficientAttention" in name())
    try:
        name(torch.float32)
    except RuntimeError as error:
        print(error)
"""
    told = run(ATTENTION + code)
    assert told.startswith("True True\nFalse False\nFalse\nFalse\nTrue\nNo enabled backend of"), told
    assert "Besides MATH there is EFFICIENT_ATTENTION" in told


def test_compiled_attention(run: Run) -> None:
    code = """
q, k, v, grad = (drawn(2, 3, 8, 16) for _ in range(4))
def attend(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True) * 2
results = []
for function in (attend, torch.compile(attend, fullgraph=True)):
    leaves = [x.to("xcuda").requires_grad_() for x in (q, k, v)]
    y = function(*leaves)
    results.append([y.detach(), *torch.autograd.grad(y, leaves, grad.to("xcuda"))])
for got, wanted in zip(*results):
    close(got, wanted.cpu().double())
"""
    assert run(ATTENTION + code) == ""


def test_attention_has_tangents(run: Run) -> None:
    """Forward-mode gradients, which no tensor requires beforehand."""
    code = """
q, k, v, tangent = (drawn(2, 3, 5, 16) for _ in range(4))
def tangents(q, k, v, tangent):
    return torch.func.jvp(lambda q: F.scaled_dot_product_attention(q, k, v), (q,), (tangent,))[1]
there = tangents(*(x.to("xcuda") for x in (q, k, v, tangent)))
with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):  # the CPU's other ones have no tangents
    close(there, tangents(*(x.double() for x in (q, k, v, tangent))))
"""
    assert run(ATTENTION + code) == ""


def test_attention_on_devices_streams_and_threads(attention: Callable[..., str]) -> None:
    code = """
q, k, v = (drawn(2, 3, 8, 16) for _ in range(3))
print(in_threads(F.scaled_dot_product_attention, q, k, v))
def gradients(*leaves):
    [x.requires_grad_() for x in leaves]
    y = F.scaled_dot_product_attention(*leaves, is_causal=True)
    return torch.autograd.grad(y, leaves, y.detach())[1]
ACCURACY[torch.float16] *= 5
print(in_threads(gradients, q, k, v))
"""
    assert attention(IN_THREADS + code) == "[0, 0, 1, 1, 2, 2, 3, 3]\n" * 2


@pytest.mark.parametrize("is_warm", [False, True])
def test_attention_in_graphs(attention: Callable[..., str], is_warm: bool) -> None:
    code = f"""
x, graph = drawn(2, 3, 8, 16).to("xcuda"), torch.xcuda.CUDAGraph()
if {is_warm}:
    F.scaled_dot_product_attention(x, x, x)
with torch.xcuda.graph(graph):
    y = F.scaled_dot_product_attention(x, x, x)
for _ in range(2):
    new = drawn(2, 3, 8, 16)
    x.copy_(new)
    graph.replay()
    close(y, F.scaled_dot_product_attention(*[new.double()] * 3))
"""
    assert attention(code) == ""


@pytest.mark.parametrize("wanted", [False, True])
def test_attention_has_the_same_bits_if_a_program_wants_it(attention: Callable[..., str], wanted: bool) -> None:
    code = f"""
torch.use_deterministic_algorithms({wanted})
x = drawn(2, 3, 8, 16).to("xcuda")
results = [F.scaled_dot_product_attention(x, x, x).cpu() for _ in range(4)]
print(all(each.equal(results[0]) for each in results))
"""
    assert attention(code) == f"{wanted}\n"


def test_attention_that_cudnn_does_not_do_is_generated(run: Run) -> None:
    code = """
q, k, v = drawn(2, 2, 5, 16), drawn(2, 2, 7, 16), drawn(2, 2, 7, 16)
compare(q, k, v, attn_mask=torch.ones(5, 7, dtype=torch.bool).tril(2))
compare(q, k, v, attn_mask=torch.tensor([[True], [False]] * 2 + [[True]]).expand(5, 7))
compare(q, k, v, attn_mask=drawn(5, 7))
compare(q, k, v, attn_mask=drawn(2, 1, 5, 7))
compare(q[..., :12], k[..., :12], v)
compare(q, k, v[..., 4:])
compare(drawn(2, 2, 5, 20)[..., :16], k, v)
compare(drawn(2, 2, 5, 32)[..., 2:18], k, v)
compare(drawn(2, 2, 5, 32)[..., ::2], k, v)
compare(q[0], k[0], v[0])
compare(*(x.float() for x in (q, k, v)))
compare(drawn(2, 4, 5, 16), drawn(2, 2, 7, 16), drawn(2, 2, 7, 16), enable_gqa=True)
with torch.no_grad():
    compare(q, k[:1].expand(2, -1, -1, -1), v)
F.scaled_dot_product_attention(*(x.to("xcuda") for x in (q, k, v)), dropout_p=0.5)
results = []
for device, dtype in (("xcuda", torch.float16), ("cpu", torch.float64)):
    leaves = [x.to(device, dtype).requires_grad_() for x in (q, k, v)]
    mask = drawn(5, 7).fill_(0.25).to(device, dtype).requires_grad_()
    results.append([])
    for added in (None, mask):
        y = F.scaled_dot_product_attention(*leaves, attn_mask=added)
        wanted = leaves if added is None else [*leaves, added]
        results[-1] += [y.detach(), *torch.autograd.grad(y.sum(), wanted)]  # whose gradient has no memory of its own
for got, wanted in zip(*results):
    close(got, wanted)
"""
    assert run(ATTENTION + code) == ""


def test_layers_of_attention_are_trained_and_run(run: Run) -> None:
    code = """
import torch.nn as nn
ACCURACY[torch.bfloat16] = 0.1
source = drawn(4, 6, 32, dtype=torch.bfloat16)
class Attention(nn.MultiheadAttention):
    def forward(self, x):
        return super().forward(x, x, x, need_weights=False)[0]
for layer in (nn.TransformerEncoderLayer(32, 2, 48, dropout=0, batch_first=True), Attention(32, 2, batch_first=True)):
    start, results = {name: x.clone() for name, x in layer.state_dict().items()}, []
    for device, dtype in (("xcuda", torch.bfloat16), ("cpu", torch.float64)):
        layer.load_state_dict(start)
        there, x = layer.to(device, dtype).train(), source.to(device, dtype)
        optimizer = torch.optim.SGD(there.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            there(x).square().mean().backward()
            optimizer.step()
        there.eval()
        with torch.no_grad():
            results.append([there(x), *(p.detach().clone() for p in there.parameters())])
    for got, wanted in zip(*results):
        close(got, wanted)
"""
    assert run(ATTENTION + code) == ""


@pytest.mark.parametrize(
    ("version", "has_it", "causal"),
    [("8907", False, False), ("91600", False, False), ("91900", True, False), ("92000", True, False)],
)
def test_an_older_cudnn(run: Run, version: str, has_it: bool, causal: bool) -> None:
    """Without gradients, or masks, what it lacks is generated."""
    code = """
print("source:    plugin" in str(torch_backend.explain("_scaled_dot_product_efficient_attention")))
with torch.profiler.profile() as profile:
    compare(*(drawn(2, 3, 5, 16) for _ in range(3)), is_causal=True)
    torch.xcuda.synchronize()
print(any("cudnn_sdpa" in event.name for event in profile.events()))
compare(*(drawn(2, 3, 5, 16) for _ in range(3)))
print("source:    plugin" in str(torch_backend.explain("convolution_overrideable")))
"""
    refused = "no gradients of attention" if version == "91900" else ""
    said = run(ATTENTION + code, refused=refused, CUDA_SIM_CUDNN_VERSION=version)
    assert said == f"{has_it}\n{causal}\nTrue\n"


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ("cudnnBackendExecute=5000", "cudnnBackendExecute: "),
        ("cudnnBackendFinalize=5000", "cudnnBackendFinalize: "),
        ("cudnnBackendCreateDescriptor:9=5000", "cudnnBackendCreateDescriptor: "),
    ],
)
def test_an_attention_that_fails_is_named(run: Run, fault: str, expected: str) -> None:
    code = """
layer = torch.nn.MultiheadAttention(32, 2, batch_first=True).to("xcuda", torch.float16)
x = drawn(4, 6, 32).to("xcuda")
try:
    with torch.no_grad():
        layer.train()(x, x, x, need_weights=False)
except RuntimeError as error:
    print(error)
with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
    print(layer(x, x, x, need_weights=False)[0].shape)
"""
    text = run(ATTENTION + code, refused="fails because CUDA_SIM_FAIL says so", CUDA_SIM_FAIL=fault)
    assert all(part in text for part in ("aten::_scaled_dot_product_efficient_attention", expected, "[4, 6, 32]"))


# ---- what it has done ----

TRACE = """
import ctypes, json, os
from torch.profiler import ProfilerActivity, profile
PATH = os.environ["PATH_OF_TRACE"]
def trace(work):
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]) as prof:
        work()
        torch.xcuda.synchronize(0), torch.xcuda.synchronize(1)
    prof.export_chrome_trace(PATH)
    return json.loads(open(PATH).read())
def done(events, *kinds):
    return [event for event in events["traceEvents"] if event.get("cat") in kinds]
def measured(events):
    return sorted({event["args"]["measured by"] for event in done(events, "kernel", "gpu_memcpy", "gpu_memset")})
"""


def test_cupti_records_what_devices_do(run: Run, tmp_path: Path) -> None:
    code = """
x, y = torch.randn(40, 30).pin_memory(), torch.randn(30, 20)
def work():
    with torch.xcuda.stream(torch.xcuda.Stream()):
        a = x.to("xcuda", non_blocking=True)
        b = (a @ y.to("xcuda")).exp()
        b.to("xcuda:1") * 2, torch.zeros(1000, device="xcuda:1")
    return b.cpu()
work()
events = trace(work)
operators = {event["args"].get("External id"): event["name"] for event in done(events, "cpu_op")}
for event in sorted(done(events, "kernel", "gpu_memcpy", "gpu_memset"), key=lambda event: event["ts"]):
    name, arguments = event["name"], event["args"]
    print(operators[arguments["External id"]], name if "(" in name else "", arguments.get("bytes", ""))
print(measured(events))
"""
    lines = run(TRACE + code, CUDA_SIM_DELAY_US=DELAY, PATH_OF_TRACE=str(tmp_path / "trace.json")).splitlines()
    assert lines[-1] == "['device trace']"
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


def test_records_name_streams_that_are_gone(run: Run) -> None:
    code = """
import gc
from torch_backend.abi import tb_trace_callback
from torch_conformance import bare
library, _ = bare.open_library("xcuda")
device = library.devices[0]
table, found = library.tables["prof.1"], []
assert table.trace_start(2) == 0
streams, memory = [], device.allocate(64)
for _ in range(3):
    with device.stream() as stream:
        device.write(memory, bytes(64), stream)
        streams.append(stream)
device.write(memory, bytes(64))
assert table.trace_stop() == 0
@tb_trace_callback
def take(_, record):
    found.append(record.contents.stream)
assert table.trace_collect(take, None) == 0
print(found == [*streams, 0])
"""
    assert run(code) == "True\n"


def test_another_profiler_has_cupti(run: Run, simulation: Path, tmp_path: Path) -> None:
    code = f"""
cupti = ctypes.CDLL("{simulation}/libcupti.so.12")
callback, subscriber = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4)(lambda *_: None), ctypes.c_void_p()
assert cupti.cuptiSubscribe(ctypes.byref(subscriber), callback, None) == 0
x = torch.ones(2, device="xcuda")
print(measured(trace(lambda: x + 1)))
assert cupti.cuptiUnsubscribe(subscriber) == 0
print(measured(trace(lambda: x + 1)))
"""
    text = run(TRACE + code, PATH_OF_TRACE=str(tmp_path / "trace.json"))
    assert text == "['device events']\n['device trace']\n"


def test_without_cupti_events_tell_the_times(run: Run, versions: Callable[..., Path], tmp_path: Path) -> None:
    folder = versions(12)
    compile_library("int cuptiSubscribe(void) { return 0; }", folder / "libcupti.so.12")
    code = """
x = torch.ones(2, device="xcuda")
print(measured(trace(lambda: x + 1)))
"""
    assert run(TRACE + code, path=folder, PATH_OF_TRACE=str(tmp_path / "trace.json")) == "['device events']\n"


@pytest.mark.parametrize("function", ["cuptiActivityEnable", "cuptiActivityRegisterCallbacks", "cuptiGetTimestamp"])
def test_a_cupti_that_fails(run: Run, tmp_path: Path, function: str) -> None:
    code = """
x = torch.ones(2, device="xcuda")
print(measured(trace(lambda: x + 1)))
"""
    refused = "fails because CUDA_SIM_FAIL says so"
    text = run(TRACE + code, refused, CUDA_SIM_FAIL=f"{function}=15", PATH_OF_TRACE=str(tmp_path / "trace.json"))
    assert text == "['device events']\n"


# ---- what the hardware is doing ----

TELEMETRY = """
names = ("utilization", "memory_usage", "temperature", "power_draw", "clock_rate")
try:
    for device in (0, 1):
        print(*(getattr(torch.xcuda, name)(device) for name in names))
    print(torch.xcuda.list_gpu_processes(1))
    print(torch.xcuda.list_gpu_processes().splitlines()[-1])
except RuntimeError as error:
    print(error)
"""


def test_telemetry(run: Run) -> None:
    assert run(TELEMETRY).splitlines() == [
        "70 30 40 350000 1980",
        "71 31 41 350001 1981",
        "GPU:1",
        "no processes are running",
        "process          7 uses            ? MB GPU memory",
    ]


def test_no_nvml(run: Run, versions: Callable[..., Path]) -> None:
    needs_no_driver()
    text = run(TELEMETRY, path=versions(12))
    assert "NVML, which says what a GPU is doing, is not installed (libnvidia-ml.so.1: " in text


def test_an_nvml_without_a_function_is_too_old(run: Run, versions: Callable[..., Path]) -> None:
    folder = versions(12)
    compile_library("int nvmlInit_v2(void) { return 0; }", folder / "libnvidia-ml.so.1")
    assert "NVML is too old: libnvidia-ml.so.1 has no nvmlErrorString. xcuda needs driver 525" in run(
        TELEMETRY, path=folder
    )


@pytest.mark.parametrize("function", ["nvmlInit_v2", "nvmlDeviceGetTemperature", "nvmlDeviceGetHandleByUUID"])
def test_what_nvml_refuses_is_named(run: Run, function: str) -> None:
    text = run(TELEMETRY, refused="fails because CUDA_SIM_FAIL says so", CUDA_SIM_FAIL=f"{function}=3")
    assert text.startswith(f"{function}: ")
    assert text.endswith(" (3)\n")


# ---- collectives ----


@pytest.fixture
def ranks(simulation: Path, tmp_path: Path) -> Callable[..., list[dict[str, str]]]:
    """Runs scenarios in two processes, over NCCL. The simulation refuses what has ``refused``, or nothing."""

    def run(*scenarios: str, refused: str = "") -> list[dict[str, str]]:
        log = tmp_path / "refusals"
        environment = {
            "TORCH_BACKEND": "xcuda",
            "TORCH_BACKEND_XCUDA_LIBRARY_PATH": str(simulation),
            "EXPECTED_PATH": "ccl.1",
            "EXPECTED_SLOTS": "all_reduce broadcast reduce all_gather reduce_scatter send recv group_begin group_end",
            "CUDA_SIM_DELAY_US": DELAY,
            "CUDA_SIM_LOG": str(log),
        }
        said = run_ranks(scenarios, tmp_path, 2, environment)
        lines = log.read_text().splitlines() if log.exists() else []
        assert all(refused and refused in line for line in lines), lines
        return said

    return run


@pytest.mark.parametrize("scenarios", ["kit", "slots crossing empty reductions rare_dtypes", "callbacks not_connected"])
def test_ranks_in_two_processes(ranks: Callable[..., list[dict[str, str]]], scenarios: str) -> None:
    """With the kit's training in parallel (DDP) among them."""
    said = ranks(*scenarios.split())
    for scenario in scenarios.split():
        expect_good(scenario, said)


@pytest.mark.parametrize("scenario", ["time_out", "abort"])
def test_what_a_rank_waits_for_in_vain_is_aborted(ranks: Callable[..., list[dict[str, str]]], scenario: str) -> None:
    expect_good(scenario, ranks(scenario, refused="has left"))


def test_a_rank_that_dies_is_told(ranks: Callable[..., list[dict[str, str]]]) -> None:
    expect_good("killed", ranks("killed", refused="has left")[:1])


def test_without_nccl_gloo_serves(simulation: Path, tmp_path: Path) -> None:
    needs_no_package("libnccl.so")
    for library in ("libcuda.so.1", "libnvrtc.so.12"):
        shutil.copy(simulation / library, tmp_path)
    environment = {"TORCH_BACKEND": "xcuda", "TORCH_BACKEND_XCUDA_LIBRARY_PATH": str(tmp_path)}
    said = run_ranks(("kit",), tmp_path, 2, environment)
    expect_good("kit", said)


# ---- faults ----


def test_every_variant_can_be_made() -> None:
    variants.read(PROJECT).check()


def test_out_of_memory_is_pytorchs(run: Run) -> None:
    code = """
try:
    torch.empty(1 << 30, device="xcuda")
except torch.OutOfMemoryError as error:
    print("out of memory")
print(torch.ones(2, device="xcuda").tolist())
"""
    assert run(code, refused="bytes are free", CUDA_SIM_MEMORY_MIB="64") == "out of memory\n[1.0, 1.0]\n"


@pytest.mark.parametrize("error", [214, 700, 716, 719])
def test_what_sticks_to_a_context_loses_the_device(run: Run, error: int) -> None:
    code = """
x = torch.ones(4, device="xcuda")
for _ in range(3):
    try:
        x + 1
        torch.xcuda.synchronize()
    except torch.AcceleratorError as error:
        print("lost" in str(error))
print((torch.ones(2, device="xcuda:1") + 1).tolist())
"""
    assert run(code, refused="e", CUDA_SIM_FAIL=f"task:1={error}") == "True\nTrue\nTrue\n[2.0, 2.0]\n"


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ("cuStreamCreateWithPriority=2", "CUDA_ERROR_OUT_OF_MEMORY (2)"),
        ("cuEventCreate=304", "CUDA's error 304"),
        ("cuModuleLoadDataEx=222", "CUDA_ERROR_UNSUPPORTED_PTX_VERSION (222)"),
        ("cuLaunchKernel=701", "CUDA's error 701"),
        ("cuMemcpyDtoHAsync=1", "CUDA_ERROR_INVALID_VALUE (1)"),
    ],
)
def test_a_call_that_fails_is_named(run: Run, fault: str, expected: str) -> None:
    code = """
try:
    with torch.xcuda.stream(torch.xcuda.Stream()):
        x = torch.ones(4, device="xcuda") * 3
        torch.xcuda.Event().record()
        x.tolist()
except RuntimeError as error:
    print(error)
"""
    assert expected in run(code, refused="fails because CUDA_SIM_FAIL says so", CUDA_SIM_FAIL=fault)
