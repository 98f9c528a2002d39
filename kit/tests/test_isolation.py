"""A device that crashes, hangs or ends the process fails the test it does it in, and no other."""

import os
from pathlib import Path

import pytest
from fixtures import RunPython
from torch_conformance import Result, session
from torch_conformance.routes import text_of
from torch_conformance.routes.library import Library
from torch_conformance.session import Settings, Suite

TESTS = '''
import ctypes, os, time
import pytest
from torch_conformance import needs
from torch_conformance.facts import record

def test_passes(device):
    """A device that works passes."""

def test_crashes(device):
    """A device that crashes is reported."""
    record(op="add", part="forward")
    ctypes.string_at(0)

def test_aborts(device):
    """A device that aborts is reported."""
    os.abort()

def test_ends_the_process(device):
    """A device that calls exit is reported."""
    os._exit(0)

def test_hangs_with_the_interpreter_locked(device):
    """A device that never returns is stopped."""
    ctypes.PyDLL(None).sleep(600)

def test_fails(device):
    """A wrong value is reported with its message."""
    assert 1 == 2, "one is not two"

def test_fails_in_a_fixture(missing):
    """A test that cannot start is reported."""

def test_does_not_say_what_it_proves(device):
    pass

def test_is_skipped_by_hand(device):
    """A skip that no declaration explains fails."""
    pytest.skip("no reason")

@needs.table("no.such.table")
def test_needs_what_is_not_declared(device):
    """What is not declared is not tested."""

def test_finds_out_that_it_is_not_offered(device):
    """What the device refuses is not tested."""
    needs.not_offered("asked for a pony, got UNSUPPORTED")

def test_loses_the_device(device):
    """A process that cannot use the device any more is replaced."""
    import torch

    def lost(*args, **kwargs):
        raise RuntimeError("an error before has left the device unusable")

    torch.ones = lost
    raise RuntimeError("a kernel failed")

def test_comes_after_that(device):
    """The next test has the device."""
    import torch

    torch.ones(1, device=device)

@pytest.mark.thorough
def test_takes_long(device):
    """What takes long is left out of a quick run."""
'''


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory, name: str) -> dict[str, Result]:
    root = tmp_path_factory.mktemp("suite")
    (root / "tensor").mkdir()
    (root / "tensor" / "test_bad.py").write_text(TESTS)
    settings = Settings(device=name, environment=dict(os.environ), quick=True, workers=1, test_timeout=3)
    told: list[Result] = []
    found = session.run(Suite([root / "tensor"], root), settings, lambda result, total: told.append(result))
    assert not found.problems
    assert [result.test for result in told] == [result.test for result in found.results]
    return {result.test.split("::")[1]: result for result in found.results}


@pytest.mark.parametrize(
    ("test", "outcome", "message"),
    [
        ("test_passes", "passed", ""),
        ("test_crashes", "crashed", "the process crashed: Segmentation fault, in string_at (__init__.py:"),
        ("test_aborts", "crashed", "the process crashed: Aborted, in test_aborts (test_bad.py:"),
        ("test_ends_the_process", "crashed", "the process ended without a word"),
        ("test_hangs_with_the_interpreter_locked", "hung", "did not end in 0:00:"),
        ("test_fails", "failed", "one is not two"),
        ("test_fails_in_a_fixture", "failed", ""),
        (
            "test_loses_the_device",
            "failed",
            "RuntimeError: a kernel failed; the process cannot use the device any more: an error before has left",
        ),
        ("test_comes_after_that", "passed", ""),
        ("test_does_not_say_what_it_proves", "failed", "the test has no docstring that says what it proves"),
        ("test_is_skipped_by_hand", "failed", "skipped for a reason that the device did not declare: no reason"),
        ("test_needs_what_is_not_declared", "not offered", "the device library has no table no.such.table"),
        ("test_finds_out_that_it_is_not_offered", "not offered", "asked for a pony, got UNSUPPORTED"),
    ],
)
def test_each_ends_in_its_own_way(results: dict[str, Result], test: str, outcome: str, message: str) -> None:
    assert results[test].outcome == outcome
    assert results[test].message.startswith(message)


def test_a_quick_run_leaves_out_what_takes_long(results: dict[str, Result]) -> None:
    assert "test_takes_long" not in results
    assert len(results) == 13


def test_a_crash_keeps_what_the_test_recorded_and_proves(results: dict[str, Result]) -> None:
    crash = results["test_crashes"]
    assert crash.facts == {"op": "add", "part": "forward"}
    assert crash.proves == "A device that crashes is reported."
    assert "test_bad.py" in crash.details


def test_a_failure_has_its_traceback(results: dict[str, Result]) -> None:
    assert "assert 1 == 2" in results["test_fails"].details


def test_a_device_that_cannot_be_opened_ends_the_session(tmp_path: Path, name: str) -> None:
    (tmp_path / "vendor.py").write_text("import os\nos.abort()\n")
    (tmp_path / "test_one.py").write_text("def test_one(device):\n    pass\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    settings = Settings(device=text_of(Library(name, ("vendor",))), environment=environment, workers=2)
    found = session.run(Suite([tmp_path], tmp_path), settings, lambda result, total: None)
    assert not found.results
    assert "The device could not be opened: the process crashed: Aborted" in found.problems[0]


def test_a_session_has_what_is_named_and_left(tmp_path: Path, name: str) -> None:
    (tmp_path / "tensor").mkdir()
    (tmp_path / "tensor" / "test_some.py").write_text(
        "".join(f"def test_{letter}(device):\n    'Passes.'\n" for letter in "abcd")
    )
    file = "tensor/test_some.py::test_"
    named = frozenset(f"{file}{letter}" for letter in "abc")
    settings = Settings(
        device=name, environment=dict(os.environ), skip=("test_c",), named=named, done=frozenset({f"{file}a"})
    )
    found = session.run(Suite([tmp_path / "tensor"], tmp_path), settings, lambda result, total: None)
    assert not found.problems
    assert [(result.test.removeprefix(file), result.outcome) for result in found.results] == [
        ("b", "passed"),
        ("c", "skipped"),
    ]
    assert found.results[1].message == "left out by --skip test_c"


def test_a_file_that_cannot_be_loaded_is_a_problem(tmp_path: Path, name: str) -> None:
    (tmp_path / "test_broken.py").write_text("import no_such_module\n")
    settings = Settings(device=name, environment=dict(os.environ))
    found = session.run(Suite([tmp_path], tmp_path), settings, lambda result, total: None)
    assert not found.results
    assert "no_such_module" in found.problems[0]


def test_processes_for_the_bare_library_do_without_torch(run_python: RunPython) -> None:
    """They are started by the dozen, and torch takes seconds to import."""
    run_python(
        """
        import sys

        import torch_conformance.suite.abi._child
        import torch_conformance.suite.abi._rank_process

        assert "torch" not in sys.modules
        """
    )
