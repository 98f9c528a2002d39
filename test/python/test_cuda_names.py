"""What torch.<name> has of torch.cuda: every name is there or has a reason, and accepts what torch.cuda accepts."""

import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / ".ci"))
cuda_names = importlib.import_module("cuda_names")


def test_every_name_is_there_or_has_a_reason(backend: ModuleType) -> None:
    names = set(cuda_names.names(torch.cuda))
    absent = {name for name in names if not hasattr(backend, name)}
    assert absent <= set(cuda_names.ABSENT)
    assert not [name for name in cuda_names.ABSENT if hasattr(backend, name)]
    assert not set(cuda_names.REFUSED) - set(dir(backend))


def test_arguments_are_those_of_cuda(backend: ModuleType) -> None:
    missing = {
        name: cuda_names.other_arguments(getattr(torch.cuda, name), getattr(backend, name))
        for name in cuda_names.names(torch.cuda)
        if hasattr(backend, name)
    }
    assert {name: found for name, found in missing.items() if found} == {}


@pytest.mark.skipif(not torch.__version__.startswith("2.13."), reason="the page is about torch 2.13")
def test_the_page_is_up_to_date(backend: ModuleType) -> None:
    assert (ROOT / "docs/reference/cuda_names.md").read_text() == cuda_names.page(torch.cuda, backend)


def test_what_is_refused_says_so(backend: ModuleType, name: str) -> None:
    for question in ("clock_rate", "list_gpu_processes", "memory_usage", "power_draw", "temperature", "utilization"):
        with pytest.raises(NotImplementedError, match=f"{name}:0 does not say"):
            getattr(backend, question)(0)
    with pytest.raises(NotImplementedError, match="leave out allocator"):
        backend.MemPool(use_on_oom=True)
    for annotations in ({"enable_annotations": True}, {"annotation_config": {"backend": "auto"}}):
        with pytest.raises(NotImplementedError, match="leave out enable_annotations"):
            backend.graph(None, **annotations)
    total = backend.mem_get_info(0)[1]
    assert 0 <= backend.device_memory_used(0) <= total


def test_names_of_types(backend: ModuleType, name: str) -> None:
    x = backend.FloatTensor([1, 2])
    assert x.type() == f"torch.{name}.FloatTensor"
    assert isinstance(x, backend.FloatTensor)
    assert not isinstance(x, backend.LongTensor)
    assert not isinstance(x.cpu(), backend.FloatTensor)
    assert backend.HalfTensor(2, 3).shape == (2, 3)
    assert backend.LongTensor(x.size()).type() == f"torch.{name}.LongTensor"
    assert backend.LongTensor().shape == (0,)


def test_autocast_state(backend: ModuleType, name: str) -> None:
    before = backend.get_autocast_dtype()
    with torch.autocast(name, dtype=torch.bfloat16):
        assert (backend.is_autocast_enabled(), backend.get_autocast_dtype()) == (True, torch.bfloat16)
        backend.set_autocast_enabled(False)
        backend.set_autocast_dtype(torch.float16)
        assert (torch.is_autocast_enabled(name), torch.get_autocast_dtype(name)) == (False, torch.float16)
    assert (backend.is_autocast_enabled(), backend.get_autocast_dtype()) == (False, before)


def test_ranges_are_in_profiles(backend: ModuleType, name: str) -> None:
    with torch.profiler.profile() as profile:
        assert [backend.range_push("outer"), backend.nvtx.range_push("inner")] == [0, 1]
        torch.ones(2, device=name)
        backend.mark("moment")
        assert [backend.range_pop(), backend.range_pop(), backend.range_pop()] == [1, 0, -1]
        started = backend.nvtx.range_start("started")
        with backend.nvtx.range("number {}", 3), backend.profiler.profile():
            backend.nvtx.range_end(started)
    parents = {event.name: event.cpu_parent.name if event.cpu_parent else None for event in profile.events()}
    assert parents["aten::ones"] == "inner"
    assert {"moment", "started", "number 3", "profiler.start", "profiler.stop"} <= set(parents)


def test_backends(name: str) -> None:
    backends = importlib.import_module(f"torch.backends.{name}")
    assert backends is getattr(torch.backends, name)
    assert backends.is_built()
    assert not backends.matmul.allow_tf32
    torch.set_float32_matmul_precision("high")
    assert backends.matmul.allow_tf32
    torch.set_float32_matmul_precision("highest")
    assert not backends.matmul.allow_tf32
    with pytest.raises(IndexError, match="99"):
        torch.accelerator.set_device_index(99)
