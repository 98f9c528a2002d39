"""What lies on the device and is sent to another process: a clear error, and CPU tensors as before."""

import pickle
from multiprocessing.reduction import ForkingPickler

import pytest
import torch


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
