"""The rooms of csrc are on floors: a file includes what is in its room or below. README has a row for each room."""

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]

# From the bottom; rooms of one floor do not include each other.
FLOORS = [
    {"core"},
    {"memory"},
    {"profiler"},
    {"graph"},
    {"ops/tensor"},
    {"ops/dispatch"},
    {"ops/kernel", "ops/host"},
    {"ops/plugin"},
    {"ops/compiled/engine"},
    {"ops/compiled/loops"},
    {"ops/compiled/families"},
    {"ops/compiled/composed"},
    {"ops/native", "ops/packages"},
    {"ops"},
    {"distributed"},
    {"torch"},
    {"api"},
]
FLOOR_OF = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}


def room_of(path):
    parts = Path(path).parts[1:-1]
    depth = {"ops": 2, "ops/compiled": 3}
    return "/".join(parts[: depth.get("/".join(parts[:2]), depth.get(parts[0], 1))])


def arrows():
    """From room to room: the files that include and are included."""
    files = [path for path in (ROOT / "csrc").rglob("*") if path.suffix in (".h", ".cpp")]
    for file in files:
        path = file.relative_to(ROOT)
        if room_of(path) == "host_services":
            continue  # not the core's: what other programs that open device libraries need
        for included in re.findall(r'#include "(csrc/[^"]+)"', file.read_text()):
            yield str(path), included


def test_every_room_has_a_floor():
    rooms = {room_of(path) for arrow in arrows() for path in arrow}
    assert rooms - {"host_services"} == set(FLOOR_OF)


def test_cmake_names_every_source():
    listed = re.findall(r"tb_room\(\s*(\S+)\s+\d+\s+([^)]*)\)", (ROOT / "csrc/CMakeLists.txt").read_text())
    named = {f"csrc/{room}/{source}" for room, sources in listed for source in sources.split()}
    assert named | {"csrc/ops/Register.cpp"} == {str(path.relative_to(ROOT)) for path in (ROOT / "csrc").rglob("*.cpp")}


def test_no_arrow_goes_up():
    wrong = [
        f"{path} includes {included}"
        for path, included in arrows()
        if room_of(path) != room_of(included) and FLOOR_OF[room_of(included)] >= FLOOR_OF[room_of(path)]
    ]
    assert not wrong


def test_readme_says_where_every_room_is():
    """Every folder of the core and of the package, folders of others, and what the rows link to."""
    files = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    folders = {str(folder) for file in files for folder in Path(file).parents}
    headings = {".", "backends", "csrc", "csrc/ops", "test", "torch_backend"}
    within = headings | {"backends/common", "backends/cpu", "kit/torch_conformance"}
    within |= {folder for folder in folders if re.match("(csrc|torch_backend)/", folder)}
    within -= {"torch_backend/scaffold/templates"}
    rooms = {folder for folder in folders - headings if str(Path(folder).parent) in within}
    rooms -= {str(Path(file).parent) for file in files if re.fullmatch("backends/[^/]+/pyproject.toml", file)}
    text = (ROOT / "README.md").read_text()
    table = text[text.index("## Where things are") : text.index("## Status")]
    linked = set(re.findall(r"\]\(([\w./]+)\)", table))
    assert rooms - linked == {"docs"}  # which has a link to its first page
    assert [place for place in linked if not (ROOT / place).exists()] == []
