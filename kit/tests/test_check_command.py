"""`torch-backend check`: what it runs, prints, writes and returns."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fixtures import BuildPlugin, run_program

from torch_backend.files import installed, patience

ONE_FILE = "tensor/test_factories.py"


def check(
    *arguments: str | os.PathLike[str], code: int = 0, cwd: Path | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    return run_program(
        "python", "-m", "torch_backend", "check", "--jobs", "1", *arguments, code=code, cwd=cwd, **environment
    )


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["nothing"], "There is no device 'nothing'. There are "),
        (["./nothing.so"], "There is no device library ./nothing.so."),
        (["fake", "--level", "9"], "There is no level '9'. There are 0 (device), 1 (abi)"),
        (["fake", "--option", "devices"], "--option devices: expected KEY=VALUE"),
        (["xcpu", "--option", "asinc=1"], "'xcpu' has no option 'asinc'. Did you mean async? It has devices, memory,"),
        (["fake", "--expectations", "nothing.toml"], "nothing.toml"),
        (["fake", "--upstream", "nowhere"], "has no folder 'test'"),
        (["fake", "--upstream", "nowhere", "--level", "2"], "--level cannot be given with --upstream"),
        (["fake", "--upstream", "nowhere", "--resume", "--json", "none.json"], "--resume cannot be given"),
        (["fake", "--resume"], "give --json too"),
        (["fake", "--resume", "--json", "none.json"], "There is nothing to go on with"),
    ],
)
def test_a_wrong_command_says_what_is_wrong(arguments: list[str], complaint: str) -> None:
    process = check(*arguments, code=2)
    assert complaint in process.stderr
    assert "Traceback" not in process.stderr


def test_a_pattern_that_matches_nothing_fails(tmp_path: Path) -> None:
    pattern = f"{ONE_FILE}::test_no_such_thing"
    assert f"No test matches '{pattern}'." in check("fake", "--only", pattern, code=1).stdout


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """What a run of one file prints, on both outputs, and the folder with its reports."""
    folder = tmp_path_factory.mktemp("reports")
    files = ("--json", folder / "report.json", "--junit", folder / "report.xml", "--html", folder / "report.html")
    (folder / "vendor_kernels.py").write_text(
        "import torch_backend\n"
        "assert torch_backend.active().name == 'fake'\n"
        "open(__file__ + '.imported', 'w').close()\n"
    )
    arguments = ("fake", "--level", "tensor", "--only", ONE_FILE, "-v", "--import", "vendor_kernels", *files)
    process = check(*arguments, PYTHONPATH=str(folder))
    return process.stdout + process.stderr, folder


def test_the_report_at_the_terminal(written: tuple[str, Path]) -> None:
    output, _ = written
    assert "fake 1.0 by torch_backend" in output
    assert "2 tensor" in output
    assert "These tests pass." in output
    assert ONE_FILE in output
    assert re.search(r"\d+/\d+ tests, about \d+ s left\n", output)


def test_modules_are_imported_after_the_device_is_active(written: tuple[str, Path]) -> None:
    assert (written[1] / "vendor_kernels.py.imported").exists()


def test_the_report_as_json(written: tuple[str, Path]) -> None:
    report = json.loads((written[1] / "report.json").read_text())
    assert report["ok"]
    assert report["device"]["name"] == "fake"
    assert report["level_reached"] == 0  # chosen tests prove no level
    assert [level["name"] for level in report["levels"]] == ["device", "abi", "tensor"]
    assert report["results"]
    assert all(result["proves"] and result["outcome"] == "passed" for result in report["results"])


def test_the_report_as_junit_and_html(written: tuple[str, Path]) -> None:
    assert '<testsuite name="tensor"' in (written[1] / "report.xml").read_text()
    page = (written[1] / "report.html").read_text()
    assert "<title>fake: conformance</title>" in page
    assert "http" not in page.replace("http://www.w3.org", "")  # it loads nothing


def test_options_reach_the_device(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    check("fake", "--level", "abi", "--only", "test_properties.py", "--option", "devices=3", "--json", report)
    assert len(json.loads(report.read_text())["device"]["properties"]) == 3


def test_a_library_that_torch_cannot_use_is_a_problem_and_its_contract_is_still_checked(
    build_plugin: BuildPlugin, tmp_path: Path
) -> None:
    library = build_plugin("BAD_ALIGNMENT")
    report = tmp_path / "report.json"
    process = check(library, "--quick", "--only", "are_possible", "--json", report, code=1)
    assert "cannot be used by torch" in process.stdout
    content = json.loads(report.read_text())
    assert any(result["outcome"] == "failed" for result in content["results"])
    assert {result["test"].split("/")[0] for result in content["results"]} == {"device", "abi"}


def test_a_library_that_crashes_when_it_is_opened_is_a_problem(tmp_path: Path) -> None:
    source = tmp_path / "crash.c"
    source.write_text("#include <stdlib.h>\n__attribute__((constructor)) static void start(void) { abort(); }\n")
    library = tmp_path / "libtorch_backend_crash.so"
    subprocess.run(["cc", "-shared", "-fPIC", source, "-o", library], check=True)
    assert "loading the file: crashed with SIGABRT" in check(library, "--level", "abi", code=1).stdout


def test_a_file_that_is_no_device_library_is_said_in_a_sentence(tmp_path: Path) -> None:
    library = tmp_path / "bad.so"
    library.write_text("text")
    output = check(library, "--level", "abi", code=1).stdout
    assert output.count("is not a shared library: an ELF file is expected. It begins with b'text") == 1
    assert not any(word in output for word in ("Traceback", "_pytest", "AssertionError", "ended without"))


def test_files_in_the_working_folder_hide_no_package(tmp_path: Path) -> None:
    for module in ("conftest", "execnet", "pytest", "queue", "random", "runpy", "struct", "torch", "types", "xdist"):
        (tmp_path / f"{module}.py").write_text("raise ImportError('not this one')\n")
    program = Path(sys.executable).with_name("torch-backend")
    run_program(program, "check", "fake", "--jobs", "1", "--level", "tensor", "--only", ONE_FILE, cwd=tmp_path)


def test_a_device_in_the_working_folder_is_found(tmp_path: Path) -> None:
    example = Path(__file__).parents[2] / "examples" / "python_device" / "numpy_device.py"
    (tmp_path / "mine.py").write_text(example.read_text())
    (tmp_path / "pytest.py").write_text("raise ImportError('not this one')\n")
    check("mine:NumpyDevice", "--only", "abi/test_properties.py", cwd=tmp_path)


def test_a_run_goes_on_where_it_was_interrupted(tmp_path: Path) -> None:
    report, partial = tmp_path / "report.json", tmp_path / "report.json.partial"
    chosen = ("fake", "--level", "abi", "--quick", "--skip", "test_fills.py", "--json", str(report))
    command = [sys.executable, "-m", "torch_backend", "check", "--jobs", "1", *chosen]
    run = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    while not partial.exists() or len(partial.read_text().splitlines()) < 3:
        assert run.poll() is None, "the run ended before it had results"
        time.sleep(0.01)
    run.send_signal(signal.SIGINT)
    _, said = run.communicate()
    assert f"{partial} has the results so far." in said
    first, *lines = partial.read_text().splitlines()
    marked = [json.dumps({**json.loads(line), "message": "before"}) for line in lines]
    before = len(marked)
    partial.write_text("\n".join([first, *marked, ""]))
    check(*chosen, "--resume")
    assert not partial.exists()
    results = json.loads(report.read_text())["results"]
    assert sum(result["message"] == "before" for result in results) == before
    assert len({result["test"] for result in results}) == len(results) > before
    assert json.loads(report.read_text())["skip"] == ["test_fills.py"]


def test_only_what_failed_is_run_again(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    check("fake", "--level", "tensor", "--only", ONE_FILE, "--skip", "ones", "--json", report)
    content = json.loads(report.read_text())
    skipped = [result for result in content["results"] if result["outcome"] == "skipped"]
    assert skipped
    assert {result["message"] for result in skipped} == {"left out by --skip ones"}
    assert "Nothing has failed in" in check("fake", "--last-failed", report, code=2).stderr
    failed = content["results"][-1]
    failed["outcome"] = "failed"
    report.write_text(json.dumps(content))
    again = tmp_path / "again.json"
    check("fake", "--last-failed", report, "--json", again)
    results = json.loads(again.read_text())["results"]
    assert [result["test"] for result in results] == ["device/doctor::steps", failed["test"]]


def test_known_failures_beside_the_library_are_found(tmp_path: Path) -> None:
    library = tmp_path / "libtorch_backend_fake.so"
    library.write_bytes(installed.reference_library("fake").read_bytes())
    (tmp_path / "expectations.toml").write_text("[[known]]\ntest = 'tensor/test_factories.py::*'\nreason = 'none'\n")
    process = check(library, "--level", "tensor", "--only", ONE_FILE, code=1)
    assert "Expected to fail, but passed: tensor/test_factories.py::" in process.stdout


def test_sigterm_ends_what_a_run_has_started(tmp_path: Path) -> None:
    """As `timeout` sends it and CI does: the session's process and its workers do not outlive the run."""
    mark = f"TORCH_BACKEND_TEST_RUN={tmp_path}"
    command = [sys.executable, "-m", "torch_backend", "check", "fake", "--level", "1", "--jobs", "1"]
    name, _, value = mark.partition("=")
    run = subprocess.Popen(command, env={**os.environ, name: value}, stdout=subprocess.DEVNULL)
    while len(_processes(mark)) < 3:
        assert run.poll() is None, "the run ended before it had workers"
        time.sleep(0.05)
    run.terminate()
    assert run.wait() == 128 + signal.SIGTERM
    limit = time.monotonic() + patience.seconds(60)
    while left := _processes(mark):
        assert time.monotonic() < limit, f"{len(left)} processes outlive the run"
        time.sleep(0.05)


def _processes(mark: str) -> list[str]:
    """The processes with this in their environment; what has ended but is not waited for has none."""
    found = []
    for environment in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            found += [environment.parent.name] if mark.encode() in environment.read_bytes() else []
    return found
