"""In which thread a backward pass runs."""

import threading
from types import ModuleType

import torch


def test_threads_of_backward_passes(name: str, backend: ModuleType) -> None:
    def thread() -> int:
        threads: list[int] = []
        x = torch.ones(3, device=name, requires_grad=True)
        y = x * 2
        y.register_hook(lambda _: threads.append(threading.get_ident()))
        y.sum().backward()
        assert x.grad is not None
        assert x.grad.tolist() == [2, 2, 2]
        return threads[0]

    asynchronous = "ASYNC" in backend.get_device_properties().capabilities
    assert (thread() == threading.get_ident()) is not asynchronous
    with torch.autograd.set_multithreading_enabled(True):
        assert thread() != threading.get_ident()
