"""NVIDIA's compilers, without a GPU, and what they make of the texts of kernels."""

import ctypes
import fcntl
import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import sass

# The code that reads a cubin is part of what is known of it.
READER = hashlib.sha256(Path(sass.__file__).read_bytes()).hexdigest()[:16]


@dataclass(frozen=True)
class Compiled:
    """A text after a compiler has had it.

    Attributes:
        log: what the compiler says, warnings included; "" for a text that it has nothing to say of.
        code: of the kernel; None where it was refused.
    """

    log: str
    code: sass.Kernel | None


class Compiler:
    """One libnvrtc. Threads: any, and several at a time."""

    def __init__(self, library: Path) -> None:
        self._library = ctypes.CDLL(str(library))
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
        self.version = f"{major.value}.{minor.value}"

    def compile(self, text: str, arch: str) -> tuple[str, bytes]:
        """The compiler's messages and the cubin, empty if it refuses.

        The first line of ``text`` has the options, as the simulated NVRTC writes them down.
        """
        options = [each.encode() for each in text.partition("\n")[0].split()[1:] if not each.startswith("-arch=")]
        options.append(f"-arch={arch}".encode())
        program = ctypes.c_void_p()
        self._library.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"module.cu", 0, None, None)
        try:
            error = self._library.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
            log = self._taken(program, "ProgramLog").rstrip(b"\0").decode(errors="replace")
            return log.strip(), b"" if error else self._taken(program, "CUBIN")
        finally:
            self._library.nvrtcDestroyProgram(ctypes.byref(program))

    def _taken(self, program: ctypes.c_void_p, what: str) -> bytes:
        size = ctypes.c_size_t()
        getattr(self._library, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
        taken = ctypes.create_string_buffer(size.value)
        getattr(self._library, f"nvrtcGet{what}")(program, taken)
        return taken.raw


def compile_all(
    library: Path, arch: str, texts: Mapping[str, Path], names: Iterable[str], known: Path
) -> dict[str, Compiled]:
    """The texts called ``names``, for ``arch``. The folder ``known`` keeps what a compiler has had before."""
    compiler = Compiler(library)
    kept = known / f"{compiler.version}-{arch}-{READER}.json"
    known.mkdir(parents=True, exist_ok=True)
    with kept.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = json.loads(kept.read_text()) if kept.exists() else {}
        missing = [name for name in names if name not in done]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            found = pool.map(lambda name: compiler.compile(texts[name].read_text(), arch), missing)
            for number, (name, (log, cubin)) in enumerate(zip(missing, found, strict=True), 1):
                done[name] = asdict(Compiled(log, sass.read(cubin) if cubin else None))
                if number % 100 == 0 or number == len(missing):
                    kept.with_suffix(".new").write_text(json.dumps(done))
                    kept.with_suffix(".new").replace(kept)
    return {
        name: Compiled(done[name]["log"], sass.Kernel(**done[name]["code"]) if done[name]["code"] else None)
        for name in names
    }
