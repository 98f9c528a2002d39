"""What is wrong with declarations, where, all at once."""

from collections.abc import Mapping
from dataclasses import dataclass, field

Path = tuple[str | int, ...]
"""Where something is in a document: list indices and keys, from the top."""


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong."""

    where: str
    """File and line as far as they are known; may be empty."""
    entry: str
    """The operator, as "acme::rotary", or which entry it is."""
    message: str

    def __str__(self) -> str:
        """File, line, entry and message."""
        return ": ".join(part for part in (self.where, self.entry, self.message) if part)


class DeclarationError(ValueError):
    """Declarations of operators are wrong; the message lists every fault. Nothing was registered."""

    def __init__(self, faults: tuple[Fault, ...]) -> None:
        """Of ``faults``, at least one."""
        self.faults = faults
        count = "1 fault" if len(faults) == 1 else f"{len(faults)} faults"
        super().__init__(f"{count} in the declaration of operators:\n" + "\n".join(f"  {fault}" for fault in faults))


@dataclass
class Faults:
    """Collects the faults of one document."""

    source: str = ""
    lines: Mapping[Path, int] = field(default_factory=dict)
    found: list[Fault] = field(default_factory=list)

    def add(self, path: Path, entry: str, message: str) -> None:
        """Something is wrong at ``path``."""
        fault = Fault(self._where(path), entry, message)
        if fault not in self.found:
            self.found.append(fault)

    def check(self) -> None:
        """Raise DeclarationError if there are any."""
        if self.found:
            raise DeclarationError(tuple(self.found))

    def _where(self, path: Path) -> str:
        for length in range(len(path), -1, -1):
            line = self.lines.get(path[:length])
            if line is not None:
                return f"{self.source}:{line}"
        return self.source
