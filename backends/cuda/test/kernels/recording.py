"""What the device compiles and launches for the calls of recorded_calls.py: one run for as long as nothing changes."""

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path

import torch_backend_xcuda

import torch_backend

PROGRAM = Path(__file__).parents[1] / "programs" / "recorded_calls.py"
LIBRARIES = ("libcuda.so.1", "libnvrtc.so.12")  # what others would compute is generated
MULTIPROCESSORS = 132  # of an H100


@dataclass(frozen=True)
class Launch:
    """One of a call.

    Attributes:
        text: the name of the kernel's text.
        kernel: of the function.
    """

    text: str
    kernel: str
    blocks: int
    items: int
    shared: int


@dataclass(frozen=True)
class Call:
    """A call of an operator.

    Attributes:
        moved: bytes that its launches read or write, each operand and result once by each launch that is given it.
        least: bytes of operands and results.
        spare: bytes that it has allocated besides.
    """

    family: str
    name: str
    moved: int
    least: int
    spare: int
    launches: tuple[Launch, ...]

    @property
    def texts(self) -> list[str]:
        return list(dict.fromkeys(launch.text for launch in self.launches))


def recorded(simulation: Path, folder: Path) -> tuple[list[Call], dict[str, Path]]:
    """The calls, and the texts by their names. Processes may ask at once."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        state = _state(simulation)
        kept = folder / "state"
        if not kept.exists() or kept.read_text() != state:
            _record(simulation, folder)
            kept.write_text(state)
    lines = (folder / "calls").read_text().splitlines()
    return [_call_of(json.loads(line)) for line in lines], texts_in(folder / "texts")


def texts_in(folder: Path) -> dict[str, Path]:
    return {path.stem: path for path in sorted(folder.glob("*.cu"))}


def _call_of(line: dict) -> Call:
    launches = tuple(
        Launch(each["text"], each["kernel"], _size(each["grid"]), _size(each["block"]), each["shared"])
        for each in line["launches"]
    )
    return Call(line["family"], line["name"], line["moved"], line["least"], line["spare"], launches)


def _size(extents: str) -> int:
    return prod(map(int, extents.split()))


def _state(simulation: Path) -> str:
    """Changes with whatever decides what is compiled and launched."""
    state = hashlib.sha256()
    for path in _sources(simulation):
        facts = path.stat()
        state.update(f"{path} {facts.st_size} {facts.st_mtime_ns}\n".encode())
    return state.hexdigest()


def _sources(simulation: Path) -> Iterator[Path]:
    for root in (*torch_backend.__path__, *torch_backend_xcuda.__path__):
        for pattern in ("**/*.py", "**/*.so"):
            yield from sorted(Path(root).glob(pattern))
    yield from (simulation / library for library in LIBRARIES)
    yield PROGRAM


def _record(simulation: Path, folder: Path) -> None:
    for name in ("texts", "libraries", "caches"):
        shutil.rmtree(folder / name, ignore_errors=True)
        (folder / name).mkdir()
    for library in LIBRARIES:
        shutil.copy(simulation / library, folder / "libraries")
    settings = {
        "TORCH_BACKEND": "xcuda",
        "TORCH_BACKEND_CACHE": str(folder / "caches"),
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "caches"),
        "TORCH_BACKEND_XCUDA_LIBRARY_PATH": str(folder / "libraries"),
        "CUDA_SIM_RECORD": str(folder / "texts"),
        "CUDA_SIM_RUN": "0",
        "CUDA_SIM_DEVICES": "1",
        "CUDA_SIM_MULTIPROCESSORS": str(MULTIPROCESSORS),
        "CUDA_SIM_MEMORY_MIB": "32768",  # of which almost nothing is touched
        "CUDA_SIM_LOG": str(folder / "texts" / "refusals"),
    }
    done = subprocess.run([sys.executable, PROGRAM], env=os.environ | settings, capture_output=True, text=True)
    refusals = folder / "texts" / "refusals"
    assert done.returncode == 0, done.stderr[-3000:]
    assert not refusals.exists(), refusals.read_text()
    (folder / "calls").write_text(done.stdout)
