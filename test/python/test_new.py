"""``torch-backend new``: names, files, and a project that builds, installs and passes before its first edit."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from fixtures import UNASKED, run_program
from fixtures import environment_of_its_own as environment_of_its_own

from torch_backend.__main__ import main
from torch_backend.scaffold import Kind, Language, Project

pytest.importorskip("jinja2")

ROOT = Path(__file__).parents[2]
# What a vendor keeps of it, and what goes: the memory, the driver, the runtime that stands for an SDK.
MAX_CODE_LINES = {
    (Kind.HOST, Language.C): (100, 0),
    (Kind.HOST, Language.CXX): (108, 32),
    (Kind.HANDLES, Language.CXX): (220, 150),
    (Kind.CUDA_LIKE, Language.CXX): (220, 360),
}
NO_WARNINGS = ["-DCMAKE_COMPILE_WARNING_AS_ERROR=ON"]

Captured = pytest.CaptureFixture[str]


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    return run_program(*command, cwd=cwd, **UNASKED | environment).stdout


def install(project: Path, site: Path) -> None:
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index"]
    run(*pip, "--no-build-isolation", "--no-deps", "--target", site, ".", cwd=project, CMAKE_ARGS=" ".join(NO_WARNINGS))


def code_lines(source: str) -> int:
    """Lines that are neither blank nor only a comment."""
    without_comments = re.sub(r"/\*.*?\*/|//[^\n]*", "", source, flags=re.DOTALL)
    return sum(1 for line in without_comments.splitlines() if line.strip())


# ---- files ----


def test_the_reference_device_is_written_from_the_same_template() -> None:
    fake = Project("fake", vendor="torch_backend").render("plugin.c")
    assert fake == (ROOT / "backends" / "fake" / "plugin.c").read_text(), (
        "backends/fake/plugin.c differs from its template"
    )


@pytest.mark.parametrize("kernels", [False, True])
@pytest.mark.parametrize(("kind", "language"), MAX_CODE_LINES)
def test_the_device_is_short(kind: Kind, language: Language, kernels: bool) -> None:
    files = Project("acme", kind, language, kernels and kind is not Kind.HANDLES).files()
    sources = {path: text for path, text in files.items() if path.startswith("csrc/") and "kernels" not in path}
    lines = {path: code_lines(text) for path, text in sources.items()}
    kept = lines.pop(f"csrc/plugin.{language.suffix}")
    most_kept, most_others = MAX_CODE_LINES[kind, language]
    assert kept <= most_kept
    assert sum(lines.values()) <= most_others


def test_code_lines_are_counted() -> None:
    assert code_lines("int a; /* why */\n\n/* two\n * lines */\nint b;\n// one\n") == 2


def test_no_file_names_another_device() -> None:
    files = Project("acme", kernels=True).files()
    assert not {path for path, text in files.items() if re.search(r"\bfake\b|\{\{|\{%", text.replace("${{", ""))}


@pytest.mark.parametrize("kind", list(Kind))
def test_it_can_be_published(kind: Kind) -> None:
    files = Project("acme", kind).files()
    assert {"LICENSE", "CHANGELOG.md", "python/torch_acme/py.typed"} <= set(files)
    project = files["pyproject.toml"]
    assert re.search(r'^dependencies = \["torch_backend>=[\d.]+,<1", "torch>=[\d.]+,<[\d.]+"\]$', project, re.M), (
        project
    )
    jobs = yaml.safe_load(files[".github/workflows/test.yml"])["jobs"]
    assert all("timeout-minutes" in job for job in jobs.values())
    assert set(jobs) == {"conformance", "wheel"}
    assert not re.search(r"^```\n\S", files["README.md"].split("```sh")[0], re.M)  # fences have a language


@pytest.mark.parametrize("kind", [Kind.HOST, Kind.PYTHON])
def test_a_package_without_torch_backend_says_so(kind: Kind, capsys: Captured) -> None:
    files = Project("acme", kind).files()
    assert '[project.entry-points."torch.backends"]\ntorch_acme = "torch_acme:autoload"\n' in files["pyproject.toml"]
    package: dict[str, Any] = {}
    exec(files["python/torch_acme/__init__.py"], package)
    package["autoload"]()
    assert capsys.readouterr().err == ""
    package["find_spec"] = lambda name: None
    package["autoload"]()
    assert "torch_acme needs torch_backend, which is not installed" in capsys.readouterr().err


# ---- bad input ----


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("Acme", "Try 'acme'"),
        ("my-chip", "Try 'my_chip'"),
        ("9", "a name is a lower-case letter"),
        ("", "a name is a lower-case letter"),
        ("../x", "a name is a lower-case letter"),
        ("lambda", "a word of Python's own"),
        ("a" * 33, "it has 33 characters; 32 are enough"),
        ("cpu", "PyTorch has a device of that name"),
        ("cuda", "PyTorch has a device of that name"),
        ("mps", "PyTorch has a device of that name"),
        ("hip", "PyTorch has a device of that name"),
        ("privateuseone", "PyTorch has a device of that name"),
        ("add", "torch.add exists already"),
        ("xcpu", "a reference device of torch_backend"),
        ("backend", "its package would be torch_backend, which is installed already"),
    ],
)
def test_bad_names_are_refused(
    name: str, reason: str, tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["new", name]) == 2
    said = capsys.readouterr().err
    assert f"A device cannot be called '{name}'" in said
    assert reason in said
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--lang", "rust"], "--lang rust: a device library is written in c or c++.\n"),
        (["--lang", "python"], "For a device in Python type --kind python."),
        (["--kind", "pipe"], "--kind pipe: it is host, handles, cuda-like or python.\n"),
        (["--kind", "plain"], "What was plain is host."),
        (["--kind", "handles", "--lang", "c"], "A device of --kind handles is written in c++."),
        (["--kind", "python", "--lang", "c"], "A device of --kind python is written in Python: leave out --lang."),
        (["--kind", "handles", "--kernels"], "Leave out --kernels, and offer modules"),
    ],
)
def test_what_does_not_exist_is_refused(
    arguments: list[str], reason: str, tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["new", "acme", *arguments]) == 2
    assert reason in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_an_existing_place_is_left_alone(tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "mine").mkdir()
    assert main(["new", "acme", "--directory", str(tmp_path / "mine")]) == 2
    assert f"'{tmp_path / 'mine'}' exists already. Name another place with --directory." in capsys.readouterr().err
    assert not list((tmp_path / "mine").iterdir())


def test_a_place_that_cannot_be_written(tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "file").write_text("")
    assert main(["new", "acme", "--directory", str(tmp_path / "file" / "acme")]) == 1
    assert "The project could not be written to" in capsys.readouterr().err


# ---- from nothing to a device ----

needs_tools = pytest.mark.skipif(
    shutil.which("cmake") is None or shutil.which("cc") is None, reason="needs CMake and a C compiler"
)


@needs_tools
def test_the_steps_of_its_ci_pass(tmp_path: Path, environment_of_its_own: dict[str, str]) -> None:
    """What a forge would run after every push, in its order: install, doctor, the kit; its tools are there already."""
    assert main(["new", "acme", "--directory", str(tmp_path / "acme")]) == 0
    workflow = yaml.safe_load((tmp_path / "acme" / ".github" / "workflows" / "test.yml").read_text())
    steps = workflow["jobs"]["conformance"]["steps"]
    commands = [step["run"] for step in steps if "run" in step]
    assert len(commands) >= 5
    for command in commands:
        # What these find is found by test_a_new_device_in_cxx_with_kernels.
        command = command.replace("python -m pytest", "python -m pytest --collect-only --quiet")
        command = command.replace("--quick", "--quick --level 1")
        said = run("bash", "-c", command, cwd=tmp_path / "acme", **environment_of_its_own)
    assert "Level reached: 1" in said
    assert {file.name for file in (tmp_path / "acme").glob("report.*")} == {"report.html", "report.json", "report.xml"}


@needs_tools
def test_an_editable_install(tmp_path: Path, environment_of_its_own: dict[str, str]) -> None:
    project = tmp_path / "acme"
    assert main(["new", "acme", "--lang", "c++", "--directory", str(project)]) == 0
    install_it = "pip install --quiet --no-build-isolation --no-deps -e ."
    run("bash", "-c", install_it, cwd=project, **environment_of_its_own)
    module = project / "python" / "torch_acme" / "__init__.py"
    module.write_text(module.read_text() + "EDITED = True\n")
    use = "import torch, torch_acme; print(torch.ones(2, device='acme').tolist(), torch_acme.EDITED)"
    python = str(Path(environment_of_its_own["VIRTUAL_ENV"]) / "bin" / "python")
    assert run(python, "-c", use, cwd=tmp_path, **environment_of_its_own) == "[1.0, 1.0] True\n"


@needs_tools
def test_a_new_device_in_cxx_with_kernels(tmp_path: Path) -> None:
    project, site = tmp_path / "zeta", tmp_path / "site"
    assert main(["new", "zeta", "--lang", "c++", "--kernels", "--directory", str(project)]) == 0
    install(project, site)
    use = """
import torch, torch_backend.operators as operators
x = torch.tensor([[-1.0, 2.0], [float("nan"), -0.5]])
y = x.to("zeta")
torch.testing.assert_close(torch.relu(y).cpu(), torch.relu(x), equal_nan=True)
torch.testing.assert_close(torch.add(y.t(), y[0], alpha=3).cpu(), torch.add(x.t(), x[0], alpha=3), equal_nan=True)
sources = operators.operator_sources()
print(sources["aten::relu"], sources["aten::add.Tensor"])
"""
    assert run(sys.executable, "-c", use, cwd=tmp_path, PYTHONPATH=str(site)) == "plugin plugin\n"
    # The project's own test, on one test of the kit.
    test = project / "test" / "test_conformance.py"
    test.write_text(test.read_text().replace("quick=True", 'quick=True, only=["test_handshake.py"]'))
    said = run(sys.executable, "-m", "pytest", "-q", cwd=project, PYTHONPATH=str(site), PATH=os.environ["PATH"])
    assert "1 passed" in said


@needs_tools
@pytest.mark.parametrize("kind", ["handles", "cuda-like"])
def test_a_new_asynchronous_device(kind: str, tmp_path: Path) -> None:
    """It trains, on streams, and keeps what the header says of asynchronous devices."""
    kernels = [] if kind == "handles" else ["--kernels"]
    assert main(["new", "my_chip", "--kind", kind, *kernels, "--directory", str(tmp_path / "my_chip")]) == 0
    run("cmake", "-S", "my_chip", "-B", "build", f"-DPython_EXECUTABLE={sys.executable}", *NO_WARNINGS, cwd=tmp_path)
    run("cmake", "--build", "build", cwd=tmp_path)
    use = """
import torch, torch_backend.operators as operators
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2)).to("my_chip")
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
x = torch.randn(64, 8).to("my_chip")
with torch.my_chip.stream(torch.my_chip.Stream()):
    for _ in range(20):
        loss = torch.nn.functional.cross_entropy(model(x), (x.sum(1) > 0).long())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(loss.item() < 0.3, operators.operator_sources()["aten::relu"])
"""
    path = str(tmp_path / "build")
    said = run(sys.executable, "-c", use, cwd=tmp_path, TORCH_BACKEND_PATH=path, TORCH_BACKEND="my_chip")
    assert said == f"True {'plugin' if kernels else 'fallback'}\n"
    kit = [sys.executable, "-m", "torch_backend", "check", f"{path}/libtorch_backend_my_chip.so", "--quick"]
    parts = ("copies", "events", "event_times", "fills", "host_functions", "order", "peers", "streams")
    tests = [word for part in parts for word in ("--only", f"abi/test_{part}.py")]
    assert " 0 failed" in run(*kit, "--option", "devices=2", *tests, cwd=tmp_path)


def test_a_new_device_in_python(tmp_path: Path) -> None:
    """Written, installed and found by `import torch`, without a compiler."""
    project, site = tmp_path / "yara", tmp_path / "site"
    assert main(["new", "yara", "--kind", "python", "--kernels", "--directory", str(project)]) == 0
    install(project, site)
    use = """
import torch, torch_backend.operators as operators
x = torch.tensor([[-1.0, 2.0], [0.0, -0.5]])
y = torch.relu(x.to("yara")) + 1
print(torch.yara.device_count(), y.tolist(), operators.operator_sources()["aten::relu"])
"""
    said = run(sys.executable, "-c", use, cwd=tmp_path, PYTHONPATH=str(site))
    assert said == "1 [[1.0, 3.0], [1.0, 1.0]] plugin\n"
    test = project / "test" / "test_conformance.py"
    test.write_text(test.read_text().replace("quick=True", 'quick=True, only=["test_handshake.py", "test_out.py"]'))
    said = run(sys.executable, "-m", "pytest", "-q", cwd=project, PYTHONPATH=str(site), PATH=os.environ["PATH"])
    assert "1 passed" in said


@pytest.mark.parametrize("kernels", [False, True])
def test_a_device_in_python_keeps_within_the_line(kernels: bool) -> None:
    for path, text in Project("a_long_device_name", Kind.PYTHON, kernels=kernels).files().items():
        if path.endswith(".py"):
            compile(text, path, "exec")
            assert max(map(len, text.splitlines())) <= 120, f"{path} has longer lines"


@needs_tools
@pytest.mark.parametrize(("language", "words"), [("c", "incompatible pointer type"), ("c++", "invalid conversion")])
def test_a_function_that_differs_from_its_slot_does_not_compile(language: str, words: str, tmp_path: Path) -> None:
    assert main(["new", "acme", "--lang", language, "--directory", str(tmp_path / "acme")]) == 0
    (plugin,) = (tmp_path / "acme" / "csrc").glob("plugin.*")
    source = plugin.read_text().replace("device_count(int32_t* out_count)", "device_count(int64_t* out_count)")
    plugin.write_text(source)
    run("cmake", "-S", "acme", "-B", "build", f"-DPython_EXECUTABLE={sys.executable}", cwd=tmp_path)
    build = subprocess.run(["cmake", "--build", "build"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert build.returncode != 0
    assert words in build.stderr + build.stdout


@needs_tools
def test_a_project_that_was_not_installed_says_so(tmp_path: Path) -> None:
    project = tmp_path / "acme"
    assert main(["new", "acme", "--directory", str(project)]) == 0
    code = "import torch_acme\ntry: torch_acme.library()\nexcept FileNotFoundError as error: print(error)"
    said = run(sys.executable, "-c", code, cwd=tmp_path, PYTHONPATH=str(project / "python"))
    assert "has no libtorch_backend_acme.so in" in said
    assert "Reinstall it: pip install ." in said
