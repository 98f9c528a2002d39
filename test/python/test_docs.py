"""The documentation does what it says: its blocks marked ``{run}`` are run in order, each in a process of its own.

The chapters of ``docs/tutorial`` are one text: each goes on in the folder where the one before stopped.
"""

import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from fixtures import clean_environment
from fixtures import environment_of_its_own as environment_of_its_own
from torch_conformance.processes import Template

from torch_backend.abi.header import read
from torch_backend.files import installed

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
sys.path.insert(0, str(DOCS / "_extensions"))

import doc_blocks  # noqa: E402  # these lie beside the documentation, whose build needs them
from doc_blocks import Block, Command  # noqa: E402

README = ROOT / "README.md"
TUTORIAL = DOCS / "tutorial"
PAGES = sorted(page for page in DOCS.rglob("*.md") if "_build" not in page.parts and doc_blocks.blocks_of(page))
CHAPTERS = [page for page in PAGES if page.parent == TUTORIAL]  # their names start with their number
TIMEOUT = 900  # seconds: a block may run five levels of the conformance kit, on a busy machine


def program_at(blocks: list[Block], number: int) -> list[Block]:
    """The Python block with this number, and those that continue it."""
    parts = [blocks[number]]
    for block in blocks[number + 1 :]:
        if block.language == "python" and "file" not in block.options:
            if "continue" not in block.options:
                break
            parts.append(block)
    return parts


def sampled(block: Block) -> list[Command]:
    """The commands of a block that checks whole levels, which takes minutes: they check some of the levels' tests."""
    commands = doc_blocks.commands_of(block)
    if os.environ.get("DOCS") == "all":
        return commands
    only = "".join(f" --only '{pattern}'" for pattern in block.options["sample"].split())
    verdict = re.compile(r"^Level reached: .*", re.MULTILINE)
    return [
        Command(command.text + only, verdict.sub("These tests pass. ...", command.expected or "..."))
        for command in commands
    ]


class Reader:
    """Does what a page says, in a folder that looks like a checkout."""

    def __init__(self, folder: Path, template: Template, variables: Mapping[str, str] | None = None) -> None:
        self._template = template
        environment = clean_environment()
        del environment["TORCH_BACKEND"]  # pages say how a device is chosen
        environment |= {
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            "COLUMNS": "120",
            "NO_COLOR": "1",
            "PYTHONPATH": os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")])),
        }
        self._shell = doc_blocks.Shell(folder, environment | dict(variables or {}))
        self._outputs: list[str] = []  # of the parts of the program that runs, from the current one on
        self._printed = ""
        for name in ("backends", "examples", "include"):
            (folder / name).symlink_to(ROOT / name)

    def follow(self, page: Path) -> None:
        """Do what the page says, in order."""
        self._page = page
        if page == README:  # its programs are for a process without the device that its commands install
            blocks = sorted(doc_blocks.plain_blocks_of(page), key=lambda block: block.language == "console")
        else:
            blocks = doc_blocks.blocks_of(page)
        for number, block in enumerate(blocks):
            if "file" in block.options:
                path = self._shell.folder / block.options["file"]
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(block.text, encoding="utf-8")
            elif block.language == "console":
                self._type(block)
            elif block.language == "python":
                if "continue" not in block.options:
                    self._start(program_at(blocks, number))
                self._printed = self._outputs.pop(0)
            elif block.language == "output":
                self._compare(self._printed, block.text, block)
            elif "edit" in block.options:
                patch = f"patch --strip=0 --fuzz=0 --no-backup-if-mismatch <<'END'\n{block.text}END"
                self._checked(self._shell.run(patch, TIMEOUT), block)
            else:
                pytest.fail(f"{self._where(block)}: a {block.language} block to be run has no :file: to be written to.")

    def _type(self, block: Block) -> None:
        for command in sampled(block) if "sample" in block.options else doc_blocks.commands_of(block):
            # Processors have other tests to run, and each process of the kit's imports torch.
            text = re.sub(r"^(torch-(?:backend|conformance) check) ", r"\1 --jobs 1 ", command.text)
            printed = self._checked(self._shell.run(text, TIMEOUT), block)
            if command.expected is not None:
                self._compare(printed, command.expected, block)

    def _start(self, parts: list[Block]) -> None:
        """Run a program; what each part prints follows a mark."""
        mark = "---- the next part ----"
        program = "".join(f"print({mark!r})\n{part.text}" for part in parts)
        process = self._template.run(program, self._shell.environment, folder=self._shell.folder, seconds=TIMEOUT)
        _, *self._outputs = self._checked(process, parts[0]).split(mark)

    def _checked(self, process: "subprocess.CompletedProcess[str]", block: Block) -> str:
        text = f"{process.args[-1]}\n{process.stdout}{process.stderr}"
        assert process.returncode == 0, f"{self._where(block)}: exit code {process.returncode}\n{text}"
        return process.stdout

    def _compare(self, printed: str, expected: str, block: Block) -> None:
        assert doc_blocks.fits(printed, expected), (
            f"{self._where(block)} prints\n{printed}\nbut the page shows\n{expected}"
        )

    def _where(self, block: Block) -> str:
        return f"{self._page.relative_to(ROOT)}:{block.line}"


@pytest.mark.parametrize("page", [page for page in PAGES if page not in CHAPTERS], ids=lambda page: page.stem)
def test_what_a_page_shows(page: Path, tmp_path: Path, template: Template) -> None:
    Reader(tmp_path, template).follow(page)


@pytest.mark.long
def test_the_tutorial(tmp_path: Path, template: Template, environment_of_its_own: dict[str, str]) -> None:
    (tmp_path / "reader").mkdir()
    reader = Reader(tmp_path / "reader", template, environment_of_its_own)
    for chapter in CHAPTERS:
        reader.follow(chapter)


def test_what_the_readme_shows(tmp_path: Path, template: Template, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its installations go to a folder of their own, and nothing is fetched."""
    site = tmp_path / "site"
    monkeypatch.setenv("PYTHONPATH", str(site))
    for name, value in (("TARGET", str(site)), ("QUIET", "1"), ("DISABLE_PIP_VERSION_CHECK", "1")):
        monkeypatch.setenv(f"PIP_{name}", value)
    Reader(tmp_path, template).follow(README)
    assert set(doc_blocks.scripts_of(README)) == {"checkout", "wheel", "check"}


def test_every_page_that_shows_how_is_run() -> None:
    shown = {
        DOCS / "getting_started.md",
        DOCS / "write_a_device.md",
        *(DOCS / "guides").glob("*.md"),
        *TUTORIAL.glob("[0-9]*.md"),
    }
    programs = {
        DOCS / "guides" / name for name in ("ecosystem.md", "scale_out.md", "serving.md", "triton.md")
    }  # examples, with tests of their own
    assert shown - programs <= set(PAGES), "These pages have no block that is run."


def test_every_run_fence_is_read() -> None:
    for page in PAGES:
        fences = page.read_text(encoding="utf-8").count("{run}")
        assert len(doc_blocks.blocks_of(page)) == fences, f"{page}: a block marked to be run is not closed or indented."


@pytest.mark.parametrize(
    ("printed", "expected", "fit"),
    [
        ("1 2\n", "1 2", True),
        ("1   2 \n\n", "1 2", True),
        ("1 2\n", "1 3", False),
        ("a long text b\n", "a ... b", True),
        ("a long text b c\n", "a ... b", False),
        ("", "x", False),
        ("a b c\n", "a ... b ... c ...", True),
        ("a b\n", "a b ... b", False),
        ("a c b c", "... c ... b ... c", True),
        ("a b " * 1000, "... a " * 40 + "c", False),
    ],
)
def test_comparison(printed: str, expected: str, fit: bool) -> None:
    assert doc_blocks.fits(printed, expected) is fit


def test_the_page_of_device_h_has_every_declaration() -> None:
    header = installed.include_dir() / "torch_backend" / "device.h"
    _, sections = read(header)
    items = [item for section in sections for item in section.items]
    named = {item.name for item in items if item.kind in ("macro", "struct")}
    text = "\n".join(part.code for item in items for part in (item, *item.members))
    source = re.sub(r"/\*.*?\*/", "", header.read_text(encoding="utf-8"), flags=re.S)
    structs = set(re.findall(r"^typedef struct (\w+) \{", source, re.M))
    constants = set(re.findall(r"^#define (TB_\w+) +\S", source, re.M)) - {"TB_EXPORT"}
    slots = set(re.findall(r"\(\*(\w+)\)\(", source))
    assert structs <= named
    assert {name for name in constants - named if name not in text} == set()
    assert {slot for slot in slots if f"(*{slot})" not in text} == set()


def test_slots_keep_their_comments() -> None:
    _, sections = read(installed.include_dir() / "torch_backend" / "device.h")
    (core,) = [item for section in sections for item in section.items if item.name == "tb_core_table"]
    comments = {match[1]: slot.comment for slot in core.members if (match := re.search(r"\(\*(\w+)\)", slot.code))}
    assert "Allocate raw memory of `kind`" in comments["memory_allocate"]
    assert "Since 1.0" in comments["event_query"]


def test_the_page_of_torch_name_has_every_function() -> None:
    pytest.importorskip("sphinx", reason="without sphinx there is no page")
    import torch_name

    assert torch_name.undocumented() == set()
    assert {"memory_allocated", "memory._snapshot"} <= set(torch_name.names_of("memory"))


LINK = re.compile(r"\[[^]\n]*\]\((?!https?:|mailto:)(?P<path>[^)#\s]+)[^)]*\)")
TEXTS = [README, ROOT / "CONTRIBUTING.md", *DOCS.rglob("*.md"), *(ROOT / "examples").rglob("*.md")]


@pytest.mark.parametrize("text", [text for text in TEXTS if "_build" not in text.parts], ids=lambda text: text.stem)
def test_links_lead_somewhere(text: Path) -> None:
    prose = re.sub(r"^(`{3,}).*?^\1$", "", text.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    broken = [link["path"] for link in LINK.finditer(prose) if not (text.parent / link["path"]).exists()]
    assert broken == []


def test_the_porting_guide_names_what_there_is() -> None:
    """What PyTorch asks for is in PyTorch's headers, and what it becomes is in device.h."""
    include = Path(torch.__file__).parent / "include"
    headers = [
        "c10/core/impl/DeviceGuardImplInterface.h",
        "c10/core/Allocator.h",
        "c10/core/CachingDeviceAllocator.h",
        "ATen/core/CachingHostAllocator.h",
        "ATen/detail/AcceleratorHooksInterface.h",
        "ATen/detail/PrivateUse1HooksInterface.h",
        "ATen/RegistrationDeclarations.h",
        "ATen/native/CPUFallback.h",
    ]
    asked = "".join((include / header).read_text(encoding="utf-8") for header in headers)
    asked += " ".join(dir(torch.cuda)) + " get_amp_supported_dtype "
    offered = (installed.include_dir() / "torch_backend" / "device.h").read_text(encoding="utf-8")
    offered += "torch_backend.device_module kernels.1 device.h"
    guide = (DOCS / "guides" / "port_a_backend.md").read_text(encoding="utf-8")
    table = guide.split("| PyTorch asks for |", 1)[1].split("\n\n", 1)[0]
    rows = [line.strip("|").split("|") for line in table.splitlines()[2:]]
    assert len(rows) > 25
    unknown = [
        name
        for cells in rows
        for cell, text in zip(cells, (asked, offered), strict=True)
        for name in re.findall(r"(?<!\})`([^`]+)`", cell)
        if not re.search(rf"\b{re.escape(name)}\b", text)
    ]
    assert unknown == []


UPSTREAM = DOCS / "reference" / "upstream.md"


def test_pytorch_is_as_the_page_on_what_belongs_upstream_says() -> None:
    """A place stands with a part of its line; torchgen and torch are installed beside each other."""
    text = UPSTREAM.read_text(encoding="utf-8")
    (version,) = re.findall(r"was read in torch ([\d.]+),", text)
    if torch.__version__.partition("+")[0] != version:
        pytest.skip(f"The page is about torch {version}.")
    packages = Path(torch.__file__).parents[1]
    places = re.findall(r"`(torch(?:gen)?/[\w/.]+):(\d+)`:\s+`([^`]+)`", text)
    assert len(places) > 25
    moved = [
        f"{file}:{line}"
        for file, line, part in places
        if part not in (packages / file).read_text(encoding="utf-8").splitlines()[int(line) - 1]
    ]
    assert moved == []


def test_what_is_changed_of_pytorch_is_on_the_page_on_what_belongs_upstream() -> None:
    text = UPSTREAM.read_text(encoding="utf-8")
    files = {path.name for path in (ROOT / "torch_backend" / "compat").glob("*.py")} - {"__init__.py"}
    assert {name for name in files if name not in text} == set()


@pytest.mark.parametrize("page", ["accelerator_guide", "upstream"])
def test_pages_about_pytorch_name_files_that_there_are(page: str) -> None:
    text = (DOCS / "reference" / f"{page}.md").read_text(encoding="utf-8")
    named = re.findall(r"`((?:bindings|codegen|csrc|kit|torch_backend)/[\w./]+)`", text)
    assert named
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_the_compatibility_table_takes_reports() -> None:
    spec = importlib.util.spec_from_file_location("compatibility", ROOT / ".ci" / "compatibility.py")
    assert spec is not None
    assert spec.loader is not None
    compatibility = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(compatibility)
    none = dict.fromkeys(("passed", "failed", "crashed", "hung", "known", "not offered", "not run"), 0)
    report = {
        "device": {"name": "acme", "torch": "2.12.1"},
        "level_reached": 1,
        "levels": [
            {"number": 1, "name": "abi", "counts": none | {"passed": 1200, "not offered": 3}},
            {"number": 2, "name": "tensor", "counts": none | {"passed": 5, "failed": 1, "crashed": 1}},
        ],
        "quick": True,
        "only": [],
        "options": {"async": "1"},
    }
    line = "| 2.12.1 | `acme` with `async=1` | quick | 1 `abi` | 1,205 | 2 | 3 |\n"
    assert compatibility.row(report) == line
    other = "| 2.11.0 | `acme` | all | 1 `abi` | 1 | 0 | 0 |\n"
    old = line.replace("1,205", "7")
    page = f"Before.\n\n{compatibility.HEAD}{old}\nAfter.\n"
    assert compatibility.update(page, [line, other]) == f"Before.\n\n{compatibility.HEAD}{other}{line}\nAfter.\n"
    assert compatibility.HEAD in compatibility.PAGE.read_text(encoding="utf-8")


def test_versions_are_listed_the_newest_first(tmp_path: Path) -> None:
    built, site = tmp_path / "html", tmp_path / "site"
    built.mkdir()
    for version in ("0.9.0", "0.10.0", "0.9.0"):
        (built / "index.html").write_text(version)
        done = subprocess.run([sys.executable, ROOT / ".ci" / "publish_docs.py", built, site, version], check=False)
        assert done.returncode == 0
    assert json.loads((site / "versions.json").read_text()) == ["0.10.0", "0.9.0"]
    assert (site / "0.9.0" / "index.html").read_text() == "0.9.0"
    assert 'href="0.10.0/"' in (site / "index.html").read_text()
    wrong = subprocess.run(
        [sys.executable, ROOT / ".ci" / "publish_docs.py", built, site, "../x"], capture_output=True, text=True
    )
    assert wrong.returncode == 1
    assert "is no version; expected one like 0.2.0" in wrong.stderr
