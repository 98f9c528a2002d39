"""Processes: fork before and after the first use, workers that load data, spawn, and leaving a process."""

import textwrap

import pytest
from fixtures import RunPython

MODES = {
    "fast": {"TORCH_BACKEND": "xcpu"},
    "async": {"TORCH_BACKEND": "xcpu", "TORCH_BACKEND_XCPU_ASYNC": "1", "TORCH_BACKEND_XCPU_DELAY_US": "500"},
}
every_mode = pytest.mark.parametrize("env", MODES.values(), ids=MODES)

IN_CHILD = '''
import os, signal, sys, traceback, warnings
import pytest, torch

# Python 3.12 and later warn of what is tried here.
warnings.filterwarnings("ignore", "This process .* is multi-threaded, use of fork", DeprecationWarning)

def in_child(function, expect=0):
    """Run `function` in a forked child that leaves as a script does; fails if that takes over a minute."""
    sys.stdout.flush()
    child = os.fork()
    if child:
        status = os.waitpid(child, 0)[1]
        assert os.WIFEXITED(status), f"the child was ended by signal {os.WTERMSIG(status)}"
        assert os.WEXITSTATUS(status) == expect, os.WEXITSTATUS(status)
        return
    signal.alarm(60)
    try:
        function()
    except SystemExit:  # of a child of the child
        raise
    except BaseException:
        traceback.print_exc()
        os._exit(99)
    sys.exit(expect)
'''


def script(body: str) -> str:
    return IN_CHILD + textwrap.dedent(body)


@every_mode
def test_every_use_in_the_child_is_refused(run_python: RunPython, env: dict[str, str]) -> None:
    process = run_python(
        script(
            """
            x = torch.ones(4, device="xcpu")
            pinned, stream, event = torch.ones(4).pin_memory(), torch.xcpu.Stream(), torch.xcpu.Event()
            event.record(stream)
            torch.xcpu.synchronize()
            uses = {
                "allocate": lambda: torch.empty(4, device="xcpu"),
                "allocate-much": lambda: torch.empty(1 << 25, device="xcpu:1"),
                "compute": lambda: x + 1,
                "in-place": lambda: x.add_(1),
                "read": lambda: x[0].item(),
                "copy-out": x.cpu,
                "copy-in": lambda: x.copy_(torch.ones(4)),
                "copy-pinned": lambda: x.copy_(pinned, non_blocking=True),
                "move": lambda: torch.ones(2).to("xcpu:1"),
                "random": lambda: torch.rand(4, device="xcpu"),
                "init": torch.xcpu.init,
                "synchronize": torch.xcpu.synchronize,
                "accelerator": torch.accelerator.synchronize,
                "stream": torch.xcpu.Stream,
                "stream-synchronize": stream.synchronize,
                "stream-query": stream.query,
                "event": torch.xcpu.Event,
                "event-record": event.record,
                "memory-info": torch.xcpu.mem_get_info,
                "pin": lambda: torch.ones(1 << 20).pin_memory(),
                "model": lambda: torch.nn.Linear(2, 2).to("xcpu"),
            }
            def child():
                assert torch.xcpu._is_in_bad_fork()
                allowed = []
                for name, use in uses.items():
                    try:
                        use()
                        allowed.append(name)
                    except RuntimeError as error:
                        text = str(error)
                        assert "Cannot use xcpu in a forked process" in text and "'spawn'" in text, (name, text)
                assert not allowed, allowed
            in_child(child)
            assert not torch.xcpu._is_in_bad_fork()
            for use in uses.values():
                use()
            """
        ),
        env=env,
    )
    assert process.stderr == ""


@every_mode
def test_child_leaves_in_peace(run_python: RunPython, env: dict[str, str]) -> None:
    process = run_python(
        script(
            """
            import gc, threading, time
            stop = threading.Event()
            def work():
                while not stop.is_set():
                    y = torch.ones(1000, device="xcpu:1")
                    y.cpu()
                    torch.ones(100).pin_memory()
            threads = [threading.Thread(target=work) for _ in range(2)]
            for thread in threads:
                thread.start()
            x = torch.ones(1 << 16, device="xcpu")
            pinned = torch.ones(1 << 16).pin_memory()
            event, side = torch.xcpu.Event(enable_timing=True), torch.xcpu.Stream()
            def child():
                global x, pinned, event, side
                cpu = torch.ones(100) @ torch.ones(100)
                assert torch.xcpu.is_available() and torch.xcpu.device_count() == 2
                assert not torch.xcpu.is_initialized()
                torch.manual_seed(3)
                torch.xcpu.empty_cache()
                del x, pinned, event, side
                gc.collect()
            for attempt in range(3):
                with torch.xcpu.stream(side):
                    x.copy_(pinned, non_blocking=True)
                    event.record()
                x.record_stream(torch.xcpu.default_stream())
                in_child(child if attempt else lambda: None, expect=attempt)
            stop.set()
            for thread in threads:
                thread.join()
            torch.xcpu.synchronize()
            assert x.sum().item() == x.numel()
            """
        ),
        env=env,
    )
    assert "Error" not in process.stderr


@every_mode
def test_fork_before_the_first_use(run_python: RunPython, env: dict[str, str]) -> None:
    run_python(
        script(
            """
            def child():
                assert not torch.xcpu._is_in_bad_fork()
                x = torch.arange(6, device="xcpu").to("xcpu:1") + 1
                assert x.cpu().tolist() == [1, 2, 3, 4, 5, 6]
                assert torch.ones(4).pin_memory().is_pinned()
                torch.xcpu.synchronize()
                def grandchild():
                    assert torch.xcpu._is_in_bad_fork()
                    with pytest.raises(RuntimeError, match="forked process"):
                        x.cpu()
                in_child(grandchild)
                assert x.sum().item() == 21
            torch.xcpu.is_available(), torch.xcpu.device_count(), torch.manual_seed(1)
            in_child(child)
            in_child(child)
            child()
            """
        ),
        env=env,
    )


@every_mode
def test_workers_that_load_data(run_python: RunPython, env: dict[str, str]) -> None:
    process = run_python(
        """
        import torch
        from torch.utils.data import DataLoader, TensorDataset
        weight = torch.ones(4, 4, device="xcpu")  # the driver is started before the workers
        data = TensorDataset(torch.arange(64.0).view(16, 4), torch.arange(16))
        for persistent in (False, True):
            loader = DataLoader(data, batch_size=2, num_workers=2, pin_memory=True, persistent_workers=persistent,
                                multiprocessing_context="fork")
            for epoch in range(2):
                total = 0.0
                for batch, labels in loader:
                    assert batch.is_pinned() and labels.is_pinned()
                    total += (batch.to("xcpu", non_blocking=True) @ weight).sum().item()
                assert total == 4 * data.tensors[0].sum().item()
        """,
        env=env,
    )
    assert "Error" not in process.stderr


def test_worker_that_uses_the_device(run_python: RunPython) -> None:
    run_python(
        """
        import pytest, torch
        from torch.utils.data import DataLoader, Dataset
        class Wrong(Dataset):
            def __len__(self): return 4
            def __getitem__(self, index): return torch.ones(2, device="xcpu")
        torch.ones(1, device="xcpu")
        loader = DataLoader(Wrong(), num_workers=1, multiprocessing_context="fork")
        with pytest.raises(RuntimeError, match="(?s)DataLoader worker.*Cannot use xcpu in a forked process.*'spawn'"):
            next(iter(loader))
        """,
        env=MODES["fast"],
    )
