"""Elements side by side, of which an item has several at once."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from torch_backend.compile.modules.loop_ir import Block, Declaration, Index, Node, Statement, leaves

COUNT = 8
"""Elements that an item reads before it writes any: 16 bytes of the half types."""
_MOST_BYTES = 256
"""Of what an item reads at once, which has to fit into its registers."""
_ACCESS = re.compile(r"TB_(?:LOAD|STORE)_[a-z]+(\d+)\(")
"""What loads or stores an element, of so many bits."""


@dataclass(frozen=True)
class Vector:
    """Elements of ``place`` that an item has as ``name``."""

    place: str
    name: str
    size: int
    """In bytes."""

    @property
    def type(self) -> str:
        """As preludes have it."""
        return f"tb_bytes<{self.size}>"

    @property
    def there(self) -> str:
        """The one of the loop, in memory."""
        return f"((TB_GLOBAL {self.type}*){self.place})[vector]"


def vectors_of(lines: list[Node], is_side_by_side: Callable[[Index], bool]) -> dict[int, Vector]:
    """Of what ``lines`` read and write, by the numbers of lines; {}: nothing, or it may not be at once."""
    found: dict[int, Vector] = {}
    stored = False
    for number, line in enumerate(lines):
        if not isinstance(line, (Declaration, Statement)):
            continue
        is_load = isinstance(line, Declaration)
        access = _ACCESS.match(line.value.form)
        if leaves(line) or (is_load and stored and access):
            return {}  # vectors are read first, and written whole
        stored |= not is_load
        if access and is_side_by_side(line.value.operands[1]):
            place = str(line.value.operands[0])
            found[number] = Vector(place, f"{place}_{'read' if is_load else 'made'}", int(access[1]) * COUNT // 8)
    return found if sum(vector.size for vector in set(found.values())) <= _MOST_BYTES else {}


def in_vectors(vectors: dict[int, Vector], lines: list[Node], places: list[Node]) -> list[Node]:
    """What ``lines`` do for all elements of xnumel, where ``places`` are those of element xindex.

    Vectors serve where buffers are aligned and the device has them; what is left is done element by element.
    """
    inner: list[Node] = []
    read: dict[Vector, None] = {}
    made: dict[Vector, None] = {}
    for number, line in enumerate(lines):
        if number in vectors and isinstance(line, (Declaration, Statement)):
            vector = vectors[number]
            (read if isinstance(line, Declaration) else made)[vector] = None
            operands = (f"((TB_GLOBAL char*)&{vector.name})", "ahead", *line.value.operands[2:])
            line = replace(line, value=replace(line.value, operands=operands))
        inner.append(line)
    each = [f"const Index xindex = vector * {COUNT} + ahead;", *places, *inner]
    at_once: list[Node] = [
        *(f"const {vector.type} {vector.name} = {vector.there};" for vector in read),
        *(f"{vector.type} {vector.name};" for vector in made),
        *("TB_UNROLL", Block(f"for (int ahead = 0; ahead < {COUNT}; ++ahead)", each)),
        *(f"{vector.there} = {vector.name};" for vector in made),
    ]
    addresses = " | ".join(f"(size_t){place}" for place in dict.fromkeys(vector.place for vector in vectors.values()))
    aligned: list[Node] = [f"done = xnumel / {COUNT} * {COUNT};", Block(f"TB_FOR(vector, xnumel / {COUNT})", at_once)]
    return [
        "Index done = 0;",
        *("#ifdef TB_HAS_VECTORS", Block(f"if ((({addresses}) & 15) == 0)", aligned), "#endif"),
        Block("TB_FOR(rest, xnumel - done)", ["const Index xindex = done + rest;", *places, *lines]),
    ]
