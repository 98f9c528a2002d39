"""`torch-backend ops` and `torch-backend explain`, in this process unless the environment matters."""

import json
from pathlib import Path

import pytest
import torch
from fixtures import BuildPlugin, RunPython

from torch_backend import declarations, operators
from torch_backend.__main__ import main

pytest.importorskip("yaml")

Captured = pytest.CaptureFixture[str]


def answer(capsys: Captured, *arguments: str) -> dict[str, object]:
    assert main([*arguments, "--json"]) == 0
    value = json.loads(capsys.readouterr().out)
    assert isinstance(value, dict)
    return value


# ---- ops ----


def test_ops_as_json(capsys: Captured, name: str) -> None:
    report = answer(capsys, "ops")
    sources = operators.operator_sources()
    assert list(report) == ["device", "torch", "counts", "operators"]
    assert (report["device"], report["torch"]) == (name, torch.__version__)
    expected = {op: sources[op] for op in sorted(sources) if op.startswith("aten::")}
    assert report["operators"] == expected
    assert report["counts"] == {
        source: list(expected.values()).count(source) for source in (*operators.SOURCES, "unavailable")
    }


def test_ops_for_people(capsys: Captured, name: str) -> None:
    assert main(["ops", "--op", "softmax"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["aten::softmax.int", "composite"] in lines
    assert ["on", f"{name}:"] in lines
    overloads = sum(line[0].startswith("aten::softmax.") and line[1] == "composite" for line in lines if len(line) == 2)
    assert overloads >= 2  # softmax.int, its out= form, and in torch 2.11 softmax.Dimname
    assert ["composite", str(overloads)] in lines
    assert ["total", str(overloads)] in lines


@pytest.mark.usefixtures("backend")
def test_ops_of_one_source(capsys: Captured) -> None:
    listed = answer(capsys, "ops", "--source", "native")["operators"]
    assert isinstance(listed, dict)
    assert set(listed.values()) == {"native"}
    assert "aten::empty.memory_format" in listed


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("relu", {"aten::relu", "aten::relu.out"}),
        ("aten::relu.out", {"aten::relu.out"}),
        ("silu_backward*", {"aten::silu_backward", "aten::silu_backward.grad_input"}),
        ("profiler::_record_function_e[nx]*", {"profiler::_record_function_enter", "profiler::_record_function_exit"}),
    ],
)
def test_ops_by_pattern(capsys: Captured, pattern: str, expected: set[str]) -> None:
    listed = answer(capsys, "ops", "--op", pattern)["operators"]
    assert isinstance(listed, dict)
    assert {op for op in listed if "_new" not in op and "RecordFunction" not in op} == expected


def test_ops_of_a_named_device(capsys: Captured, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_BACKEND", "none")
    assert answer(capsys, "ops", "--device", name)["device"] == name


def test_ops_of_a_library(run_python: RunPython, build_plugin: BuildPlugin) -> None:
    arguments = ["ops", "--device", str(build_plugin(name="zeta")), "--op", "mm.out", "--json"]
    process = run_python(f"import sys; from torch_backend.__main__ import main; sys.exit(main({arguments}))")
    report = json.loads(process.stdout)
    assert report["device"] == "zeta"
    assert report["operators"] == {"aten::mm.out": "fallback"}  # zeta's memory is out of the host's reach


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["ops", "--source", "nope"], "There is no source 'nope'. There are plugin, generated, native, "),
        (["ops", "--op", "sofmax"], "No operator matches 'sofmax'. Did you mean aten::softmax"),
        (["ops", "--declarations", "--op", "sofmax"], "No operator matches 'sofmax'. Did you mean aten::softmax"),
        (["ops", "--device", "nope"], "There is no device 'nope'. There are"),
        (["ops", "--device", "no/where.so"], "There is no device library no/where.so."),
        (["ops", "--requirement", "must"], "--requirement is about declarations: add --declarations."),
        (
            ["ops", "--declarations", "--requirement", "x"],
            "There is no requirement 'x'. There are 'must', 'may', 'need",
        ),
        (["ops", "--declarations", "--diff", "x"], "leave out --declarations."),
        (["ops", "--declarations", "--source", "aten"], "--source is about a device"),
        (["ops", "--diff", "x", "--device", "fake"], "--device is about a device"),
        (["ops", "--diff", "x", "--op", "relu"], "--op does not work with --diff"),
        (["ops", "--diff", "/no/where"], "--diff: There is no file or directory /no/where."),
        (["explain", "sofmax"], "There is no operator 'sofmax'. Did you mean aten::softmax"),
        (["explain", "relu", "--device", "nope"], "There is no device 'nope'. There are"),
    ],
)
@pytest.mark.usefixtures("backend")
def test_wrong_arguments(capsys: Captured, arguments: list[str], message: str) -> None:
    assert main(arguments) == 2
    text = capsys.readouterr().err
    assert text.startswith("torch-backend: ")
    assert message in text
    assert len(text.splitlines()) == 1


@pytest.mark.parametrize("command", [["ops"], ["explain", "relu"]])
def test_without_a_device(capsys: Captured, monkeypatch: pytest.MonkeyPatch, command: list[str]) -> None:
    monkeypatch.setenv("TORCH_BACKEND", "none")
    assert main(command) == 2
    text = capsys.readouterr().err
    assert f"activates no device here. Name one: torch-backend {' '.join(command)} --device <" in text


@pytest.mark.usefixtures("backend")
def test_library_that_does_not_load(capsys: Captured, tmp_path: Path) -> None:
    library = tmp_path / "text.so"
    library.write_text("no library")
    assert main(["ops", "--device", str(library)]) == 1
    assert capsys.readouterr().err.startswith(f"torch-backend: {library}: ")


# ---- ops --declarations, --diff ----


def test_declarations_as_json(capsys: Captured) -> None:
    report = answer(capsys, "ops", "--declarations")
    assert declarations.Declarations.from_json(report) == declarations.installed()


def test_declarations_for_people(capsys: Captured) -> None:
    assert main(["ops", "--declarations", "--op", "_softmax"]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert any(
        line.startswith("aten::_softmax need not PyTorch makes it from the out form: aten::_softmax.out")
        for line in lines
    )
    assert any(line.startswith("aten::_softmax.out may the CPU fallback can run it CPU CUDA") for line in lines)
    assert lines[-4:] == ["must 0", "may 1", "need not 1", "total 2"]


def test_declarations_by_requirement(capsys: Captured) -> None:
    report = answer(capsys, "ops", "--declarations", "--requirement", "must")
    assert {entry.op for entry in declarations.Declarations.from_json(report)} == declarations.installed().required(
        "must"
    )


def test_diff(capsys: Captured, tmp_path: Path) -> None:
    value = declarations.installed().to_json()
    value["torch"] = "2.0.0"
    removed = value["operators"].pop()
    value["operators"][0]["requirement"] = "must"
    old = tmp_path / "old.json"
    old.write_text(json.dumps(value))
    assert main(["ops", "--diff", str(old)]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"torch 2.0.0 -> {torch.__version__}\n\nadded (1)\n  {removed['schema']}")
    assert f"changed requirement (1)\n  {value['operators'][0]['op']}: must" in text
    report = answer(capsys, "ops", "--diff", str(old))
    assert list(report) == ["old", "new", "added", "removed", "changed_schema", "changed_requirement"]
    assert report["added"] == json.loads(json.dumps([removed]))


# ---- explain ----


@pytest.mark.usefixtures("backend")
def test_explain_for_people(capsys: Captured) -> None:
    assert main(["explain", "_softmax.out"]) == 0
    assert capsys.readouterr().out == f"{operators.explain('_softmax.out')}\n"


def test_explain_as_json(capsys: Captured, name: str) -> None:
    report = answer(capsys, "explain", "softmax.int")
    assert report["device"] == name
    (entry,) = operators.explain("softmax.int")
    assert report["overloads"] == [
        {
            "op": "aten::softmax.int",
            "schema": entry.schema,
            "source": "composite",
            "registered": None,
            "composite": "CompositeImplicitAutograd",
            "kernel": None,
            "kernel_source": None,
            "made_of": {"aten::_softmax": operators.operator_sources()["aten::_softmax"]},
            "derivative": {"derivation": "composite", "operators": []},
            "backward_sources": {},
        }
    ]


# ---- ops --needed-for ----

SCRIPT = """
import sys, torch
name, size = torch.accelerator.current_accelerator().type, int(sys.argv[1])
x = torch.randn(size, size, device=name, requires_grad=True)
torch.nn.functional.softmax(x.relu() + 1, dim=0).sum().backward()
sys.exit(int(sys.argv[2]))
"""


def test_what_a_script_needs(capsys: Captured, tmp_path: Path, name: str) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    report = answer(capsys, "ops", "--needed-for", str(tmp_path / "script.py"), "3", "0")
    assert report["device"] == name
    needed = {entry["op"]: entry for entry in report["operators"]}  # type: ignore[union-attr, index, call-overload]
    assert {"aten::add.out", "aten::_softmax.out", "aten::_softmax_backward_data.out", "aten::sum.IntList_out"} <= set(
        needed
    )
    assert "aten::empty.memory_format" not in needed
    assert needed["aten::add.out"]["generated"] is True
    assert needed["aten::add.out"]["schema"].startswith("aten::add.out(Tensor self, Tensor other")


def test_a_script_that_fails_or_is_not_there(capsys: Captured, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    assert main(["ops", "--needed-for", str(tmp_path / "script.py"), "3", "4"]) == 1
    assert "has ended with 4" in capsys.readouterr().err
    assert main(["ops", "--needed-for", str(tmp_path / "none.py")]) == 2
    assert main(["ops", "3"]) == 2
    assert "--needed-for" in capsys.readouterr().err
