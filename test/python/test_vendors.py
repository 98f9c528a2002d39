"""The projects in backends/: each could be removed, and has the shape of what ``torch-backend new`` writes."""

import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from fixtures import ROOT

from torch_backend.devices.discovery import ON_REQUEST_GROUP
from torch_backend.scaffold import Kind, Language, Project

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PROJECTS = sorted(path.parent for path in (ROOT / "backends").glob("*/pyproject.toml"))
CORE = ("CMakeLists.txt", "cmake", "codegen", "csrc", "include", "kit", "torch_backend", "backends/common")
OF_THE_CHECKOUT = {".clang-format", ".github/workflows/test.yml", ".gitignore", "CHANGELOG.md", "LICENSE"}
each_project = pytest.mark.parametrize("project", PROJECTS, ids=lambda project: project.name)


def entry_point(project: Path) -> tuple[str, str]:
    """The device's name, and its package."""
    content = tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))
    ((name, _),) = content["project"]["entry-points"][ON_REQUEST_GROUP].items()
    return name, content["project"]["name"]


@each_project
def test_the_core_names_no_vendor(project: Path) -> None:
    name, package = entry_point(project)
    words = (f"backends/{project.name}", package, f'"{name}"', f"torch.{name}")
    patterns = [part for word in words for part in ("-e", word)]
    found = subprocess.run(
        ["git", "grep", "--fixed-strings", "--line-number", *patterns, "--", *CORE],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert found.returncode in (0, 1)
    assert not found.stdout


@each_project
def test_the_rest_is_built_without_it(project: Path, tmp_path: Path) -> None:
    (tmp_path / "backends").mkdir()
    for folder, copy in ((ROOT, tmp_path), (ROOT / "backends", tmp_path / "backends")):
        for path in folder.iterdir():
            if path.name not in ("backends", "build", project.name) and not (copy / path.name).exists():
                (copy / path.name).symlink_to(path)
    command = ["make", "--dry-run", "VENV=fresh", "build", "test-vendors"]
    dry = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert dry.returncode == 0, dry.stderr
    assert "Building torch_backend" in dry.stdout
    assert all(f"backends/{other.name}" in dry.stdout for other in PROJECTS if other != project)
    assert f"backends/{project.name}" not in dry.stdout


@each_project
def test_it_has_the_shape_of_a_new_project(project: Path) -> None:
    name, package = entry_point(project)
    is_library = (project / "CMakeLists.txt").is_file()
    new_one = Project(name, Kind.HOST, Language.CXX) if is_library else Project(name, Kind.PYTHON)
    written = {path.replace(f"torch_{name}", package): text for path, text in new_one.files().items()}
    assert not {path for path in written if not (project / path).is_file()} - OF_THE_CHECKOUT - {"csrc/memory.h"}
    shapes = [tomllib.loads(text) for text in (written["pyproject.toml"], (project / "pyproject.toml").read_text())]
    new, ours = ({*shape, *shape["tool"], *shape["tool"]["scikit-build"]} for shape in shapes)
    assert new == ours


@each_project
def test_it_is_found_by_its_entry_point(project: Path) -> None:
    name, package = entry_point(project)
    try:
        distribution = metadata.distribution(package)
    except metadata.PackageNotFoundError:
        pytest.skip(f"{package} is not installed: what it is built with is missing")
    assert [point.name for point in distribution.entry_points.select(group=ON_REQUEST_GROUP)] == [name]
