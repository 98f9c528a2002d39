"""The table of tests: which there are, what a change is tested by first, and how rows are run."""

import importlib.util
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path
from types import ModuleType

import pytest
from fixtures import ROOT


def _loaded() -> ModuleType:
    spec = importlib.util.spec_from_file_location("ci_tests", ROOT / ".ci" / "tests.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["ci_tests"] = module  # where dataclasses look
    spec.loader.exec_module(module)
    return module


tests = _loaded()


def tracked(*patterns: str) -> list[str]:
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", *patterns]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()


def places(row: "tests.Row") -> list[str]:
    """The files and folders that a row tests."""
    _, command = tests.spelled(row.typed)
    if command[0] == "make":
        return [f"backends/{command[-1].removeprefix('test-vendor-')}/test"]
    return [word.partition("::")[0] for word in command if (ROOT / word.partition("::")[0]).exists()]


def runs(row: "tests.Row", file: str) -> bool:
    ignored = [word.partition("=")[2] for word in tests.spelled(row.typed)[1] if word.startswith("--ignore")]
    folders = {file, *map(str, Path(file).parents)}
    return not any(fnmatch(file, each) for each in ignored) and not folders.isdisjoint(places(row))


def test_every_test_is_in_a_row() -> None:
    files = tracked("test/**/test_*.py", "kit/tests/test_*.py", "backends/*/test/test_*.py")
    assert len(files) > 100
    rows = [row for row in tests.rows() if row.part != "long"]  # which has the marked tests of all files
    assert [file for file in files if not any(runs(row, file) for row in rows)] == []


def test_what_rows_name_is_there() -> None:
    named = [place for row in tests.rows() for place in row.about]
    named += tests.TABLE["first"]
    named += [f"test/python/test_{name}.py" for names in tests.TABLE["first"].values() for name in names.split()]
    words = [word for row in tests.rows() for word in tests.spelled(row.typed)[1]]
    named += [word.partition("::")[0].removeprefix("--ignore=") for word in words if "test/" in word]
    assert [place for place in named if not (ROOT / place).exists()] == []


def test_a_change_of_any_room_is_tested_first_by_what_is_near() -> None:
    files = [file for file in tracked("csrc/*", "torch_backend/*/*") if Path(file).parts[1] != "host"]
    folders = {str(Path(file).parent) for file in files} - {"csrc"}
    assert [folder for folder in sorted(folders) if not tests.nearest([f"{folder}/file"])] == []
    (near,) = tests.nearest(["csrc/graph/Graph.h", "test/python/test_new.py"])
    assert near.typed == "TORCH_BACKEND=xcpu pytest test/python/test_new.py test/python/test_graphs.py"


def test_rows_are_typed_as_in_a_shell() -> None:
    environment, command = tests.spelled("A=1 NAME='two words' pytest test_{a,b}.py -k 'x and y'")
    assert environment == {"A": "1", "NAME": "two words", "OMP_NUM_THREADS": "1"}
    assert command[-4:] == ["test_a.py", "test_b.py", "-k", "x and y"]


def run(row_code: str, monkeypatch: pytest.MonkeyPatch, **more: str) -> "tests.Runner":
    monkeypatch.setitem(tests.TOOLS, "python", sys.executable)
    runner = tests.Runner()
    runner.run(tests.Row("part", "row", f'python -c "{row_code}"', **more))
    return runner


@pytest.mark.parametrize(("code", "failed"), [("print(5, 'passed')", False), ("print(1, 'failed'); exit(1)", True)])
def test_a_row_tells_its_outcome(monkeypatch: pytest.MonkeyPatch, code: str, failed: bool) -> None:
    runner = run(code, monkeypatch)
    assert runner.failed == failed
    assert runner.last_line == ("1 failed" if failed else "5 passed")
    assert runner.times[0].endswith("failed    part: row" if failed else "passed    part: row")


def test_what_a_row_needs_first_fails_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("print(5, 'passed')", monkeypatch, before='python -c "exit(1)"').failed


@pytest.mark.parametrize("optional", ["", "there is no driver"])
def test_a_device_that_does_not_work_fails_the_row_or_leaves_it_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], optional: str
) -> None:
    monkeypatch.setitem(tests.TOOLS, "python", sys.executable)
    runner = tests.Runner()
    runner.run(tests.Row("part", "row", 'TORCH_BACKEND=nope python -c "print(5)"', optional=optional))
    assert runner.failed == (not optional)
    assert optional in capsys.readouterr().out
