"""What a diagnosis finds."""

from dataclasses import dataclass
from enum import Enum


class Severity(Enum):
    """How bad it is."""

    OK = "ok"
    NOTE = "note"
    PROBLEM = "problem"


@dataclass(frozen=True)
class Finding:
    """One thing that was found.

    Attributes:
        severity: only a PROBLEM means that something is wrong.
        subject: what it is about: "torch", "TORCH_BACKEND_PATH", "acme (entry point 'acme' of torch_acme 1.0)".
        text: what is so.
        todo: what to do; "" if the text says it, and if there is nothing to do.
    """

    severity: Severity
    subject: str
    text: str
    todo: str = ""

    def __str__(self) -> str:
        """All of it, what to do on a line of its own."""
        return f"{self.subject}: {self.text}" + (f"\n{self.todo}" if self.todo else "")


def ok(subject: str, text: str) -> Finding:
    """What is in order."""
    return Finding(Severity.OK, subject, text)


def note(subject: str, text: str, todo: str = "") -> Finding:
    """What may surprise somebody."""
    return Finding(Severity.NOTE, subject, text, todo)


def problem(subject: str, text: str, todo: str = "") -> Finding:
    """What is wrong."""
    return Finding(Severity.PROBLEM, subject, text, todo)
