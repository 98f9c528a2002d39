"""Libraries that say what cannot be: text that is no UTF-8, files that were cut off, devices that have to be bound."""

import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
from fixtures import BuildPlugin, RunPython, in_process
from torch_conformance.threads import in_numbered_threads

from torch_backend import _C
from torch_backend.files import installed

NONE = {"TORCH_BACKEND": "none"}


def test_texts_that_are_no_utf8(run_python: RunPython, build_plugin: BuildPlugin) -> None:
    path = build_plugin('VENDOR="Caf\\xe9"')
    run_python(
        f"""
        import torch, torch_backend
        plugin = torch_backend.load({str(path)!r})
        assert plugin.vendor == "Caf\\ufffd"
        torch_backend.activate(plugin)
        assert torch.acme.get_device_properties(0).name == "Caf\\ufffd acme"
        assert (torch.ones(2, device="acme") + 1).tolist() == [2, 2]
        """,
        env=NONE,
    )


def test_errors_that_are_no_utf8(run_python: RunPython, build_plugin: BuildPlugin) -> None:
    path = build_plugin('ENTRY_FAILS="caf\\xe9 is closed"')
    run_python(
        f"""
        import pytest, torch_backend
        with pytest.raises(RuntimeError, match="refused to load: caf\\ufffd is closed"):
            torch_backend.load({str(path)!r})
        """,
        env=NONE,
    )


@pytest.mark.parametrize("kept", [100, 5000, -1], ids=["in the headers", "in the middle", "of its end"])
def test_a_file_that_was_cut_off(run_python: RunPython, tmp_path: Path, kept: int) -> None:
    """The loader would map what is missing, and the process would end at its first use."""
    whole = installed.reference_library("xcpu").read_bytes()
    path = tmp_path / "libtorch_backend_acme.so"
    path.write_bytes(whole[: kept if kept > 0 else len(whole) * 2 // 3])
    said = run_python(
        """
        import os, pytest, torch, torch_backend
        assert torch_backend.active() is None and torch.ones(1).item() == 1
        with pytest.raises(RuntimeError, match="Cannot load device library: .*Copy, download or build it again"):
            torch_backend.load(os.environ["TORCH_BACKEND_PATH"])
        from torch_backend.abi import DeviceLibrary, LibraryError
        with pytest.raises(LibraryError, match="Copy, download or build it again"):
            DeviceLibrary.open(os.environ["TORCH_BACKEND_PATH"])
        """,
        env={"TORCH_BACKEND_PATH": path, "TORCH_BACKEND": "acme"},
    ).stderr
    assert "Copy, download or build it again" in said


def bound(build_plugin: BuildPlugin) -> dict[str, Any]:
    """An environment whose device has to be bound."""
    path = build_plugin(source="bound.c", over="xcpu")
    return {"TORCH_BACKEND": "xcpu", "TORCH_BACKEND_PATH": path, "TORCH_BACKEND_XCPU_ASYNC": "1"}


@in_process(bound)
def test_graphs_of_a_device_that_has_to_be_bound() -> None:
    """Captured, launched and destroyed by threads whose device is another one."""
    x, y = torch.ones(100, device="xcpu"), torch.zeros(100, device="xcpu")
    torch.xcpu.synchronize()
    g = torch.xcpu.Graph()
    with torch.xcpu.graph(g):
        y.copy_(x)
    torch.ones(1, device="xcpu:1")
    g.replay()
    assert y.tolist() == [1] * 100

    def reset() -> None:
        torch.ones(1, device="xcpu:1")
        g.reset()

    thread = threading.Thread(target=reset)
    thread.start()
    thread.join()


@in_process(bound)
def test_collectives_of_a_device_that_has_to_be_bound() -> None:
    store = torch.distributed.HashStore()
    backends: dict[int, Any] = {}
    sums: dict[int, float] = {}

    def rank(number: int) -> None:
        torch.accelerator.set_device_index(number)
        backends[number] = _C.DeviceBackend("xcpuccl", store, number, 2, timedelta(seconds=60))
        x = torch.full((1000,), number + 1.0, device="xcpu")
        torch.ones(1, device=f"xcpu:{1 - number}")  # the thread's device is another one now
        backends[number].allreduce([x]).wait()
        sums[number] = x.sum().item()

    in_numbered_threads(2, rank)
    assert sums == {0: 3000.0, 1: 3000.0}, sums
    backends.clear()  # in a thread that has never used the communicators
