"""``torch-backend compare`` and ``torch-backend memory``: reports of reports and of snapshots."""

import json
import pickle
from pathlib import Path

import pytest
from torch_conformance import DeviceDescription, Report, Result

from torch_backend.__main__ import main
from torch_backend.cli import _memory_page

Captured = pytest.CaptureFixture[str]


def test_compare(tmp_path: Path, capsys: Captured) -> None:
    for name, outcome in (("old", "passed"), ("new", "failed")):
        result = Result("tensor/test_x.py::test_y", outcome, message="[red] values")  # type: ignore[arg-type]
        report = Report(device=DeviceDescription("acme"), results=(result,), options={"devices": "2"})
        (tmp_path / name).write_text(json.dumps(report.to_json()))
    old, new, badge = (str(tmp_path / name) for name in ("old", "new", "badge.svg"))
    assert main(["compare", old, old]) == 0
    assert "0 worse, 0 better" in capsys.readouterr().out
    assert main(["compare", old, new, "--badge", badge]) == 1
    assert "tensor/test_x.py::test_y  passed -> failed  [red] values" in capsys.readouterr().out
    assert ">no level<" in Path(badge).read_text()
    assert main(["compare", old, new, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["tests"][0]["sense"] == "worse"
    assert main(["compare", old, badge]) == 2
    assert "cannot be compared" in capsys.readouterr().err


def frames(*places: tuple[str, str]) -> list[dict[str, object]]:
    return [{"filename": file, "line": 1, "name": name} for file, name in places]


OPERATOR = ("??", "at::_ops::mm::call(at::Tensor const&, at::Tensor const&)")


def snapshot() -> dict[str, object]:
    """One block from before the recording, one that is freed, one that stays."""

    def entry(action: str, size: int, time: int, stream: int = 0, *places: tuple[str, str]) -> dict[str, object]:
        return {
            "action": action, "addr": 512, "size": size, "stream": stream, "time_us": time, "frames": frames(*places)
        }  # fmt: skip

    trace = [
        entry("alloc", 100, 7, 0, OPERATOR, ("a.py", "f")),
        entry("free_requested", 100, 8),
        entry("free_completed", 100, 9),
        entry("alloc", 50, 10, 3, ("/torch/optim/sgd.py", "step")),
    ]
    blocks = [
        {"address": 0, "size": 512, "requested_size": 500, "state": "active_allocated", "frames": []},
        {"address": 512, "size": 512, "requested_size": 50, "state": "active_allocated", "frames": []},
        {"address": 1024, "size": 1024, "requested_size": 0, "state": "inactive", "frames": []},
    ]
    segment = {"device": 1, "address": 0, "total_size": 2048, "stream": 0, "is_expandable": True, "blocks": blocks}
    return {"device_traces": [[], trace], "segments": [segment]}


def test_what_a_memory_page_draws() -> None:
    drawn = _memory_page.reduced(snapshot())
    (device,) = drawn["devices"]
    kind = {name: number for number, name in enumerate(_memory_page.CATEGORIES)}
    assert device["index"] == 1
    assert [segment[-1] for segment in device["segments"]] == [True], "which are expandable"
    assert device["blocks"] == [
        [512, 100, 0, 2, 0, kind["input"], 0],
        [512, 50, 3, 4, 3, kind["optimizer state"], 1],
        [0, 500, 0, 4, 0, kind["unknown"], 2],
    ]
    assert drawn["stacks"][0] == "aten::mm\na.py:1 f"
    assert device["events"] == [0, 1, 2, 3]


def test_memory(tmp_path: Path, capsys: Captured) -> None:
    file = tmp_path / "snap.pickle"
    file.write_bytes(pickle.dumps(snapshot()))
    assert main(["memory", str(file)]) == 0
    page = (tmp_path / "snap.html").read_text()
    assert '"title":"snap.pickle"' in page
    assert "http" not in page  # it loads nothing
    file.write_bytes(pickle.dumps({"segments": []}))
    assert main(["memory", str(file)]) == 2
    assert "It is no memory snapshot" in capsys.readouterr().err
    file.write_bytes(pickle.dumps(Path))
    assert main(["memory", str(file)]) == 2
    assert "a snapshot holds plain data, and this holds pathlib" in capsys.readouterr().err
