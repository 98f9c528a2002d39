"""Reading the blocks that are to be run out of a page's Markdown.

A block is a fence whose first line is ```` ```{run} LANGUAGE ````:

- ``console``: lines that start with ``$ `` are commands, ``> `` continues one. What follows, up to the next command, is
  what it prints; ``...`` stands for any text. Without lines that follow, it may print anything. ``cd`` and ``export``
  hold for what comes after, programs and files included.
  ``:sample: PATTERN ...`` is for a `torch-backend check` of whole levels: those of its tests are run (``--only``), and
  all only if DOCS=all is in the environment.
- ``python``: a program, run in a process of its own. Blocks with ``:continue:`` are parts of the program before them,
  which is run as a whole where it starts.
- ``output``: what the Python block before it prints, with ``...`` for any text.
- ``diff`` with ``:edit:``: is applied to the files that it names.
- any other language: a file, written to the name in ``:file:``. A Python program with ``:file:`` is written, not run.

README.md, which is read on the web as well, has ordinary fences: ``console`` and ``python`` are run, and ``text`` after
``python`` is its output.

``sh`` after a comment ``<!-- first-hour: NAME -->`` is run by ``make first-hour`` alone.
"""

import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

_FENCE = re.compile(r"^(?P<fence>`{3,})\{run\} (?P<language>\S+)\n(?P<body>.*?)^(?P=fence)$", re.M | re.S)
_PLAIN = re.compile(r"^```(?P<language>console|python|text)\n(?P<body>.*?)^```$", re.M | re.S)
_SCRIPT = re.compile(r"^<!-- first-hour: (?P<name>\S+) -->\n```sh\n(?P<body>.*?)^```$", re.M | re.S)
_OPTION = re.compile(r"^:(?P<name>[a-z]+):[ ]*(?P<value>.*)$")


@dataclass(frozen=True)
class Block:
    """One block to be run.

    Attributes:
        language: what follows ``{run}``.
        text: its lines without options.
        options: by name.
        line: of its fence in the page, from 1.
    """

    language: str
    text: str
    line: int
    options: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Command:
    """One command of a console block, and what it should print; None for anything."""

    text: str
    expected: str | None


class Shell:
    """Types commands one after the other: the folder and the environment that one leaves are the next one's."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        """``folder`` is where it begins, and has a file of its own."""
        self.folder = folder
        self.environment = dict(environment)
        self._state = folder / ".shell"

    def run(self, command: str, timeout: float | None = None) -> "subprocess.CompletedProcess[str]":
        """What a command prints, and its exit code."""
        remember = f"status=$?; {{ pwd; env -0; }} > '{self._state}'; exit $status"
        process = subprocess.run(
            ["bash", "-c", f"{command}\n{remember}"],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        folder, variables = self._state.read_text(encoding="utf-8").split("\n", 1)
        self.folder = Path(folder)
        self.environment = dict(variable.split("=", 1) for variable in variables.split("\0") if variable)
        return process


def blocks_of(page: Path) -> list[Block]:
    """The blocks of a page, in order."""
    source = page.read_text(encoding="utf-8")
    blocks = []
    for match in _FENCE.finditer(source):
        lines = match["body"].splitlines()
        options = {}
        while lines and (option := _OPTION.match(lines[0])):
            options[option["name"]] = option["value"].strip()
            del lines[0]
        text = "\n".join(lines).strip("\n") + "\n"
        blocks.append(Block(match["language"], text, source.count("\n", 0, match.start()) + 1, options))
    return blocks


def plain_blocks_of(page: Path) -> list[Block]:
    """The blocks of a page with ordinary fences that are run, in order."""
    source = page.read_text(encoding="utf-8")
    blocks: list[Block] = []
    for match in _PLAIN.finditer(source):
        language = match["language"]
        if language == "text":
            if not blocks or blocks[-1].language != "python":
                continue
            language = "output"
        blocks.append(Block(language, match["body"], source.count("\n", 0, match.start()) + 1))
    return blocks


def scripts_of(page: Path) -> dict[str, str]:
    """What ``make first-hour`` runs of a page, by name, in order."""
    return {match["name"]: match["body"] for match in _SCRIPT.finditer(page.read_text(encoding="utf-8"))}


def commands_of(block: Block) -> list[Command]:
    """The commands of a console block.

    Raises ValueError if it does not start with one.
    """
    commands: list[tuple[list[str], list[str]]] = []
    for line in block.text.splitlines():
        if line.startswith("$ "):
            commands.append(([line[2:]], []))
        elif not commands:
            raise ValueError(f"The console block in line {block.line} does not start with a command: '$ ...'.")
        elif line.startswith("> ") and not commands[-1][1]:
            commands[-1][0].append(line[2:])
        else:
            commands[-1][1].append(line)
    return [Command("\n".join(text), "\n".join(printed) if printed else None) for text, printed in commands]


def fits(printed: str, expected: str) -> bool:
    """Whether a program printed what the page shows; ``...`` stands for any text, and runs of blanks are alike."""
    text = " ".join(printed.split())
    first, *between = (" ".join(part.split()) for part in expected.split("..."))
    if not between:
        return text == first
    last = between.pop()
    if not text.startswith(first):
        return False
    # Each part is taken as early as it comes, which leaves the most text to those after it: no search goes back.
    begin = len(first)
    for part in between:
        begin = text.find(part, begin) + len(part)
        if begin < len(part):
            return False
    return len(text) - len(last) >= begin and text.endswith(last)
