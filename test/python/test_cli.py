"""The command line: `python -m torch_backend`, in this process unless the environment matters."""

import json
import re
import sys
from pathlib import Path

import pytest
from fixtures import ROOT, BuildPlugin, RunPython

from torch_backend.__main__ import main
from torch_backend.files import installed
from torch_backend.version import __version__

Captured = pytest.CaptureFixture[str]


def test_version(capsys: Captured) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"{__version__}\n"


def test_the_version_is_the_same_in_every_file() -> None:
    projects = [ROOT, ROOT / "kit", *sorted(path.parent for path in (ROOT / "backends").glob("*/pyproject.toml"))]
    says = {
        path: re.search(pattern, path.read_text(encoding="utf-8"), re.MULTILINE)
        for path, pattern in [
            *((project / "pyproject.toml", r'^version = "(.+)"') for project in projects),
            (ROOT / "CMakeLists.txt", r"^project\(torch_backend VERSION (\S+)"),
            (ROOT / "CHANGELOG.md", r"^## ([\d.]+)"),
            (ROOT / "README.md", r"torch_backend-([\d.]+)-cp"),
            (ROOT / "docs" / "release.md", r"torch_backend-([\d.]+)-cp"),
        ]
    }
    assert {path: match and match[1] for path, match in says.items()} == dict.fromkeys(says, __version__)


def test_include_dir(capsys: Captured) -> None:
    assert main(["--include-dir"]) == 0
    assert (Path(capsys.readouterr().out.strip()) / "torch_backend" / "device.h").is_file()


def test_cmake_dir(capsys: Captured) -> None:
    assert main(["--cmake-dir"]) == 0
    assert (Path(capsys.readouterr().out.strip()) / "torch_backendConfig.cmake").is_file()


def test_missing_files(capsys: Captured, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(installed, "_roots", lambda: iter([tmp_path / "torch_backend"]))
    assert main(["--cmake-dir"]) == 1
    assert "'torch_backendConfig.cmake' is not in" in capsys.readouterr().err


def test_help_names_the_subcommands(capsys: Captured) -> None:
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(word in text for word in ("list", "info", "--include-dir"))


def test_list_as_json(capsys: Captured, monkeypatch: pytest.MonkeyPatch, build_plugin: BuildPlugin) -> None:
    broken, absent, vendor = build_plugin("NO_CORE", name="broken"), build_plugin("DEVICES=0", name="absent"), "zeta"
    places = [broken, absent, build_plugin(name=vendor)]
    monkeypatch.setenv("TORCH_BACKEND_PATH", ":".join(map(str, places)))
    monkeypatch.setenv("TORCH_BACKEND", vendor)
    assert main(["list", "--json"]) == 0
    entries = {entry["name"]: entry for entry in json.loads(capsys.readouterr().out)}
    assert entries["xcpu"]["origin"] == "reference device"
    assert entries["zeta"] | {"source": "", "path": ""} == {
        "name": "zeta",
        "origin": "TORCH_BACKEND_PATH",
        "source": "",
        "path": "",
        "vendor": "Acme",
        "version": "1.2.3",
        "abi": "1.1",
        "devices": 1,
        "status": "ok",
        "error": None,
        "default": True,
    }
    assert entries["absent"]["status"] == "no devices"
    assert entries["broken"]["status"] == "error"
    assert "has no core table" in entries["broken"]["error"]
    assert [entry["name"] for entry in entries.values() if entry["default"]] == ["zeta"]


def test_list_for_people(capsys: Captured, monkeypatch: pytest.MonkeyPatch, build_plugin: BuildPlugin) -> None:
    monkeypatch.setenv("TORCH_BACKEND_PATH", str(build_plugin("NO_CORE", name="broken")))
    monkeypatch.setenv("TORCH_BACKEND", "xcpu")
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["list"]) == 0
    text = capsys.readouterr().out
    assert "reference device of torch_backend" in text
    assert "has no core table" in text
    assert any(line.startswith("*") and "xcpu" in line for line in text.splitlines())


def test_info_as_json(capsys: Captured, monkeypatch: pytest.MonkeyPatch, build_plugin: BuildPlugin) -> None:
    monkeypatch.setenv("TORCH_BACKEND_PATH", str(build_plugin(name="zeta")))
    assert main(["info", "zeta", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["torch_backend"] == __version__
    assert report["abi"] == "1.1"
    assert "TORCH_BACKEND_PATH" in report["environment"]
    (device,) = report["plugin"]["devices"]
    assert device["name"] == "Acme zeta"
    assert device["capability"] == "1.2"
    assert device["total_memory_bytes"] == 1 << 30
    assert device["capabilities"] == []
    assert "float32" in device["dtypes"]


def test_info_for_people(capsys: Captured, monkeypatch: pytest.MonkeyPatch, build_plugin: BuildPlugin) -> None:
    monkeypatch.setenv("TORCH_BACKEND_PATH", str(build_plugin(name="zeta")))
    monkeypatch.setenv("TORCH_BACKEND", "zeta")
    assert main(["info"]) == 0
    text = capsys.readouterr().out
    assert "zeta 1.2.3 by Acme" in text
    assert "zeta:0" in text


def test_info_of_an_unknown_device(capsys: Captured) -> None:
    assert main(["info", "nope"]) == 2
    assert "torch-backend: There is no device 'nope'. There are" in capsys.readouterr().err


def test_info_without_a_device(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_BACKEND", "none")
    assert main(["info"]) == 2
    assert "activates no device here. Name one: torch-backend info <" in capsys.readouterr().err


def test_info_of_a_broken_device(capsys: Captured, monkeypatch: pytest.MonkeyPatch, build_plugin: BuildPlugin) -> None:
    monkeypatch.setenv("TORCH_BACKEND_PATH", str(build_plugin("PROPERTIES_FAIL", name="ill")))
    assert main(["info", "ill"]) == 1
    assert "device 0 has no identity" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["frobnicate"], ["list", "--frobnicate"], ["info", "a", "b"]])
def test_wrong_command(capsys: Captured, arguments: list[str]) -> None:
    assert main(arguments) == 2
    assert capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["check", "fake"], ["compare", "old.json", "new.json"]])
def test_without_the_conformance_kit(arguments: list[str], capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch_conformance", None)
    assert main(arguments) == 1
    needed = "The conformance kit needs torch_conformance. Install it with: pip install 'torch_backend[check]'"
    assert needed in " ".join(capsys.readouterr().err.split())


def test_tables_in_a_pipe(run_python: RunPython) -> None:
    text = run_python("import sys; from torch_backend.__main__ import main; sys.exit(main(['info', 'xcpu']))").stdout
    assert not [line for line in text.splitlines() if line != line.rstrip()]
    assert re.search(r"^total_memory_bytes +\d+ \([0-9.]+ GiB\)$", text, re.MULTILINE)
    assert re.search(r"^dtypes .*bfloat16.*uint8$", text, re.MULTILINE)  # one line, however long


@pytest.mark.parametrize(
    ("words", "completions"), [("torch-backend info xcp", ["xcpu"]), ("torch-backend do", ["doctor"])]
)
def test_completion(run_python: RunPython, words: str, completions: list[str]) -> None:
    environment = {
        "_TORCH_BACKEND_COMPLETE": "bash_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split()) - 1),
    }
    code = "import sys; from torch_backend.__main__ import main; sys.exit(main())"
    process = run_python(code, env=environment)
    assert [line.partition(",")[2] for line in process.stdout.splitlines()] == completions


def test_as_a_module(run_python: RunPython) -> None:
    code = "import runpy, sys; sys.argv = ['torch-backend', '--version']; runpy.run_module('torch_backend')"
    assert run_python(code).stdout == ""  # only as __main__
    code = code.replace("'torch_backend')", "'torch_backend', run_name='__main__')")
    assert run_python(code).stdout == f"{__version__}\n"
