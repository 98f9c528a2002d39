"""What a cubin has: registers, stack, and how many instructions of each kind, for devices since sm_75.

nvdisasm says the same, but takes half a second for each: a test compares the two.
"""

import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

# The low nine bits of an instruction; those above them say where its operands are.
OPCODES = {
    0x181: "LDG",
    0x186: "STG",
    0x180: "LD",
    0x185: "ST",
    0x183: "LDL",
    0x187: "STL",
    0x184: "LDS",
    0x188: "STS",
    0x189: "SHFL",
    0x1A9: "CAS",
    0x1A8: "ATOM",
    0x1A3: "ATOM",
    0x18E: "RED",
    0x1A6: "RED",
    0x11D: "BAR",
    0x03C: "HMMA",
}
GLOBAL = ("LDG", "LD", "STG", "ST")  # LD and ST may go anywhere: what the compiler does not know
BYTES = (1, 1, 2, 2, 4, 8, 16, 32)  # by the three bits of a load or a store that say how wide it is
INSTRUCTION = struct.Struct("<QQ")
REGISTERS, FRAME, LEAST_STACK = 0x2F, 0x11, 0x12  # attributes of .nv.info


@dataclass(frozen=True)
class Kernel:
    """A kernel of a cubin.

    Attributes:
        stack: bytes of local memory of an item.
        shared: bytes of static shared memory of a block.
        instructions: of each kind of OPCODES.
        load, store: bytes of the widest access to global memory.
    """

    registers: int
    stack: int
    shared: int
    size: int
    instructions: dict[str, int]
    load: int
    store: int

    @property
    def uses_local_memory(self) -> bool:
        return bool(self.stack or self.instructions.get("LDL") or self.instructions.get("STL"))


def read(cubin: bytes) -> Kernel:
    """The one kernel of a cubin, or what is most of several."""
    registers = stack = shared = size = 0
    kinds: Counter[str] = Counter()
    widest = dict.fromkeys(GLOBAL, 0)
    for name, data, length in _sections(cubin):
        if name.startswith(".nv.info"):
            for attribute, value in _attributes(data):
                registers = max(registers, value) if attribute == REGISTERS else registers
                stack = max(stack, value) if attribute in (FRAME, LEAST_STACK) else stack
        elif name.startswith(".nv.shared."):
            shared = max(shared, length)
        elif name.startswith(".text."):
            for kind, width in instructions(data):
                kinds[kind] += 1
                size += 1
                if kind in widest:
                    widest[kind] = max(widest[kind], width)
    del kinds[""]
    return Kernel(registers, stack, shared, size, dict(sorted(kinds.items())), _most(widest, "LD"), _most(widest, "ST"))


def instructions(code: bytes) -> Iterator[tuple[str, int]]:
    """The kind of each, "" for all that is not of OPCODES, and how many bytes a load or store moves."""
    for low, high in INSTRUCTION.iter_unpack(code):
        kind = OPCODES.get(low & 0x1FF, "")
        yield kind, BYTES[high >> 9 & 7]


def _most(widest: dict[str, int], kind: str) -> int:
    return max(width for name, width in widest.items() if name.startswith(kind))


def _sections(cubin: bytes) -> Iterator[tuple[str, bytes, int]]:
    """Names, contents and lengths of the sections of an ELF file."""
    (table,) = struct.unpack_from("<Q", cubin, 0x28)
    entry, count, names = struct.unpack_from("<HHH", cubin, 0x3A)
    headers = [struct.unpack_from("<IIQQQQIIQQ", cubin, table + number * entry) for number in range(count)]
    start = headers[names][4]
    for header in headers:
        name = cubin[start + header[0] : cubin.index(b"\0", start + header[0])].decode()
        yield name, cubin[header[4] : header[4] + header[5]], header[5]


def _attributes(info: bytes) -> Iterator[tuple[int, int]]:
    """Of a section .nv.info those that are a number of a function."""
    at = 0
    while at + 4 <= len(info):
        form, attribute, size = struct.unpack_from("<BBH", info, at)
        at += 4
        if form == 4:  # others have their value in `size`
            if size == 8:
                yield attribute, struct.unpack_from("<II", info, at)[1]
            at += size
