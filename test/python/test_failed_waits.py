"""Calls that fail while work goes on, on xcpu with delays: memory that it uses is neither handed out nor freed."""

import pytest
from fixtures import RunPython

DELAYED = {
    "TORCH_BACKEND": "xcpu",
    "TORCH_BACKEND_XCPU_ASYNC": "1",
    "TORCH_BACKEND_XCPU_DELAY_US": "30000",  # one operation takes at least as long
    "TORCH_BACKEND_XCPU_FAULT": "",  # so that it can be changed later
}

PRELUDE = """
    import ctypes
    import torch
    from torch_backend import _C

    N = 1 << 20  # more than the allocator cuts out of a shared segment
    side = torch.xcpu.Stream()

    # What the side stream still copies to, and the address of what it copies, which is given back.
    def read_by_side(count):
        x = torch.ones(count, device="xcpu")
        y = torch.zeros(count, device="xcpu")
        torch.xcpu.synchronize()
        with torch.xcpu.stream(side):
            for _ in range(4):
                y.copy_(x)
        x.record_stream(side)
        return y, x.data_ptr()

    def fault(rule):
        _C.set_option("xcpu.fault", rule)

    def raised(call):
        try:
            call()
        except Exception as error:
            return type(error).__name__
        return None

    def settle():
        fault("")
        for device in range(torch.xcpu.device_count()):
            for _ in range(2):
                raised(lambda: torch.xcpu.synchronize(device))
    """


@pytest.fixture
def run_delayed(run_python: RunPython) -> RunPython:
    """Run PRELUDE and the code on such a device; returns what it prints, in lines."""
    return lambda code: run_python(PRELUDE + code, env=DELAYED).stdout.splitlines()


def test_block_whose_event_cannot_be_queried(run_delayed: RunPython) -> None:
    """Not handed out while the other stream reads it, and again once that is over."""
    assert run_delayed(
        """
    y, address = read_by_side(N)
    fault("event_query=TIMEOUT@1")
    print(raised(lambda: torch.empty(N, device="xcpu")))
    early = torch.empty(N, device="xcpu")
    print(early.data_ptr() == address)
    early.fill_(5)
    settle()
    late = torch.empty(N, device="xcpu")
    print(late.data_ptr() == address, bool((y == 1).all()))
    """
    ) == ["AcceleratorError", "False", "True True"]


def test_event_that_always_fails_does_not_fail_every_allocation(run_delayed: RunPython) -> None:
    assert run_delayed(
        """
    y, address = read_by_side(N)
    fault("event_query=INTERNAL")
    print([raised(lambda: torch.empty(3, device="xcpu")) for _ in range(3)])
    settle()
    print(torch.empty(N, device="xcpu").data_ptr() == address)
    """
    ) == ["['AcceleratorError', None, None]", "True"]


@pytest.mark.parametrize("rule", ["event_synchronize=TIMEOUT@1", "event_synchronize=INTERNAL"])
def test_cache_is_not_emptied_under_a_copy(run_delayed: RunPython, rule: str) -> None:
    assert run_delayed(
        f"""
    y, _ = read_by_side(64 * N)
    fault("{rule}")
    print(raised(torch.xcpu.memory.empty_cache))
    raised(torch.xcpu.memory.empty_cache)
    settle()
    print(bool((y == 1).all()))
    del y
    torch.xcpu.memory.empty_cache()
    print(torch.xcpu.memory_reserved())
    """
    ) == ["AcceleratorError", "True", "0"]


def test_pinned_block_whose_event_cannot_be_queried(run_delayed: RunPython) -> None:
    assert run_delayed(
        """
    x = torch.ones(N, device="xcpu")
    torch.xcpu.synchronize()
    host = torch.zeros(N, pin_memory=True)
    address = host.data_ptr()
    for _ in range(4):
        host.copy_(x, non_blocking=True)
    del host
    fault("event_query=TIMEOUT@1")
    early = torch.zeros(N, pin_memory=True)
    print(early.data_ptr() == address)
    settle()
    late = torch.zeros(N, pin_memory=True)
    print(late.data_ptr() == address, bool((early == 0).all()))
    """
    ) == ["False", "True True"]


def test_copy_of_rows_that_fails_in_the_middle(run_delayed: RunPython) -> None:
    """The host's memory outlives the rows that were enqueued before."""
    for line in run_delayed(
        """
    x = torch.zeros(12, 8, device="xcpu")
    copies = {
        "out": lambda: x[:, :7].cpu(),
        "in": lambda: x[:, :7].copy_(torch.zeros(12, 7)),
        "elements out": lambda: x[:, ::2].cpu(),
        "elements in": lambda: x[:, ::2].copy_(torch.zeros(12, 4)),
    }
    for status in ("UNSUPPORTED", "INTERNAL", "OUT_OF_MEMORY"):
        for name, copy in copies.items():
            torch.xcpu.synchronize()
            x.fill_(3)
            fault(f"memory_copy={status}@8")
            error = raised(copy)
            fault("")
            later = [torch.zeros(12, 7) for _ in range(100)]  # in memory that was given back
            settle()
            print(name, error, all(bool((t == 0).all()) for t in later), bool((x.fill_(4)[:, :7].cpu() == 4).all()))
    """
    ):
        name, error, *right = line.rsplit(maxsplit=3)
        assert right == ["True", "True"], line
        # Where rows are single elements, one copy takes them with what lies between.
        assert error in {"AcceleratorError", "NotImplementedError", "OutOfMemoryError"} or "elements" in name, line


def test_copy_between_devices_that_fails_after_it_was_enqueued(run_delayed: RunPython) -> None:
    """The target is not handed out while it is written."""
    for line in run_delayed(
        """
    x = torch.ones(N, device="xcpu:0")
    for rule in ("event_record=INTERNAL@2", "event_create=INTERNAL@2", "stream_wait_event=TIMEOUT@2"):
        torch.xcpu.synchronize(0)
        torch.empty(N, device="xcpu:1")  # leaves a block in the cache
        torch.xcpu.synchronize(1)
        fault(rule)
        error = raised(lambda: x.to("xcpu:1"))
        fault("")
        y = torch.empty(N, device="xcpu:1").fill_(7)
        torch.xcpu.synchronize(1)
        settle()
        print(rule, error, bool((y == 7).all()))
    """
    ):
        assert line.split()[1:] == ["AcceleratorError", "True"], line


def test_memory_that_could_not_be_waited_for_comes_back(run_delayed: RunPython) -> None:
    """What was kept while every wait failed is released by the next one that succeeds."""
    assert run_delayed(
        """
    x = torch.ones(N, device="xcpu:0")
    torch.xcpu.synchronize(0)
    before = [torch.xcpu.memory_allocated(device) for device in range(2)]
    fault("stream_wait_event=INTERNAL@2,stream_synchronize=TIMEOUT,event_record=INTERNAL@3")
    print(raised(lambda: x.to("xcpu:1")))
    y = torch.ones(N, device="xcpu:0")
    y.record_stream(side)
    del y
    print(torch.xcpu.memory_allocated(1) > before[1], torch.xcpu.memory_stats()["active_bytes.all.current"] > before[0])
    fault("")
    print([raised(lambda: torch.xcpu.synchronize(device)) for device in range(2)])
    print([torch.xcpu.memory_allocated(device) for device in range(2)] == before)
    print(torch.xcpu.memory_stats()["active_bytes.all.current"] == before[0])
    """
    ) == ["AcceleratorError", "True True", "[None, None]", "True", "True"]
