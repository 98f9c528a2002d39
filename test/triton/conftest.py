"""Triton on the active device, by a backend that interprets: `TORCH_BACKEND=xcpu pytest test/triton`."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from fixtures import backend, name, run_python, template
from triton_test_vendor import BACKEND

from torch_backend.triton import register

__all__ = ["backend", "name", "run_python", "template"]

register(os.environ["TORCH_BACKEND"], BACKEND)


@pytest.fixture
def device() -> str:
    """The name of the device that is tested."""
    return os.environ["TORCH_BACKEND"]


@pytest.fixture
def without_tuning(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The first of several configurations is taken: it takes minutes to try them interpreted."""
    from torch._inductor import config  # imports triton, which is to know the backend
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner

    def benchmark(self: CachingAutotuner, *args: object, **kwargs: object) -> dict[object, float]:
        return {launcher: float(place) for place, launcher in enumerate(self.launchers)}

    monkeypatch.setattr(CachingAutotuner, "benchmark_all_configs", benchmark)
    torch.compiler.reset()
    with config.patch(force_disable_caches=True):
        yield


@pytest.fixture
def installed(tmp_path: Path, device: str) -> Path:
    """A folder for PYTHONPATH that has a vendor's package, which names the backend in an entry point."""
    folder = tmp_path / "packages"
    metadata = folder / "triton_test_vendor-1.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: triton_test_vendor\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text(f"[torch_backend.triton]\n{device} = triton_test_vendor:BACKEND\n")
    return folder
