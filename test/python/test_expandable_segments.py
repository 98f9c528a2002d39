"""Segments that grow, PYTORCH_ALLOC_CONF=expandable_segments:True, as PyTorch's users see them."""

import io
import itertools
from multiprocessing.reduction import ForkingPickler

import pytest
import torch
from fixtures import RunPython, in_process

from torch_backend import _C

MIB = 2**20
EXPANDABLE = {"TORCH_BACKEND": "xcpu", "PYTORCH_ALLOC_CONF": "expandable_segments:True"}
LATE = {"TORCH_BACKEND_XCPU_ASYNC": "1", "TORCH_BACKEND_XCPU_DELAY_US": "0-300"}
MODES = pytest.mark.parametrize(
    "mode",
    [
        {},
        LATE,
        {"TORCH_BACKEND_XCPU_PROTECT": "1"},
        {"TORCH_BACKEND_XCPU_ASYNC": "1", "TORCH_BACKEND_XCPU_MODULES": "1"},
        {"TORCH_BACKEND_XCPU_IPC": "1"},
    ],
    ids=["fast", "async", "protected", "modules", "ipc"],
)


@MODES
@in_process(lambda mode: {**EXPANDABLE, **mode})
def test_segments_grow() -> None:
    """Tensors lie beside each other in one segment, which empty_cache takes apart; the snapshot shows it."""
    torch.xcpu.memory._record_memory_history()
    a, b, c = (torch.full((15 * MIB,), i, dtype=torch.uint8, device="xcpu") for i in range(3))
    assert b.data_ptr() == a.data_ptr() + 15 * MIB
    assert c.data_ptr() == b.data_ptr() + 15 * MIB
    assert torch.xcpu.memory_reserved() == 60 * MIB
    snapshot = torch.xcpu.memory._snapshot()
    [segment] = [s for s in snapshot["segments"] if s["segment_type"] == "large"]
    assert segment["is_expandable"]
    assert segment["total_size"] == 60 * MIB
    assert snapshot["allocator_settings"]["expandable_segments"]
    for i, tensor in enumerate((a, b, c)):
        assert (tensor.cpu() == i).all()
    del a, b
    torch.xcpu.synchronize()
    torch.xcpu.empty_cache()
    assert torch.xcpu.memory_reserved() == 40 * MIB, torch.xcpu.memory_reserved()
    assert (c.cpu() == 2).all()
    actions = [e["action"] for e in torch.xcpu.memory._snapshot()["device_traces"][0]]
    assert (actions.count("segment_map"), actions.count("segment_unmap")) == (3, 1), actions
    assert "segment_alloc" not in actions
    assert torch.xcpu.memory_stats()["num_device_alloc"] == 3
    del c, tensor
    torch.xcpu.synchronize()
    torch.xcpu.empty_cache()
    assert torch.xcpu.memory_reserved() == 0


def test_a_device_that_has_no_such_memory_says_so(run_python: RunPython) -> None:
    process = run_python(
        """
        import torch
        torch.empty(1, device="xcpu")
        assert not torch.xcpu.memory._snapshot()["segments"][0]["is_expandable"]
        """,
        env={**EXPANDABLE, "TORCH_BACKEND_XCPU_VIRTUAL_MEMORY": "0"},
    )
    assert "expandable_segments, which this device does not offer" in process.stderr
    assert run_python("import torch; torch.empty(1, device='xcpu')", env=EXPANDABLE).stderr == ""


@in_process({**EXPANDABLE, "TORCH_BACKEND_XCPU_IPC": "1"})
def test_other_processes_get_no_such_memory() -> None:
    x = torch.ones(3, device="xcpu")
    with pytest.raises(
        RuntimeError, match=r"(?s)expandable_segments:True.*\.cpu\(\)|\.cpu\(\).*expandable_segments:True"
    ):
        ForkingPickler(io.BytesIO()).dump(x)
    del x
    torch.xcpu.empty_cache()
    assert torch.xcpu.memory_reserved() == 0


@pytest.mark.parametrize("slot", ["address_reserve", "memory_commit", "memory_decommit", "address_release"])
@in_process({**EXPANDABLE, "TORCH_BACKEND_XCPU_FAULT": "", "TORCH_BACKEND_XCPU_MEMORY": "1GiB"})
def test_a_failing_slot_leaves_the_allocator_right(slot: str) -> None:
    """Each of the first calls of the slot fails once: the next request is met, and nothing is lost."""
    for status, nth in itertools.product(("OUT_OF_MEMORY", "INTERNAL", "UNSUPPORTED"), range(1, 5)):
        _C.set_option("xcpu.fault", f"{slot}={status}@{nth}")
        tensors = []
        for _ in range(2):
            try:
                tensors.append(torch.full((70 * MIB,), 7, dtype=torch.uint8, device="xcpu"))
            except RuntimeError as error:
                if status != "INTERNAL" or slot not in str(error):
                    raise
        assert all((tensor.cpu() == 7).all() for tensor in tensors)
        assert torch.xcpu.memory_allocated() == 70 * MIB * len(tensors)
        del tensors
        torch.xcpu.empty_cache()
        _C.set_option("xcpu.fault", "")
        torch.xcpu.empty_cache()
        assert torch.xcpu.memory_reserved() == 0
        free, total = torch.xcpu.mem_get_info()
        assert free == total, (free, total)


@pytest.mark.parametrize("mode", [{}, LATE], ids=["fast", "async"])
def test_a_training_loop_computes_the_same(run_python: RunPython, mode: dict[str, str]) -> None:
    """With batches that grow, on several threads and streams."""
    code = """
        import torch
        from torch_conformance.threads import in_numbered_threads

        def train(number):
            torch.xcpu.set_device(0)
            generator = torch.Generator().manual_seed(number)
            weight = torch.randn(64, 64, generator=generator).to("xcpu").requires_grad_()
            with torch.xcpu.stream(torch.xcpu.Stream()):
                torch.xcpu.current_stream().wait_stream(torch.xcpu.default_stream())
                for step in range(1, 12):
                    x = torch.randn(200 * step, 64, generator=generator).to("xcpu")
                    loss = (x @ weight).tanh().square().mean()
                    loss.backward()
                    with torch.no_grad():
                        weight -= weight.grad
                    weight.grad = None
                    if step % 4 == 0:
                        torch.xcpu.empty_cache()
                torch.xcpu.current_stream().synchronize()
            results[number] = weight.detach().cpu()

        # MKL chooses the code of its vector functions at their first call: threads that make it together can get two.
        torch.ones(64).tanh()
        results = {}
        in_numbered_threads(3, train)
        print([f"{results[number].double().sum():.12f}" for number in range(3)])
    """
    expected = run_python(code, env={"TORCH_BACKEND": "xcpu", **mode}).stdout
    assert run_python(code, env={**EXPANDABLE, **mode}).stdout == expected


@in_process({**EXPANDABLE, "TORCH_BACKEND_XCPU_ASYNC": "1"})
def test_graphs_keep_their_pages() -> None:
    x = torch.ones(5 * MIB, device="xcpu")
    graph = torch.xcpu.Graph()
    with torch.xcpu.graph(graph):
        y = x + 1
        z = y * 2
    torch.xcpu.empty_cache()
    x.fill_(2)
    graph.replay()
    torch.xcpu.synchronize()
    assert (z.cpu() == 6).all()
    pools = {s["segment_pool_id"] for s in torch.xcpu.memory._snapshot()["segments"]}
    assert len(pools) == 2
    assert all(s["is_expandable"] for s in torch.xcpu.memory._snapshot()["segments"])
    del graph, x, y, z
    torch.xcpu.synchronize()
    torch.xcpu.empty_cache()
    assert torch.xcpu.memory_reserved() == 0
