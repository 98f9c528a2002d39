"""What NVIDIA's compilers make of the generated kernels, and how those are launched, against the table in shows.toml.

No GPU takes part: the simulated device writes down what it would compile and launch. The libraries and nvdisasm come
from PyPI. KERNEL_TEXTS is a folder with more texts, which are compiled too. What was found is in the project's
build/kernels/table.md.
"""

import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

import pytest
import sass
from nvrtc import Compiled, Compiler, compile_all
from recording import MULTIPROCESSORS, Call, recorded, texts_in
from torch_conformance.simulation import libraries

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PROJECT = Path(__file__).parents[2]
TOOLS = PROJECT / "build" / "tools"
OURS = PROJECT / "build" / "kernels"
NVRTC = {12: TOOLS / "nvidia/cuda_nvrtc/lib/libnvrtc.so.12", 13: TOOLS / "nvidia/cu13/lib/libnvrtc.so.13"}
NVDISASM = TOOLS / "nvidia/cu13/bin/nvdisasm"
ARCHS = ("sm_75", "sm_80", "sm_90", "sm_100")
# What the table is about. The other pairs have each text once between them.
CHECKED = (13, "sm_90")
OTHERS = [pair for pair in ((major, arch) for major in NVRTC for arch in ARCHS) if pair != CHECKED]
TABLE = tomllib.loads((Path(__file__).parent / "shows.toml").read_text(encoding="utf-8"))
ENOUGH_BYTES = 1.1  # times the least
COLUMNS = (
    *("family", "call", "text", "kernel", "compiler", "registers", "stack"),
    *("loads", "stores", "shuffles", "atomics", "blocks", "bytes"),
)


@pytest.fixture(scope="session", autouse=True)
def _tools() -> None:
    missing = [path for path in (*NVRTC.values(), NVDISASM) if not path.exists()]
    assert not missing, f"{missing[0]} is missing: `make test-vendor-cuda` installs what pyproject.toml lists as tools"


@cache
def calls() -> tuple[list[Call], dict[str, Path]]:
    return recorded(libraries(PROJECT), OURS)


@cache
def compiled(major: int, arch: str) -> dict[str, Compiled]:
    """The texts of the calls, or this pair's part of them."""
    texts = calls()[1]
    names = {*dealt(texts, major, arch), *of_arch(texts_elsewhere(), texts, arch)}
    return compile_all(NVRTC[major], arch, texts, sorted(names), OURS / "known")


def dealt(texts: dict[str, Path], major: int, arch: str) -> list[str]:
    part = list(texts) if (major, arch) == CHECKED else list(texts)[OTHERS.index((major, arch)) :: len(OTHERS)]
    return of_arch(part, texts, arch)


def of_arch(names: Iterable[str], texts: dict[str, Path], arch: str) -> list[str]:
    """But those with matrix units, which are made for devices since sm_80 alone."""
    return [name for name in names if arch != "sm_75" or "#define MATRICES 1" not in texts[name].read_text()]


def without_messages(found: dict[str, Compiled], texts: dict[str, Path]) -> None:
    said = {texts[name]: each.log for name, each in found.items() if each.log}
    kinds = Counter(kind for log in said.values() for kind in set(re.findall(r"(?:warning|error) #\S+|error: .*", log)))
    path, log = next(iter(said.items()), (None, ""))
    assert not said, f"messages for {len(said)} of {len(found)} texts, {dict(kinds)}; {path}:\n{log[:3000]}"
    assert all(each.code for each in found.values())


# ---- the compilers ----


@pytest.mark.parametrize(("major", "arch"), [CHECKED, *OTHERS])
def test_it_compiles_without_a_message(major: int, arch: str) -> None:
    without_messages(compiled(major, arch), calls()[1])
    if folder := os.environ.get("KERNEL_TEXTS"):
        texts = texts_in(Path(folder))
        assert texts, f"no texts in {folder}"
        without_messages(compile_all(NVRTC[major], arch, texts, dealt(texts, major, arch), OURS / "known"), texts)


@pytest.mark.parametrize(("major", "arch"), [(12, "sm_75"), (13, "sm_90"), (13, "sm_100")])
def test_code_is_read_as_nvdisasm_reads_it(tmp_path: Path, major: int, arch: str) -> None:
    """Of texts that have, between them, all kinds of instructions that are found anywhere."""
    texts, found = calls()[1], compiled(*CHECKED)
    known = {name: found[name] for name in of_arch(found, texts, arch)}
    kinds = {kind for each in known.values() if each.code for kind in each.code.instructions}
    chosen = []
    for name in sorted(known, key=lambda name: len(known[name].code.instructions) if known[name].code else 0)[::-1]:
        if kinds & set(known[name].code.instructions if known[name].code else ()):
            chosen.append(name)
            kinds -= set(known[name].code.instructions)
    compiler = Compiler(NVRTC[major])
    for name in chosen:
        _, cubin = compiler.compile(texts[name].read_text(), arch)
        (tmp_path / "cubin").write_bytes(cubin)
        said = subprocess.run([NVDISASM, "-c", tmp_path / "cubin"], capture_output=True, text=True, check=True).stdout
        assert sass.read(cubin).instructions == dict(sorted(_kinds_in(said).items())), name


def _kinds_in(disassembled: str) -> Counter[str]:
    kinds: Counter[str] = Counter()
    named = {"ATOMG": "ATOM", "REDG": "RED", **{kind: kind for kind in sass.OPCODES.values()}}
    for opcode, rest in re.findall(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+ +)?(\w+)(\S*)", disassembled, re.MULTILINE):
        if opcode in named:
            kinds["CAS" if named[opcode] == "ATOM" and ".CAS" in rest else named[opcode]] += 1
    return kinds


# ---- the table ----


class Shown:
    """A call, and what it shows on the architecture that is checked."""

    def __init__(self, call: Call) -> None:
        found = compiled(*CHECKED)
        self.call = call
        self.codes = [code for text in call.texts if (code := found[text].code)]
        self.blocks = max((launch.blocks for launch in call.launches), default=0)
        kinds = {kind for code in self.codes for kind in code.instructions}
        self.load = max((code.load for code in self.codes), default=0)
        self.good = {
            "no stack": not any(code.uses_local_memory for code in self.codes),
            "vectors": self.load >= 16,
            "shuffles": "SHFL" in kinds,
            "adds": bool(kinds & {"RED", "ATOM"}),
            "matrices": "HMMA" in kinds,
            "blocks": self.blocks >= MULTIPROCESSORS,
            "bytes": call.moved <= ENOUGH_BYTES * call.least,
            "memory": call.spare <= (ENOUGH_BYTES - 1) * call.least,
        }


@cache
def shown() -> list[Shown]:
    return [Shown(call) for call in calls()[0]]


def family_of(name: str) -> dict:
    """The one of the table that lists a call."""
    found = [family for family in TABLE["family"] if any(fnmatchcase(name, pattern) for pattern in family["calls"])]
    assert len(found) == 1, f"shows.toml has {len(found)} families for the call {name!r}"
    return found[0]


def why_short(name: str, what: str) -> str:
    """Why a call does not show something; "": it does."""
    for entry in TABLE["short"]:
        if entry["lacks"] == what and any(fnmatchcase(name, pattern) for pattern in entry["calls"]):
            return entry["why"]
    return ""


def wanted_of(name: str) -> list[str]:
    return ["no stack", *family_of(name)["shows"]]


def test_calls_show_what_the_table_says() -> None:
    wrong, better = [], []
    for each in shown():
        for what in wanted_of(each.call.name):
            short = why_short(each.call.name, what)
            if not each.good[what] and not short:
                wrong.append(f"{each.call.name}: {what}: {facts_of(each)}")
            if each.good[what] and short:
                better.append(f"{each.call.name}: {what}: {short}")
    assert not wrong, "these show less than shows.toml says:\n" + "\n".join(wrong)
    assert not better, "these show more than shows.toml says, which should say so:\n" + "\n".join(better)


def test_the_table_is_about_calls_that_there_are() -> None:
    names = [each.name for each in calls()[0]]
    assert len(set(names)) == len(names)
    for family in TABLE["family"]:
        for pattern in family["calls"]:
            assert any(fnmatchcase(name, pattern) for name in names), pattern
    assert all(
        any(fnmatchcase(name, each) for name in names) for entry in TABLE["elsewhere"] for each in entry["calls"]
    )
    for entry in TABLE["short"]:
        for pattern in entry["calls"]:
            found = [name for name in names if fnmatchcase(name, pattern)]
            assert any(entry["lacks"] in wanted_of(name) for name in found), f"{entry['lacks']}: {pattern}"


def test_no_local_memory_on_other_architectures() -> None:
    """But where the table knows that there is some."""
    known = {text for call in calls()[0] if why_short(call.name, "no stack") for text in call.texts}
    elsewhere = texts_elsewhere()
    found = {
        name: f"{name}: NVRTC {major}, {arch}"
        for major, arch in OTHERS
        for name, each in compiled(major, arch).items()
        if each.code and each.code.uses_local_memory and name not in known
    }
    assert not [found[name] for name in found if name not in elsewhere]
    assert all(any(text in found for text in call.texts) for call in calls()[0] if is_elsewhere(call.name))


def is_elsewhere(name: str) -> bool:
    return any(fnmatchcase(name, pattern) for entry in TABLE["elsewhere"] for pattern in entry["calls"])


def texts_elsewhere() -> set[str]:
    return {text for call in calls()[0] if is_elsewhere(call.name) for text in call.texts}


def facts_of(each: Shown) -> str:
    kinds: Counter[str] = Counter()
    for code in each.codes:
        kinds.update(code.instructions)
    atomics = {kind: kinds[kind] for kind in ("RED", "ATOM", "CAS") if kinds[kind]}
    return (
        f"stack {max((code.stack for code in each.codes), default=0)}, loads of {each.load} bytes, "
        f"{kinds['SHFL']} shuffles, {atomics or 'no'} atomics, {each.blocks} blocks, "
        f"{each.call.moved / max(each.call.least, 1):.2f} of the least bytes"
    )


def test_everything_is_written_down() -> None:
    lines = [f"| {' | '.join(COLUMNS)} |", "|---" * len(COLUMNS) + "|"]
    lines += [row for call in calls()[0] for row in _rows_of(call)]
    (OURS / "table.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _rows_of(call: Call) -> Iterator[str]:
    moved = f"{call.moved / max(call.least, 1):.2f}"
    for text in call.texts:
        launches = [launch for launch in call.launches if launch.text == text]
        for major, arch in (CHECKED, *OTHERS):
            if code := getattr(compiled(major, arch).get(text), "code", None):
                kinds = code.instructions
                atomics = " ".join(f"{kind} {kinds[kind]}" for kind in ("RED", "ATOM", "CAS") if kind in kinds)
                blocks = max(launch.blocks for launch in launches)
                cells = [call.family, call.name, text, launches[0].kernel, f"{major} {arch}", code.registers]
                cells += [code.stack, code.load, code.store, kinds.get("SHFL", 0), atomics, blocks, moved]
                yield f"| {' | '.join(map(str, cells))} |"
