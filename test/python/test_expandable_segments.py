"""Segments that grow, PYTORCH_ALLOC_CONF=expandable_segments:True, as PyTorch's users see them."""

import pytest
from fixtures import RunPython

EXPANDABLE = {"TORCH_BACKEND": "xcpu", "PYTORCH_ALLOC_CONF": "expandable_segments:True"}
MODES = pytest.mark.parametrize(
    "mode",
    [
        {},
        {"TORCH_BACKEND_XCPU_ASYNC": "1", "TORCH_BACKEND_XCPU_DELAY_US": "0-300"},
        {"TORCH_BACKEND_XCPU_PROTECT": "1"},
        {"TORCH_BACKEND_XCPU_ASYNC": "1", "TORCH_BACKEND_XCPU_MODULES": "1"},
        {"TORCH_BACKEND_XCPU_IPC": "1"},
    ],
    ids=["fast", "async", "protected", "modules", "ipc"],
)


@MODES
def test_segments_grow(run_python: RunPython, mode: dict[str, str]) -> None:
    """Tensors lie beside each other in one segment, which empty_cache takes apart; the snapshot shows it."""
    run_python(
        """
        import torch
        MIB = 2**20
        xcpu = torch.xcpu
        xcpu.memory._record_memory_history()
        a, b, c = (torch.full((15 * MIB,), i, dtype=torch.uint8, device="xcpu") for i in range(3))
        assert b.data_ptr() == a.data_ptr() + 15 * MIB and c.data_ptr() == b.data_ptr() + 15 * MIB
        assert xcpu.memory_reserved() == 60 * MIB
        snapshot = xcpu.memory._snapshot()
        [segment] = [s for s in snapshot["segments"] if s["segment_type"] == "large"]
        assert segment["is_expandable"] and segment["total_size"] == 60 * MIB
        assert snapshot["allocator_settings"]["expandable_segments"]
        for i, tensor in enumerate((a, b, c)):
            assert (tensor.cpu() == i).all()
        del a, b
        xcpu.synchronize()
        xcpu.empty_cache()
        assert xcpu.memory_reserved() == 40 * MIB, xcpu.memory_reserved()
        assert (c.cpu() == 2).all()
        actions = [e["action"] for e in xcpu.memory._snapshot()["device_traces"][0]]
        assert actions.count("segment_map") == 3 and actions.count("segment_unmap") == 1, actions
        assert "segment_alloc" not in actions
        assert xcpu.memory_stats()["num_device_alloc"] == 3
        del c, tensor
        xcpu.synchronize()
        xcpu.empty_cache()
        assert xcpu.memory_reserved() == 0
        """,
        env={**EXPANDABLE, **mode},
    )


def test_growing_requests_do_not_run_out_of_memory(run_python: RunPython) -> None:
    """A workload of which each step needs more than all before runs out of memory only with segments of fixed size."""
    code = """
        import torch
        MIB = 2**20

        def tensor(mib):
            return torch.empty(mib * MIB, dtype=torch.uint8, device="xcpu")

        kept = []
        for step in range(1, 9):
            activations = tensor(20 * step)
            del activations
            kept.append(tensor(10 * step))
    """
    memory = {"TORCH_BACKEND_XCPU_MEMORY": "512MiB"}
    run_python(code, env={**EXPANDABLE, **memory})
    process = run_python(code, env={**EXPANDABLE, **memory, "PYTORCH_ALLOC_CONF": ""}, expect=1)
    assert "OutOfMemoryError" in process.stderr


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


def test_a_device_that_has_it_warns_of_nothing(run_python: RunPython) -> None:
    process = run_python("import torch; torch.empty(1, device='xcpu')", env=EXPANDABLE)
    assert "expandable_segments" not in process.stderr


def test_other_processes_get_no_such_memory(run_python: RunPython) -> None:
    run_python(
        """
        import io
        import torch
        from multiprocessing.reduction import ForkingPickler

        x = torch.ones(3, device="xcpu")
        try:
            ForkingPickler(io.BytesIO()).dump(x)
        except RuntimeError as error:
            assert "expandable_segments:True" in str(error) and ".cpu()" in str(error), error
        else:
            raise AssertionError("it was sent")
        del x
        torch.xcpu.empty_cache()
        assert torch.xcpu.memory_reserved() == 0
        """,
        env={**EXPANDABLE, "TORCH_BACKEND_XCPU_IPC": "1"},
    )


@pytest.mark.parametrize("status", ["OUT_OF_MEMORY", "INTERNAL", "UNSUPPORTED"])
@pytest.mark.parametrize("slot", ["address_reserve", "memory_commit", "memory_decommit", "address_release"])
def test_a_failing_slot_leaves_the_allocator_right(run_python: RunPython, slot: str, status: str) -> None:
    """Each of the first calls of the slot fails once: the next request is met, and nothing is lost."""
    run_python(
        f"""
        import torch
        from torch_backend import _C

        MIB = 2**20
        slot, status = {slot!r}, {status!r}
        xcpu = torch.xcpu
        for nth in range(1, 5):
            _C.set_option("xcpu.fault", f"{{slot}}={{status}}@{{nth}}")
            tensors = []
            for _ in range(2):
                try:
                    tensors.append(torch.full((70 * MIB,), 7, dtype=torch.uint8, device="xcpu"))
                except RuntimeError as error:
                    assert status == "INTERNAL" and slot in str(error), error
            assert all((tensor.cpu() == 7).all() for tensor in tensors)
            assert xcpu.memory_allocated() == 70 * MIB * len(tensors)
            del tensors
            xcpu.empty_cache()
            _C.set_option("xcpu.fault", "")
            xcpu.empty_cache()
            assert xcpu.memory_reserved() == 0
            free, total = xcpu.mem_get_info()
            assert free == total, (free, total)
        """,
        env={**EXPANDABLE, "TORCH_BACKEND_XCPU_FAULT": "", "TORCH_BACKEND_XCPU_MEMORY": "1GiB"},
    )


@MODES
def test_a_training_loop_computes_the_same(run_python: RunPython, mode: dict[str, str]) -> None:
    """With batches that grow, on several threads and streams."""
    code = """
        import threading
        import torch

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
        threads = [threading.Thread(target=train, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        print([f"{results[number].double().sum():.12f}" for number in range(3)])
    """
    expected = run_python(code, env={"TORCH_BACKEND": "xcpu", **mode}).stdout
    assert run_python(code, env={**EXPANDABLE, **mode}).stdout == expected


def test_graphs_keep_their_pages(run_python: RunPython) -> None:
    run_python(
        """
        import torch
        MIB = 2**20
        xcpu = torch.xcpu
        x = torch.ones(5 * MIB, device="xcpu")
        graph = xcpu.Graph()
        with xcpu.graph(graph):
            y = x + 1
            z = y * 2
        xcpu.empty_cache()
        x.fill_(2)
        graph.replay()
        xcpu.synchronize()
        assert (z.cpu() == 6).all()
        pools = {s["segment_pool_id"] for s in xcpu.memory._snapshot()["segments"]}
        assert len(pools) == 2 and all(s["is_expandable"] for s in xcpu.memory._snapshot()["segments"])
        del graph, x, y, z
        xcpu.synchronize()
        xcpu.empty_cache()
        assert xcpu.memory_reserved() == 0
        """,
        env={**EXPANDABLE, "TORCH_BACKEND_XCPU_ASYNC": "1"},
    )
