"""What test_processes.py runs in processes of its own: ``python process_scenarios.py SCENARIO ...``.

The environment says which device is active, but for the scenarios that choose one themselves.
"""

import gc
import os
import signal
import sys
import time
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch
import torch.multiprocessing as mp
from torch.utils.data import DataLoader, Dataset

import torch_backend
from torch_backend import _C, metadata


def device() -> str:
    plugin = torch_backend.active()
    assert plugin is not None
    return plugin.name


# ---- ways to send ----


def answer_queue(inbox: Any, outbox: Any) -> None:
    received = inbox.get()
    x = received["x"]
    outbox.put((x.cpu().tolist(), metadata.read(x), [p.requires_grad for p in received["module"].parameters()]))
    with torch.no_grad():
        received["module"].weight.fill_(2)
    outbox.put(torch.full((3,), 7.0, device=x.device))
    inbox.get()  # the last of them was received
    del received, x
    gc.collect()


def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def answer_pipe(connection: Any) -> None:
    connection.send(double(connection.recv()))
    connection.recv()


def queues(method: str) -> None:
    context = mp.get_context(method)
    name = device()
    if method != "fork":
        torch.ones(1, device=name)
    inbox, outbox = context.Queue(), context.SimpleQueue()
    process = context.Process(target=answer_queue, args=(inbox, outbox))
    process.start()
    x = torch.arange(3.0, device=name)
    metadata.attach(x, {"format": "tiled"})
    module = torch.nn.Linear(2, 2).to(name)
    inbox.put({"x": x, "module": module})
    assert outbox.get() == ([0, 1, 2], {"format": "tiled"}, [True, True])
    result = outbox.get()
    assert module.weight.tolist() == [[2, 2], [2, 2]], module.weight
    assert (str(result.device), result.tolist()) == (f"{name}:0", [7, 7, 7])
    inbox.put(None)
    process.join()
    assert process.exitcode == 0
    assert _C.num_lent() == 0
    assert result.tolist() == [7, 7, 7]  # xcpu: also after its process has ended


def queues_of_spawn() -> None:
    queues("spawn")


def queues_of_forkserver() -> None:
    queues("forkserver")


def queues_of_fork() -> None:
    queues("fork")


def pipe_and_pool() -> None:
    context, name = mp.get_context("spawn"), device()
    x = torch.arange(3.0, device=name)
    mine, theirs = context.Pipe()
    process = context.Process(target=answer_pipe, args=(theirs,))
    process.start()
    mine.send(x)
    assert mine.recv().tolist() == [0, 2, 4]
    mine.send(None)
    process.join()
    with context.Pool(1) as pool:
        doubled = pool.map(double, [torch.full((2,), float(i), device=name) for i in range(4)])
        assert [x.tolist() for x in doubled] == [[0, 0], [2, 2], [4, 4], [6, 6]]


class Squares(Dataset[torch.Tensor]):
    """Items that workers make on the device."""

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((2,), float(index * index), device=device())


def loader() -> None:
    batches = DataLoader(Squares(), batch_size=2, num_workers=1, multiprocessing_context="spawn")
    values = [(batch.device.type, batch[:, 0].tolist()) for batch in batches]
    assert values == [(device(), [0, 1]), (device(), [4, 9]), (device(), [16, 25])], values


def take(queue: Any, answers: Any) -> None:
    try:
        answers.put(queue.get().cpu().tolist())
    except RuntimeError as error:
        answers.put(str(error))


def _told(place: str, value: object, environment: dict[str, str] | None = None, method: str = "spawn") -> Any:
    """What a process answers that gets ``value``."""
    context = mp.get_context(method)
    queue, answers = context.SimpleQueue(), context.SimpleQueue()
    os.environ.update(environment or {})
    process = context.Process(target=take, args=(queue, answers))
    process.start()
    queue.put(value)
    answer = answers.get()
    process.join()
    return answer


# ---- a device that only one process has chosen ----


def chosen_by_the_sender() -> None:
    torch_backend.activate("xcpu", options={"ipc": True, "devices": 3})
    assert _told("spawn", torch.arange(3.0, device="xcpu:2")) == [0, 1, 2]


def another_device_there() -> None:
    torch_backend.activate("xcpu", options={"ipc": 1})
    print(_told("spawn", torch.ones(2, device="xcpu"), {"TORCH_BACKEND": "fake"}))


def other_options_there() -> None:
    torch_backend.activate("xcpu", options={"ipc": 1})
    print(_told("spawn", torch.ones(2, device="xcpu"), {"TORCH_BACKEND": "xcpu"}))


def forked_after_use() -> None:
    x = torch.ones(2, device=device())
    print(_told("fork", x, method="fork"))


# ---- what is gone ----


def send_and_end(queue: Any) -> None:
    queue.put(torch.ones(2, device=device()))


def lender_has_ended() -> None:
    context = mp.get_context("spawn")
    queue = context.SimpleQueue()
    process = context.Process(target=send_and_end, args=(queue,))
    process.start()
    process.join()
    assert process.exitcode == 0
    try:
        queue.get()
    except RuntimeError as error:
        print(error)


def received_twice() -> None:
    x = torch.ones(2, device=device())
    message = bytes(ForkingPickler.dumps(x))
    y = ForkingPickler.loads(message)
    assert y.untyped_storage()._cdata == x.untyped_storage()._cdata
    assert ForkingPickler.loads(message).tolist() == [1, 1]
    del x, y
    assert _C.num_lent() == 0
    torch.full((2,), 5.0, device=device())
    try:
        ForkingPickler.loads(message)
    except RuntimeError as error:
        print(error)


def sent_and_received_here() -> None:
    """In the sending process a tensor that went is found again, and lives as long as it is used."""
    x = torch.arange(1000.0, device=device())
    message = bytes(ForkingPickler.dumps(x[500:]))
    address = x.data_ptr()
    del x
    torch.zeros(1000, device=device())
    y = ForkingPickler.loads(message)
    assert (y.untyped_storage().data_ptr(), y[0].item()) == (address, 500)
    del y
    assert torch.zeros(1000, device=device()).data_ptr() != address  # waits until somebody looks
    getattr(torch, device()).ipc_collect()
    assert torch.zeros(1000, device=device()).data_ptr() == address


# ---- failures of the device ----


def take_twice(queue: Any, answers: Any) -> None:
    for _ in range(2):
        take(queue, answers)
    answers.put(_C.num_lent())


def device_fails() -> None:
    """The first export and the first import fail, and leave nothing behind."""
    before = torch.xcpu.memory_stats().get("active_bytes.all.current", 0)  # type: ignore[attr-defined]
    x = torch.ones(2, device="xcpu")
    _C.set_option("xcpu.fault", "ipc_export=INTERNAL@1")
    try:
        ForkingPickler.dumps(x)
    except torch.AcceleratorError as error:
        print(error)
    context = mp.get_context("spawn")
    queue, answers = context.SimpleQueue(), context.SimpleQueue()
    os.environ["TORCH_BACKEND_XCPU_FAULT"] = "ipc_import=OUT_OF_MEMORY@1,ipc_close=INTERNAL"
    process = context.Process(target=take_twice, args=(queue, answers))
    process.start()
    queue.put(x)
    print(answers.get())
    queue.put(x)
    assert answers.get() == [1, 1]
    assert answers.get() == 0
    assert _C.num_lent() == 0
    process.join()
    del x
    after = torch.xcpu.memory_stats()["active_bytes.all.current"]  # type: ignore[attr-defined]
    assert after == before, (before, after)


# ---- memory ----


def hold(queue: Any, ready: Any) -> None:
    kept = queue.get()
    ready.put(kept.shape)
    time.sleep(600)


def comes_back_when_memory_is_short() -> None:
    """With 64 MiB of memory: what a killed process used is used again without a call of ipc_collect."""
    context = mp.get_context("spawn")
    queue, ready = context.SimpleQueue(), context.SimpleQueue()
    files = set(os.listdir("/dev/shm"))
    process = context.Process(target=hold, args=(queue, ready))
    process.start()
    x = torch.ones(10 << 20, device=device())  # 40 MiB
    queue.put(x)
    ready.get()
    del x
    try:
        torch.ones(10 << 20, device=device())
        raise AssertionError("memory that another process uses was given out")
    except torch.OutOfMemoryError:
        pass
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    assert torch.ones(10 << 20, device=device()).sum() == 10 << 20
    assert set(os.listdir("/dev/shm")) <= files


def use_late(x: torch.Tensor) -> None:
    time.sleep(1)
    assert x.tolist() == [1, 1]


def leaves_without_a_wait() -> None:
    """multiprocessing waits for the process that receives, so nothing is lost."""
    mp.get_context("spawn").Process(target=use_late, args=(torch.ones(2, device=device()),)).start()


def many_messages() -> None:
    """A tensor that is sent over and over takes no more room. One that nobody receives stays lent."""
    x = torch.ones(2, device=device())
    ForkingPickler.dumps(torch.ones(3, device=device()))
    for _ in range(3000):
        ForkingPickler.loads(bytes(ForkingPickler.dumps(x)))
    assert _C.num_lent() == 1
    x.record_stream(torch.accelerator.current_stream())


if __name__ == "__main__":
    for scenario in sys.argv[1:]:
        globals()[scenario]()
