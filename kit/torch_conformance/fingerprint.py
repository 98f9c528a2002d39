"""A hash of the suite: two runs with the same one have run the same tests."""

import hashlib
from functools import cache

from torch_conformance.levels import SUITE

_DIGITS = 12


@cache
def of_suite() -> str:
    """The hash, 12 hexadecimal digits, of the sources of all tests and of what they share."""
    found = hashlib.sha256()
    for file in sorted(SUITE.rglob("*.py")):
        content = file.read_bytes()
        found.update(f"{file.relative_to(SUITE).as_posix()}\0{len(content)}\0".encode())
        found.update(content)
    return found.hexdigest()[:_DIGITS]
