"""Several threads on one asynchronous device: what one of them computes is not touched by the memory of the others."""

import itertools
import threading
from collections.abc import Callable

import torch
from fixtures import in_process
from torch_conformance.threads import in_threads

ASYNC = {
    "TORCH_BACKEND": "xcpu",
    "TORCH_BACKEND_XCPU_ASYNC": "1",
    "TORCH_BACKEND_XCPU_DEVICES": "1",
    "TORCH_BACKEND_XCPU_DELAY_US": "2000",
}


@in_process(ASYNC)
def test_a_kernel_on_the_host_gets_no_memory_that_enqueued_work_still_uses() -> None:
    """A CPU kernel runs for the device, after its stream was waited for.

    While it runs, another thread enqueues work on the same stream and frees its memory; then the kernel allocates.
    """
    count, turns = 128, 40
    library = torch.library.Library("threads", "DEF")
    library.define("probe(Tensor x) -> Tensor")
    inside, enqueued, allocated, checked = (threading.Event() for _ in range(4))

    def probe(x: torch.Tensor) -> torch.Tensor:
        inside.set()
        assert enqueued.wait(100)
        memory = [torch.full((count,), 7.0) for _ in range(turns)]
        allocated.set()
        assert checked.wait(100)
        assert all(bool((m == 7.0).all()) for m in memory)
        return torch.stack(memory)

    library.impl("probe", probe, "CPU")
    x = torch.ones(3, device="xcpu")
    (x + x).cpu()

    def calls() -> None:
        probed = torch.ops.threads.probe(x)
        assert probed.device.type == "xcpu"
        assert bool((probed == 7).all())

    def enqueues() -> None:
        assert inside.wait(100)
        sums = []
        for i in range(turns):
            part = torch.full((count,), float(i), device="xcpu")
            sums.append(part + part)
        del part
        enqueued.set()
        assert allocated.wait(100)
        assert all(bool((s.cpu() == 2 * i).all()) for i, s in enumerate(sums))
        checked.set()

    in_threads([calls, enqueues])


@in_process(ASYNC | {"TORCH_BACKEND_XCPU_DELAY_US": "0-100"})
def test_operators_on_the_host_beside_work_on_the_same_stream() -> None:
    """The same with operators that PyTorch has, which find the moment by chance."""
    cases: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
        "unique": torch.unique,
        "nonzero": lambda x: torch.nonzero(x > 20),
        "mask": lambda x: x[x > 20],
        "randperm": lambda x: torch.randperm(len(x), device=x.device).sort().values,
        "qr": lambda x: torch.linalg.qr(x.double().view(10, -1)).R.abs(),
        "layer_norm": lambda x: torch.nn.functional.layer_norm(x.double(), x.shape),
    }
    wrong, done = [], threading.Event()
    turns = itertools.count(1)

    def on_the_host() -> None:
        try:
            for _ in range(150):
                values = torch.randint(0, 50, (200,))
                x = values.to("xcpu")
                for name, case in cases.items():
                    result, expected = case(x).cpu(), case(values)
                    if not (result.shape == expected.shape and torch.allclose(result, expected)):
                        wrong.append(name)
        finally:
            done.set()

    def on_the_stream() -> None:
        while not done.is_set():
            turn = next(turns)
            sums = []
            for i in range(40):
                x = torch.full((40 + 8 * (i % 24),), turn + i, device="xcpu")
                sums.append(((x + 1) + (x + 2)) + 1)
            wrong.extend("add" for i, x in enumerate(sums) if not bool((x.cpu() == 2 * (turn + i) + 4).all()))

    in_threads([on_the_host, on_the_stream])
    assert next(turns) > 4
    assert wrong == []
