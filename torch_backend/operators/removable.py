"""What can be taken back, by a call or at the end of a with statement."""

from abc import ABC, abstractmethod
from types import TracebackType

from typing_extensions import Self  # comes with torch


class Removable(ABC):
    """A registration that lasts until :meth:`remove`, or until the with statement it is used in ends."""

    @abstractmethod
    def remove(self) -> None:
        """Take it back. Twice is once."""

    def __enter__(self) -> Self:
        """It is in force already."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Take it back."""
        self.remove()
