"""What is sent to another process: shared where the device can, a clear error elsewhere, and CPU tensors as before."""

import pickle
import re
from multiprocessing.reduction import ForkingPickler
from pathlib import Path

import pytest
import torch
from fixtures import run_program


@pytest.mark.parametrize("kind", ["tensor", "parameter", "storage", "sparse", "module"])
def test_sending_to_another_process(name: str, kind: str) -> None:
    x = torch.ones(3, device=name)
    sent = {
        "tensor": x,
        "parameter": torch.nn.Parameter(x),
        "storage": x.untyped_storage(),
        "sparse": x.to_sparse(),
        "module": torch.nn.Linear(2, 2).to(name),
    }[kind]
    what = "storage" if kind == "storage" else "tensor"
    with pytest.raises(RuntimeError, match=rf"A {what} on {name}:0 cannot be sent .* Send {what}\.cpu\(\)"):
        ForkingPickler.dumps(sent)


def test_what_lies_on_the_cpu_is_shared(name: str) -> None:
    x = torch.zeros(3)
    for sent in (x, torch.nn.Parameter(x)):
        received = pickle.loads(ForkingPickler.dumps(sent))
        assert type(received) is type(sent)
        with torch.no_grad():
            received.add_(1)
        assert x.tolist() == received.tolist()
    storage = pickle.loads(ForkingPickler.dumps(x.untyped_storage()))
    assert storage.nbytes() == 12


SCENARIOS = Path(__file__).with_name("process_scenarios.py")


def scenario(*names: str, device: str | None = "xcpu", **options: str) -> str:
    """What scenarios print, errors included, on xcpu with ``ipc=1``; ``device=None``: none is active at first."""
    environment = {} if device is None else {"TORCH_BACKEND": device, "TORCH_BACKEND_XCPU_IPC": "1"}
    environment |= {f"TORCH_BACKEND_XCPU_{key.upper()}": value for key, value in options.items()}
    process = run_program("python", SCENARIOS, *names, **environment)
    return " ".join((process.stdout + process.stderr).split())


@pytest.mark.parametrize("method", ["forkserver", "fork"])
def test_queues(method: str) -> None:
    scenario(f"queues_of_{method}")


def test_queues_of_a_difficult_device() -> None:
    scenario("queues_of_spawn", protect="1", **{"async": "1", "delay_us": "300"})


def test_pipes_pools_and_loaders() -> None:
    scenario("pipe_and_pool", "loader")


def test_a_process_that_receives_activates_the_device() -> None:
    scenario("chosen_by_the_sender", device=None)


def test_a_process_with_another_device() -> None:
    assert "A tensor on xcpu was sent to this process, whose device is fake" in scenario(
        "another_device_there", device=None
    )


def test_a_process_with_other_options() -> None:
    assert "whose xcpu does not share its memory with other processes. Give it the options" in scenario(
        "other_options_there", device=None
    )


def test_a_process_that_was_forked_after_use() -> None:
    assert "Cannot use xcpu in a forked process" in scenario("forked_after_use")


def test_a_sender_that_has_ended() -> None:
    said = scenario("lender_has_ended")
    assert re.search(r"A tensor that process \d+ sent cannot be received: it has ended\. A process that sends", said), (
        said
    )
    assert re.search(r"This process ends while 1 tensors .* are on their way", said), said


def test_messages_to_oneself() -> None:
    said = scenario("received_twice", "sent_and_received_here", "many_messages")
    assert "it was received before, and all who received it have let go of it" in said
    assert "This process ends while 1 tensors that it has sent" in said  # one of many_messages


def test_a_process_that_others_end_before() -> None:
    assert scenario("leaves_without_a_wait") == ""


def test_memory_comes_back() -> None:
    scenario("comes_back_when_memory_is_short", memory="64MiB")


def test_failures_of_the_device() -> None:
    said = scenario("device_fails", fault="")
    assert "xcpu:0: ipc_export failed: internal error (INTERNAL): ipc_export fails with INTERNAL because" in said
    assert "xcpu:0: ipc_import failed: out of memory (OUT_OF_MEMORY): ipc_import fails with OUT_OF_MEMORY" in said
    assert "xcpu:0: ipc_close failed: internal error (INTERNAL)" in said
