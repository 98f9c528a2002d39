"""What can be seen of a device library without opening it."""

import difflib
import os
import platform
import re
import struct
from collections.abc import Iterator

from torch_backend.abi import ENTRY_NAME
from torch_backend.diagnosis.finding import Finding, problem
from torch_backend.files import elf, location

_ELF = b"\x7fELF"
_SHARED_OBJECT = 3
# e_machine of the ELF header by what platform.machine() says.
_MACHINES = {
    "x86_64": 62,
    "aarch64": 183,
    "riscv64": 243,
    "ppc64le": 21,
    "s390x": 22,
    "loongarch64": 258,
    "i686": 3,
    "armv7l": 40,
}
_REBUILD = "Build it for this machine, or install the package for it."


def examine(subject: str, path: str) -> Iterator[Finding]:
    """What keeps the file at ``path`` from being a device library for this process; of a module nothing is known."""
    if location.is_reference(path):
        return
    if not os.path.lexists(path):
        yield problem(subject, f"There is no file '{path}'.", "Build the library, or correct the path.")
    elif not os.path.exists(path):
        yield problem(
            subject, f"'{path}' is a link to '{os.readlink(path)}', which does not exist.", "Correct the link."
        )
    elif not os.path.isfile(path):
        yield problem(subject, f"'{path}' is not a file.", "Name the library, libtorch_backend_<name>.so.")
    elif not os.access(path, os.R_OK):
        yield problem(
            subject,
            f"'{path}' may not be read by the user {_user()}.",
            f"Allow it: chmod a+r {path}, and search permission (x) for every directory above it.",
        )
    else:
        yield from _examine_contents(subject, path)


def _examine_contents(subject: str, path: str) -> Iterator[Finding]:
    with open(path, "rb") as file:
        contents = file.read()
    if not contents.startswith(_ELF):
        beginning = "It is empty." if not contents else f"It begins with {contents[:24]!r}."
        yield problem(
            subject,
            f"'{path}' is not a shared library: an ELF file is expected. {beginning}",
            "Name the library that the linker wrote (cc -shared), not a source file, archive or placeholder.",
        )
        return
    if fault := elf.fault_of(path):
        yield problem(subject, *fault.split(". ", 1))
        return
    order = "<" if contents[5] == 1 else ">"
    kind, machine = struct.unpack_from(f"{order}HH", contents, 16)
    expected = _MACHINES.get(platform.machine())
    bits = 64 if contents[4] == 2 else 32
    if (expected is not None and machine != expected) or bits != struct.calcsize("P") * 8:
        names = {number: name for name, number in _MACHINES.items()}
        built_for = names.get(machine, f"machine {machine}")
        yield problem(
            subject,
            f"'{path}' is built for {built_for} with {bits} bits; this Python runs on {platform.machine()} with "
            f"{struct.calcsize('P') * 8}.",
            _REBUILD,
        )
    elif kind != _SHARED_OBJECT:
        yield problem(subject, f"'{path}' is an ELF file but no shared library.", "Link it with -shared -fPIC.")
    elif _has_mangled_entry(contents):
        yield problem(
            subject,
            f"'{path}' has a C++ function {ENTRY_NAME}, whose name the compiler has changed, and none of C's.",
            "Include torch_backend/device.h where it is defined, with the signature declared there, or mark it "
            'extern "C" TB_EXPORT.',
        )
    elif similar := _misspelled_entry(contents):
        yield problem(
            subject,
            f"'{path}' has no {ENTRY_NAME}, but {similar}.",
            f"Rename that function to {ENTRY_NAME}: torch_backend/device.h declares it.",
        )


def _has_mangled_entry(contents: bytes) -> bool:
    """Whether the name is only there as C++ spells it, with its length before it: _Z15tb_plugin_entryPK7tb_host."""
    name = ENTRY_NAME.encode()
    return b"_Z%d%s" % (len(name), name) in contents and b"\0%s\0" % name not in contents


def _misspelled_entry(contents: bytes) -> str | None:
    """A name in the file that is nearly the entry's, if the entry's is not there."""
    if ENTRY_NAME.encode() in contents:
        return None
    names = {name.decode() for name in re.findall(rb"(?<=\0)[A-Za-z]\w{8,23}(?=\0)", contents)}
    return next(iter(difflib.get_close_matches(ENTRY_NAME, sorted(names), n=1, cutoff=0.8)), None)


def _user() -> str:
    return str(os.environ.get("USER") or os.getuid())
