"""A device that is lost: refused from then on, harmless to free, and no concern of the other devices."""

from fixtures import RunPython

LOST = "an earlier call reported that the device is lost; it cannot be used again in this process"
PRELUDE = f"""
import pytest, threading, time, torch
from torch_backend import _C
LOST = {LOST!r}

def lose(device, slot="memory_copy"):
    _C.set_option("xcpu.fault", f"{{slot}}:{{device}}=DEVICE_LOST")
    with pytest.raises(torch.AcceleratorError, match=r"device lost \\(DEVICE_LOST\\)") as error:
        torch.ones(4).to(f"xcpu:{{device}}")
        torch.xcpu.synchronize(device)
    _C.set_option("xcpu.fault", "")
    assert error.value.error_code == 5 and _C.is_device_lost(device)

def refused(use):
    with pytest.raises(torch.AcceleratorError, match=LOST) as error:
        use()
    assert error.value.error_code == 5
    return str(error.value)
"""
FAST = {"TORCH_BACKEND": "xcpu", "TORCH_BACKEND_XCPU_FAULT": "", "TORCH_BACKEND_XCPU_DEVICES": "3"}
ASYNC = FAST | {"TORCH_BACKEND_XCPU_ASYNC": "1"}


def script(body: str) -> str:
    """The prelude, then the body with its own indentation removed."""
    lines = body.strip("\n").splitlines()
    indent = len(lines[0]) - len(lines[0].lstrip())
    return PRELUDE + "\n".join(line[indent:] for line in lines)


AFTERWARDS = """
    x, y = torch.ones(1 << 20, device="xcpu:0"), torch.ones(1 << 20, device="xcpu:2")
    side = torch.xcpu.Stream(0)
    pinned = torch.ones(4).pin_memory()
    with torch.xcpu.device(0):
        x.record_stream(side)
        a = torch.ones(4, device="xcpu:0")
        a.copy_(pinned, non_blocking=True)
    del a, pinned
    lose(0)
    before = torch.xcpu.memory_allocated(0)
    del x
    assert torch.xcpu.memory_allocated(0) < before
    spare = torch.empty(1 << 25, device="xcpu:2")
    del spare
    torch.xcpu.empty_cache()
    torch.xcpu.empty_host_cache()
    assert torch.xcpu.memory_reserved(2) < 1 << 25, "the other devices' caches are emptied"
    with torch.xcpu.device(1):
        assert torch.rand(4).pin_memory().is_pinned()
        z = torch.ones(100, device="xcpu") @ torch.ones(100, device="xcpu")
        assert z.item() == 100
    assert y.sum().item() == y.numel()
    assert y.to("xcpu:1").sum().item() == y.numel()
    del y, z
    for device in (1, 2):
        torch.xcpu.synchronize(device)
        assert torch.xcpu.memory_allocated(device) == 0
"""


def test_the_rest_goes_on(run_python: RunPython) -> None:
    process = run_python(script(AFTERWARDS), env=FAST)
    assert process.stderr == ""


def test_the_rest_goes_on_asynchronously(run_python: RunPython) -> None:
    run_python(script(AFTERWARDS), env=ASYNC)


def test_exit_with_everything_alive(run_python: RunPython) -> None:
    process = run_python(
        script(
            """
            tensors = [torch.ones(1 << 18, device="xcpu") for _ in range(20)]
            streams = [torch.xcpu.Stream() for _ in range(3)]
            event, timer = torch.xcpu.Event(), torch.xcpu.Event(enable_timing=True)
            pinned = torch.ones(1 << 18).pin_memory()
            pool = torch.xcpu.memory.MemPool()
            generator = torch.Generator("xcpu")
            for stream in streams:
                with torch.xcpu.stream(stream):
                    for tensor in tensors:
                        tensor.copy_(pinned, non_blocking=True)
                        tensor.record_stream(stream)
            event.record(streams[0])
            timer.record(streams[1])
            _C.set_option("xcpu.fault", "device_synchronize:0=DEVICE_LOST")
            with pytest.raises(torch.AcceleratorError, match="device_synchronize fails with DEVICE_LOST"):
                torch.xcpu.synchronize()  # with work pending
            del tensors[::2]
            started = time.monotonic()
            import atexit
            atexit.register(lambda: print("exit", time.monotonic() - started < 5))
            """
        ),
        env=ASYNC | {"TORCH_BACKEND_XCPU_DELAY_US": "1000"},
    )
    assert process.stdout == "exit True\n"


def test_every_device_lost(run_python: RunPython) -> None:
    run_python(
        script(
            """
            tensors = [torch.ones(4, device=f"xcpu:{i}") for i in range(3)]
            for device in range(3):
                lose(device)
            for device in range(3):
                refused(lambda: torch.xcpu.synchronize(device))
            assert torch.ones(4).sum().item() == 4
            assert torch.xcpu.device_count() == 3
            """
        ),
        env=FAST,
    )
