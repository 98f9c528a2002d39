"""Copies of many rows on devices without memory_copy_2d, where a row is a call: what else can copy them does."""

from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Thread

import pytest
import torch
from fixtures import BuildPlugin, in_process
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

ASYNC = {"TORCH_BACKEND_XCPU_ASYNC": "1", "TORCH_BACKEND_XCPU_DELAY_US": "0-100"}
FAR = "WITHOUT=(TB_CAP_HOST_ACCESS|TB_CAP_HOST_COHERENT|TB_CAP_PAGEABLE_ACCESS)"
MODES: dict[str, tuple[str, dict[str, str]]] = {
    "aliases": ("WITHOUT=TB_CAP_PEER", ASYNC),
    "kernels": (FAR, ASYNC | {"TORCH_BACKEND_XCPU_MODULES": "1"}),
    "the host": (FAR, ASYNC),
    "the host, at once": (FAR, {}),
}
ROWS = 1000
FEW = 8  # calls


def environment(build_plugin: BuildPlugin, mode: str) -> Mapping[str, str | Path]:
    without, options = MODES[mode]
    path = build_plugin(without, "ROWS_ONE_BY_ONE", source="less.c", over="xcpu")
    return {"TORCH_BACKEND": "xcpu", "TORCH_BACKEND_PATH": path} | options


def copies_of(act: Callable[[], object]) -> int:
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]) as profiled:
        act()
        torch.xcpu.synchronize()
    return sum(event.count for event in profiled.key_averages() if event.key.startswith("Memcpy"))


def whole() -> Tensor:
    return torch.arange(ROWS * 24, dtype=torch.float32).view(ROWS, 24)


VIEWS: dict[str, Callable[[Tensor], Tensor]] = {
    "every other row": lambda x: x[::2],
    "some columns": lambda x: x[:, 3:7],
    "one column": lambda x: x[:, 5],
    "the end of rows": lambda x: x[7:, 20:],
}


@pytest.mark.parametrize("mode", MODES)
@in_process(environment)
def test_rows_to_a_dense_tensor(mode: str) -> None:
    """On the device and to the host, page-locked or not, and from there."""
    host, there = whole(), whole().to("xcpu")
    pinned = whole().pin_memory()
    for name, view in VIEWS.items():
        results: list[Tensor] = []
        for act in (
            lambda view=view: view(there).contiguous(),
            lambda view=view: view(there).cpu(),
            lambda view=view: view(host).to("xcpu"),
            lambda view=view: view(pinned).to("xcpu", non_blocking=True),
            lambda view=view: torch.empty(view(host).shape).pin_memory().copy_(view(there), non_blocking=True),
        ):
            count = copies_of(lambda act=act, results=results: results.append(act()))
            assert count <= FEW, f"{name}: {count} copies"
            torch.testing.assert_close(results[-1].cpu(), view(host), msg=name, rtol=0, atol=0)


@pytest.mark.parametrize("mode", MODES)
@in_process(environment)
def test_rows_of_a_view(mode: str) -> None:
    """What lies between a view's elements is another stream's to write, meanwhile too."""
    for name, view in VIEWS.items():
        there, expected = torch.zeros(ROWS, 24, device="xcpu"), torch.zeros(ROWS, 24)
        source = view(whole()).clone()
        near = source.to("xcpu")
        torch.xcpu.synchronize()

        def write_others(there: Tensor = there) -> None:
            with torch.xcpu.stream(torch.xcpu.Stream()):
                for row in range(0, ROWS, 50):
                    there[row, 0] = -1  # in no view but the first
                torch.xcpu.current_stream().synchronize()

        writer = Thread(target=write_others)
        is_apart = name != "every other row"
        if is_apart:
            writer.start()
            expected[::50, 0] = -1
        view(there).copy_(near)
        view(there).copy_(source)
        view(there).copy_(source.pin_memory(), non_blocking=True)
        if is_apart:
            writer.join()
        torch.xcpu.synchronize()
        view(expected).copy_(source)
        torch.testing.assert_close(there.cpu(), expected, msg=name, rtol=0, atol=0)


@pytest.mark.parametrize("mode", ["kernels", "the host"])
@in_process(environment)
def test_rows_that_are_far_apart(mode: str) -> None:
    """What lies between them would take longer than a call for each."""
    there = torch.zeros(40, 1 << 17, device="xcpu")
    there[:, 3] = torch.arange(40.0, device="xcpu")
    assert copies_of(lambda: there[:, 3].cpu()) >= 40
    torch.testing.assert_close(there[:, 3].cpu(), torch.arange(40.0))
