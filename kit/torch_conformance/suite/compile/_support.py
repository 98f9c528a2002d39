"""Compiling something, and counting how often that happens."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch._dynamo.testing import CompileCounter

Compiled = TypeVar("Compiled", bound=Callable[..., Any])


def compiled(function: Compiled, **options: Any) -> Compiled:
    """``function``, captured as one graph, differentiated ahead of time, and run operator by operator."""
    torch.compiler.reset()
    return torch.compile(function, backend="aot_eager", fullgraph=True, **options)


@contextmanager
def counter() -> Iterator[CompileCounter]:
    """A compiler backend that counts how many graphs it is given, ``counter.frame_count``."""
    torch.compiler.reset()
    yield CompileCounter()
    torch.compiler.reset()
