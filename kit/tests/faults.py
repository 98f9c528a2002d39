"""What is known of a fault: where it is, and which test of the kit has to catch it.

Device libraries with one are made by test/plugins/faulty.c, where each has its row (faulty_devices.py); what is broken
above the library is in broken_operators.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

CRASHED = "crashed while running"


@dataclass(frozen=True)
class Fault:
    """A fault, and what the kit must say of it.

    Attributes:
        name: says what is wrong.
        caught_by: the id of a test that must fail, as reports have it.
        words: what its failure must say; CRASHED if the fault ends the process.
        over: the good device that it is in; "example" is that of examples/kernels.
        options: the good device's, as environment variables.
        seconds: how long the test may take; several times what it waits for something at most.
        module: what makes it, above the library; "" for faulty.c, in the library.
    """

    name: str
    caught_by: str
    words: str
    over: str = "xcpu"
    options: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 40.0
    module: str = ""

    def __str__(self) -> str:
        """Its name and the test, without parameters."""
        return f"{self.name}-{self.caught_by.rpartition('::')[2].partition('[')[0]}"
