"""Notes on tensors: what keeps them, what does not, and what they can hold."""

import copy
import io
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from fixtures import RunPython

from torch_backend import metadata

NOTE = {"format": "NC16HW16", "scale": [0.5, 1e-3], "nothing": None, 'ä"\\': {"deep": True}}


def reloaded(value: Any, **options: Any) -> Any:
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, **options)


@pytest.mark.parametrize(
    "go_along",
    [
        reloaded,
        lambda x: reloaded(x, weights_only=False),
        lambda x: pickle.loads(pickle.dumps(x)),
        lambda x: x.detach(),
        lambda x: x.data,
        torch.nn.Parameter,
        lambda x: x.add_(1),
    ],
    ids=["save", "save everything", "pickle", "detach", "data", "Parameter", "add_"],
)
def test_what_keeps_notes(name: str, go_along: Callable[[torch.Tensor], torch.Tensor]) -> None:
    x = torch.arange(4.0, device=name)
    metadata.attach(x, NOTE)
    assert metadata.read(go_along(x)) == NOTE


def test_newer_dtypes_are_saved_in_another_way(name: str) -> None:
    x = torch.arange(4, dtype=torch.int32, device=name).to(torch.uint16)
    metadata.attach(x, NOTE)
    assert metadata.read(reloaded(x)) == NOTE


@pytest.mark.parametrize(
    "leave_behind",
    [
        lambda x: x[1:],
        lambda x: x.clone(),
        copy.deepcopy,
        lambda x: x + 1,
        lambda x: x.cpu(),
        lambda x: reloaded(x, map_location="cpu"),
    ],
    ids=["view", "clone", "deepcopy", "result", "cpu", "load on the CPU"],
)
def test_what_drops_notes(name: str, leave_behind: Callable[[torch.Tensor], torch.Tensor]) -> None:
    x = torch.arange(4.0, device=name)
    metadata.attach(x, NOTE)
    y = leave_behind(x)
    assert metadata.read(y) == {}
    assert y.cpu().sum() > 0
    assert metadata.read(x) == NOTE


def test_modules(name: str) -> None:
    module = torch.nn.Linear(2, 2).to(name)
    metadata.attach(module.weight, NOTE)
    assert metadata.read(reloaded(module.state_dict())["weight"]) == NOTE
    assert metadata.read(reloaded(module.state_dict())["bias"]) == {}


def test_notes_belong_to_one_tensor(name: str) -> None:
    x = torch.arange(4.0, device=name)
    note = {"values": [1]}
    metadata.attach(x, note)
    note["values"].append(2)
    y = x.detach()
    metadata.attach(y, {"other": 1})
    assert metadata.read(x) == {"values": [1]}
    metadata.remove(y)
    metadata.remove(y)
    assert metadata.read(y) == {}
    assert metadata.read(x) == {"values": [1]}


def test_conj_views_keep_both(name: str) -> None:
    x = torch.ones(2, dtype=torch.complex64, device=name).conj()
    metadata.attach(x, NOTE)
    y = reloaded(x)
    assert y.is_conj()
    assert metadata.read(y) == NOTE


def test_other_tensors_are_saved_as_before(name: str) -> None:
    x = torch.ones(2, device=name)
    assert torch._utils.get_tensor_metadata(x) == {}
    metadata.attach(x, {})
    metadata.remove(x)
    assert torch._utils.get_tensor_metadata(x) == {}


def test_flags_of_others_are_kept(name: str) -> None:
    x = torch.arange(4.0, device=name)
    torch._utils.set_tensor_metadata(x, {"blocked": True, "tiled": False})
    flags = {"blocked": True, "tiled": False}
    for same in (x, x.detach(), reloaded(x), pickle.loads(pickle.dumps(x))):
        assert torch._utils.get_tensor_metadata(same) == flags
    for other in (x.clone(), x[1:], x.cpu()):
        assert torch._utils.get_tensor_metadata(other) == {}
    before = x.detach()
    torch._utils.set_tensor_metadata(x, {"tiled": True})
    assert torch._utils.get_tensor_metadata(x) == {"blocked": True, "tiled": True}
    assert torch._utils.get_tensor_metadata(before) == flags


def test_flags_of_others_and_notes_do_not_replace_each_other(name: str) -> None:
    x = torch.zeros(2, dtype=torch.complex64, device=name).conj()
    torch._utils.set_tensor_metadata(x, {"blocked": True})
    metadata.attach(x, NOTE)
    torch._utils.set_tensor_metadata(x, {"tiled": False})
    y = reloaded(x)
    assert metadata.read(y) == NOTE
    metadata.remove(y)
    assert torch._utils.get_tensor_metadata(y) == {"conj": True, "blocked": True, "tiled": False}
    assert metadata.read(x) == NOTE


def test_bad_input(name: str) -> None:
    x = torch.ones(2, device=name)
    with pytest.raises(ValueError, match=rf"strided tensors of the active device \({name}\).*on cpu"):
        metadata.attach(torch.ones(2), {})
    with pytest.raises(ValueError, match=r"sparse_coo tensor on"):
        metadata.attach(x.to_sparse(), {})
    with pytest.raises(TypeError, match="whose keys are strings"):
        metadata.attach(x, {1: 2})  # type: ignore[dict-item]
    with pytest.raises(TypeError, match="lists, strings, numbers"):
        metadata.attach(x, {"a": x})
    assert metadata.read(x) == {}


def test_another_process_loads_them(name: str, run_python: RunPython, tmp_path: Any) -> None:
    x = torch.arange(3.0, device=name)
    metadata.attach(x, {"format": "tiled"})
    torch.save(x, tmp_path / "x.pt")
    code = "import sys, torch; from torch_backend import metadata; print(metadata.read(torch.load(sys.argv[1])))"
    said = run_python(f"import sys; sys.argv.append({str(tmp_path / 'x.pt')!r})\n{code}", env={"TORCH_BACKEND": name})
    assert said.stdout.strip() == "{'format': 'tiled'}"


def test_flags_are_kept_by_programs_that_know_nothing_of_notes(name: str, run_python: RunPython) -> None:
    code = f"""
        import io, sys, torch
        x, file = torch.ones(2, device={name!r}), io.BytesIO()
        torch._utils.set_tensor_metadata(x, {{"blocked": True}})
        torch.save(x, file)
        file.seek(0)
        print(torch._utils.get_tensor_metadata(torch.load(file)), "torch_backend.metadata" in sys.modules)
    """
    assert run_python(code, env={"TORCH_BACKEND": name}).stdout.strip() == "{'blocked': True} False"
