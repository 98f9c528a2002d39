"""The device openreg: nothing of it is in this process, its daemons live and die as they should."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from torch_backend_openreg.allocator import RangeAllocator
from torch_backend_openreg.options import Options
from torch_conformance.processes import RunPython, clean_environment

from torch_backend.abi import DeviceLibrary, LibraryError

USE = {"TORCH_BACKEND": "openreg"}
STREAMS = {**USE, "TORCH_BACKEND_OPENREG_STREAMS": "1"}

DRIVERS = """
    import gc, torch
    from torch_backend_openreg import OpenReg
    (device,) = (found for found in gc.get_objects() if type(found) is OpenReg)
"""


def ended(pid: int, seconds: float = 20.0) -> bool:
    """Whether the process is gone, or a zombie, within the time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state == "Z":
            return True
        time.sleep(0.02)
    return False


# ---- the parts ----


def test_ranges_are_distinct_and_joined_again() -> None:
    allocator = RangeAllocator(1024)
    first, second, third = (allocator.allocate(size) for size in (100, 1, 200))
    assert (first, second, third) == (0, 128, 192)
    assert allocator.free_bytes == 1024 - 128 - 64 - 256
    assert allocator.find(first + 99) == (first, 100)
    assert allocator.find(first + 100) is None
    with pytest.raises(MemoryError, match="no room for 700 bytes: 576 of 1024 are free, the largest piece has 576"):
        allocator.allocate(700)
    allocator.release(first, 100)
    allocator.release(third, 200)
    assert allocator.allocate(100) == first, "the smallest piece that fits"
    allocator.release(first, 100)
    allocator.release(second, 1)
    assert allocator.allocate(1024) == 0, "free neighbours are one piece"
    with pytest.raises(ValueError, match="there is no allocation of 1000 bytes at offset 0x0"):
        allocator.release(0, 1000)


def test_options_are_checked() -> None:
    given = {"devices": "3", "memory": "64MiB", "streams": "1"}
    assert Options.read(given.get) == Options(3, 64 << 20, streams=True)
    assert Options.read({}.get) == Options()
    wrong = (
        ("devices", "0"),
        ("devices", "65"),
        ("devices", "two"),
        ("memory", "1GB"),
        ("memory", "1B"),
        ("streams", "yes"),
    )
    for key, value in wrong:
        with pytest.raises(ValueError, match=f'openreg.{key} is "{value}"; expected'):
            Options.read({key: value}.get)


def test_the_kit_knows_the_options() -> None:
    command = [sys.executable, "-m", "torch_backend", "check", "openreg", "--option", "stream=1"]
    done = subprocess.run(command, capture_output=True, text=True, env=clean_environment())
    assert done.returncode == 2
    assert "'openreg' has no option 'stream'. Did you mean streams?" in " ".join(done.stderr.split())


def test_a_wrong_option_stops_the_device(run_python: RunPython) -> None:
    done = run_python("import torch", env={**USE, "TORCH_BACKEND_OPENREG_MEMORY": "lots"})
    assert 'openreg.memory is "lots"; expected a size' in done.stderr


# ---- memory ----


def test_the_host_cannot_touch_device_memory(run_python: RunPython) -> None:
    """A load from an address of the device, and a store to it, each ends the process at once."""
    for access in ("ctypes.string_at(x.data_ptr(), 1)", "ctypes.memset(x.data_ptr(), 1, 1)"):
        run_python(
            f"import ctypes, torch; x = torch.ones(4, device='openreg'); assert x.sum() == 4; {access}",
            env=USE,
            expect=-signal.SIGSEGV,
        )


def test_bytes_are_in_the_daemon(run_python: RunPython) -> None:
    """What a tensor holds is in the daemon's memory, and its address is reserved here without access."""
    run_python(
        DRIVERS
        + """
    needle = bytes((number * 37 + 11) % 256 for number in range(64))

    def ranges(pid):
        for line in open(f"/proc/{pid}/maps"):
            start, end = (int(part, 16) for part in line.split()[0].split("-"))
            yield start, end, line.split()[1]

    def holds(pid):
        with open(f"/proc/{pid}/mem", "rb", 0) as memory:
            for start, end, access in ranges(pid):
                if access.startswith("rw") and end - start <= 512 << 20:
                    memory.seek(start)
                    if needle in memory.read(end - start):
                        return True
        return False

    x = torch.arange(64, device="openreg").mul(37).add(11).remainder(256).to(torch.uint8)
    assert holds(device.drivers[0].pid), "the daemon does not have the bytes"
    (access,) = (access for start, end, access in ranges("self") if start <= x.data_ptr() < end)
    assert access == "---p", f"device memory is mapped here as {access}"
    """,
        env={**USE, "TORCH_BACKEND_OPENREG_MEMORY": "64MiB"},
    )


def test_memory_runs_out_and_comes_back(run_python: RunPython) -> None:
    run_python(
        """
    import torch
    x = torch.empty(40 << 20, dtype=torch.uint8, device="openreg")
    try:
        torch.empty(40 << 20, dtype=torch.uint8, device="openreg")
    except torch.OutOfMemoryError as error:
        assert "openreg:0: no room for" in str(error), error
    else:
        raise AssertionError("64 MiB hold 80")
    del x
    assert torch.zeros(60 << 20, dtype=torch.uint8, device="openreg")[-1].item() == 0
    """,
        env={**USE, "TORCH_BACKEND_OPENREG_MEMORY": "64MiB"},
    )


def test_two_devices_are_two_processes(run_python: RunPython) -> None:
    run_python(
        DRIVERS
        + """
    assert [driver.pid for driver in device.drivers] == [None, None], "a daemon was started before its device was used"
    a, b = torch.ones(3, device="openreg:0"), torch.full((3,), 2.0, device="openreg:1")
    pids = {driver.pid for driver in device.drivers}
    assert len(pids) == 2 and None not in pids
    assert (a.to("openreg:1") + b).tolist() == [3, 3, 3]
    """,
        env=USE,
    )


# ---- operators ----


def test_training_needs_no_operator_of_this_process(run_python: RunPython) -> None:
    """A network with convolutions, norms and an optimizer trains with nothing on the CPU, and as on the CPU."""
    run_python(
        """
    import torch, torch_backend
    from torch import nn
    from torch.nn import functional as F
    torch_backend.fallback.set_policy(None, "error")

    def train(device):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                            nn.LayerNorm(36), nn.Linear(36, 3))
        images, labels = torch.randn(16, 1, 8, 8), torch.arange(16) % 3
        net, images, labels = net.to(device), images.to(device), labels.to(device)
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
        losses = []
        for _ in range(4):
            loss = F.cross_entropy(net(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    found, expected = train("openreg"), train("cpu")
    assert all(abs(a - b) < 1e-5 for a, b in zip(found, expected)), (found, expected)
    assert found[-1] < found[0]
    assert torch_backend.fallback.report().calls == 0, torch_backend.fallback.report()
    """,
        env=USE,
    )


def test_what_the_operator_refuses_is_told_in_pytorchs_words(run_python: RunPython) -> None:
    run_python(
        """
    import torch
    for device in ("cpu", "openreg"):
        x = torch.eye(2).sub(1).to(device) * 0
        try:
            torch.linalg.cholesky(x)
        except torch.linalg.LinAlgError as error:
            assert "not positive-definite" in str(error), error
        else:
            raise AssertionError(device)
        try:
            torch.gather(x, 0, torch.full((2, 2), 5, device=device))
        except RuntimeError as error:
            assert "out of bounds" in str(error), error
        else:
            raise AssertionError(device)
    """,
        env=USE,
    )


# ---- streams ----

HELD = (
    DRIVERS
    + """
    import threading
    release = threading.Event()
    x = torch.ones(3, device="openreg")
    device.stream_host_function(0, None, lambda: release.wait() and None)
    """
)
"""The default stream of device 0 goes no further until ``release`` is set."""


def test_without_the_option_there_are_no_streams() -> None:
    library = DeviceLibrary.open("torch_backend_openreg:OpenReg")
    assert not {"stream_create", "event_record", "stream_host_function"} & set(library.core)
    assert "memory_fill" in library.core


def test_work_waits_for_its_stream_and_for_nothing_else(run_python: RunPython) -> None:
    run_python(
        HELD
        + """
    y = x + 1  # returns, with the stream held up
    after = torch.openreg.Event()
    after.record()
    side = torch.openreg.Stream()
    with torch.openreg.stream(side):
        assert (torch.full((3,), 5.0, device="openreg") * 2).tolist() == [10, 10, 10]
    far = torch.openreg.Stream(device="openreg:1")
    far.wait_event(after)
    with torch.openreg.stream(far):
        w = torch.ones(3, device="openreg:1") + 1
    assert not after.query() and not far.query() and not torch.openreg.default_stream().query()
    release.set()
    far.synchronize()
    assert after.query(), "a stream of another device did not wait"
    assert y.tolist() == w.tolist() == [2, 2, 2]
    """,
        env=STREAMS,
    )


def test_pinned_memory_is_memory_of_the_daemons(run_python: RunPython) -> None:
    """A copy from it is made when the stream gets there, of what is in it then; other memory is read at once."""
    run_python(
        HELD
        + """
    pinned, pageable = torch.ones(3).pin_memory(), torch.ones(3)
    assert pinned.is_pinned() and not pageable.is_pinned()
    (line,) = (line for line in open("/proc/self/maps") if line.rstrip().endswith("memfd:openreg (deleted)"))
    start, end = (int(part, 16) for part in line.split()[0].split("-"))
    assert start <= pinned.data_ptr() < end
    assert "memfd:openreg" in open(f"/proc/{device.drivers[0].pid}/maps").read()
    x.copy_(pinned, non_blocking=True)
    pinned.fill_(7)
    release.set()
    assert x.tolist() == [7, 7, 7], x
    back = torch.empty(3, pin_memory=True)
    back.copy_(x * 2, non_blocking=True)
    torch.accelerator.synchronize()
    assert back.tolist() == [14, 14, 14]
    """,
        env=STREAMS,
    )


def test_what_queued_work_fails_with_is_told_once(run_python: RunPython) -> None:
    """ATen refuses the class when the stream gets there; the next who waits learns of it, and the device goes on."""
    run_python(
        HELD
        + """
    bad = torch.nn.functional.nll_loss(x.reshape(1, 3), torch.full((1,), 5, device="openreg"))
    release.set()
    try:
        torch.accelerator.synchronize()
    except RuntimeError as error:
        assert not isinstance(error, NotImplementedError), error
        assert "openreg:0: Target 5 is out of bounds" in str(error), error
    else:
        raise AssertionError("the failure was not told")
    torch.accelerator.synchronize()
    assert (x + 1).tolist() == [2, 2, 2]
    """,
        env=STREAMS,
    )


def test_a_daemon_that_dies_with_work_queued_is_a_lost_device(run_python: RunPython) -> None:
    """Who waits for it at the time learns of it, what has to be called is called, and the other device goes on."""
    run_python(
        HELD
        + """
    import os, signal
    b = torch.ones(3, device="openreg:1")
    y = x + 1
    called = threading.Event()
    device.stream_host_function(0, None, called.set)
    threading.Timer(0.2, os.kill, (device.drivers[0].pid, signal.SIGKILL)).start()
    for _ in range(2):
        try:
            torch.openreg.synchronize(0)
        except torch.AcceleratorError as error:
            assert "openreg:0" in str(error), error
        else:
            raise AssertionError("a dead process is done with its work")
    assert called.wait(60), "a host function was never called"
    assert (b + 1).tolist() == [2, 2, 2], "the other device went as well"
    """,
        env=STREAMS,
    )


def test_ctrl_c_ends_waiting_and_not_the_device(run_python: RunPython) -> None:
    run_python(
        HELD
        + """
    import os, signal
    signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell's jobs in the background begin without
    y = x + 1
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    try:
        torch.accelerator.synchronize()
    except RuntimeError as error:  # in its place comes KeyboardInterrupt, after the call
        assert "stream_synchronize was interrupted" in str(error), error
    except KeyboardInterrupt:
        pass
    else:
        raise AssertionError("the wait was not broken off")
    try:
        threading.Event().wait(60)
    except KeyboardInterrupt:
        pass
    release.set()
    torch.accelerator.synchronize()
    assert y.tolist() == [2, 2, 2]
    """,
        env=STREAMS,
    )


def test_events_tell_the_time_between_them(run_python: RunPython) -> None:
    run_python(
        DRIVERS
        + """
    import time
    start, end = (torch.openreg.Event(enable_timing=True) for _ in range(2))
    start.record()
    device.stream_host_function(0, None, lambda: time.sleep(0.05))
    end.record()
    end.synchronize()
    assert start.elapsed_time(end) >= 50
    """,
        env=STREAMS,
    )


# ---- processes ----


def test_a_killed_daemon_is_a_lost_device(run_python: RunPython) -> None:
    run_python(
        DRIVERS
        + """
    import os, signal
    a, b = torch.ones(3, device="openreg:0"), torch.ones(3, device="openreg:1")
    pid = device.drivers[1].pid
    os.kill(pid, signal.SIGKILL)
    for _ in range(2):
        try:
            b + 1
        except torch.AcceleratorError as error:
            assert "openreg:1" in str(error), error
        else:
            raise AssertionError("a dead process computes")
    try:
        device.drivers[1].request("info")
    except Exception as error:
        assert str(error) == f"openreg:1: its daemon (process {pid}) was ended by SIGKILL", error
    else:
        raise AssertionError("a dead process answers")
    assert (a + 1).tolist() == [2, 2, 2], "the other device went as well"
    """,
        env=USE,
    )


WAITS = (
    DRIVERS
    + """
    import time
    x = torch.ones(3, device="openreg:0") + torch.ones(3, device="openreg:1").to("openreg:0")
    print(*(driver.pid for driver in device.drivers), flush=True)
    {then}
"""
)


@pytest.mark.parametrize(
    ("ending", "env"),
    [
        *((ending, USE) for ending in ("killed", "killed while it computes", "exit", "forked")),
        *((ending, STREAMS) for ending in ("killed while it computes", "exit with work queued")),
    ],
    ids=lambda value: value if isinstance(value, str) else "streams" if value is STREAMS else "",
)
def test_daemons_end_with_the_process(ending: str, env: dict[str, str]) -> None:
    """Whatever ends it, and though a process that it has forked lives on."""
    then = {
        "killed": "time.sleep(600)",
        "killed while it computes": "y = torch.ones(1200, 1200, device='openreg:0')\n    while True: y = y @ y",
        "exit": "pass",
        "exit with work queued": "device.stream_host_function(0, None, lambda: time.sleep(600))\n    y = x + 1",
        "forked": "import os\n    if os.fork() == 0: os.close(1), os.close(2), time.sleep(40)\n    time.sleep(600)",
    }[ending]
    import textwrap

    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(WAITS.format(then=then))],
        env=clean_environment() | env,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    with process:
        try:
            pids = [int(text) for text in process.stdout.readline().split()]
            assert len(pids) == 2, "the process did not get as far as to use its devices"
            if not ending.startswith("exit"):
                time.sleep(0.2)
                process.kill()
                process.wait()
            else:
                assert process.wait(60) == 0
            assert all(ended(pid) for pid in pids), "a daemon has outlived its parent"
        finally:
            process.kill()


def test_it_is_opened_without_torch(run_python: RunPython) -> None:
    run_python("""
    import sys
    from torch_backend.abi import DeviceLibrary
    library = DeviceLibrary.open("torch_backend_openreg:OpenReg")
    library.initialize()
    device = library.devices[1]
    with device.allocation(1 << 20) as address:
        device.write(address, bytes(range(256)) * 4096)
        device.fill(address + 512, b"ab", 256)
        assert device.read(address, 1024) == bytes(range(256)) * 2 + b"ab" * 128 + bytes(range(256))
        assert device.query_pointer(address + 5).base == address
    free, total = device.memory_info()
    assert free == total == 1 << 30
    assert "torch" not in sys.modules
    """)


def test_what_is_no_address_of_the_device_is_refused() -> None:
    library = DeviceLibrary.open("torch_backend_openreg:OpenReg")
    library.initialize()
    with pytest.raises((RuntimeError, LibraryError), match="INVALID_ARGUMENT: 0x40 is no address of openreg:0"):
        library.devices[0].fill(0x40, b"a", 64)
